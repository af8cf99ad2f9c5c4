// SPDX-License-Identifier: MIT OR Apache-2.0

//! State of the responder: expected PSN, current message, pending ACK and NAK.

mod acknowledge;
mod execute;
pub(crate) mod gaps;
pub(crate) mod inbound_reads;

use self::gaps::stash::{Stash, StashMemory};
use self::inbound_reads::InboundReads;
use crate::config::Config;
use crate::error::CreateError;
use crate::transport::out_of_order::OutOfOrder;
use crate::transport::peer::Peer;
use crate::transport::sequence::{Sequence, SequenceSpace};
use lock_api::RawMutex;
use roce_wire::{
    AethRepr, NakCode, OpcodeInfo, Operation, Packet, PathMtu, RethRepr, Syndrome, SyndromeKind,
    rnr_timer_code,
};

/// Packets accepted without AckReq before an ACK is sent anyway. A requester that requests few ACKs (rxe: one
/// in 66 packets, with a window of 128) would wait for its timer when one is lost.
pub(crate) const MAX_UNACKNOWLEDGED: u64 = 32;

/// A packet that is so far after the expected one shows a loss, and not only that some packets were reordered (compare
/// RFC 5681, section 3.2: three duplicate ACKs).
const REORDERED: u64 = 3;

/// Maximum message length (IBTA Volume 1, chapter 9): 2^31 bytes.
pub(crate) const MAX_LENGTH: u32 = 1 << 31;

/// State of the responder. What each packet uses is in the middle: see [`crate::transport::rc_transport`].
#[derive(Debug)]
#[repr(C)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Responder {
    /// Packets after the gap that are placed.
    pub(crate) out_of_order: OutOfOrder,
    /// Sequence number of the next request packet: the expected PSN (ePSN).
    pub(crate) expected: Sequence,
    /// Everything before this is acknowledged.
    pub(crate) acknowledged: Sequence,
    pub(crate) message: InboundMessage,
    /// The newest request packet after a gap; `None` without a gap. The next packet after the gap that is not newer reports
    /// it.
    pub(crate) newest_after_gap: Option<Sequence>,
    pub(crate) psns: SequenceSpace,
    pub(crate) mtu: u32,
    pub(crate) nak_pending: Option<(Syndrome, Sequence)>,
    /// Message sequence number (MSN): completed request messages.
    msn: u32,
    /// An ACK for everything before `expected` is to be sent.
    pub(crate) ack_pending: bool,
    /// It is sent once more.
    pub(crate) nak_twice: bool,
    /// The expected packet is stored and is executed before the next frame is sent.
    pub(crate) executing: bool,
    /// The last frame sent was a response, so a request may go first.
    pub(crate) responded: bool,
    /// The expected packet found no receive: what follows it is sent again anyway.
    pub(crate) without_receive: bool,
    /// Stored packets were executed without being sent again: the peer repeats selectively, and heeds one of two NAKs for the
    /// same packet.
    pub(crate) peer_repeats_selectively: bool,
    /// Timer code in RNR NAKs.
    pub(crate) rnr_code: u8,
    pub(crate) reads: InboundReads,
    /// Packets after the gap that are stored.
    pub(crate) stash: Stash,
}

/// The message being received.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InboundMessage {
    /// Between messages.
    None,
    /// A SEND, into the current receive.
    Send,
    Write {
        address: u64,
        key: u32,
        total: u32,
        left: u32,
    },
}

impl InboundMessage {
    /// Returns whether a packet of this kind may come next.
    #[inline]
    pub(crate) fn continues_with(self, info: &OpcodeInfo) -> bool {
        //= rocev2 §6
        match (self, info.operation) {
            (Self::None, _) => info.first,
            (Self::Send, Operation::Send) | (Self::Write { .. }, Operation::Write) => !info.first,
            _ => false,
        }
    }
}

impl Responder {
    /// Before the peer is known.
    pub(crate) const IDLE: Self = Self {
        psns: SequenceSpace::START_AT_ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        expected: Sequence::ZERO,
        msn: 0,
        message: InboundMessage::None,
        newest_after_gap: None,
        out_of_order: OutOfOrder::EMPTY,
        stash: Stash::EMPTY,
        executing: false,
        without_receive: false,
        reads: InboundReads::NONE,
        ack_pending: false,
        acknowledged: Sequence::ZERO,
        nak_pending: None,
        nak_twice: false,
        peer_repeats_selectively: false,
        rnr_code: 0,
        responded: false,
    };

