// SPDX-License-Identifier: MIT OR Apache-2.0

//! One deadline per slot: an indexed binary heap, the earliest deadline first.
//!
//! Only [`Deadlines::reserve`] allocates.
use alloc::vec::Vec;

use crate::time::Instant;
use fallible::{AllocError, vec};

#[derive(Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, u32)>,
    /// Position of each slot in `heap`; `NONE` if the slot has no deadline.
    positions: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Deadlines {
    /// Makes room for the slots below `count`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), AllocError> {
        vec::reserve(&mut self.heap, count)?;
        vec::grow_to(&mut self.positions, count, || NONE)
    }

    /// Returns the earliest deadline and its slot.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Sets or removes a slot's deadline.
    pub(super) fn set(&mut self, slot: u32, deadline: Option<Instant>) {
        let Some(&position) = self.positions.get(slot as usize) else { return };
        match (position, deadline) {
            (NONE, None) => {}
            (NONE, Some(deadline)) => {
                let last = self.heap.len();
                // Capacity is reserved for every slot, and each is in the heap once.
                if vec::push_within_capacity(&mut self.heap, (deadline, slot)).is_ok() {
                    self.note(slot, last as u32);
                    self.settle(last);
                }
            }
            (position, Some(deadline)) => {
                if let Some(entry) = self.heap.get_mut(position as usize) {
                    entry.0 = deadline;
                }
                self.settle(position as usize);
            }
            (position, None) => {
                let position = position as usize;
                let last = self.heap.len().saturating_sub(1);
                self.swap(position, last);
                self.heap.pop();
                self.note(slot, NONE);
                if position < last {
                    self.settle(position);
                }
            }
        }
    }

    /// Moves the entry at `at` up or down to its position in heap order.
    fn settle(&mut self, mut at: usize) {
        while let Some(above) = at.checked_sub(1).map(|at| at / 2)
            && self.is_before(at, above)
        {
            self.swap(at, above);
            at = above;
        }
        loop {
            let left = at.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            // A position past the end counts as later than any deadline.
            let child = if self.is_before(right, left) { right } else { left };
            if !self.is_before(child, at) {
                break;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn at(&self, at: usize) -> Option<Instant> {
        self.heap.get(at).map(|&(deadline, _)| deadline)
    }

    /// Returns `true` if there is an entry at `a` that is due before the one at `b`.
    fn is_before(&self, a: usize, b: usize) -> bool {
        self.at(a).is_some_and(|a| self.at(b).is_none_or(|b| a < b))
    }

    fn swap(&mut self, a: usize, b: usize) {
        if let Ok([one, other]) = self.heap.get_disjoint_mut([a, b]) {
            core::mem::swap(one, other);
        }
        for at in [a, b] {
            if let Some(&(_, slot)) = self.heap.get(at) {
                self.note(slot, at as u32);
            }
        }
    }

    fn note(&mut self, slot: u32, position: u32) {
        if let Some(place) = self.positions.get_mut(slot as usize) {
            *place = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_always_the_earliest(
            steps in proptest::collection::vec((0u32..10, proptest::option::of(0u64..50)), 0..100),
        ) {
            let mut deadlines = Deadlines::default();
            deadlines.reserve(10).unwrap();
            let mut model = BTreeMap::new();
            for (slot, deadline) in steps {
                deadlines.set(slot, deadline.map(Instant::from_nanos));
                match deadline {
                    Some(deadline) => model.insert(slot, deadline),
                    None => model.remove(&slot),
                };
                let first = deadlines.first().map(|(deadline, _)| deadline.as_nanos());
                prop_assert_eq!(first, model.values().copied().min());
                if let Some((deadline, slot)) = deadlines.first() {
                    prop_assert_eq!(model.get(&slot), Some(&deadline.as_nanos()));
                }
                prop_assert_eq!(deadlines.heap.len(), model.len());
            }
        }
    }
}
