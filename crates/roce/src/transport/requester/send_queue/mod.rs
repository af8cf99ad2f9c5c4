// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send queue: a ring of requests, from the post to the peer's acknowledgement.
//!
//! Each request gets its range of sequence numbers when it is posted, so order, window and completion are
//! comparisons of integers.

mod chunks;

use super::payload::Payload;
use crate::transport::sequence::Sequence;
use alloc::vec::Vec;
use core::mem::offset_of;

use crate::config::MOST_PACKETS;
use crate::error::{CreateError, PostError};
use crate::region::binding_slot::Ticket;
use crate::sge_cursor::{copy_sges, total};
use crate::work::{
    AtomicOperation, AtomicRequest, CompletionKind, SendData, SendFlags, SendOperation, SendRequest, Sge,
};
use fallible::vec;

/// Bytes that an atomic operation changes and returns.
const ATOMIC_SIZE: u32 = 8;

/// In place of the chunks of a READ: the request has immediate data.
const IMMEDIATE: u16 = u16::MAX;

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
    /// Of a READ: it is requested in chunks of as many packets, see [`chunks`]. [`IMMEDIATE`] with immediate data.
    chunk: u16,
    data: Source,
    /// Index of its elements or inline data in the queue's arrays.
    at: u32,
    /// Its element, if it has one: with the rest of the entry, so that no other memory is used.
    only: Sge,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// No element, or [`Wqe::only`].
    None,
    Only,
    /// The same, of a request with immediate data.
    OnlyWithImmediate,
    /// The same, of a compare-and-swap.
    OnlyOfCompareSwap,
    /// The same, of a fetch-and-add.
    OnlyOfFetchAdd,
    /// Number of scatter/gather elements.
    Sges(u32),
    /// The same, of a READ with more elements than others may have.
    WideSges(u32),
    Inline,
    /// A local request that is not executed yet, and its staged parameters.
    Pending(Ticket),
    /// A local request that is executed.
    Executed,
    /// No request of the consumer: see [`SendQueue::post_challenge`].
    Challenge,
}

impl Wqe {
    const EMPTY: Self = Self {
        context: 0,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        length: 0,
        first: Sequence::ZERO,
        packets: 1,
        chunk: 1,
        data: Source::None,
        at: 0,
        only: Sge::NONE,
    };

    /// Returns the sequence number after its last.
    #[inline]
    pub(crate) fn end(&self) -> Sequence {
        self.first.add(u64::from(self.packets))
    }

    /// Returns whether it is a READ, or an atomic operation, which is a READ of 8 bytes but for its opcodes.
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

    /// Returns its element if it has one and its data is in no other.
    #[inline]
    pub(crate) fn only_element(&self) -> Option<&Sge> {
        matches!(self.data, Source::Only).then_some(&self.only)
    }

    /// Returns whether it is an atomic operation.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.data, Source::OnlyOfCompareSwap | Source::OnlyOfFetchAdd)
    }

    pub(crate) fn kind(&self) -> CompletionKind {
        match self.data {
            Source::OnlyOfCompareSwap => CompletionKind::CompareSwap,
            Source::OnlyOfFetchAdd => CompletionKind::FetchAdd,
            _ => self.operation.kind(),
        }
    }
}

/// The send queue. What each request uses comes first: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendQueue {
    /// Sequence number of the next request.
    next: Sequence,
    /// Local requests in the queue that are not executed; all local requests in the queue and the challenge.
    pending_local: u32,
    local: u32,
    /// READs in the queue that invalidate a key.
    invalidating: u32,
    /// The oldest entry, and how many there are.
    head: u32,
    len: u32,
    /// Number of entries that may be in use: all while there is a challenge, otherwise one less.
    limit: u32,
    max_sges: u32,
    /// Entries: one more than the consumer asked for, which is for the challenge. The first is here, and is used again whenever the
    /// queue was empty: a queue pair with one request at a time uses no other memory.
    first: Wqe,
    others: Vec<Wqe>,
    /// `max_sges` for each entry, if that is more than one.
    sges: Vec<Sge>,
    /// `max_wide` for each entry, once a READ with more than `max_sges` elements was posted.
    wide: Vec<Sge>,
    /// `max_inline` for each entry.
    inline: Vec<u8>,
    /// One for each entry, once a request with immediate data was posted.
    immediates: Vec<[u8; 4]>,
    /// One for each entry, once an atomic operation was posted.
    atomics: Vec<AtomicOperation>,
    max_wide: u32,
    max_inline: u32,
}

