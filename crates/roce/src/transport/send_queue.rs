// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send queue: a ring of requests, from the post to the peer's acknowledgement.
//!
//! Each request gets its range of sequence numbers when it is posted, so order, window and completion are
//! comparisons of integers.

use super::sequence::Sequence;
use alloc::vec::Vec;

use crate::error::{CreateError, PostError};
use crate::region::binding_slot::Ticket;
use crate::sge_cursor::{copy_sges, total};
use crate::work::{CompletionKind, SendData, SendFlags, SendOperation, SendRequest, Sge};
use fallible::vec;

/// Least and largest number of packets of a READ that are requested at once, as powers of two.
const LEAST_CHUNK_SHIFT: u8 = 6;
const MOST_CHUNK_SHIFT: u8 = 8;

/// A request on the send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) context: u64,
    pub(crate) operation: SendOperation,
    pub(crate) flags: SendFlags,
    /// Bytes.
    pub(crate) length: u32,
    /// Sequence number of its first packet (for a READ, of the first packet of its response).
    pub(crate) first: Sequence,
    /// Number of packets: at least 1, or 0 for a local request.
    pub(crate) packets: u32,
    /// Of a READ: it is requested in chunks of this power of two of packets, see [`super::requester_state`].
    pub(super) chunk_shift: u8,
    data: Source,
    /// Index of its elements or inline data in the queue's arrays.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// Number of scatter/gather elements.
    Sges(usize),
    /// The same, of a READ with more elements than others may have.
    WideSges(usize),
    Inline,
    /// A local request that is not executed yet, and its staged parameters.
    Pending(Ticket),
    /// A local request that is executed.
    Executed,
    /// No request of the consumer: see [`SendQueue::post_challenge`].
    Challenge,
}

/// Payload of a queued request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

impl Wqe {
    const EMPTY: Self = Self {
        context: 0,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        length: 0,
        first: Sequence::ZERO,
        packets: 1,
        chunk_shift: LEAST_CHUNK_SHIFT,
        data: Source::Sges(0),
        at: 0,
    };

