// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ requests of the peer, and atomic operations (IBTA Volume 1, section 9.7: responder resources).
//!
//! A READ is answered once. The peer may request it again, or any part of it: these ranges are answered first, in the order of
//! their requests, and never beyond what was sent before. An atomic operation is here with its result, as a READ of one packet.

use crate::transport::sequence::Sequence;
use alloc::vec::Vec;

use crate::error::CreateError;
use fallible::vec;
use roce_wire::{Opcode, RethRepr};

/// Ranges at most that wait to be answered again. The request for another one is dropped: the peer requests it later.
const MAX_REPEATS: usize = 64;

/// READ requests of the peer: those being answered, and those answered that it may request again. What
/// each packet uses comes first: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct InboundReads {
    /// READs and ranges with responses to send.
    unsent: usize,
    /// A ring, the oldest at `head`.
    ring: Vec<InboundRead>,
    limit: usize,
    head: usize,
    len: usize,
    /// Index of the first one with responses to send, counted from the oldest.
    serving: usize,
    /// A ring of [`MAX_REPEATS`].
    repeats: Vec<RepeatedRange>,
    first_repeat: usize,
    waiting_repeats: usize,
}

/// A READ request of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundRead {
    first: Sequence,
    packets: u32,
    reth: RethRepr,
    /// The next response packet; `packets` when all are sent.
    next: u32,
    /// Result of an atomic operation.
    original: Option<u64>,
}

/// A range of responses to send again.
#[derive(Clone, Copy, Debug)]
struct RepeatedRange {
    next: Sequence,
    /// Responses left.
    packets: u32,
    /// Of the range that was asked for, what is not sent again yet.
    reth: RethRepr,
    /// None is sent yet.
    first: bool,
    /// No response of the same READ follows that is sent for the first time.
    ends: bool,
    /// Result of an atomic operation.
    original: Option<u64>,
}

impl InboundRead {
    const EMPTY: Self = Self::new(Sequence::ZERO, 0, RethRepr { address: 0, r_key: 0, length: 0 });

    pub(crate) const fn new(first: Sequence, packets: u32, reth: RethRepr) -> Self {
        Self { first, packets, reth, next: 0, original: None }
    }

    /// Returns an atomic operation at `address` under `r_key`, of which `original` is the result.
    pub(crate) const fn of_atomic(first: Sequence, address: u64, r_key: u32, original: u64) -> Self {
        Self { original: Some(original), ..Self::new(first, 1, RethRepr { address, r_key, length: 0 }) }
    }

    /// Returns the range of the responses sent that a request for `reth`, `into` packets after the first, names.
    fn repeat(&self, into: u32, reth: &RethRepr, mtu: u32) -> Option<RepeatedRange> {
        // Below the length.
        let offset = into.saturating_mul(mtu);
        let rest = self.reth.length.saturating_sub(offset);
        let known = self.original.is_none()
            && reth.r_key == self.reth.r_key
            && reth.address == self.reth.address.wrapping_add(u64::from(offset))
            && reth.length <= rest
            && (reth.length > 0 || rest == 0);
        // Responses that are not sent yet need no repetition.
        let sent = self.next.checked_sub(into).filter(|&sent| known && sent > 0)?;
        let packets = reth.length.div_ceil(mtu.max(1)).max(1);
        let next = self.first.add(u64::from(into));
        Some(RepeatedRange {
            next,
            packets: packets.min(sent),
            reth: *reth,
            first: true,
            ends: packets <= sent,
            original: None,
        })
    }

    /// Returns the result of an atomic operation at `sequence`, if that was sent.
    fn repeat_atomic(&self, sequence: Sequence, address: u64, r_key: u32) -> Option<RepeatedRange> {
        let known = self.first == sequence && self.reth.address == address && self.reth.r_key == r_key;
        let Self { original, reth, .. } = *self;
        let range = RepeatedRange { next: sequence, packets: 1, reth, original, ..RepeatedRange::EMPTY };
        (known && original.is_some() && self.next > 0).then_some(range)
    }
}

impl RepeatedRange {
    const EMPTY: Self = Self {
        next: Sequence::ZERO,
        packets: 0,
        reth: RethRepr { address: 0, r_key: 0, length: 0 },
        first: true,
        ends: true,
        original: None,
    };

    fn contains(&self, other: &Self) -> bool {
        let end = self.next.add(u64::from(self.packets));
        self.next <= other.next && other.next.add(u64::from(other.packets)) <= end
    }
}

