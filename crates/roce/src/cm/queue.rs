// SPDX-License-Identifier: MIT OR Apache-2.0

//! FIFO of slots, each at most once: a doubly linked list in an array, with constant-time push, pop and remove.
//!
//! Only [`Queue::reserve`] allocates.

use alloc::vec::Vec;

use fallible::{AllocError, vec};

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

pub(super) struct Queue {
    /// By slot; `None` if the slot is not queued.
    links: Vec<Option<Link>>,
    head: u32,
    tail: u32,
    len: usize,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { links: Vec::new(), head: NONE, tail: NONE, len: 0 }
    }

    /// Reserves capacity for the slots below `count`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), AllocError> {
        vec::grow_to(&mut self.links, count, || None)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first slot.
    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Iterates over the slots, first to last.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        core::iter::successors(self.first(), |&slot| {
            let next = self.links.get(slot as usize)?.as_ref()?.next;
            (next != NONE).then_some(next)
        })
    }

    /// Adds a slot at the end, unless it is queued already.
    pub(super) fn push(&mut self, slot: u32) {
        let tail = self.tail;
        match self.links.get_mut(slot as usize) {
            Some(link @ None) => *link = Some(Link { prev: tail, next: NONE }),
            _ => return,
        }
        match self.link(tail) {
            Some(last) => last.next = slot,
            None => self.head = slot,
        }
        self.tail = slot;
        self.len = self.len.saturating_add(1);
    }

    /// Removes and returns the first slot.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let first = self.head;
        self.remove(first).then_some(first)
    }

    /// Removes a slot at any position. Returns `false` if it was not queued.
    pub(super) fn remove(&mut self, slot: u32) -> bool {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::take) else { return false };
        match self.link(link.prev) {
            Some(prev) => prev.next = link.next,
            None => self.head = link.next,
        }
        match self.link(link.next) {
            Some(next) => next.prev = link.prev,
            None => self.tail = link.prev,
        }
        self.len = self.len.saturating_sub(1);
        true
    }

    fn link(&mut self, slot: u32) -> Option<&mut Link> {
        self.links.get_mut(slot as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_vec_without_duplicates(steps in proptest::collection::vec((0u8..3, 0u32..6), 0..100)) {
            let mut queue = Queue::new();
            queue.reserve(6).unwrap();
            let mut model: Vec<u32> = Vec::new();
            for (step, slot) in steps {
                match step {
                    0 => {
                        queue.push(slot);
                        if !model.contains(&slot) {
                            model.push(slot);
                        }
                    }
                    1 => {
                        let first = if model.is_empty() { None } else { Some(model.remove(0)) };
                        prop_assert_eq!(queue.pop(), first);
                    }
                    _ => {
                        prop_assert_eq!(queue.remove(slot), model.contains(&slot));
                        model.retain(|&other| other != slot);
                    }
                }
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert_eq!((queue.len(), queue.first()), (model.len(), model.first().copied()));
                prop_assert!(queue.iter().eq(model.iter().copied()));
            }
        }
    }
}