    pub(crate) fn initialize(&mut self, config: &Config) -> Result<(), CreateError> {
        self.reads = InboundReads::try_new(config.max_reads.inbound)?;
        self.out_of_order = OutOfOrder::try_new(config.most_in_flight())?;
        self.rnr_code = rnr_timer_code(config.timing.rnr_timer);
        Ok(())
    }

    pub(crate) fn begin(&mut self, peer: &Peer) {
        self.psns = SequenceSpace { start: peer.receive_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.reads.set_limit(peer.reads.inbound);
    }

    /// Drops all pending responses.
    pub(crate) fn stop(&mut self) {
        self.ack_pending = false;
        self.nak_pending = None;
        self.nak_twice = false;
        self.reads.clear();
    }

    /// Returns whether the last frame was a response, and clears that.
    #[inline]
    pub(crate) fn take_responded(&mut self) -> bool {
        core::mem::take(&mut self.responded)
    }

    /// Returns whether a response is to be sent.
    #[inline]
    pub(crate) fn has_response(&self) -> bool {
        self.ack_pending || self.nak_pending.is_some() || self.reads.is_serving()
    }

    /// Returns whether the next response is a READ response.
    pub(crate) fn is_serving(&self) -> bool {
        self.reads.is_serving()
    }

    /// Returns whether a NAK that ends the connection is to be sent.
    pub(crate) fn is_fatal_nak_pending(&self) -> bool {
        //= rocev2 §9
        match self.nak_pending.map(|(syndrome, _)| syndrome.kind()) {
            Some(SyndromeKind::Nak(code)) => code != NakCode::PSN_SEQUENCE,
            _ => false,
        }
    }

    pub(crate) fn aeth(&self, syndrome: Syndrome) -> AethRepr {
        AethRepr { syndrome, msn: self.msn }
    }

    /// Ends the current message. Packets placed after its end belong to another message and are forgotten.
    #[inline]
    pub(crate) fn end_message(&mut self) {
        self.message = InboundMessage::None;
        self.out_of_order.clear();
        self.complete_msn();
    }

    /// Counts a completed request message.
    pub(crate) fn complete_msn(&mut self) {
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
    }

    /// Handles a packet after a gap. `answer_requested` tells whether the peer waits for an answer to it, `is_late` that it is
    /// stored now and was not before: if packets after it have arrived, they have overtaken it.
    pub(crate) fn handle_gap(&mut self, sequence: Sequence, answer_requested: bool, is_late: bool) {
        //= rocev2 §6
        // One NAK per gap. A PSN that does not rise shows that the requester went back and its first packet was
        // lost again; without a second NAK that would cost a timeout.
        let report = match self.newest_after_gap {
            None | Some(Sequence::MAX) => true,
            Some(newest) if sequence <= newest && is_late => return,
            Some(newest) => sequence <= newest,
        };
        if report {
            // The next packets may only have overtaken the expected one.
            if !answer_requested && sequence.since(self.expected) < REORDERED {
                self.newest_after_gap = Some(Sequence::MAX);
                return;
            }
            self.report_gap();
        }
        self.newest_after_gap = Some(sequence);
    }

    /// Reports that the expected packet is missing.
    pub(crate) fn report_gap(&mut self) {
        self.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), self.expected));
        // A lost NAK costs a timeout, since nothing follows once the peer's window is full.
        self.nak_twice = self.peer_repeats_selectively;
    }

    /// Reports the gap at which the execution of stored packets ended, if there is one: packets after it have arrived.
    pub(crate) fn report_next_gap<R: RawMutex>(&mut self, memory: &StashMemory<R>) {
        let stored = !self.out_of_order.is_empty() || !self.stash.is_empty();
        if stored && !self.executing && !self.stash.contains(self.expected, memory) {
            self.report_gap();
            self.newest_after_gap = Some(self.out_of_order.newest().max(self.expected));
        }
    }

    /// Handles a duplicate packet.
    pub(crate) fn handle_duplicate(&mut self, sequence: Sequence, packet: &Packet<'_>) {
        //= rocev2 §6
        match (packet.info().operation, packet.reth()) {
            (Operation::Read, Some(reth)) => {
                self.reads.repeat(sequence, &RethRepr::parse(&reth), self.mtu);
            }
            // Atomics are never executed, so never acknowledged.
            (Operation::Atomic, _) => {}
            _ => self.ack_pending = true,
        }
    }
}
