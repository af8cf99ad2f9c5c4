// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ requests of the peer (IBTA Volume 1, section 9.7: responder resources).

use super::sequence::Sequence;
use alloc::vec::Vec;

use crate::error::CreateError;
use fallible::vec;
use roce_wire::{Opcode, RethRepr};

/// READ requests of the peer: those being answered, and those answered that it may request again.
#[derive(Debug)]
pub(super) struct InboundReads {
    /// A ring, the oldest at `head`.
    ring: Vec<InboundRead>,
    limit: usize,
    head: usize,
    len: usize,
    /// Index of the first one with responses to send, counted from the oldest.
    serving: usize,
}

/// A READ request of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct InboundRead {
    first: Sequence,
    packets: u32,
    reth: RethRepr,
    /// The next response packet; `packets` when all are sent.
    next: u32,
    /// The packet that the responses started with, when last requested: it is sent as First or Only.
    response_start: u32,
    /// Whether all responses were sent once: a repeated request does not count against the limit.
    served: bool,
}

impl InboundRead {
    const EMPTY: Self = Self::new(Sequence::ZERO, 0, RethRepr { address: 0, r_key: 0, length: 0 });

    pub(super) const fn new(first: Sequence, packets: u32, reth: RethRepr) -> Self {
        Self { first, packets, reth, next: 0, response_start: 0, served: false }
    }
}

/// A READ response packet to send.
pub(super) struct NextResponse {
    pub(super) opcode: Opcode,
    pub(super) sequence: Sequence,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) len: u32,
    /// All responses were sent once: the peer has requested them again.
    pub(super) repeated: bool,
}

impl InboundReads {
    /// Without capacity.
    pub(super) const NONE: Self = Self { ring: Vec::new(), limit: 0, head: 0, len: 0, serving: 0 };

    /// Allocates room for `max` requests.
    pub(super) fn try_new(max: u8) -> Result<Self, CreateError> {
        Ok(Self { ring: vec::filled(usize::from(max), InboundRead::EMPTY)?, ..Self::NONE })
    }

    /// Sets how many may wait for their responses (the responder resources).
    pub(super) fn set_limit(&mut self, reads: u8) {
        self.limit = usize::from(reads).min(self.ring.len());
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.serving) = (0, 0);
    }

    #[inline]
    pub(super) fn is_serving(&self) -> bool {
        self.serving < self.len
    }

    /// Adds a READ, and forgets the oldest answered one if there is no room. Returns `false` when the limit of
    /// unanswered READs is reached.
    pub(super) fn push(&mut self, read: InboundRead) -> bool {
        let mut waiting = 0usize;
        for index in 0..self.len {
            let read = self.ring.get(self.wrap(self.head.wrapping_add(index)));
            waiting = waiting.saturating_add(usize::from(read.is_some_and(|read| !read.served)));
        }
        if waiting >= self.limit {
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
        }
        true
    }

    /// Handles a repeated request for a READ, or for the rest of one: sends the responses again if it is known.
    pub(super) fn repeat(&mut self, sequence: Sequence, reth: &RethRepr, mtu: u32) {
        for index in 0..self.len {
            let at = self.wrap(self.head.wrapping_add(index));
            let Some(read) = self.ring.get_mut(at) else { return };
            let Some(into) =
                sequence.checked_since(read.first).filter(|&into| into < u64::from(read.packets))
            else {
                continue;
            };
            // Below the length.
            let offset = into.saturating_mul(u64::from(mtu)) as u32;
            let same = reth.r_key == read.reth.r_key
                && reth.address == read.reth.address.wrapping_add(u64::from(offset))
                && reth.length == read.reth.length.saturating_sub(offset);
            // Responses that are not sent yet need no repetition.
            if same && read.next > into as u32 {
                (read.next, read.response_start) = (into as u32, into as u32);
                self.serving = self.serving.min(index);
            }
            return;
        }
    }

    /// Returns the next response packet.
    pub(super) fn next(&self, mtu: u32) -> Option<NextResponse> {
        if !self.is_serving() {
            return None;
        }
        let read = self.ring.get(self.wrap(self.head.wrapping_add(self.serving)))?;
        let offset = read.next.saturating_mul(mtu);
        let (first, last) = (read.next == read.response_start, read.next.saturating_add(1) >= read.packets);
        //= rocev2 §4
        let opcode = match (first, last) {
            (true, true) => Opcode::READ_RESPONSE_ONLY,
            (true, false) => Opcode::READ_RESPONSE_FIRST,
            (false, false) => Opcode::READ_RESPONSE_MIDDLE,
            (false, true) => Opcode::READ_RESPONSE_LAST,
        };
        Some(NextResponse {
            opcode,
            sequence: read.first.add(u64::from(read.next)),
            address: read.reth.address.wrapping_add(u64::from(offset)),
            key: read.reth.r_key,
            len: read.reth.length.saturating_sub(offset).min(mtu),
            repeated: read.served,
        })
    }

    /// Gives up the READ whose response [`InboundReads::next`] returned: its responses are not sent.
    pub(super) fn drop_serving(&mut self) {
        let at = self.wrap(self.head.wrapping_add(self.serving));
        if let Some(read) = self.ring.get_mut(at) {
            read.next = read.packets;
        }
        self.skip_answered();
    }

    /// Accounts for the packet that [`InboundReads::next`] returned: it was sent.
    pub(super) fn sent(&mut self) {
        let at = self.wrap(self.head.wrapping_add(self.serving));
        if let Some(read) = self.ring.get_mut(at) {
            read.next = read.next.saturating_add(1);
            read.served |= read.next >= read.packets;
        }
        self.skip_answered();
    }

    fn skip_answered(&mut self) {
        // Later READs may have been answered before an earlier one was requested again.
        while self.is_serving() {
            let at = self.wrap(self.head.wrapping_add(self.serving));
            if self.ring.get(at).is_some_and(|read| read.next < read.packets) {
                break;
            }
            self.serving = self.serving.saturating_add(1);
        }
    }

    /// Returns `index` modulo the capacity; `index` is below twice the capacity.
    fn wrap(&self, index: usize) -> usize {
        if index >= self.ring.len() { index.wrapping_sub(self.ring.len()) } else { index }
    }
}