    /// Returns the sequence number after its last.
    #[inline]
    pub(crate) fn end(&self) -> Sequence {
        self.first.add(u64::from(self.packets))
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.operation, SendOperation::Read { .. })
    }

    /// Returns whether it is a READ that invalidates the key of its first element.
    #[inline]
    pub(crate) fn invalidates_sink(&self) -> bool {
        self.flags.contains(SendFlags::INVALIDATE_SINK) && self.is_read()
    }

    /// Returns the ticket of a local request that is not executed yet.
    #[inline]
    pub(crate) fn pending_ticket(&self) -> Option<Ticket> {
        match self.data {
            Source::Pending(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Returns whether it is an executed local request.
    #[inline]
    pub(crate) fn is_executed(&self) -> bool {
        matches!(self.data, Source::Executed)
    }

    /// Returns whether it is the queue's own request, which has no completion.
    #[inline]
    pub(crate) fn is_challenge(&self) -> bool {
        matches!(self.data, Source::Challenge)
    }

    //= R-CQ-25
    pub(crate) fn kind(&self) -> CompletionKind {
        match self.operation {
            SendOperation::Send | SendOperation::SendInvalidate { .. } => CompletionKind::Send,
            SendOperation::Write { .. } => CompletionKind::Write,
            SendOperation::Read { .. } => CompletionKind::Read,
            SendOperation::FastRegister { .. } => CompletionKind::FastRegister,
            SendOperation::Invalidate { .. } => CompletionKind::Invalidate,
            SendOperation::Bind { .. } => CompletionKind::Bind,
        }
    }
}

/// The send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// An entry more than the consumer asked for, which is for the challenge; the oldest at `head`.
    entries: Vec<Wqe>,
    /// Number of entries that may be in use: all while there is a challenge, otherwise one less.
    limit: usize,
    /// `max_sges` for each entry.
    sges: Vec<Sge>,
    max_sges: usize,
    /// `max_wide` for each entry, once a READ with more than `max_sges` elements was posted.
    wide: Vec<Sge>,
    max_wide: usize,
    /// `max_inline` for each entry.
    inline: Vec<u8>,
    max_inline: usize,
    head: usize,
    len: usize,
    /// Sequence number of the next request.
    next: Sequence,
    /// Local requests in the queue and the challenge, and the local requests that are not executed.
    local: usize,
    pending_local: usize,
    /// READs in the queue that invalidate a key.
    invalidating: usize,
}

impl SendQueue {
    /// Without capacity.
    pub(crate) const EMPTY: Self = Self {
        entries: Vec::new(),
        limit: 0,
        sges: Vec::new(),
        max_sges: 0,
        wide: Vec::new(),
        max_wide: 0,
        inline: Vec::new(),
        max_inline: 0,
        head: 0,
        len: 0,
        next: Sequence::ZERO,
        local: 0,
        pending_local: 0,
        invalidating: 0,
    };

    pub(crate) fn try_new(depth: u32, max_sges: u32, max_inline: u32) -> Result<Self, CreateError> {
        let (depth, max_sges, max_inline) = (depth as usize, max_sges as usize, max_inline as usize);
        let entries = depth.checked_add(1).ok_or(CreateError::Invalid)?;
        let sges = entries.checked_mul(max_sges).ok_or(CreateError::Invalid)?;
        let inline = entries.checked_mul(max_inline).ok_or(CreateError::Invalid)?;
        Ok(Self {
            entries: vec::filled(entries, Wqe::EMPTY)?,
            limit: depth,
            sges: vec::filled(sges, Sge::default())?,
            max_sges,
            wide: Vec::new(),
            max_wide: 0,
            inline: vec::filled(inline, 0)?,
            max_inline,
            head: 0,
            len: 0,
            next: Sequence::ZERO,
            local: 0,
            pending_local: 0,
            invalidating: 0,
        })
    }

    /// Sets the number of elements that a READ may have, if others may not have as many.
    pub(crate) fn set_wide(&mut self, elements: u32) {
        self.max_wide = elements as usize;
    }

    /// Returns how many elements [`SendQueue::widen`] needs before a READ with `elements` elements can be posted; 0 if it
    /// can be, or never can.
    pub(crate) fn room_for(&self, elements: usize) -> usize {
        if elements <= self.max_sges || elements > self.max_wide || !self.wide.is_empty() {
            return 0;
        }
        self.entries.len().saturating_mul(self.max_wide)
    }

    /// Takes `room`, of the length that [`SendQueue::room_for`] returned, for READs with many elements. Returns what is not
    /// needed, for the caller to free.
    pub(crate) fn widen(&mut self, mut room: Vec<Sge>) -> Vec<Sge> {
        if self.wide.is_empty() {
            core::mem::swap(&mut self.wide, &mut room);
        }
        room
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is a local request in the queue, or the challenge.
    #[inline]
    pub(crate) fn has_local(&self) -> bool {
        self.local > 0
    }

    /// Returns whether a local request is not executed yet.
    #[inline]
    pub(crate) fn has_pending_local(&self) -> bool {
        self.pending_local > 0
    }

    /// Returns whether a READ in the queue invalidates a key.
    #[inline]
    pub(crate) fn has_invalidating(&self) -> bool {
        self.invalidating > 0
    }

    /// Returns the sequence number of the next request to be posted.
    #[inline]
    pub(crate) fn end(&self) -> Sequence {
        self.next
    }

    /// Appends a request whose packets carry up to `mtu` bytes.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        mtu: u32,
        max_message: u32,
    ) -> Result<(), PostError> {
        let is_read = matches!(request.operation, SendOperation::Read { .. });
        let length = match request.data {
            //= R-QP-16
            //= R-QP-17
            SendData::Sges(sges)
                if sges.len() > self.max_sges && !(is_read && sges.len() <= self.max_wide) =>
            {
                return Err(PostError::TooManySges);
            }
            SendData::Sges(sges) => total(sges),
            //= R-QP-34
            SendData::Inline(_) if is_read => return Err(PostError::NotAllowed),
            SendData::Registration(_) | SendData::Binding(_) => return Err(PostError::NotAllowed),
            SendData::Inline(pieces) => {
                let length = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
                //= R-QP-33
                match length {
                    Some(length) if length <= self.max_inline => u32::try_from(length).ok(),
                    _ => return Err(PostError::InlineTooLong),
                }
            }
        };
        //= R-QP-18
        //= R-QP-20
        if self.len >= self.limit {
            return Err(PostError::QueueFull);
        }
        //= R-QP-19
        let length = length.filter(|&length| length <= max_message).ok_or(PostError::TooLong)?;
        let at = self.wrap(self.head.wrapping_add(self.len));
        let data = match request.data {
            SendData::Sges(sges) if sges.len() > self.max_sges => {
                let start = at.saturating_mul(self.max_wide);
                let room = self.wide.get_mut(start..start.saturating_add(sges.len()));
                Source::WideSges(copy_sges(room.ok_or(PostError::QueueFull)?, sges))
            }
            //= R-QP-13
            SendData::Sges(sges) => Source::Sges(copy_sges(self.sges_mut(at), sges)),
            //= R-QP-30
            //= R-QP-31
            //= R-QP-32
            SendData::Inline(pieces) => {
                let room = self.inline_mut(at);
                let mut rest = room;
                for piece in pieces {
                    let Some((now, later)) = rest.split_at_mut_checked(piece.len()) else { break };
                    now.copy_from_slice(piece);
                    rest = later;
                }
                Source::Inline
            }
            SendData::Registration(_) | SendData::Binding(_) => return Err(PostError::NotAllowed),
        };
        //= rocev2 §5
        let packets = if length <= mtu { 1 } else { length.div_ceil(mtu.max(1)) };
        let wqe = Wqe {
            context: request.context,
            operation: request.operation,
            flags: request.flags,
            length,
            first: self.next,
            packets,
            chunk_shift: LEAST_CHUNK_SHIFT,
            data,
            at,
        };
        self.invalidating = self.invalidating.saturating_add(usize::from(wqe.invalidates_sink()));
        self.append(wqe);
        Ok(())
    }

    /// Appends a local request and returns its index, counted from the oldest.
    pub(crate) fn post_local(
        &mut self,
        request: &SendRequest<'_>,
        ticket: Ticket,
    ) -> Result<usize, PostError> {
        //= R-QP-18
        //= R-QP-20
        if self.len >= self.limit {
            return Err(PostError::QueueFull);
        }
        let index = self.len;
        self.local = self.local.saturating_add(1);
        self.pending_local = self.pending_local.saturating_add(1);
        self.append(Wqe {
            context: request.context,
            operation: request.operation,
            flags: request.flags,
            length: 0,
            first: self.next,
            packets: 0,
            chunk_shift: LEAST_CHUNK_SHIFT,
            data: Source::Pending(ticket),
            at: 0,
        });
        Ok(index)
    }

    /// Appends the challenge, a WRITE without data, and with it without address and key, which has no completion. Returns
    /// `false` if there is one already. It takes a sequence number, but no entry of the consumer's.
    //= rocev2 §5
    pub(crate) fn post_challenge(&mut self) -> bool {
        let room = self.limit < self.entries.len();
        if room {
            self.limit = self.entries.len();
            self.local = self.local.saturating_add(1);
            self.append(Wqe {
                operation: SendOperation::Write { address: 0, key: 0 },
                flags: SendFlags::SILENT,
                first: self.next,
                data: Source::Challenge,
                ..Wqe::EMPTY
            });
        }
        room
    }

    /// Appends a request, for which there is room.
    fn append(&mut self, wqe: Wqe) {
        let at = self.wrap(self.head.wrapping_add(self.len));
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = wqe;
            self.len += 1;
            self.next = wqe.end();
        }
    }

    /// Marks the local request at `index`, counted from the oldest, as executed.
    pub(crate) fn mark_executed(&mut self, index: usize) {
        let at = self.wrap(self.head.wrapping_add(index));
        if let Some(entry) = self.entries.get_mut(at) {
            entry.data = Source::Executed;
            self.pending_local = self.pending_local.saturating_sub(1);
        }
    }

    /// Returns the request at `index`, counted from the oldest.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Wqe> {
        if index >= self.len {
            return None;
        }
        self.entries.get(self.wrap(self.head.wrapping_add(index)))
    }

    /// Sets the chunks of a READ, before it is requested for the first time.
    pub(super) fn set_chunk(&mut self, index: usize, shift: u8) {
        let at = self.wrap(self.head.wrapping_add(index));
        if let Some(wqe) = self.entries.get_mut(at).filter(|_| index < self.len) {
            wqe.chunk_shift = shift.clamp(LEAST_CHUNK_SHIFT, MOST_CHUNK_SHIFT);
        }
    }

    /// Returns the oldest request.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Wqe> {
        self.get(0)
    }

    /// Removes and returns the oldest request.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Wqe> {
        let wqe = *self.front()?;
        if self.local | self.invalidating != 0 {
            // It gets no reference to `wqe`, which need not be in memory then.
            self.uncount_oldest();
        }
        self.head = self.wrap(self.head.wrapping_add(1));
        self.len = self.len.wrapping_sub(1);
        Some(wqe)
    }

    /// Corrects the counts for the oldest request, which is about to be removed.
    #[inline(never)]
    fn uncount_oldest(&mut self) {
        let Some(&wqe) = self.front() else { return };
        if wqe.invalidates_sink() {
            self.invalidating = self.invalidating.saturating_sub(1);
        }
        if wqe.is_challenge() {
            self.limit = self.limit.saturating_sub(1);
            self.local = self.local.saturating_sub(1);
        }
        if wqe.operation.is_local() {
            self.local = self.local.saturating_sub(1);
            self.pending_local =
                self.pending_local.saturating_sub(usize::from(wqe.pending_ticket().is_some()));
        }
    }

    /// Returns the payload of a request of this queue.
    #[inline]
    pub(crate) fn payload(&self, wqe: &Wqe) -> Payload<'_> {
        match wqe.data {
            Source::Sges(count) => {
                // Below the number of elements, which was allocated.
                let start = wqe.at.wrapping_mul(self.max_sges);
                Payload::Sges(self.sges.get(start..start.wrapping_add(count)).unwrap_or_default())
            }
            Source::WideSges(count) => {
                let start = wqe.at.saturating_mul(self.max_wide);
                Payload::Sges(self.wide.get(start..start.saturating_add(count)).unwrap_or_default())
            }
            Source::Inline => {
                let start = wqe.at.saturating_mul(self.max_inline);
                let end = start.saturating_add(wqe.length as usize);
                Payload::Inline(self.inline.get(start..end).unwrap_or_default())
            }
            Source::Pending(_) | Source::Executed | Source::Challenge => Payload::Sges(&[]),
        }
    }

    /// Returns whether an element of a request is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        (0..self.len).filter_map(|index| self.get(index)).any(|wqe| match self.payload(wqe) {
            Payload::Sges(sges) => sges.iter().any(wanted),
            Payload::Inline(_) => false,
        })
    }

    fn sges_mut(&mut self, at: usize) -> &mut [Sge] {
        let start = at.wrapping_mul(self.max_sges);
        self.sges.get_mut(start..start.wrapping_add(self.max_sges)).unwrap_or_default()
    }

    fn inline_mut(&mut self, at: usize) -> &mut [u8] {
        let start = at.saturating_mul(self.max_inline);
        self.inline.get_mut(start..start.saturating_add(self.max_inline)).unwrap_or_default()
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    #[inline]
    fn wrap(&self, index: usize) -> usize {
        if index >= self.entries.len() { index.wrapping_sub(self.entries.len()) } else { index }
    }
}