/// Returns the number of elements that are stored apart for a request of up to `most`.
const fn stored_apart(most: u32) -> usize {
    if most > 1 { most as usize } else { 0 }
}

/// Returns how many requests a send queue takes at least.
pub(crate) const fn free_requests(queue: &SendQueue) -> u32 {
    queue.limit.saturating_sub(queue.len)
}

impl SendQueue {
    /// Offset up to which each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, sges);

    /// Without capacity.
    pub(crate) const EMPTY: Self = Self {
        sges: Vec::new(),
        wide: Vec::new(),
        inline: Vec::new(),
        immediates: Vec::new(),
        atomics: Vec::new(),
        max_wide: 0,
        max_inline: 0,
        first: Wqe::EMPTY,
        others: Vec::new(),
        limit: 0,
        max_sges: 0,
        head: 0,
        len: 0,
        local: 0,
        pending_local: 0,
        invalidating: 0,
        next: Sequence::ZERO,
    };

    /// Returns the bytes that [`SendQueue::try_new`] allocates.
    pub(crate) const fn bytes(depth: u32, max_sges: u32, max_inline: u32) -> usize {
        let entries = depth.saturating_add(1) as usize;
        let sges = size_of::<Sge>().saturating_mul(stored_apart(max_sges)).saturating_mul(entries);
        let inline = (max_inline as usize).saturating_mul(entries);
        size_of::<Wqe>().saturating_mul(depth as usize).saturating_add(sges).saturating_add(inline)
    }

    pub(crate) fn try_new(depth: u32, max_sges: u32, max_inline: u32) -> Result<Self, CreateError> {
        // Far more than there is memory for; indices below twice the number of entries do not wrap.
        let depth = Some(depth).filter(|&depth| depth < 1 << 30).ok_or(CreateError::Invalid)?;
        let entries = depth.saturating_add(1) as usize;
        let sges = entries.checked_mul(stored_apart(max_sges)).ok_or(CreateError::Invalid)?;
        let inline = entries.checked_mul(max_inline as usize).ok_or(CreateError::Invalid)?;
        Ok(Self {
            others: vec::filled(entries.saturating_sub(1), Wqe::EMPTY)?,
            limit: depth,
            sges: vec::filled(sges, Sge::default())?,
            max_sges,
            inline: vec::filled(inline, 0)?,
            max_inline,
            ..Self::EMPTY
        })
    }

    /// Sets the number of elements that a READ may have, if others may not have as many.
    pub(crate) fn set_wide(&mut self, elements: u32) {
        self.max_wide = elements;
    }

    /// Returns how many elements [`SendQueue::widen`] needs before a READ with `elements` elements can be posted; 0 if it
    /// can be, or never can.
    pub(crate) fn room_for(&self, elements: usize) -> usize {
        if elements <= self.max_sges as usize || elements > self.max_wide as usize || !self.wide.is_empty() {
            return 0;
        }
        (self.capacity() as usize).saturating_mul(self.max_wide as usize)
    }

    /// Takes `room`, of the length that [`SendQueue::room_for`] returned, for READs with many elements. Returns what is not
    /// needed, for the caller to free.
    pub(crate) fn widen(&mut self, mut room: Vec<Sge>) -> Vec<Sge> {
        if self.wide.is_empty() {
            core::mem::swap(&mut self.wide, &mut room);
        }
        room
    }

    /// Returns how many elements [`SendQueue::give_immediates`] needs before a request with immediate data can be posted; 0 if
    /// it can be.
    pub(crate) fn room_for_immediates(&self) -> usize {
        if self.immediates.is_empty() { self.capacity() as usize } else { 0 }
    }

