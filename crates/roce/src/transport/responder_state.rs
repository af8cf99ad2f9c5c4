// SPDX-License-Identifier: MIT OR Apache-2.0

//! State of the responder: expected PSN, current message, pending ACK and NAK.

use super::inbound_reads::InboundReads;
use super::out_of_order::OutOfOrder;
use super::peer::Peer;
use super::sequence::{Sequence, SequenceSpace};
use crate::config::Config;
use crate::error::CreateError;
use roce_wire::{
    AethRepr, NakCode, Operation, Packet, PathMtu, RethRepr, Syndrome, SyndromeKind, rnr_timer_code,
};

/// Packets accepted without AckReq before an ACK is sent anyway. A requester that requests few ACKs (rxe: one
/// in 66 packets, with a window of 128) would wait for its timer when one is lost.
pub(super) const MAX_UNACKNOWLEDGED: u64 = 32;

/// Maximum message length (IBTA Volume 1, chapter 9): 2^31 bytes.
pub(super) const MAX_LENGTH: u32 = 1 << 31;

/// State of the responder.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) psns: SequenceSpace,
    pub(super) mtu: u32,
    /// Sequence number of the next request packet: the expected PSN (ePSN).
    pub(super) expected: Sequence,
    /// Message sequence number (MSN): completed request messages.
    msn: u32,
    pub(super) message: InboundMessage,
    /// The newest request packet after a gap; `None` without a gap.
    pub(super) newest_after_gap: Option<Sequence>,
    /// Packets after the gap that are stored.
    pub(super) out_of_order: OutOfOrder,
    pub(super) reads: InboundReads,
    /// An ACK for everything before `expected` is to be sent.
    pub(super) ack_pending: bool,
    /// Everything before this is acknowledged.
    pub(super) acknowledged: Sequence,
    pub(super) nak_pending: Option<(Syndrome, Sequence)>,
    /// Timer code in RNR NAKs.
    pub(super) rnr_code: u8,
    /// The last frame sent was a response, so a request may go first.
    pub(super) responded: bool,
}

/// The message being received.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboundMessage {
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

impl Responder {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        psns: SequenceSpace::START_AT_ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        expected: Sequence::ZERO,
        msn: 0,
        message: InboundMessage::None,
        newest_after_gap: None,
        out_of_order: OutOfOrder::EMPTY,
        reads: InboundReads::NONE,
        ack_pending: false,
        acknowledged: Sequence::ZERO,
        nak_pending: None,
        rnr_code: 0,
        responded: false,
    };

    pub(super) fn initialize(&mut self, config: &Config) -> Result<(), CreateError> {
        self.reads = InboundReads::try_new(config.max_reads.inbound)?;
        self.rnr_code = rnr_timer_code(config.timing.rnr_timer);
        Ok(())
    }

    pub(super) fn begin(&mut self, peer: &Peer) {
        self.psns = SequenceSpace { start: peer.receive_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.reads.set_limit(peer.reads.inbound);
    }

    /// Drops all pending responses.
    pub(super) fn stop(&mut self) {
        self.ack_pending = false;
        self.nak_pending = None;
        self.reads.clear();
    }

    /// Returns whether the last frame was a response, and clears that.
    #[inline]
    pub(super) fn take_responded(&mut self) -> bool {
        core::mem::take(&mut self.responded)
    }

    /// Returns whether a response is to be sent.
    #[inline]
    pub(super) fn has_response(&self) -> bool {
        self.ack_pending || self.nak_pending.is_some() || self.reads.is_serving()
    }

    /// Returns whether the next response is a READ response.
    pub(super) fn is_serving(&self) -> bool {
        self.reads.is_serving()
    }

    /// Returns whether a NAK that ends the connection is to be sent.
    pub(super) fn is_fatal_nak_pending(&self) -> bool {
        //= rocev2 §9
        match self.nak_pending.map(|(syndrome, _)| syndrome.kind()) {
            Some(SyndromeKind::Nak(code)) => code != NakCode::PSN_SEQUENCE,
            _ => false,
        }
    }

    pub(super) fn aeth(&self, syndrome: Syndrome) -> AethRepr {
        AethRepr { syndrome, msn: self.msn }
    }

    /// Ends the current message. Packets stored after its end belong to another message and are forgotten.
    pub(super) fn end_message(&mut self) {
        self.message = InboundMessage::None;
        self.out_of_order = OutOfOrder::EMPTY;
        self.complete_msn();
    }

    /// Counts a completed request message.
    pub(super) fn complete_msn(&mut self) {
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
    }

    /// Handles a packet after a gap.
    pub(super) fn handle_gap(&mut self, sequence: Sequence) {
        //= rocev2 §6
        // One NAK per gap. A PSN that does not rise shows that the requester went back and its first packet was
        // lost again; without a second NAK that would cost a timeout.
        let restarted = self.newest_after_gap.is_some_and(|newest| sequence <= newest);
        if self.newest_after_gap.is_none() || restarted {
            self.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), self.expected));
        }
        self.newest_after_gap = Some(sequence);
    }

    /// Handles a duplicate packet.
    pub(super) fn handle_duplicate(&mut self, sequence: Sequence, packet: &Packet<'_>) {
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
