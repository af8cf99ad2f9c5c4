// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ready list: a first-in, first-out list of members that are numbered densely, each at most once, with
//! constant-time push, pop and removal.
//!
//! Only [`ReadyList::reserve_for`] allocates.

use alloc::vec::Vec;

use fallible::{AllocError, vec};

const NIL: u32 = u32::MAX;

/// The list.
pub(crate) struct ReadyList<T> {
    /// By number of the member.
    entries: Vec<Entry<T>>,
    head: u32,
    tail: u32,
}

struct Entry<T> {
    /// `None` if the member is not in the list.
    member: Option<T>,
    prev: u32,
    next: u32,
}

impl<T> ReadyList<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), head: NIL, tail: NIL }
    }

    /// Reserves the entry of the member `number`.
    pub(crate) fn reserve_for(&mut self, number: u32) -> Result<(), AllocError> {
        let wanted = (number as usize).saturating_add(1);
        // Geometric: members are numbered densely.
        let wanted = if wanted > self.entries.len() { wanted.next_power_of_two() } else { wanted };
        vec::grow_to(&mut self.entries, wanted, || Entry { member: None, prev: NIL, next: NIL })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a member that is not in the list and whose entry is reserved. Otherwise drops it, which is a bug of the
    /// caller.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, member: T) {
        let tail = self.tail;
        let Some(entry) = self.entries.get_mut(number as usize).filter(|entry| entry.member.is_none()) else {
            debug_assert!(false, "in the list already, or not reserved");
            return;
        };
        *entry = Entry { member: Some(member), prev: tail, next: NIL };
        match self.entries.get_mut(tail as usize) {
            Some(last) => last.next = number,
            None => self.head = number,
        }
        self.tail = number;
    }

    /// Returns the first member.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.entries.get(self.head as usize)?.member.as_ref()
    }

    /// Removes and returns the first member.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.entries.get_mut(self.head as usize)?;
        let (member, next) = (first.member.take(), first.next);
        self.head = next;
        match self.entries.get_mut(next as usize) {
            Some(next) => next.prev = NIL,
            None => self.tail = NIL,
        }
        member
    }

    /// Removes and returns the member `number`, if it is in the list.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let entry = self.entries.get_mut(number as usize)?;
        let member = entry.member.take()?;
        let (prev, next) = (entry.prev, entry.next);
        match self.entries.get_mut(prev as usize) {
            Some(prev) => prev.next = next,
            None => self.head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(next) => next.prev = prev,
            None => self.tail = prev,
        }
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_queue_without_duplicates(steps in proptest::collection::vec((0u8..3, 0u32..6), 0..100)) {
            let mut list = ReadyList::new();
            for number in 0..6 {
                list.reserve_for(number).unwrap();
            }
            let mut model: Vec<u32> = Vec::new();
            for (step, number) in steps {
                match step {
                    0 if !model.contains(&number) => {
                        list.push(number, number);
                        model.push(number);
                    }
                    1 => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(list.pop(), first);
                    }
                    2 => {
                        let member = model.contains(&number).then_some(number);
                        prop_assert_eq!(list.remove(number), member);
                        model.retain(|&other| other != number);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.is_empty(), model.is_empty());
                prop_assert_eq!(list.first(), model.first());
            }
            let rest: Vec<u32> = core::iter::from_fn(|| list.pop()).collect();
            prop_assert_eq!(rest, model);
        }
    }
}
