// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive queue: a ring of posted receives, and the receive that the current message fills.

use alloc::vec::Vec;

use crate::error::{CreateError, PostError};
use crate::sge_cursor::{SgeCursor, copy_sges, total};
use crate::work::{RecvRequest, Sge};
use fallible::vec;

/// Posted receives, oldest first. What each receive uses comes first: see
/// [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RecvQueue {
    /// `depth` entries, the oldest at `head`. The first is here, and is used again whenever the queue was empty: a queue pair
    /// with one receive at a time uses no other memory.
    first: Entry,
    others: Vec<Entry>,
    depth: u32,
    max_sges: u32,
    head: u32,
    len: u32,
    /// `max_sges` for each entry, if that is more than one.
    sges: Vec<Sge>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    context: u64,
    /// Number of elements.
    count: u32,
    /// The element, if there is one: with the rest of the entry, so that no other memory is used.
    only: Sge,
}

impl Entry {
    const EMPTY: Self = Self { context: 0, count: 0, only: Sge::NONE };
}

/// The receive that a message fills.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CurrentReceive {
    pub(crate) context: u64,
    /// The element, if there is one.
    only: Sge,
    /// Number of elements.
    count: u32,
    /// Position of the next byte.
    pub(crate) cursor: SgeCursor,
    /// Whether there is a current receive.
    pub(crate) active: bool,
    /// As many elements as a receive may have, if that is more than one; the first `count` are used, if that is.
    sges: Vec<Sge>,
}

/// Returns the number of elements that are stored apart for a receive of up to `most`.
const fn stored_apart(most: u32) -> usize {
    if most > 1 { most as usize } else { 0 }
}

/// Returns `count` elements: the `only` one, or those at the start of `sges`.
#[inline]
fn elements<'a>(count: u32, only: &'a Sge, sges: &'a [Sge]) -> &'a [Sge] {
    match count {
        0 => &[],
        1 => core::slice::from_ref(only),
        _ => sges.get(..count as usize).unwrap_or_default(),
    }
}

impl RecvQueue {
    /// Without capacity.
    pub(crate) const EMPTY: Self = Self {
        first: Entry::EMPTY,
        others: Vec::new(),
        depth: 0,
        max_sges: 0,
        head: 0,
        len: 0,
        sges: Vec::new(),
    };

    /// Returns the bytes that [`RecvQueue::try_new`] allocates.
    pub(crate) const fn bytes(depth: u32, max_sges: u32) -> usize {
        let others = size_of::<Entry>().saturating_mul(depth.saturating_sub(1) as usize);
        let sges = size_of::<Sge>().saturating_mul(stored_apart(max_sges)).saturating_mul(depth as usize);
        others.saturating_add(sges)
    }

    pub(crate) fn try_new(depth: u32, max_sges: u32) -> Result<Self, CreateError> {
        let sges = (depth as usize).checked_mul(stored_apart(max_sges)).ok_or(CreateError::Invalid)?;
        // Far more than there is memory for; indices below twice the depth do not wrap.
        let depth = Some(depth).filter(|&depth| depth < 1 << 30).ok_or(CreateError::Invalid)?;
        Ok(Self {
            others: vec::filled(depth.saturating_sub(1) as usize, Entry::EMPTY)?,
            depth,
            sges: vec::filled(sges, Sge::default())?,
            max_sges,
            ..Self::EMPTY
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn post(&mut self, request: &RecvRequest<'_>, max_message: u32) -> Result<(), PostError> {
        if request.sges.len() > self.max_sges as usize {
            return Err(PostError::TooManySges);
        }
        //= R-QP-18
        //= R-QP-20
        if self.len == self.depth {
            return Err(PostError::QueueFull);
        }
        if total(request.sges).is_none_or(|length| length > max_message) {
            return Err(PostError::TooLong);
        }
        let at = self.wrap(self.head.wrapping_add(self.len));
        //= R-QP-13
        let (count, only) = match request.sges {
            [] => (0, Sge::NONE),
            &[only] => (1, only),
            sges => (copy_sges(sges_at_mut(&mut self.sges, at, self.max_sges), sges), Sge::NONE),
        };
        if let Some(entry) = self.entry_mut(at) {
            *entry = Entry { context: request.context, count, only };
            self.len += 1;
        }
        Ok(())
    }

    /// Returns whether an element of a receive is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        (0..self.len).any(|index| {
            let at = self.wrap(self.head.wrapping_add(index));
            let sges = sges_at(&self.sges, at, self.max_sges);
            let entry = self.entry(at);
            entry.is_some_and(|entry| elements(entry.count, &entry.only, sges).iter().any(wanted))
        })
    }

