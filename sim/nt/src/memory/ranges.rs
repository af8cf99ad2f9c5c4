// SPDX-License-Identifier: MIT OR Apache-2.0

//! An allocator of ranges of integers, for pages and addresses.

use std::collections::BTreeMap;

/// Free ranges, by start. Allocates after the last allocation first, so that a freed range is reused as late as
/// possible.
pub struct Ranges {
    free: BTreeMap<u64, u64>,
    cursor: u64,
}

impl Ranges {
    pub fn new(start: u64, end: u64) -> Self {
        Self { free: BTreeMap::from([(start, end - start)]), cursor: start }
    }

    /// Allocates `count` numbers, the first a multiple of `align`, all below `limit`.
    pub fn allocate(&mut self, count: u64, align: u64, limit: u64) -> Option<u64> {
        let fit = |start: u64, end: u64| {
            let first = start.next_multiple_of(align);
            let last = first.checked_add(count)?;
            (last <= end && last <= limit).then_some(first)
        };
        let cursor = self.cursor;
        let around = self.free.range(..cursor).next_back();
        let (range, first) = around
            .into_iter()
            .chain(self.free.range(cursor..))
            .map(|(&start, &length)| ((start, length), fit(start.max(cursor), start + length)))
            .chain(self.free.iter().map(|(&start, &length)| ((start, length), fit(start, start + length))))
            .find_map(|(range, first)| Some((range, first?)))?;
        self.free.remove(&range.0);
        if first > range.0 {
            self.free.insert(range.0, first - range.0);
        }
        let end = range.0 + range.1;
        if first + count < end {
            self.free.insert(first + count, end - first - count);
        }
        self.cursor = first + count;
        Some(first)
    }

    /// Allocates one number; returns `false` if it is not free.
    pub fn take(&mut self, number: u64) -> bool {
        let Some((&start, &length)) = self.free.range(..=number).next_back() else { return false };
        let end = start + length;
        if number >= end {
            return false;
        }
        if number > start {
            self.free.insert(start, number - start);
        } else {
            self.free.remove(&start);
        }
        if number + 1 < end {
            self.free.insert(number + 1, end - number - 1);
        }
        true
    }

    /// Frees numbers, which must be allocated.
    pub fn free(&mut self, start: u64, count: u64) {
        let (mut start, mut count) = (start, count);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            (start, count) = (before, length + count);
        }
        if let Some(after) = self.free.remove(&(start + count)) {
            count += after;
        }
        self.free.insert(start, count);
    }

    /// Returns how many numbers are free.
    pub fn available(&self) -> u64 {
        self.free.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn adjacent_freed_ranges_are_merged() {
        let mut ranges = Ranges::new(10, 20);
        let taken: Vec<_> = (0..5).map(|_| ranges.allocate(2, 1, u64::MAX).unwrap()).collect();
        assert_eq!(taken, [10, 12, 14, 16, 18]);
        assert_eq!(ranges.allocate(1, 1, u64::MAX), None);
        for start in [12, 18, 10, 16, 14] {
            ranges.free(start, 2);
        }
        assert_eq!(ranges.allocate(10, 1, u64::MAX), Some(10));
    }

    #[test]
    fn allocation_respects_alignment_and_limit() {
        let mut ranges = Ranges::new(1, 100);
        assert_eq!(ranges.allocate(4, 16, u64::MAX), Some(16));
        assert_eq!(ranges.allocate(4, 64, 68), Some(64));
        assert_eq!(ranges.allocate(4, 64, 68), None);
        assert_eq!(ranges.available(), 91);
    }

    #[test]
    fn a_number_is_taken_once_wherever_it_is_in_its_range() {
        let mut ranges = Ranges::new(1, 6);
        for number in [3, 1, 5, 2, 4] {
            assert!(ranges.take(number));
            assert!(!ranges.take(number));
        }
        assert!(!ranges.take(0) && !ranges.take(6));
        assert_eq!(ranges.available(), 0);
        for number in [5, 1, 3, 2, 4] {
            ranges.free(number, 1);
        }
        assert_eq!(ranges.allocate(5, 1, u64::MAX), Some(1));
    }

    #[test]
    fn freed_range_is_reused_late() {
        let mut ranges = Ranges::new(0, 100);
        let first = ranges.allocate(1, 1, u64::MAX).unwrap();
        ranges.free(first, 1);
        assert_ne!(ranges.allocate(1, 1, u64::MAX), Some(first));
    }
}
