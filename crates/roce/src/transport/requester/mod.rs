// SPDX-License-Identifier: MIT OR Apache-2.0

//! State of the requester: which packets of the send queue are sent and acknowledged.
//!
//! Sequence numbers, oldest first. `una` and `next` are TCP's SND.UNA and SND.NXT (RFC 9293, section 3.3.1):
//!
//! ```text
//!   una            next             high             send_queue.end()
//!    | unanswered   | to be sent     | to be sent     |
//!    |              | again          | for the first  |
//!    |              |                | time           |
//! ```
//!
//! A long READ is requested in chunks of 64 to 256 packets: a quarter of the window between these limits. So the window bounds the
//! responses in flight, and what is lost of a chunk is one request ([`self::reads::gaps`]). Chunk boundaries never move: a responder
//! finds any part of a chunk inside one READ that it remembers.

mod completer;
mod local_requests;
pub(crate) mod reads;
pub(crate) mod recovery;
mod retransmit_timer;
pub(crate) mod send_queue;
mod transmit;

use core::mem::offset_of;

use self::reads::gaps::ReadGaps;
use self::reads::sinks::ReadSinks;
use self::recovery::Recovery;
use self::recovery::retransmission::Resend;
use self::recovery::round_trip::ReadSample;
use self::send_queue::Wqe;
use crate::config::Config;
use crate::error::CreateError;
use crate::sge_cursor::SgeCursor;
use crate::time::Instant;
use crate::transport::out_of_order::OutOfOrder;
use crate::transport::peer::Peer;
use crate::transport::sequence::{Sequence, SequenceSpace};
use crate::work::CompletionStatus;
use roce_wire::{PathMtu, RethRepr};

/// The requester half. What each packet uses is in the middle: see [`crate::transport::rc_transport`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Requester {
    /// Which responses are requested again.
    pub(crate) gaps: ReadGaps,
    pub(crate) psns: SequenceSpace,
    /// Bytes per packet.
    pub(crate) mtu: u32,
    /// A packet whose sequence number has all of these bits set requests an ACK.
    pub(crate) ack_mask: u64,
    /// Limit of outstanding READ request packets.
    pub(crate) max_reads: u32,

    /// Index of the request that `next` belongs to, counted from the oldest.
    pub(crate) index: u32,
    /// Number of READs before that request.
    pub(crate) reads_before: u32,
    /// Position of the next packet's payload in the request at `index`.
    pub(crate) cursor: SgeCursor,
    /// First sequence number of a request that cannot be sent, and its status once it is the oldest.
    pub(crate) failed_request: Option<(Sequence, CompletionStatus)>,
    /// The oldest unacknowledged packet.
    pub(crate) una: Sequence,
    /// The next packet to send.
    pub(crate) next: Sequence,
    /// The first packet that was never sent; above `next` after going back.
    pub(crate) high: Sequence,
    pub(crate) recovery: Recovery,

    /// Outstanding READ request packets.
    pub(crate) reads_in_flight: u32,
    /// The end of the last READ that was requested.
    pub(crate) reads_end: Sequence,
    /// Position of the next response's payload in the oldest READ.
    pub(crate) response_cursor: SgeCursor,
    /// Responses to that READ and to those behind it that arrived after a gap.
    pub(crate) out_of_order: OutOfOrder,
    /// Which of them are stored.
    pub(crate) sinks: ReadSinks,
    pub(crate) read_sample: ReadSample,
    /// Everything before it is acknowledged but READs whose responses are missing.
    pub(crate) acknowledged: Sequence,
    /// The newest response after a gap; `None` without a gap. Without early placement.
    pub(crate) newest_after_gap: Option<Sequence>,
}

impl Requester {
    /// Offset from which on each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, gaps) + ReadGaps::USUAL;

    /// Before the peer is known.
    pub(crate) const IDLE: Self = Self {
        psns: SequenceSpace::START_AT_ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        ack_mask: 0,
        max_reads: 0,
        una: Sequence::ZERO,
        next: Sequence::ZERO,
        high: Sequence::ZERO,
        index: 0,
        reads_before: 0,
        reads_in_flight: 0,
        reads_end: Sequence::ZERO,
        cursor: SgeCursor::START,
        response_cursor: SgeCursor::START,
        out_of_order: OutOfOrder::EMPTY,
        gaps: ReadGaps::EMPTY,
        sinks: ReadSinks::NEW,
        read_sample: ReadSample::NONE,
        acknowledged: Sequence::ZERO,
        newest_after_gap: None,
        failed_request: None,
        recovery: Recovery::IDLE,
    };

    /// Allocates what it will ever need.
    pub(crate) fn initialize(&mut self, config: &Config) -> Result<(), CreateError> {
        self.out_of_order = OutOfOrder::try_new(config.most_in_flight())?;
        self.gaps = ReadGaps::try_new(config.max_reads.outbound)?;
        Ok(())
    }

    pub(crate) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.psns = SequenceSpace { start: peer.send_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.ack_mask = u64::from(config.ack_every.clamp(1, 1 << 16).next_power_of_two() - 1);
        self.max_reads = u32::from(peer.reads.outbound.min(config.max_reads.outbound));
        self.recovery.begin(peer, config);
    }

    /// Stops: nothing is sent, nothing is awaited.
    pub(crate) fn stop(&mut self) {
        self.una = self.high;
        self.next = self.high;
        self.failed_request = None;
        self.gaps.clear();
        self.recovery.stop();
    }

