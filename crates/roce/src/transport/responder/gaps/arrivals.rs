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

use lock_api::RawMutex;

use super::{hints, standstill};
use crate::drop_reason::DropReason;
use crate::region::access_rights::Access;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::out_of_order::Handling;
use crate::transport::responder::Responder;
use crate::transport::sequence::Sequence;
use roce_wire::{Operation, Packet};

/// Stored packets that are executed at once. The others follow, as many with each frame that is sent.
const EXECUTED_AT_ONCE: u32 = 512;

/// A packet that is so far after the expected one shows a loss, and not only that some packets were reordered (compare
/// RFC 5681, section 3.2: three duplicate ACKs).
const REORDERED: u64 = 3;

impl Responder {
    /// Handles a packet after the expected one. Returns `false` if it is the expected one once stored packets are executed.
    #[inline(never)]
    pub(crate) fn handle_after_gap<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Result<bool, PacketError> {
        env.stats.rx_out_of_order.inc();
        // Placed packets were counted, and the peer has not sent them again.
        self.peer_repeats_selectively |= self.out_of_order.is_following();
        if self.stash.contains(self.expected, &env.shared.stash) {
            self.execute_stored(env)?;
        }
        match sequence.checked_since(self.expected) {
            Some(0) => return Ok(false),
            None => {
                self.ack_pending = true;
                return Ok(true);
            }
            Some(_) => {}
        }
        let known = self.stash.contains(sequence, &env.shared.stash)
            || matches!(self.out_of_order.admit(self.expected, sequence), Handling::Compare);
        let stored = self.store_out_of_order(env, sequence, packet);
        if self.executing {
            // The expected packet is not missing.
            self.newest_after_gap = Some(sequence);
        } else {
            let is_late = stored && !known;
            let newest = self.newest_after_gap;
            if newest.is_none() {
                hints::begin(self);
            }
            self.handle_gap(sequence, packet.bth().ack_req(), is_late);
            let late = is_late && newest.is_some_and(|newest| sequence < newest);
            hints::look(self, env, late.then_some(sequence));
        }
        if stored { Ok(true) } else { Err(DropReason::Sequence.into()) }
    }

    /// Handles a packet after a gap. `answer_requested` tells whether the peer waits for an answer to it, `is_late` that it is
    /// stored now and was not before: if packets after it have arrived, they have overtaken it.
    fn handle_gap(&mut self, sequence: Sequence, answer_requested: bool, is_late: bool) {
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

    /// Executes stored packets from the expected one on: a packet after them has arrived.
    #[inline(never)]
    fn execute_stored<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        let memory = &env.shared.stash;
        self.executing = false;
        for number in 0.. {
            let expected = self.expected;
            if number == EXECUTED_AT_ONCE {
                self.executing = self.stash.contains(expected, memory);
                break;
            }
            let Some(taken) = self.stash.take(expected, memory) else { break };
            let executed = self.execute_frame(env, memory.taken(&taken));
            memory.release(taken);
            self.stash.forget_before(self.expected, memory);
            if !executed? {
                // Without a receive, the peer sends it and everything after it again.
                self.stash.clear(memory);
                break;
            }
            env.stats.rx_stash_executed.inc();
            self.peer_repeats_selectively = true;
            self.ack_pending = true;
        }
        Ok(())
    }

    /// Executes stored packets that are left of an earlier turn, and reports the gap at which they end, if there is one: packets
    /// after it have arrived.
    #[inline(never)]
    pub(crate) fn execute_more<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        self.execute_stored(env)?;
        let stored = !self.out_of_order.is_empty() || !self.stash.is_empty();
        if stored && !self.executing && !self.stash.contains(self.expected, &env.shared.stash) {
            self.report_gap();
            self.newest_after_gap = Some(self.out_of_order.newest().max(self.expected));
        }
        Ok(())
    }

    /// Executes a stored frame. Returns `false` if it cannot be executed.
    fn execute_frame<R: RawMutex>(&mut self, env: &Env<'_, R>, frame: &[u8]) -> Result<bool, Failure> {
        let expected = self.expected;
        // Parsed once before.
        let Ok(packet) = Packet::parse(frame) else { return Ok(false) };
        // One that cannot come next is forged, or the one before it was: the peer sends what counts again.
        if !self.message.continues_with(packet.info()) {
            self.newest_after_gap = Some(Sequence::MAX);
            return Ok(false);
        }
        self.execute_next(env, expected, &packet, None)?;
        Ok(self.expected != expected)
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
        if !env.shared.config.early_placement || !self.out_of_order.reach(self.expected, sequence) {
            return false;
        }
        // In reach and so not far.
        let distance = sequence.since(self.expected) as u32;
        let memory = &env.shared.stash;
        if let Some(stored) = self.stash.get(sequence, memory) {
            let same = Packet::parse(stored).is_ok_and(|stored| stored.requests_the_same(packet));
            if !same {
                self.stash.remove(sequence, memory);
            }
            return same;
        }
        match self.out_of_order.admit(self.expected, sequence) {
            Handling::Reject => false,
            Handling::Compare => {
                let same = self.message.place(env, self.mtu, distance, packet, true);
                if !same {
                    self.out_of_order.forget(sequence);
                }
                same
            }
            Handling::Store => {
                if self.message.place(env, self.mtu, distance, packet, false) {
                    self.out_of_order.record(sequence);
                    return true;
                }
                self.stash_packet(env, sequence, packet)
            }
        }
    }

    /// Stores a packet in the stash. Returns whether there was room.
    fn stash_packet<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        let executable = match packet.info().operation {
            Operation::Send | Operation::Write | Operation::Read => true,
            Operation::Atomic => self.access.contains(Access::REMOTE_ATOMIC),
            _ => false,
        };
        if !executable || self.without_receive {
            return false;
        }
        let stored = self.stash.insert(sequence, packet, &env.shared.stash);
        if stored {
            standstill::watch(self, env.now);
            env.stats.rx_stashed.inc();
        }
        stored
    }
}
