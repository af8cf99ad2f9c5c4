//! One deadline per slot, the earliest at hand: a binary heap that knows where each slot stands.
//!
//! Memory is taken by [`Deadlines::reserve`] only.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "slots lie below the reserved count, positions below the heap's length"
)]

use alloc::{collections::TryReserveError, vec::Vec};

use crate::Instant;

#[derive(Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, u32)>,
    /// Where in `heap` a slot stands; `NONE` when it has no deadline.
    positions: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Deadlines {
    /// Makes room for the slots below `count`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.heap.try_reserve(count.saturating_sub(self.heap.len()))?;
        self.positions.try_reserve(count.saturating_sub(self.positions.len()))?;
        if self.positions.len() < count {
            self.positions.resize(count, NONE);
        }
        Ok(())
    }

    /// The earliest deadline and its slot.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// All slots with a deadline, in no order.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|&(_, slot)| slot)
    }

    /// Sets or takes away a slot's deadline.
    pub(super) fn set(&mut self, slot: u32, deadline: Option<Instant>) {
        let Some(&position) = self.positions.get(slot as usize) else { return };
        match (position, deadline) {
            (NONE, None) => {}
            (NONE, Some(deadline)) => {
                // Reserved: a slot stands in the heap once.
                self.heap.push((deadline, slot));
                self.positions[slot as usize] = (self.heap.len() - 1) as u32;
                self.settle(self.heap.len() - 1);
            }
            (position, Some(deadline)) => {
                self.heap[position as usize].0 = deadline;
                self.settle(position as usize);
            }
            (position, None) => {
                let position = position as usize;
                let last = self.heap.len() - 1;
                self.swap(position, last);
                self.heap.pop();
                self.positions[slot as usize] = NONE;
                if position < last {
                    self.settle(position);
                }
            }
        }
    }

    /// Moves what stands at `at` up or down to where it belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let children = at * 2 + 1..(at * 2 + 3).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child].0) else { break };
            if self.heap[at].0 <= self.heap[child].0 {
                break;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.positions[self.heap[a].1 as usize] = a as u32;
        self.positions[self.heap[b].1 as usize] = b as u32;
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
                prop_assert_eq!(deadlines.slots().count(), model.len());
            }
        }
    }
}
