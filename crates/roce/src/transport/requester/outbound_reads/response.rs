// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ responses and their places in the memory of the READ.

use lock_api::RawMutex;

use crate::region::access_rights::AccessError;
use crate::sge_cursor::{SgeCursor, TooShort};
use crate::transport::env::Env;
use crate::transport::packet::payload_copy::MIN_LENGTH;
use crate::transport::packet::pieces::Pieces;
use crate::transport::requester::payload::Payload;
use crate::transport::requester::send_queue::{SendQueue, Wqe};
use crate::transport::sequence::Sequence;
use crate::work::Sge;
use roce_wire::{Operation, Packet};

/// A response to a READ of the send queue.
#[derive(Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) wqe: &'a Wqe,
    /// Memory of the READ; `None` if the request has none.
    sges: Option<&'a [Sge]>,
    pub(crate) sequence: Sequence,
    /// Offset of the payload in the memory, in bytes.
    offset: u32,
    packet: &'a Packet<'a>,
    /// Result of an atomic operation, instead of the payload.
    original: Option<[u8; 8]>,
}

impl<'a> Response<'a> {
    /// Returns the response at `sequence` to `wqe`, a READ of `queue` with `mtu` bytes per packet.
    #[inline]
    pub(crate) fn new(
        queue: &'a SendQueue,
        wqe: &'a Wqe,
        mtu: u32,
        sequence: Sequence,
        packet: &'a Packet<'a>,
    ) -> Self {
        let offset = sequence.since(wqe.first).saturating_mul(u64::from(mtu)) as u32;
        let sges = match queue.payload(wqe) {
            Payload::Sges(sges) => Some(sges),
            Payload::Inline(_) => None,
        };
        let original = packet.atomic_ack_eth().filter(|_| wqe.is_atomic());
        let original = original.map(|header| header.original().to_ne_bytes());
        Self { wqe, sges, sequence, offset, packet, original }
    }

    /// Returns whether it begins an answer that is not the answer to the request for its whole chunk.
    pub(crate) fn begins_within_chunk(&self) -> bool {
        self.packet.info().first && self.wqe.chunk_first(self.sequence) != self.sequence
    }

    /// Returns whether it has the expected length and ends the chunk where it must. `repeated` tells whether parts of chunks were
    /// requested again.
    pub(crate) fn fits(&self, mtu: u32, repeated: bool) -> bool {
        let expected = self.wqe.length.saturating_sub(self.offset).min(mtu);
        // After a loss a responder may start with First or continue with Middle (rocev2 §6), and ends where the request for what
        // is missing does, but it must end at the end of the chunk.
        let ends = self.sequence.next() == self.wqe.chunk_end(self.sequence);
        let last = self.packet.info().last;
        let is_of_kind = (self.packet.info().operation == Operation::Atomic) == self.wqe.is_atomic();
        is_of_kind && (last == ends || last && repeated) && self.payload().len() == expected as usize
    }

    /// Returns what goes to the memory of the READ.
    #[inline]
    fn payload(&self) -> &[u8] {
        self.original.as_ref().map_or(self.packet.payload(), |original| original)
    }

    /// Returns the pieces of the memory that the payload takes, and advances `sink` over them. Returns `None` if the payload is
    /// short, or there are too many pieces.
    pub(crate) fn pieces(&self, sink: &mut SgeCursor) -> Option<Pieces> {
        let length = self.payload().len() as u32;
        match self.sges {
            Some(sges) if length >= MIN_LENGTH => Pieces::collect(sink, sges, self.offset, length),
            _ => None,
        }
    }

    /// Copies the payload to the memory, and advances `sink` over it.
    #[inline]
    pub(crate) fn store<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        sink: &mut SgeCursor,
    ) -> Result<(), AccessError> {
        self.walk(sink, |sge, within, bytes| env.regions.write_local(env.qp.pd, sge, within, bytes))
    }

    /// Returns whether the memory holds the payload.
    #[inline(never)]
    pub(crate) fn is_stored<R: RawMutex>(&self, env: &Env<'_, R>, mut sink: SgeCursor) -> bool {
        let held = self.walk(&mut sink, |sge, within, bytes| {
            let held = env.regions.holds_local(env.qp.pd, sge, within, bytes);
            held.then_some(()).ok_or(AccessError)
        });
        held.is_ok()
    }

    /// Calls `each` for the pieces of the memory that the payload takes.
    #[inline]
    fn walk(
        &self,
        sink: &mut SgeCursor,
        mut each: impl FnMut(&Sge, u32, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let sges = self.sges.ok_or(AccessError)?;
        let mut rest = self.payload();
        sink.seek(sges, self.offset).map_err(|TooShort| AccessError)?;
        sink.walk(sges, rest.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            each(sge, within, now)
        })
    }
}
