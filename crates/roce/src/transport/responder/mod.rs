// SPDX-License-Identifier: MIT OR Apache-2.0

//! The responder: executes the peer's requests in PSN order, and answers them (IBTA Volume 1, section 9.7).
//!
//! | file | content |
//! | --- | --- |
//! | `requests` | received requests: the expected one, duplicates, those after a gap |
//! | `execution`, `message` | execution of a request; the message that it belongs to |
//! | `atomics` | execution of atomic operations |
//! | [`gaps`] | packets after a gap: placed, stored, and executed once the gap is filled |
//! | `acknowledge` | ACKs, NAKs and READ responses to send |
//! | [`receives`], [`inbound_reads`] | posted receives; READ requests of the peer |
//! | `life_cycle` | reset of a queue pair that its owner connects |
//! | `fatal_nak` | NAKs that end the connection |
//!
//! The responder knows neither the state of the queue pair nor its connection: no packet reaches it before the peer is known, and
//! what it returns as a [`Failure`](super::failure::Failure) ends the connection.

mod acknowledge;
mod atomics;
mod execution;
pub(super) mod fatal_nak;
pub(crate) mod gaps;
pub(crate) mod inbound_reads;
pub(super) mod life_cycle;
pub(super) mod message;
pub(crate) mod receives;
mod requests;

use lock_api::RawMutex;

use self::gaps::named::Hints;
use self::gaps::stash::{Standstill, Stash};
use self::inbound_reads::InboundReads;
use self::message::InboundMessage;
use self::receives::Receives;
use super::env::Env;
use super::out_of_order::OutOfOrder;
use super::peer::Peer;
use super::sequence::{Sequence, SequenceSpace};
use crate::config::Config;
use crate::error::CreateError;
use crate::qp_attributes::QpSpec;
use crate::region::access_rights::Access;
use crate::work::CompletionStatus;
use roce_wire::{AethRepr, NakCode, PathMtu, Syndrome, SyndromeKind, rnr_timer_code};

/// The responder. What each packet uses comes first: see [`cache_lines`](super::cache_lines).
#[derive(Debug)]
#[repr(C)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Responder {
    pub(super) receives: Receives,
    /// Packets after the gap that are placed.
    pub(super) out_of_order: OutOfOrder,
    /// Sequence number of the next request packet: the expected PSN (ePSN).
    expected: Sequence,
    /// Everything before this is acknowledged.
    acknowledged: Sequence,
    message: InboundMessage,
    /// The newest request packet after a gap; `None` without a gap. The next packet after the gap that is not newer reports
    /// it.
    newest_after_gap: Option<Sequence>,
    psns: SequenceSpace,
    mtu: u32,
    nak_pending: Option<(Syndrome, Sequence)>,
    /// Message sequence number (MSN): completed request messages.
    msn: u32,
    /// An ACK for everything before `expected` is to be sent.
    ack_pending: bool,
    /// It is sent once more.
    nak_twice: bool,
    /// The expected packet is stored and is executed before the next frame is sent.
    executing: bool,
    /// The last frame sent was a response, so a request may go first.
    pub(super) responded: bool,
    /// The expected packet found no receive: what follows it is sent again anyway.
    without_receive: bool,
    /// Stored packets were executed without being sent again: the peer repeats selectively, and heeds one of two NAKs for the
    /// same packet.
    peer_repeats_selectively: bool,
    /// Timer code in RNR NAKs.
    rnr_code: u8,
    /// Operations that the peer may request.
    access: Access,
    pub(super) reads: InboundReads,
    /// Packets after the gap that are stored.
    stash: Stash,
    /// `None` unless packets were stored lately.
    standstill: Option<Standstill>,
    hints: Hints,
}

impl Responder {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        receives: Receives::NONE,
        psns: SequenceSpace::START_AT_ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        expected: Sequence::ZERO,
        msn: 0,
        message: InboundMessage::None,
        newest_after_gap: None,
        out_of_order: OutOfOrder::EMPTY,
        stash: Stash::EMPTY,
        standstill: None,
        hints: Hints::NONE,
        executing: false,
        without_receive: false,
        reads: InboundReads::NONE,
        ack_pending: false,
        acknowledged: Sequence::ZERO,
        nak_pending: None,
        nak_twice: false,
        peer_repeats_selectively: false,
        rnr_code: 0,
        access: Access::REMOTE,
        responded: false,
    };

    /// Allocates everything that the responder of a queue pair will ever need.
    pub(super) fn initialize<R: RawMutex>(
        &mut self,
        spec: &QpSpec<R>,
        config: &Config,
    ) -> Result<(), CreateError> {
        self.receives.initialize(spec)?;
        self.reads = InboundReads::try_new(config.max_reads.inbound)?;
        self.out_of_order = OutOfOrder::try_new(config.most_in_flight())?;
        self.rnr_code = rnr_timer_code(config.timing.rnr_timer);
        Ok(())
    }

    /// Sets the parameters of the connection.
    pub(super) fn begin(&mut self, peer: &Peer) {
        self.psns = SequenceSpace::with(peer.receive_psn, self.expected);
        self.mtu = peer.mtu.bytes() as u32;
        self.access = peer.access;
        if let Some(code) = peer.rnr_timer {
            self.rnr_code = code;
        }
        self.reads.set_limit(peer.reads.inbound);
    }

    /// Drops all pending responses.
    pub(super) fn stop(&mut self) {
        self.ack_pending = false;
        self.nak_pending = None;
        self.nak_twice = false;
        self.hints = Hints::NONE;
        self.reads.clear();
    }

    /// Flushes all receives and forgets packets after a gap. A pending NAK and READ responses are still sent.
    pub(super) fn flush<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        // Neither executed nor missed any longer: the report of a gap would take the place of a pending NAK.
        self.executing = false;
        self.out_of_order.clear();
        self.stash.clear(&env.shared.stash);
        self.nak_twice = false;
        self.hints = Hints::NONE;
        //= R-SRQ-20
        self.receives.fail_current(env, CompletionStatus::Flushed);
        //= R-QP-66
        self.receives.drain(env);
    }

    /// Returns whether a response is to be sent.
    #[inline]
    pub(super) fn has_response(&self) -> bool {
        self.ack_pending || self.nak_pending.is_some() || self.reads.is_serving()
    }

    /// Returns the NAK that ends the connection and is to be sent.
    pub(super) fn fatal_nak(&self) -> Option<NakCode> {
        //= rocev2 §9
        match self.nak_pending.map(|(syndrome, _)| syndrome.kind()) {
            Some(SyndromeKind::Nak(code)) if code != NakCode::PSN_SEQUENCE => Some(code),
            _ => None,
        }
    }

    fn aeth(&self, syndrome: Syndrome) -> AethRepr {
        AethRepr { syndrome, msn: self.msn }
    }

    /// Ends the current message. Packets placed after its end belong to another message and are forgotten.
    #[inline]
    fn end_message(&mut self) {
        self.message = InboundMessage::None;
        self.out_of_order.clear();
        self.complete_msn();
    }

    /// Counts a completed request message.
    fn complete_msn(&mut self) {
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
    }
}

#[cfg(test)]
mod tests;
