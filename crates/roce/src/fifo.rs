//! A first-in, first-out list whose room is reserved when its members are made, so that putting one in
//! never allocates.

use alloc::collections::{TryReserveError, VecDeque};

/// A list of members that each stand in it at most once.
#[derive(Debug)]
pub(crate) struct Fifo<T>(VecDeque<T>);

impl<T> Fifo<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Makes room for `members` members in all, each of which may stand in the list now or not.
    pub(crate) fn reserve_for(&mut self, members: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve(members.saturating_sub(self.0.len()))
    }

    /// Appends a member for which there is room; `false` when there is none, which is a bug of the caller
    /// and loses the member.
    #[inline]
    pub(crate) fn push(&mut self, member: T) -> bool {
        let room = self.0.len() < self.0.capacity();
        debug_assert!(room, "no room was reserved");
        if room {
            self.0.push_back(member);
        }
        room
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes members out; the order of the others stays. Walks the whole list.
    pub(crate) fn remove(&mut self, gone: impl Fn(&T) -> bool) {
        // Once around: `VecDeque::retain` carries panics into the image.
        for _ in 0..self.len() {
            if let Some(member) = self.pop()
                && !gone(&member)
            {
                self.push(member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_leaves_the_others_in_order() {
        let mut list = Fifo::new();
        list.reserve_for(5).unwrap();
        assert!((1..=5).all(|member| list.push(member)));
        list.remove(|member| member % 2 == 0);
        assert_eq!([list.pop(), list.pop(), list.pop(), list.pop()], [Some(1), Some(3), Some(5), None]);
    }
}
