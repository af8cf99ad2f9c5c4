// SPDX-License-Identifier: MIT OR Apache-2.0

//! A position in a scatter/gather list.

use crate::work::Sge;

/// A position in a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SgeCursor {
    /// Offset in the whole list, in bytes.
    pub(crate) position: u32,
    element: u32,
    /// Offset in that element, in bytes.
    within: u32,
}

/// The list is shorter than the requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooShort;

impl SgeCursor {
    pub(crate) const START: Self = Self { position: 0, element: 0, within: 0 };

    /// Advances by `length` bytes. Calls `each` with every element on the way, the offset in it and the number of
    /// bytes; stops at its first error. The cursor moves only on success.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small packet; what is rare is out of line")]
    pub(crate) fn walk<E>(
        &mut self,
        sges: &[Sge],
        length: u32,
        short: E,
        mut each: impl FnMut(&Sge, u32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        // The usual range is in one element, and has bytes.
        if let Some(sge) = sges.get(self.element as usize)
            && let Some(rest) = sge.length.checked_sub(self.within)
            && length.wrapping_sub(1) < rest
        {
            each(sge, self.within, length)?;
            // Nothing wraps, as below.
            self.position = self.position.wrapping_add(length);
            if length == rest {
                self.element = self.element.wrapping_add(1);
                self.within = 0;
            } else {
                self.within = self.within.wrapping_add(length);
            }
            return Ok(());
        }
        self.walk_elements(sges, length, short, &mut each)
    }

    /// [`SgeCursor::walk`] of any range.
    #[inline(never)]
    fn walk_elements<E>(
        &mut self,
        sges: &[Sge],
        length: u32,
        short: E,
        each: &mut dyn FnMut(&Sge, u32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut cursor = *self;
        let mut left = length;
        while left > 0 {
            let Some(sge) = sges.get(cursor.element as usize) else { return Err(short) };
            let rest = sge.length.saturating_sub(cursor.within);
            let now = rest.min(left);
            if now > 0 {
                each(sge, cursor.within, now)?;
            }
            // Nothing wraps: `now` is at most `left` and at most what is left of the element, and lists are below 4 GiB.
            left = left.wrapping_sub(now);
            cursor.within = cursor.within.wrapping_add(now);
            cursor.position = cursor.position.wrapping_add(now);
            if now == rest {
                cursor.element = cursor.element.wrapping_add(1);
                cursor.within = 0;
            }
        }
        *self = cursor;
        Ok(())
    }

    /// Moves to `position`, from the current position if possible, else from the start.
    #[inline]
    pub(crate) fn seek(&mut self, sges: &[Sge], position: u32) -> Result<(), TooShort> {
        if position == self.position {
            return Ok(());
        }
        if position < self.position {
            *self = Self::default();
        }
        self.walk(sges, position.saturating_sub(self.position), TooShort, |_, _, _| Ok(()))
    }
}

/// Returns the total length in bytes; `None` if it is 2^32 or more.
#[inline]
pub(crate) fn total(sges: &[Sge]) -> Option<u32> {
    sges.iter().try_fold(0u32, |sum, sge| sum.checked_add(sge.length))
}

/// Copies as many elements as there is room for, and returns how many. For several: out of line.
#[inline(never)]
pub(crate) fn copy_sges(room: &mut [Sge], sges: &[Sge]) -> u32 {
    room.iter_mut().zip(sges).map(|(to, from)| *to = *from).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sge(address: u64, length: u32) -> Sge {
        Sge { address, length, key: 0 }
    }
    const LIST: [Sge; 4] = [sge(100, 3), sge(0xBAD, 0), sge(200, 5), sge(300, 1)];

    fn pieces(cursor: &mut SgeCursor, length: u32) -> Result<Vec<(u64, u32)>, TooShort> {
        let mut pieces = Vec::new();
        cursor.walk(&LIST, length, TooShort, |sge, within, len| {
            pieces.push((sge.address + u64::from(within), len));
            Ok(())
        })?;
        Ok(pieces)
    }

    //= R-QP-15
    #[test]
    fn elements_of_length_zero_are_skipped() {
        let mut cursor = SgeCursor::default();
        assert_eq!(pieces(&mut cursor, 4), Ok(vec![(100, 3), (200, 1)]));
        assert_eq!(pieces(&mut cursor, 5), Ok(vec![(201, 4), (300, 1)]));
        assert_eq!(pieces(&mut cursor, 1), Err(TooShort));
        assert_eq!(cursor.position, 9, "a walk that fails does not move the cursor");
    }

    #[test]
    fn seek_backward_restarts_at_the_beginning() {
        let mut cursor = SgeCursor::default();
        cursor.seek(&LIST, 8).unwrap();
        assert_eq!(pieces(&mut cursor, 1), Ok(vec![(300, 1)]));
        cursor.seek(&LIST, 2).unwrap();
        assert_eq!(pieces(&mut cursor, 2), Ok(vec![(102, 1), (200, 1)]));
        assert_eq!(cursor.seek(&LIST, 10), Err(TooShort));
    }

    proptest::proptest! {
        #[test]
        fn a_range_in_one_element_is_walked_as_any_other(
            lengths in proptest::collection::vec(0u32..5, 0..5),
            steps in proptest::collection::vec((0u32..6, proptest::bool::weighted(0.1)), 1..12),
        ) {
            let list: Vec<Sge> = lengths.iter().map(|&length| sge(u64::from(length), length)).collect();
            let (mut usual, mut any) = (SgeCursor::START, SgeCursor::START);
            for (length, refused) in steps {
                let (mut seen, mut expected) = (Vec::new(), Vec::new());
                let each = |seen: &mut Vec<_>, element: &Sge, within, len| {
                    seen.push((*element, within, len));
                    if refused { Err(1) } else { Ok(()) }
                };
                let first = usual.walk(&list, length, 0, |element, within, len| each(&mut seen, element, within, len));
                let second =
                    any.walk_elements(&list, length, 0, &mut |element, within, len| each(&mut expected, element, within, len));
                proptest::prop_assert_eq!((first, seen, usual), (second, expected, any));
            }
        }
    }

    #[test]
    fn totals_do_not_wrap() {
        assert_eq!(total(&LIST), Some(9));
        assert_eq!(total(&[sge(0, u32::MAX), sge(0, 1)]), None);
    }
}
