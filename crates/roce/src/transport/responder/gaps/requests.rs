// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places or stores request packets that arrive after a gap, and executes them once the gap is filled.
//!
//! See [`crate::transport::out_of_order`] for what is placed into memory and why that is safe. Everything else goes to the
//! [stash](super::stash) as far as there is room: SENDs, immediate data, READ requests, later messages.
//! Stored packets are executed in order by the ordinary receive path.
//!
//! # Forged packets
//!
//! A stored packet is not executed when the gap before it is filled: the genuine one may be right behind. It is executed
//! once another packet after it arrives, which shows that the network delivers no copy of it before. So of a stored packet
//! and one received in order, the latter counts. Of two packets after a gap with the same PSN and other content neither
//! does.

use crate::transport::sequence::Sequence;
use lock_api::RawMutex;

use crate::drop_reason::DropReason;
use crate::transport::env::Env;
use crate::transport::out_of_order::Placement;
use crate::transport::rc_transport::RcTransport;
use crate::transport::responder::InboundMessage;
use roce_wire::{Operation, Packet};

/// Stored packets that are executed at once. The others follow, as many with each frame that is sent.
const EXECUTED_AT_ONCE: u32 = 512;

impl RcTransport {
    /// Handles a packet after the expected one. Returns `None` if it is the expected one once stored packets are executed.
    #[inline(never)]
    pub(crate) fn handle_after_gap<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Option<Result<(), DropReason>> {
        env.stats.rx_out_of_order.inc();
        // Placed packets were counted, and the peer has not sent them again.
        self.responder.peer_repeats_selectively |= self.responder.out_of_order.is_following();
        if self.responder.stash.contains(self.responder.expected, &env.shared.stash) {
            self.execute_stored(env);
            if !self.state.serves() {
                return Some(Ok(()));
            }
        }
        let responder = &mut self.responder;
        match sequence.checked_since(responder.expected) {
            Some(0) => return None,
            None => {
                responder.ack_pending = true;
                return Some(Ok(()));
            }
            Some(_) => {}
        }
        let known = responder.stash.contains(sequence, &env.shared.stash)
            || matches!(responder.out_of_order.place(responder.expected, sequence), Placement::Compare);
        let stored = self.store_out_of_order(env, sequence, packet);
        let responder = &mut self.responder;
        if responder.executing {
            // The expected packet is not missing.
            responder.newest_after_gap = Some(sequence);
        } else {
            responder.handle_gap(sequence, packet.bth().ack_req(), stored && !known);
        }
        Some(stored.then_some(()).ok_or(DropReason::Sequence))
    }