    /// Takes `room`, of the length that [`SendQueue::room_for_immediates`] returned. Returns what is not needed, for the caller
    /// to free.
    pub(crate) fn give_immediates(&mut self, mut room: Vec<[u8; 4]>) -> Vec<[u8; 4]> {
        if self.immediates.is_empty() {
            core::mem::swap(&mut self.immediates, &mut room);
        }
        room
    }

    /// Appends a request with immediate data whose packets carry up to `mtu` bytes.
    ///
    /// # Errors
    /// [`PostError::QueueFull`] without room for immediate data; else those of [`SendQueue::post`].
    #[inline(never)]
    pub(crate) fn post_immediate(
        &mut self,
        request: &SendRequest<'_>,
        immediate: [u8; 4],
        mtu: u32,
        max_message: u32,
    ) -> Result<(), PostError> {
        let at = self.wrap(self.head.wrapping_add(self.len));
        if self.immediates.len() <= at as usize {
            return Err(PostError::QueueFull);
        }
        self.post_any(request, mtu, max_message)?;
        if let Some(wqe) = self.entry_mut(at) {
            wqe.chunk = IMMEDIATE;
            // Not of the usual form.
            if matches!(wqe.data, Source::Only) {
                wqe.data = Source::OnlyWithImmediate;
            }
        }
        if let Some(place) = self.immediates.get_mut(at as usize) {
            *place = immediate;
        }
        Ok(())
    }

    /// Returns the immediate data of a request of this queue, if it has any.
    #[inline]
    pub(crate) fn immediate(&self, wqe: &Wqe) -> Option<[u8; 4]> {
        if wqe.chunk == IMMEDIATE { self.immediates.get(wqe.at as usize).copied() } else { None }
    }

    /// Returns how many elements [`SendQueue::give_atomics`] needs before an atomic operation can be posted; 0 if it can be.
    pub(crate) fn room_for_atomics(&self) -> usize {
        if self.atomics.is_empty() { self.capacity() as usize } else { 0 }
    }

    /// Takes `room`, of the length that [`SendQueue::room_for_atomics`] returned. Returns what is not needed, for the caller to
    /// free.
    pub(crate) fn give_atomics(&mut self, mut room: Vec<AtomicOperation>) -> Vec<AtomicOperation> {
        if self.atomics.is_empty() {
            core::mem::swap(&mut self.atomics, &mut room);
        }
        room
    }

    /// Appends an atomic operation.
    ///
    /// # Errors
    /// [`PostError::Invalid`] if its memory has not 8 bytes; [`PostError::QueueFull`], also without room for its operands.
    #[inline(never)]
    pub(crate) fn post_atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError> {
        if request.sink.length != ATOMIC_SIZE {
            return Err(PostError::Invalid);
        }
        let (at, length) = self.room(Some(ATOMIC_SIZE), ATOMIC_SIZE)?;
        *self.atomics.get_mut(at as usize).ok_or(PostError::QueueFull)? = request.operation;
        let read = SendRequest {
            context: request.context,
            operation: SendOperation::Read { address: request.address, key: request.key },
            flags: request.flags & (SendFlags::SILENT | SendFlags::FENCE | SendFlags::DEFER),
            data: SendData::Sges(&[]),
        };
        let source = match request.operation {
            AtomicOperation::CompareSwap { .. } => Source::OnlyOfCompareSwap,
            AtomicOperation::FetchAdd { .. } => Source::OnlyOfFetchAdd,
        };
        self.append_request(&read, ATOMIC_SIZE, length, source, at, request.sink);
        Ok(())
    }

    /// Returns the operation of an atomic one of this queue.
    pub(crate) fn atomic(&self, wqe: &Wqe) -> Option<AtomicOperation> {
        self.atomics.get(wqe.at as usize).copied().filter(|_| wqe.is_atomic())
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
    #[inline]
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        mtu: u32,
        max_message: u32,
    ) -> Result<(), PostError> {
        match request.data {
            // Most requests have one element.
            SendData::Sges(&[only]) if self.max_sges > 0 => {
                let (at, length) = self.room(Some(only.length), max_message)?;
                self.append_request(request, mtu, length, Source::Only, at, only);
                Ok(())
            }
            _ => self.post_any(request, mtu, max_message),
        }
    }