/// A READ response packet to send.
pub(crate) struct NextResponse {
    pub(crate) opcode: Opcode,
    pub(crate) sequence: Sequence,
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) len: u32,
    /// It was sent before: the peer has requested it again.
    pub(crate) repeated: bool,
    /// Result of an atomic operation, instead of memory.
    pub(crate) original: Option<u64>,
}

/// Returns the opcode of a response, which has the result of an atomic operation if there is one.
//= rocev2 §4
const fn opcode(original: Option<u64>, first: bool, last: bool) -> Opcode {
    match (first, last) {
        _ if original.is_some() => Opcode::ATOMIC_ACKNOWLEDGE,
        (true, true) => Opcode::READ_RESPONSE_ONLY,
        (true, false) => Opcode::READ_RESPONSE_FIRST,
        (false, false) => Opcode::READ_RESPONSE_MIDDLE,
        (false, true) => Opcode::READ_RESPONSE_LAST,
    }
}

impl InboundReads {
    /// Offset up to which each packet uses this.
    pub(crate) const USUAL: usize = size_of::<usize>();

    /// Without capacity.
    pub(crate) const NONE: Self = Self {
        ring: Vec::new(),
        limit: 0,
        head: 0,
        len: 0,
        serving: 0,
        repeats: Vec::new(),
        first_repeat: 0,
        waiting_repeats: 0,
        unsent: 0,
    };

    /// Allocates room for `max` requests.
    pub(crate) fn try_new(max: u8) -> Result<Self, CreateError> {
        let repeats = if max == 0 { 0 } else { MAX_REPEATS };
        Ok(Self {
            ring: vec::filled(usize::from(max), InboundRead::EMPTY)?,
            repeats: vec::filled(repeats, RepeatedRange::EMPTY)?,
            ..Self::NONE
        })
    }

    /// Sets how many may wait for their responses (the responder resources).
    pub(crate) fn set_limit(&mut self, reads: u8) {
        self.limit = usize::from(reads).min(self.ring.len());
    }

    pub(crate) fn clear(&mut self) {
        (self.len, self.serving, self.waiting_repeats, self.unsent) = (0, 0, 0, 0);
    }

    #[inline]
    pub(crate) fn is_serving(&self) -> bool {
        self.unsent > 0
    }

    /// Returns whether the limit of unanswered READs allows another one.
    pub(crate) const fn has_room(&self) -> bool {
        // They are answered in order.
        self.len.saturating_sub(self.serving) < self.limit
    }

    /// Adds a READ, and forgets the oldest answered one if there is no room. Returns `false` when the limit of
    /// unanswered READs is reached.
    pub(crate) fn push(&mut self, read: InboundRead) -> bool {
        if !self.has_room() {
            return false;
        }
        if self.len == self.ring.len() {
            self.head = self.wrap(self.head.wrapping_add(1));
            self.len = self.len.saturating_sub(1);
            self.serving = self.serving.saturating_sub(1);
        }
        let at = self.wrap(self.head.wrapping_add(self.len));
        if let Some(slot) = self.ring.get_mut(at) {
            *slot = read;
            self.len = self.len.saturating_add(1);
            self.unsent = self.unsent.saturating_add(1);
        }
        true
    }

    /// Handles a repeated request for a READ, or for a part of one: sends the responses again if it is known.
    pub(crate) fn repeat(&mut self, sequence: Sequence, reth: &RethRepr, mtu: u32) {
        let found = (0..self.len).find_map(|index| {
            let read = self.ring.get(self.wrap(self.head.wrapping_add(index)))?;
            let into = u32::try_from(sequence.checked_since(read.first)?).ok()?;
            read.repeat(into, reth, mtu)
        });
        if let Some(repeat) = found {
            self.queue_repeat(repeat);
        }
    }

    /// Handles a repeated request for an atomic operation: sends its result again if it is known.
    pub(crate) fn repeat_atomic(&mut self, sequence: Sequence, address: u64, r_key: u32) {
        let found = (0..self.len).find_map(|index| {
            let read = self.ring.get(self.wrap(self.head.wrapping_add(index)))?;
            read.repeat_atomic(sequence, address, r_key)
        });
        if let Some(repeat) = found {
            self.queue_repeat(repeat);
        }
    }

