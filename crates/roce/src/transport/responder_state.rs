//! State of the responder: expected PSN, current message, pending ACK and NAK.

use super::inbound_reads::InboundReads;
use super::out_of_order::OutOfOrder;
use super::peer::Peer;
use super::sequence::SequenceSpace;
use crate::config::Config;
use crate::error::CreateError;
use roce_wire::{
    AethRepr, NakCode, Operation, Packet, PathMtu, RethRepr, Syndrome, SyndromeKind, rnr_timer_code,
};

/// Packets that are accepted without a word, though nobody asked for an acknowledgement. A requester that
/// asks for few (rxe: for one in 66, and its window is 128) has to wait for its timer when one of those is
/// lost, unless the next comes soon.
pub(super) const MAX_UNACKNOWLEDGED: u64 = 32;

/// The longest message there is.
pub(super) const MAX_LENGTH: u32 = 1 << 31;

/// The responder half.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) psns: SequenceSpace,
    pub(super) mtu: u32,
    /// Number of the next request packet to be accepted.
    pub(super) expected: u64,
    /// Messages completed.
    msn: u32,
    pub(super) message: InboundMessage,
    /// Since a packet was newest_after_gap: the newest that came, of those after it.
    pub(super) newest_after_gap: Option<u64>,
    /// What came after it and was kept.
    pub(super) out_of_order: OutOfOrder,
    pub(super) reads: InboundReads,
    /// All before `expected` is to be acknowledged.
    pub(super) ack_pending: bool,
    /// All before this was, by the last answer.
    pub(super) acknowledged: u64,
    pub(super) nak_pending: Option<(Syndrome, u64)>,
    /// Timer code of RNR NAKs.
    pub(super) rnr_code: u8,
    /// The last frame sent was a response: it is the requester's turn.
    pub(super) responded: bool,
}

/// The message that is coming in.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboundMessage {
    /// The next packet begins one.
    None,
    /// Into the current receive.
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
        expected: 0,
        msn: 0,
        message: InboundMessage::None,
        newest_after_gap: None,
        out_of_order: OutOfOrder::EMPTY,
        reads: InboundReads::NONE,
        ack_pending: false,
        acknowledged: 0,
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

    /// Owes nothing any more.
    pub(super) fn stop(&mut self) {
        self.ack_pending = false;
        self.nak_pending = None;
        self.reads.clear();
    }

    /// Whether the requester may go first this time.
    pub(super) fn take_responded(&mut self) -> bool {
        core::mem::take(&mut self.responded)
    }

    /// Whether [`RcTransport::transmit_response`] would find something.
    pub(super) fn has_response(&self) -> bool {
        self.ack_pending || self.nak_pending.is_some() || self.reads.is_serving()
    }

    /// Whether what is owed next is a READ response.
    pub(super) fn is_serving(&self) -> bool {
        self.reads.is_serving()
    }

    /// Whether the peer is still to be told why this side has failed.
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
}

impl Responder {
    /// The message is complete, and what was kept beyond it belongs to another one.
    pub(super) fn end_message(&mut self) {
        self.message = InboundMessage::None;
        self.out_of_order = OutOfOrder::EMPTY;
        self.complete_msn();
    }

    /// Counts a completed request message.
    pub(super) fn complete_msn(&mut self) {
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
    }

    /// A packet has come before an earlier one.
    pub(super) fn handle_gap(&mut self, sequence: u64) {
        //= rocev2 §6
        // One NAK for each gap. A number that does not rise shows that the requester has gone back and that
        // its first packet was lost once more: that would otherwise cost a timeout.
        let restarted = self.newest_after_gap.is_some_and(|newest| sequence <= newest);
        if self.newest_after_gap.is_none() || restarted {
            self.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), self.expected));
        }
        self.newest_after_gap = Some(sequence);
    }

    /// A packet has come again.
    pub(super) fn handle_duplicate(&mut self, sequence: u64, packet: &Packet<'_>) {
        //= rocev2 §6
        match (packet.info().operation, packet.reth()) {
            (Operation::Read, Some(reth)) => {
                self.reads.repeat(sequence, &RethRepr::parse(&reth), self.mtu);
            }
            // Never executed, so never acknowledged either.
            (Operation::Atomic, _) => {}
            _ => self.ack_pending = true,
        }
    }
}