    /// Moves the oldest receive into `current`. Returns `false` when there is none.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    pub(crate) fn take(&mut self, current: &mut CurrentReceive) -> bool {
        //= R-QP-48
        if self.len == 0 {
            return false;
        }
        let Some(&entry) = self.entry(self.head) else { return false };
        current.active = true;
        current.context = entry.context;
        current.count = entry.count;
        current.only = entry.only;
        current.cursor = SgeCursor::default();
        if entry.count > 1 {
            let sges = sges_at(&self.sges, self.head, self.max_sges);
            current.count =
                copy_sges(&mut current.sges, sges.get(..entry.count as usize).unwrap_or_default());
        }
        self.drop_oldest();
        true
    }

    /// Returns context and element of the oldest receive, if it has one element.
    #[inline]
    pub(crate) fn front_with_one(&self) -> Option<(u64, &Sge)> {
        let entry = self.entry(self.head).filter(|entry| self.len > 0 && entry.count == 1)?;
        Some((entry.context, &entry.only))
    }

    /// Removes the oldest receive and returns its context.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let context = self.entry(self.head)?.context;
        self.drop_oldest();
        Some(context)
    }

    pub(crate) fn clear(&mut self) {
        self.head = 0;
        self.len = 0;
    }

    /// Moves to the entries of `other`, which has as many elements for each receive and no fewer entries than there are
    /// receives. Afterwards `other` has the entries that were used before.
    pub(crate) fn move_to(&mut self, other: &mut Self) {
        other.clear();
        while self.len > 0 && other.len < other.depth {
            let (from, to) = (self.head, other.len);
            if let (Some(old), Some(new)) = (self.entry(from), other.entry_mut(to)) {
                *new = *old;
            }
            let old = sges_at(&self.sges, from, self.max_sges);
            copy_sges(sges_at_mut(&mut other.sges, to, other.max_sges), old);
            other.len += 1;
            self.drop_oldest();
        }
        core::mem::swap(self, other);
    }

    /// Removes the oldest receive, which exists.
    #[inline]
    pub(crate) fn drop_oldest(&mut self) {
        self.len = self.len.wrapping_sub(1);
        self.head = if self.len == 0 { 0 } else { self.wrap(self.head.wrapping_add(1)) };
    }

    /// Returns the entry at `at`.
    #[inline]
    fn entry(&self, at: u32) -> Option<&Entry> {
        match at.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other as usize),
        }
    }

    /// [`RecvQueue::entry`], to change it.
    #[inline]
    fn entry_mut(&mut self, at: u32) -> Option<&mut Entry> {
        match at.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other as usize),
        }
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    fn wrap(&self, index: u32) -> u32 {
        if index >= self.depth { index.wrapping_sub(self.depth) } else { index }
    }
}

impl CurrentReceive {
    /// Without capacity.
    pub(crate) const NONE: Self = Self {
        context: 0,
        only: Sge::NONE,
        count: 0,
        cursor: SgeCursor::START,
        active: false,
        sges: Vec::new(),
    };

    pub(crate) fn try_new(max_sges: u32) -> Result<Self, CreateError> {
        Ok(Self { sges: vec::filled(stored_apart(max_sges), Sge::default())?, ..Self::NONE })
    }

    #[inline]
    pub(crate) fn sges(&self) -> &[Sge] {
        elements(self.count, &self.only, &self.sges)
    }
}

/// Returns where the elements of the entry at `at` are, if they are stored apart.
fn sges_at(sges: &[Sge], at: u32, max: u32) -> &[Sge] {
    let start = (at as usize).saturating_mul(max as usize);
    sges.get(start..start.saturating_add(max as usize)).unwrap_or_default()
}

/// [`sges_at`], to change them.
fn sges_at_mut(sges: &mut [Sge], at: u32, max: u32) -> &mut [Sge] {
    let start = (at as usize).saturating_mul(max as usize);
    sges.get_mut(start..start.saturating_add(max as usize)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A receive with elements that tell which one it is.
    fn sges(context: u64, count: usize) -> Vec<Sge> {
        (0..count as u32).map(|at| Sge { address: context, length: at, key: at }).collect()
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post(usize),
        Take,
        Pop,
        /// To a queue of this depth.
        Move(u32),
    }

    proptest! {
        #[test]
        fn receives_are_taken_in_the_order_of_posting(
            most in 0usize..5,
            mut depth in 1u32..5,
            steps in proptest::collection::vec(
                prop_oneof![
                    4 => (0usize..5).prop_map(Step::Post),
                    3 => Just(Step::Take),
                    1 => Just(Step::Pop),
                    1 => (1u32..6).prop_map(Step::Move),
                ],
                1..if cfg!(miri) { 20 } else { 60 },
            ),
        ) {
            let mut queue = RecvQueue::try_new(depth, most as u32).unwrap();
            let mut current = CurrentReceive::try_new(most as u32).unwrap();
            let mut model: VecDeque<(u64, usize)> = VecDeque::new();
            for (context, step) in (0..).zip(steps) {
                match step {
                    Step::Post(count) => {
                        let expected = if count > most {
                            Err(PostError::TooManySges)
                        } else if model.len() == depth as usize {
                            Err(PostError::QueueFull)
                        } else if count == 4 {
                            Err(PostError::TooLong)
                        } else {
                            model.push_back((context, count));
                            Ok(())
                        };
                        let request = RecvRequest { context, sges: &sges(context, count) };
                        // The length of three elements.
                        prop_assert_eq!(queue.post(&request, 3), expected);
                    }
                    Step::Take => {
                        let expected = model.pop_front();
                        prop_assert_eq!(queue.take(&mut current), expected.is_some());
                        if let Some((context, count)) = expected {
                            prop_assert_eq!((current.active, current.context), (true, context));
                            prop_assert_eq!(current.sges(), sges(context, count));
                            prop_assert_eq!(current.cursor, SgeCursor::START);
                        }
                    }
                    Step::Pop => {
                        prop_assert_eq!(queue.pop(), model.pop_front().map(|(context, _)| context));
                    }
                    Step::Move(to) if to as usize >= model.len() => {
                        let mut other = RecvQueue::try_new(to, most as u32).unwrap();
                        queue.move_to(&mut other);
                        depth = to;
                    }
                    Step::Move(_) => {}
                }
                prop_assert_eq!(queue.len() as usize, model.len());
                let posted = |context| queue.has_element(&|sge| sge.address == context);
                for context in 0..=context {
                    let expected = model.iter().any(|&(posted, count)| posted == context && count > 0);
                    prop_assert_eq!(posted(context), expected);
                }
            }
        }
    }
}