    /// Adds a range to be answered again, unless it is waiting.
    fn queue_repeat(&mut self, repeat: RepeatedRange) {
        let is_waiting = (0..self.waiting_repeats).any(|index| {
            let waiting = self.repeats.get(self.first_repeat.wrapping_add(index) % MAX_REPEATS);
            waiting.is_some_and(|waiting| waiting.contains(&repeat))
        });
        if is_waiting {
            return;
        }
        self.drop_contained(&repeat);
        if self.waiting_repeats >= self.repeats.len() {
            return;
        }
        let at = self.first_repeat.wrapping_add(self.waiting_repeats) % MAX_REPEATS;
        if let Some(slot) = self.repeats.get_mut(at) {
            *slot = repeat;
            self.waiting_repeats = self.waiting_repeats.saturating_add(1);
            self.unsent = self.unsent.saturating_add(1);
        }
    }

    /// Gives up waiting ranges whose responses `repeat` contains, but not one that is being answered.
    fn drop_contained(&mut self, repeat: &RepeatedRange) {
        let mut kept = 0usize;
        for index in 0..self.waiting_repeats {
            let Some(&waiting) = self.repeats.get(self.first_repeat.wrapping_add(index) % MAX_REPEATS) else {
                break;
            };
            if waiting.first && repeat.contains(&waiting) {
                continue;
            }
            if let Some(slot) = self.repeats.get_mut(self.first_repeat.wrapping_add(kept) % MAX_REPEATS) {
                *slot = waiting;
            }
            kept = kept.saturating_add(1);
        }
        self.unsent = self.unsent.saturating_sub(self.waiting_repeats.saturating_sub(kept));
        self.waiting_repeats = kept;
    }

    /// Returns the next response packet.
    pub(crate) fn next(&self, mtu: u32) -> Option<NextResponse> {
        if self.waiting_repeats > 0 {
            let repeat = self.repeats.get(self.first_repeat)?;
            return Some(NextResponse {
                opcode: opcode(repeat.original, repeat.first, repeat.packets <= 1 && repeat.ends),
                sequence: repeat.next,
                address: repeat.reth.address,
                key: repeat.reth.r_key,
                len: repeat.reth.length.min(mtu),
                repeated: true,
                original: repeat.original,
            });
        }
        if self.serving >= self.len {
            return None;
        }
        let read = self.ring.get(self.wrap(self.head.wrapping_add(self.serving)))?;
        let offset = read.next.saturating_mul(mtu);
        Some(NextResponse {
            opcode: opcode(read.original, read.next == 0, read.next.saturating_add(1) >= read.packets),
            sequence: read.first.add(u64::from(read.next)),
            address: read.reth.address.wrapping_add(u64::from(offset)),
            key: read.reth.r_key,
            len: read.reth.length.saturating_sub(offset).min(mtu),
            repeated: false,
            original: read.original,
        })
    }

    /// Gives up the range whose response [`InboundReads::next`] returned: it is not sent again.
    pub(crate) fn drop_repeat(&mut self) {
        self.first_repeat = self.first_repeat.wrapping_add(1) % MAX_REPEATS;
        self.waiting_repeats = self.waiting_repeats.saturating_sub(1);
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// Accounts for the packet that [`InboundReads::next`] returned: it was sent.
    pub(crate) fn sent(&mut self, mtu: u32) {
        if self.waiting_repeats > 0 {
            return self.repeat_sent(mtu);
        }
        let at = self.wrap(self.head.wrapping_add(self.serving));
        if let Some(read) = self.ring.get_mut(at) {
            read.next = read.next.saturating_add(1);
            if read.next >= read.packets {
                self.serving = self.serving.saturating_add(1);
                self.unsent = self.unsent.saturating_sub(1);
            }
        }
    }

    #[inline(never)]
    fn repeat_sent(&mut self, mtu: u32) {
        let Some(repeat) = self.repeats.get_mut(self.first_repeat) else { return };
        if repeat.packets <= 1 {
            self.drop_repeat();
            return;
        }
        repeat.packets = repeat.packets.saturating_sub(1);
        repeat.next = repeat.next.next();
        repeat.reth.address = repeat.reth.address.wrapping_add(u64::from(mtu));
        repeat.reth.length = repeat.reth.length.saturating_sub(mtu);
        repeat.first = false;
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    fn wrap(&self, index: usize) -> usize {
        if index >= self.ring.len() { index.wrapping_sub(self.ring.len()) } else { index }
    }
}
