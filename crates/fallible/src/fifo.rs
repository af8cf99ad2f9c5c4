// SPDX-License-Identifier: MIT OR Apache-2.0

//! First-in, first-out queue with memory reserved ahead of use.

use alloc::collections::VecDeque;

use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;

/// A queue for a known set of members, each of which is in it at most once.
///
/// Memory is reserved when a member is created ([`reserve_for`](Self::reserve_for)), so that
/// [`push`](Self::push) never allocates and cannot fail for a member that was counted.
#[derive(Debug)]
pub struct Fifo<T>(VecDeque<T>);

impl<T> Fifo<T> {
    /// Returns an empty queue without memory.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
        Self(VecDeque::new())
    }

    /// Reserves memory for `members` members in all, whether they are in the queue now or not.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; the queue is unchanged.
    pub fn reserve_for(&mut self, members: usize) -> Result<(), AllocError> {
        Ok(self.0.try_reserve(members.saturating_sub(self.0.len()))?)
    }

    /// Appends a member. Returns `false`, and drops the member, if no memory was reserved for it, which is a
    /// bug of the caller.
    #[inline]
    pub fn push(&mut self, member: T) -> bool {
        let has_capacity = self.0.len() < self.0.capacity();
        debug_assert!(has_capacity, "no memory was reserved");
        if has_capacity {
            self.0.push_back(member);
        }
        has_capacity
    }

    /// Removes and returns the oldest member.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    /// Returns whether the queue has no members.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of members in the queue.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes every member for which `predicate` holds. The others keep their order. Visits the whole queue.
    pub fn remove(&mut self, predicate: impl Fn(&T) -> bool) {
        // One rotation: `VecDeque::retain` brings panicking code into the image.
        for _ in 0..self.len() {
            if let Some(member) = self.pop()
                && !predicate(&member)
            {
                self.push(member);
            }
        }
    }
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_members_keeps_the_others_in_order() {
        let mut queue = Fifo::new();
        queue.reserve_for(5).unwrap();
        assert!((1..=5).all(|member| queue.push(member)));
        queue.remove(|member| member % 2 == 0);
        assert_eq!([queue.pop(), queue.pop(), queue.pop(), queue.pop()], [Some(1), Some(3), Some(5), None]);
    }

    #[test]
    fn reserving_counts_members_already_queued() {
        let mut queue = Fifo::new();
        for members in 1..=100 {
            queue.reserve_for(members).unwrap();
            assert!(queue.push(members));
        }
        assert_eq!(queue.len(), 100);
    }
}