    /// Returns the index of the next entry and the length of its request, which is `None` for 2^32 or more.
    #[inline]
    fn room(&self, length: Option<u32>, max_message: u32) -> Result<(u32, u32), PostError> {
        //= R-QP-18
        //= R-QP-20
        if self.len >= self.limit {
            return Err(PostError::QueueFull);
        }
        //= R-QP-19
        let length = length.filter(|&length| length <= max_message).ok_or(PostError::TooLong)?;
        Ok((self.wrap(self.head.wrapping_add(self.len)), length))
    }

    /// [`SendQueue::post`] of any request.
    #[inline(never)]
    fn post_any(&mut self, request: &SendRequest<'_>, mtu: u32, max_message: u32) -> Result<(), PostError> {
        let is_read = matches!(request.operation, SendOperation::Read { .. });
        let length = match request.data {
            //= R-QP-16
            //= R-QP-17
            SendData::Sges(sges)
                if sges.len() > self.max_sges as usize
                    && !(is_read && sges.len() <= self.max_wide as usize) =>
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
                    Some(length) if length <= self.max_inline as usize => u32::try_from(length).ok(),
                    _ => return Err(PostError::InlineTooLong),
                }
            }
        };
        let (at, length) = self.room(length, max_message)?;
        let mut only = Sge::NONE;
        let data = match request.data {
            //= R-QP-13
            SendData::Sges(&[sge]) => {
                only = sge;
                Source::Only
            }
            SendData::Sges([]) => Source::None,
            SendData::Sges(sges) if sges.len() > self.max_sges as usize => {
                let start = (at as usize).saturating_mul(self.max_wide as usize);
                let room = self.wide.get_mut(start..start.saturating_add(sges.len()));
                Source::WideSges(copy_sges(room.ok_or(PostError::QueueFull)?, sges))
            }
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
        self.append_request(request, mtu, length, data, at, only);
        Ok(())
    }

    /// Appends a request of `length` bytes, for which there is room at `at`.
    #[inline]
    fn append_request(
        &mut self,
        request: &SendRequest<'_>,
        mtu: u32,
        length: u32,
        data: Source,
        at: u32,
        only: Sge,
    ) {
        //= rocev2 §5
        let packets = if length <= mtu { 1 } else { length.div_ceil(mtu.max(1)) };
        let wqe = Wqe {
            context: request.context,
            operation: request.operation,
            flags: request.flags,
            length,
            first: self.next,
            packets,
            chunk: 1,
            data,
            at,
            only,
        };
        self.invalidating = self.invalidating.saturating_add(u32::from(wqe.invalidates_sink()));
        self.append(wqe);
    }

    /// Appends a local request and returns its index, counted from the oldest.
    pub(crate) fn post_local(&mut self, request: &SendRequest<'_>, ticket: Ticket) -> Result<u32, PostError> {
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
            chunk: 1,
            data: Source::Pending(ticket),
            at: 0,
            only: Sge::NONE,
        });
        Ok(index)
    }

    /// Appends the challenge, a WRITE without data, and with it without address and key, which has no completion. Returns
    /// `false` if there is one already. It takes a sequence number, but no entry of the consumer's.
    //= rocev2 §5
    pub(crate) fn post_challenge(&mut self) -> bool {
        let all = self.capacity();
        let room = self.limit < all;
        if room {
            self.limit = all;
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
    #[inline]
    fn append(&mut self, wqe: Wqe) {
        let at = self.wrap(self.head.wrapping_add(self.len));
        if let Some(entry) = self.entry_mut(at) {
            *entry = wqe;
            self.len += 1;
            self.next = wqe.end();
        }
    }

    /// Marks the local request at `index`, counted from the oldest, as executed.
    pub(crate) fn mark_executed(&mut self, index: u32) {
        let at = self.wrap(self.head.wrapping_add(index));
        if let Some(entry) = self.entry_mut(at) {
            entry.data = Source::Executed;
            self.pending_local = self.pending_local.saturating_sub(1);
        }
    }

    /// Returns the request at `index`, counted from the oldest.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Wqe> {
        if index >= self.len {
            return None;
        }
        match self.wrap(self.head.wrapping_add(index)).checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other as usize),
        }
    }

    /// Sets the packets of each chunk of a READ, before it is requested for the first time.
    pub(crate) fn set_chunk(&mut self, index: u32, packets: u64) {
        let at = self.wrap(self.head.wrapping_add(index));
        if let Some(wqe) = self.entry_mut(at) {
            wqe.chunk = packets.clamp(1, u64::from(MOST_PACKETS)) as u16;
        }
    }

    /// Returns the request of a packet that is not acknowledged.
    pub(crate) fn at(&self, sequence: Sequence) -> Option<&Wqe> {
        (0..self.capacity()).map_while(|index| self.get(index)).find(|wqe| sequence < wqe.end())
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
        self.len = self.len.wrapping_sub(1);
        self.head = if self.len == 0 { 0 } else { self.wrap(self.head.wrapping_add(1)) };
        Some(wqe)
    }

    /// Returns the entry at `at`.
    #[inline]
    fn entry_mut(&mut self, at: u32) -> Option<&mut Wqe> {
        match at.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other as usize),
        }
    }

    /// Returns how many requests of the consumer it holds.
    pub(crate) fn depth(&self) -> u32 {
        self.capacity().saturating_sub(1)
    }

    /// Returns the number of entries.
    #[inline]
    fn capacity(&self) -> u32 {
        (self.others.len() as u32).wrapping_add(1)
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
            self.pending_local = self.pending_local.saturating_sub(u32::from(wqe.pending_ticket().is_some()));
        }
    }

    /// Returns the payload of a request of this queue.
    #[inline]
    pub(crate) fn payload<'a>(&'a self, wqe: &'a Wqe) -> Payload<'a> {
        match wqe.data {
            Source::Only | Source::OnlyWithImmediate | Source::OnlyOfCompareSwap | Source::OnlyOfFetchAdd => {
                Payload::Sges(core::slice::from_ref(&wqe.only))
            }
            Source::Sges(count) => Payload::Sges(part(&self.sges, wqe.at, self.max_sges, count)),
            Source::WideSges(count) => Payload::Sges(part(&self.wide, wqe.at, self.max_wide, count)),
            Source::Inline => Payload::Inline(part(&self.inline, wqe.at, self.max_inline, wqe.length)),
            Source::None | Source::Pending(_) | Source::Executed | Source::Challenge => Payload::Sges(&[]),
        }
    }

    /// Returns whether an element of a request is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        (0..self.len).filter_map(|index| self.get(index)).any(|wqe| match self.payload(wqe) {
            Payload::Sges(sges) => sges.iter().any(wanted),
            Payload::Inline(_) => false,
        })
    }

    fn sges_mut(&mut self, at: u32) -> &mut [Sge] {
        part_mut(&mut self.sges, at, self.max_sges)
    }

    fn inline_mut(&mut self, at: u32) -> &mut [u8] {
        part_mut(&mut self.inline, at, self.max_inline)
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    #[inline]
    fn wrap(&self, index: u32) -> u32 {
        let capacity = self.capacity();
        if index >= capacity { index.wrapping_sub(capacity) } else { index }
    }
}

/// Returns the first `count` elements of the part at `at`, of `most` elements each.
fn part<T>(all: &[T], at: u32, most: u32, count: u32) -> &[T] {
    let start = (at as usize).saturating_mul(most as usize);
    all.get(start..start.saturating_add(count as usize)).unwrap_or_default()
}

/// Returns the part at `at`, of `most` elements each.
fn part_mut<T>(all: &mut [T], at: u32, most: u32) -> &mut [T] {
    let start = (at as usize).saturating_mul(most as usize);
    all.get_mut(start..start.saturating_add(most as usize)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
