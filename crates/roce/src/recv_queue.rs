// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive queue: a ring of posted receives, and the receive that the current message fills.

use alloc::vec::Vec;

use crate::error::{CreateError, PostError};
use crate::sge_cursor::{SgeCursor, copy_sges, total};
use crate::work::{RecvRequest, Sge};
use fallible::vec;

/// Posted receives, oldest first.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// `depth` entries, the oldest at `head`.
    entries: Vec<Entry>,
    /// `max_sges` for each entry.
    sges: Vec<Sge>,
    max_sges: usize,
    head: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    context: u64,
    sges: usize,
}

/// The receive that a message fills.
#[derive(Debug)]
pub(crate) struct CurrentReceive {
    /// Whether there is a current receive.
    pub(crate) active: bool,
    pub(crate) context: u64,
    /// As many elements as a receive may have; the first `count` are used.
    sges: Vec<Sge>,
    count: usize,
    /// Position of the next byte.
    pub(crate) cursor: SgeCursor,
}

impl RecvQueue {
    /// Without capacity.
    pub(crate) const EMPTY: Self =
        Self { entries: Vec::new(), sges: Vec::new(), max_sges: 0, head: 0, len: 0 };

    pub(crate) fn try_new(depth: u32, max_sges: u32) -> Result<Self, CreateError> {
        let (depth, max_sges) = (depth as usize, max_sges as usize);
        let sges = depth.checked_mul(max_sges).ok_or(CreateError::Invalid)?;
        Ok(Self {
            entries: vec::filled(depth, Entry::default())?,
            sges: vec::filled(sges, Sge::default())?,
            max_sges,
            head: 0,
            len: 0,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn post(&mut self, request: &RecvRequest<'_>, max_message: u32) -> Result<(), PostError> {
        if request.sges.len() > self.max_sges {
            return Err(PostError::TooManySges);
        }
        //= R-QP-18
        //= R-QP-20
        if self.len == self.entries.len() {
            return Err(PostError::QueueFull);
        }
        if total(request.sges).is_none_or(|length| length > max_message) {
            return Err(PostError::TooLong);
        }
        let at = self.wrap(self.head.wrapping_add(self.len));
        //= R-QP-13
        if let (Some(entry), Some(room)) =
            (self.entries.get_mut(at), sges_at(&mut self.sges, at, self.max_sges))
        {
            *entry = Entry { context: request.context, sges: copy_sges(room, request.sges) };
            self.len += 1;
        }
        Ok(())
    }

    /// Returns whether an element of a receive is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        (0..self.len).any(|index| {
            let at = self.wrap(self.head.wrapping_add(index));
            let used = self.entries.get(at).map_or(0, |entry| entry.sges);
            let start = at.saturating_mul(self.max_sges);
            let sges = self.sges.get(start..start.saturating_add(used)).unwrap_or_default();
            sges.iter().any(wanted)
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
        let Some(&entry) = self.entries.get(self.head) else { return false };
        // Below the number of elements, which was allocated.
        let start = self.head.wrapping_mul(self.max_sges);
        let sges = self.sges.get(start..start.wrapping_add(entry.sges)).unwrap_or_default();
        current.active = true;
        current.context = entry.context;
        current.count = copy_sges(&mut current.sges, sges);
        current.cursor = SgeCursor::default();
        self.drop_oldest();
        true
    }

    /// Removes the oldest receive and returns its context.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let context = self.entries.get(self.head)?.context;
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
        while self.len > 0 && other.len < other.entries.len() {
            let (from, to) = (self.head, other.len);
            if let (Some(old), Some(new)) = (self.entries.get(from), other.entries.get_mut(to)) {
                *new = *old;
            }
            if let (Some(old), Some(new)) =
                (sges_at(&mut self.sges, from, self.max_sges), sges_at(&mut other.sges, to, other.max_sges))
            {
                copy_sges(new, old);
            }
            other.len += 1;
            self.drop_oldest();
        }
        core::mem::swap(self, other);
    }

    #[inline]
    fn drop_oldest(&mut self) {
        self.head = self.wrap(self.head.wrapping_add(1));
        self.len = self.len.wrapping_sub(1);
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    fn wrap(&self, index: usize) -> usize {
        if index >= self.entries.len() { index.wrapping_sub(self.entries.len()) } else { index }
    }
}

impl CurrentReceive {
    /// Without capacity.
    pub(crate) const NONE: Self =
        Self { active: false, context: 0, sges: Vec::new(), count: 0, cursor: SgeCursor::START };

    pub(crate) fn try_new(max_sges: u32) -> Result<Self, CreateError> {
        let sges = vec::filled(max_sges as usize, Sge::default())?;
        Ok(Self { active: false, context: 0, sges, count: 0, cursor: SgeCursor::default() })
    }

    pub(crate) fn sges(&self) -> &[Sge] {
        self.sges.get(..self.count).unwrap_or_default()
    }
}

fn sges_at(sges: &mut [Sge], at: usize, max: usize) -> Option<&mut [Sge]> {
    let start = at.checked_mul(max)?;
    sges.get_mut(start..start.checked_add(max)?)
}