    /// Returns whether a packet is sent and not acknowledged.
    pub(crate) fn waiting(&self) -> bool {
        self.una < self.next
    }

    /// Returns the first packet of the chunk of `wqe`, a READ, that `sequence` is in.
    pub(crate) fn chunk_first(wqe: &Wqe, sequence: Sequence) -> Sequence {
        let into = sequence.since(wqe.first);
        wqe.first.add(into >> wqe.chunk_shift << wqe.chunk_shift)
    }

    /// Returns the end of the chunk of `wqe`, a READ, that `sequence` is in.
    pub(crate) fn chunk_end(wqe: &Wqe, sequence: Sequence) -> Sequence {
        let into = sequence.since(wqe.first);
        let end = (into >> wqe.chunk_shift).saturating_add(1) << wqe.chunk_shift;
        wqe.first.add(end).min(wqe.end())
    }

    /// Returns what a request for the packets from `first` to `end` of `wqe` asks for, a READ from `address` on.
    pub(crate) fn part(&self, wqe: &Wqe, first: Sequence, end: Sequence, address: u64, key: u32) -> RethRepr {
        // Below the length, which is a `u32`.
        let offset = (first.since(wqe.first) as u32).wrapping_mul(self.mtu);
        let rest = u64::from(wqe.length.saturating_sub(offset));
        let length = end.since(first).saturating_mul(u64::from(self.mtu)).min(rest) as u32;
        RethRepr { address: address.wrapping_add(u64::from(offset)), r_key: key, length }
    }

    /// Accounts for a READ response that was missing.
    #[inline]
    pub(crate) fn response_received(&mut self, sequence: Sequence, now: Instant) {
        if let Some(measured) = self.read_sample.receive(sequence, now) {
            self.recovery.measure_responses(measured);
        }
    }

    /// Accounts for READ responses of `wqe` received from `before` up to `una`.
    pub(crate) fn responses_received(&mut self, wqe: &Wqe, before: Sequence) {
        let chunks = Self::chunks(wqe, self.una).saturating_sub(Self::chunks(wqe, before));
        self.reads_in_flight = self.reads_in_flight.saturating_sub(chunks);
    }

    /// Returns how many chunks of `wqe`, a READ, end at or before `sequence`.
    fn chunks(wqe: &Wqe, sequence: Sequence) -> u32 {
        let into = sequence.since(wqe.first);
        if sequence >= wqe.end() { chunks_of(into, wqe) } else { (into >> wqe.chunk_shift) as u32 }
    }

    /// Returns the end of the packets that a peer may store while it misses one of `oldest`. READs that were requested are
    /// requested again, so that the number of those in flight is known.
    pub(crate) fn storable(&self, oldest: &Wqe) -> Sequence {
        if self.una >= self.reads_end { self.high } else { oldest.end() }
    }

    /// Returns what to resend of `wqe`, the oldest READ, after a response was lost.
    pub(crate) fn resend_read(&self, wqe: &Wqe) -> Resend {
        Resend::Read(wqe.end().min(self.high))
    }

    /// Advances to the request after `wqe`, which is sent or executed.
    #[inline]
    pub(crate) fn advance_request(&mut self, wqe: &Wqe) {
        self.reads_before = self.reads_before.saturating_add(u32::from(wqe.is_read()));
        self.index = self.index.saturating_add(1);
        self.cursor = SgeCursor::default();
    }

    /// Accounts for `wqe`, which was the oldest request and has left the queue.
    #[inline]
    pub(crate) fn request_completed(&mut self, wqe: &Wqe) {
        if let Some(index) = self.index.checked_sub(1) {
            self.index = index;
            self.reads_before = self.reads_before.saturating_sub(u32::from(wqe.is_read()));
        } else {
            self.cursor = SgeCursor::default();
        }
        if wqe.is_read() {
            self.response_cursor = SgeCursor::default();
        }
    }

    /// Handles progress: everything before `una` is acknowledged.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    pub(crate) fn handle_progress(&mut self, now: Instant) {
        // What is acknowledged need not be sent again.
        if self.next < self.una {
            self.next = self.una;
            self.index = 0;
            self.reads_before = 0;
            self.cursor = SgeCursor::default();
        }
        self.recovery.handle_progress(self.una, now);
    }

    /// Goes back to the oldest unacknowledged packet, which belongs to `oldest`.
    pub(crate) fn go_back(&mut self, now: Instant, kind: Resend, oldest: Option<&Wqe>) {
        self.recovery.record_go_back(self.una, self.high, kind, now);
        self.gaps.clear();
        self.next = self.una;
        self.index = 0;
        self.reads_before = 0;
        // Chunks that are requested again count again.
        self.reads_in_flight = match (kind, oldest) {
            (Resend::Read(resume), Some(wqe)) => {
                let end = Self::chunk_end(wqe, self.una);
                chunks_of(resume.since(end), wqe)
            }
            _ => 0,
        };
        self.cursor = SgeCursor::default();
    }
}

/// Returns the number of chunks of `wqe`, a READ, that as many packets need.
fn chunks_of(packets: u64, wqe: &Wqe) -> u32 {
    let less = (1u64 << wqe.chunk_shift).wrapping_sub(1);
    (packets.saturating_add(less) >> wqe.chunk_shift) as u32
}
