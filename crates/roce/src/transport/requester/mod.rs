// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requester: sends the requests of the send queue, and completes them when the peer has answered (IBTA Volume 1,
//! section 9.7).
//!
//! | file | content |
//! | --- | --- |
//! | `transmit`, `payload`, `read_requests` | packets of SENDs and WRITEs; READ requests |
//! | `local_requests` | requests that send nothing: registrations, binds, invalidations |
//! | `responses`, `read_responses` | received ACKs and NAKs; READ responses |
//! | `completion`, `barrier` | completed requests; one that cannot be sent |
//! | `loss` | lost packets, and what is sent again |
//! | `life_cycle` | reset, and what the owner of a queue pair sets that it connects itself |
//! | `retransmit_timer` | ACK timeout, and the wait after an RNR NAK |
//! | [`send_queue`], `position` | requests from post to completion; how far they are sent |
//! | [`reads`] | outstanding READs: which responses have arrived, which are requested again |
//! | [`recovery`] | retransmission: round-trip time, window, retry counters, go-back-N or selective repeat |
//!
//! The requester knows neither the state of the queue pair nor its connection: nothing can be posted before the connection is
//! established, and [`life_cycle::flush`] ends everything.
//!
//! # Sequence numbers
//!
//! Oldest first. `una` and `next` are TCP's SND.UNA and SND.NXT (RFC 9293, section 3.3.1):
//!
//! ```text
//!   una            next             high             send_queue.end()
//!    | unanswered   | to be sent     | to be sent     |
//!    |              | again          | for the first  |
//!    |              |                | time           |
//! ```

mod barrier;
mod completion;
pub(super) mod life_cycle;
pub(super) mod local_requests;
mod loss;
pub(crate) mod outbound_reads;
mod payload;
mod position;
mod read_requests;
mod read_responses;
pub(crate) mod recovery;
mod responses;
mod retransmit_timer;
pub(crate) mod send_queue;
pub(super) mod transmit;

use lock_api::RawMutex;

use self::barrier::Barrier;
use self::outbound_reads::{Reads, Requested};
use self::position::Position;
use self::recovery::retransmission::Resend;
use self::recovery::{Recovery, hints};
use self::send_queue::SendQueue;
use super::env::Env;
use super::peer::Peer;
use super::sequence::{Sequence, SequenceSpace};
use crate::config::Config;
use crate::error::CreateError;
use crate::qp_attributes::QpSpec;
use crate::time::Instant;
use crate::trace::TraceEvent;
use roce_wire::PathMtu;

/// The requester. What each packet uses is at the start of the send queue and in the middle: see
/// [`cache_lines`](super::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Requester {
    pub(super) send_queue: SendQueue,
    pub(super) reads: Reads,
    pub(super) psns: SequenceSpace,
    /// Bytes per packet.
    pub(super) mtu: u32,
    /// A packet whose sequence number has all of these bits set requests an ACK.
    ack_mask: u64,
    /// The request that `next` belongs to.
    position: Position,
    barrier: Barrier,
    /// The oldest unacknowledged packet.
    pub(super) una: Sequence,
    /// The next packet to send.
    next: Sequence,
    /// The first packet that was never sent; above `next` after going back.
    pub(super) high: Sequence,
    pub(super) recovery: Recovery,
}

impl Requester {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        send_queue: SendQueue::EMPTY,
        reads: Reads::NONE,
        psns: SequenceSpace::START_AT_ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        ack_mask: 0,
        position: Position::OLDEST,
        barrier: Barrier::NONE,
        una: Sequence::ZERO,
        next: Sequence::ZERO,
        high: Sequence::ZERO,
        recovery: Recovery::IDLE,
    };

    /// Allocates everything that the requester of a queue pair will ever need.
    pub(super) fn initialize<R: RawMutex>(
        &mut self,
        spec: &QpSpec<R>,
        config: &Config,
    ) -> Result<(), CreateError> {
        self.send_queue = SendQueue::try_new(spec.send_depth, spec.send_sges, spec.inline)?;
        self.send_queue.set_wide(config.read_sges);
        self.reads.initialize(config)
    }

    /// Sets the parameters of the connection.
    pub(super) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.psns = SequenceSpace::with(peer.send_psn, self.una);
        self.mtu = peer.mtu.bytes() as u32;
        self.ack_mask = u64::from(config.ack_every.clamp(1, 1 << 16).next_power_of_two() - 1);
        self.reads.set_limit(u32::from(peer.reads.outbound.min(config.max_reads.outbound)));
        self.recovery.begin(peer, config);
    }

    /// Returns whether [`Requester::transmit`] may have a packet.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    pub(super) fn wants_to_send(&self) -> bool {
        self.recovery.rnr_until.is_none()
            && ((self.next < self.send_queue.end() || self.send_queue.has_pending_local())
                && !self.recovery.awaits_answer(self.una, self.next)
                || self.una < self.next && self.reads.gaps.is_wanted())
    }

    /// Returns the READs, and the requests that they are among.
    fn reads<R: RawMutex>(&mut self, env: &Env<'_, R>) -> (&mut Reads, Requested<'_>) {
        let requested = Requested {
            queue: &self.send_queue,
            una: self.una,
            high: self.high,
            mtu: self.mtu,
            now: env.now,
            round_trip: self.recovery.window.round_trip(),
        };
        (&mut self.reads, requested)
    }

    /// Accounts for the packets sent, up to `end`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    fn sent<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence, ack_req: bool) {
        let recovery = &mut self.recovery;
        if self.high == self.una {
            recovery.start_waiting(env.now);
        }
        let sequence = self.next;
        self.next = end;
        let first = sequence >= self.high;
        if ack_req {
            recovery.record_ack_request(self.una, sequence, end, first, env.now);
        }
        if !first {
            env.stats.retransmissions.inc();
            env.trace(self.psns.psn(sequence), TraceEvent::Retransmitted);
            self.next = hints::resume_after_resend(recovery, self.una, (sequence, end), env.now);
            if self.next < end {
                self.position = Position::OLDEST;
            }
        }
        self.high = self.high.max(self.next);
    }

    /// Handles progress: everything before `una` is acknowledged.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    fn handle_progress(&mut self, now: Instant) {
        // What is acknowledged need not be sent again.
        if self.next < self.una {
            let next = self.recovery.hinted.continue_from(self.una);
            if next == self.una {
                // Responses that are missing are requested with all after them.
                self.reads.gaps.clear();
            }
            self.send_from(next);
        }
        self.recovery.handle_progress(self.una, now);
    }

    /// Goes back to the oldest unacknowledged packet. `kind` tells what is sent again from there on.
    fn go_back(&mut self, now: Instant, kind: Resend) {
        self.recovery.record_go_back(self.una, self.high, kind, now);
        // Chunks that are requested again count again.
        let kept = match (kind, self.send_queue.front()) {
            (Resend::Read(resume), Some(oldest)) => Some((oldest, resume)),
            _ => None,
        };
        self.reads.go_back(self.una, kept);
        self.send_from(self.una);
    }

    /// Continues with the packet at `next`.
    fn send_from(&mut self, next: Sequence) {
        self.next = next;
        self.position = Position::OLDEST;
    }
}

#[cfg(test)]
mod tests;
