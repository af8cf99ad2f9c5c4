// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that were placed after a gap, once the gap is filled.

use lock_api::RawMutex;

use crate::transport::env::Env;
use crate::transport::responder::Responder;
use crate::transport::responder::message::InboundMessage;
use crate::transport::sequence::Sequence;
use roce_wire::{NakCode, Operation, Packet, Syndrome};

impl Responder {
    /// Reports that the expected packet is missing.
    pub(crate) fn report_gap(&mut self) {
        self.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), self.expected));
        // A lost NAK costs a timeout, since nothing follows once the peer's window is full.
        self.nak_twice = self.peer_repeats_selectively;
    }

    /// Accepts the placed packets that follow the one at `sequence` without a gap, and reports the next gap.
    ///
    /// The effect is that of receiving them now and in order: each is accepted once, after all before it, and
    /// acknowledged only then. `newest` is the last packet that arrived after the gap. `unreported` tells that the gap was
    /// filled before its NAK was sent, `answer_requested` that the packet at `sequence` asks for an answer.
    #[inline(never)]
    pub(crate) fn continue_after_gap<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        newest: Sequence,
        unreported: bool,
        answer_requested: bool,
    ) {
        //= rocev2 §6
        let count = self.accept_placed(env, sequence);
        self.stash.forget_before(self.expected, &env.shared.stash);
        self.ack_pending |= count > 0;
        self.nak_twice = false;
        self.without_receive = false;
        if self.out_of_order.is_empty() && self.stash.is_empty() {
            return;
        }
        self.newest_after_gap = Some(newest);
        if self.stash.contains(self.expected, &env.shared.stash) {
            // It is executed when a later packet arrives. Ask for it if none may be in flight.
            if unreported {
                self.report_gap();
            }
        } else if count > 0 || answer_requested {
            // There is another gap: report it now. And again if a packet arrives that is sent again, except the newest one,
            // which a peer sends only to have a loss reported.
            self.report_gap();
            self.newest_after_gap = Some(newest.previous().max(self.expected));
        } else {
            // The next packets may be in flight. One after them reports the gap.
            self.newest_after_gap = Some(Sequence::MAX);
        }
    }

    /// Accepts the placed packets that follow the one at `sequence` without a gap. Returns their number.
    fn accept_placed<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence) -> u32 {
        let InboundMessage::Write { address, left, .. } = &mut self.message else { return 0 };
        let count = self.out_of_order.take_contiguous(sequence);
        self.expected = self.expected.add(u64::from(count));
        let bytes = count.saturating_mul(self.mtu);
        *address = address.wrapping_add(u64::from(bytes));
        // The last packet may be shorter. It is placed only where it ends the message.
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            env.stats.rx_writes.inc();
            self.end_message();
        }
        count
    }

    /// Writes a duplicate of the current WRITE again that follows in order after a filled gap: the packet stored in its place may
    /// have been forged.
    #[inline(never)]
    pub(crate) fn write_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let InboundMessage::Write { address, key, total, left } = self.message else { return };
        let (info, payload) = (packet.info(), packet.payload());
        // Between the ends of the message, all packets are full.
        let is_middle = info.operation == Operation::Write && !info.first && !info.last;
        if !is_middle || payload.len() != self.mtu as usize {
            return;
        }
        let back = self.expected.since(sequence).saturating_mul(u64::from(self.mtu));
        if back <= u64::from(total.saturating_sub(left)) && self.out_of_order.follows(sequence) {
            // If the region is gone, the next packet in order reports it.
            let _ = env.regions.write_remote(env.qp.scope(), key, address.wrapping_sub(back), payload);
        }
    }
}