    /// Executes stored packets from the expected one on: a packet after them has arrived.
    #[inline(never)]
    fn execute_stored<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let memory = &env.shared.stash;
        self.responder.executing = false;
        for number in 0.. {
            let expected = self.responder.expected;
            if number == EXECUTED_AT_ONCE {
                self.responder.executing = self.responder.stash.contains(expected, memory);
                break;
            }
            let Some(taken) = self.responder.stash.take(expected, memory) else { break };
            let executed = self.execute_frame(env, memory.taken(&taken));
            memory.release(taken);
            let responder = &mut self.responder;
            responder.stash.forget_before(responder.expected, memory);
            if !executed {
                // Without a receive, the peer sends it and everything after it again.
                responder.stash.clear(memory);
                break;
            }
            env.stats.rx_stash_executed.inc();
            responder.peer_repeats_selectively = true;
            responder.ack_pending = true;
        }
    }

    /// Executes stored packets that are left of an earlier turn.
    #[inline(never)]
    pub(crate) fn execute_more<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.execute_stored(env);
        self.responder.report_next_gap(&env.shared.stash);
    }

    /// Executes a stored frame. Returns `false` if it cannot be executed.
    fn execute_frame<R: RawMutex>(&mut self, env: &Env<'_, R>, frame: &[u8]) -> bool {
        let expected = self.responder.expected;
        // Parsed once before.
        let Ok(packet) = Packet::parse(frame) else { return false };
        // One that cannot come next is forged, or the one before it was: the peer sends what counts again.
        if !self.responder.message.continues_with(packet.info()) {
            self.responder.newest_after_gap = Some(Sequence::MAX);
            return false;
        }
        self.handle_request(env, &packet, None).is_ok() && self.responder.expected != expected
    }

    /// Places or stores a packet that arrived after a gap. Returns whether it counts once the gap is filled.
    ///
    /// The peer cannot tell this from dropping, except by what it has to send again: a NAK for the gap is
    /// pending either way, and the memory of a message that has not completed is the peer's to write.
    fn store_out_of_order<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        //= rocev2 §6
        let responder = &mut self.responder;
        if !env.shared.config.early_placement || !responder.out_of_order.reach(responder.expected, sequence) {
            return false;
        }
        // In reach and so not far.
        let distance = sequence.since(responder.expected) as u32;
        let memory = &env.shared.stash;
        if let Some(stored) = responder.stash.get(sequence, memory) {
            let same = Packet::parse(stored).is_ok_and(|stored| stored.requests_the_same(packet));
            if !same {
                responder.stash.remove(sequence, memory);
            }
            return same;
        }
        match responder.out_of_order.place(responder.expected, sequence) {
            Placement::Reject => false,
            Placement::Compare => {
                let same = self.place(env, distance, packet, true);
                if !same {
                    self.responder.out_of_order.forget(sequence);
                }
                same
            }
            Placement::Store => {
                if self.place(env, distance, packet, false) {
                    self.responder.out_of_order.record(sequence);
                    return true;
                }
                self.stash(env, sequence, packet)
            }
        }
    }

    /// Stores a packet in the stash. Returns whether there was room.
    fn stash<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence, packet: &Packet<'_>) -> bool {
        let (responder, shared) = (&mut self.responder, env.shared);
        let executable =
            matches!(packet.info().operation, Operation::Send | Operation::Write | Operation::Read);
        if !executable || responder.without_receive {
            return false;
        }
        let stored = responder.stash.insert(sequence, packet, &shared.stash);
        if stored {
            env.stats.rx_stashed.inc();
        }
        stored
    }

    /// Places a packet of the current WRITE into memory, or compares memory with it (`is_placed`). Returns whether it could be
    /// placed, or was the same.
    fn place<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        distance: u32,
        packet: &Packet<'_>,
        is_placed: bool,
    ) -> bool {
        let responder = &self.responder;
        let InboundMessage::Write { address, key, left, .. } = responder.message else { return false };
        let (info, payload, mtu) = (packet.info(), packet.payload(), responder.mtu);
        let continues = info.operation == Operation::Write && !info.first && packet.imm_dt().is_none();
        if !continues || !info.payload.admits(payload.len(), mtu as usize) {
            return false;
        }
        let offset = distance.saturating_mul(mtu);
        let rest = left.checked_sub(offset).and_then(|left| left.checked_sub(payload.len() as u32));
        if rest.is_none_or(|rest| (rest == 0) != info.last) {
            return false;
        }
        let (by, address) = (env.qp.scope(), address.wrapping_add(u64::from(offset)));
        if is_placed {
            env.regions.holds_remote(by, key, address, payload)
        } else {
            env.regions.write_remote(by, key, address, payload).is_ok()
        }
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
        let responder = &mut self.responder;
        let InboundMessage::Write { address, key, total, left } = responder.message else { return };
        let (info, payload) = (packet.info(), packet.payload());
        // Between the ends of the message, all packets are full.
        let is_middle = info.operation == Operation::Write && !info.first && !info.last;
        if !is_middle || payload.len() != responder.mtu as usize {
            return;
        }
        let back = responder.expected.since(sequence).saturating_mul(u64::from(responder.mtu));
        if back <= u64::from(total.saturating_sub(left)) && responder.out_of_order.follows(sequence) {
            // If the region is gone, the next packet in order reports it.
            let _ = env.regions.write_remote(env.qp.scope(), key, address.wrapping_sub(back), payload);
        }
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
        let responder = &mut self.responder;
        responder.stash.forget_before(responder.expected, &env.shared.stash);
        responder.ack_pending |= count > 0;
        responder.nak_twice = false;
        responder.without_receive = false;
        if responder.out_of_order.is_empty() && responder.stash.is_empty() {
            return;
        }
        responder.newest_after_gap = Some(newest);
        if responder.stash.contains(responder.expected, &env.shared.stash) {
            // It is executed when a later packet arrives. Ask for it if none may be in flight.
            if unreported {
                responder.report_gap();
            }
        } else if count > 0 || answer_requested {
            // There is another gap: report it now. And again if a packet arrives that is sent again, except the newest one,
            // which a peer sends only to have a loss reported.
            responder.report_gap();
            responder.newest_after_gap = Some(newest.previous().max(responder.expected));
        } else {
            // The next packets may be in flight. One after them reports the gap.
            responder.newest_after_gap = Some(Sequence::MAX);
        }
    }

    /// Accepts the placed packets that follow the one at `sequence` without a gap. Returns their number.
    fn accept_placed<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence) -> u32 {
        let responder = &mut self.responder;
        let InboundMessage::Write { address, left, .. } = &mut responder.message else { return 0 };
        let count = responder.out_of_order.take_contiguous(sequence);
        responder.expected = responder.expected.add(u64::from(count));
        let bytes = count.saturating_mul(responder.mtu);
        *address = address.wrapping_add(u64::from(bytes));
        // The last packet may be shorter. It is placed only where it ends the message.
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            env.stats.rx_writes.inc();
            responder.end_message();
        }
        count
    }
}
