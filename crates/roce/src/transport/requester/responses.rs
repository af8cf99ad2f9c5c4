// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles the peer's responses: ACKs and NAKs here, READ responses in `read_responses` (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Requester;
use super::recovery::AfterAck;
use super::recovery::hints::{self, Sent};
use crate::drop_reason::DropReason;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::placement::Placement;
use crate::transport::sequence::Sequence;
use roce_wire::{AethRepr, NakCode, Operation, Packet, PlainAck, SyndromeKind, rnr_timer};

impl Requester {
    /// Handles a response packet. It may set `placement` instead of copying the payload: [`Requester::finish_response`] then
    /// follows.
    pub(crate) fn handle_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
    ) -> Result<(), PacketError> {
        let sequence =
            self.psns.answered(packet.bth().psn(), self.una, self.high).ok_or(DropReason::Sequence)?;
        let aeth = packet.aeth().map(|aeth| AethRepr::parse(&aeth));
        match (packet.info().operation, aeth) {
            (Operation::Acknowledge, Some(aeth)) => {
                self.handle_ack(env, sequence, aeth, packet.bth().gap_hint())?;
            }
            (Operation::Read, _) => self.handle_read_response(env, sequence, packet, placement)?,
            (Operation::Atomic, Some(_)) if self.send_queue.room_for_atomics() == 0 => {
                self.handle_read_response(env, sequence, packet, placement)?;
            }
            _ => return Err(DropReason::Opcode.into()),
        }
        Ok(self.barrier.check(&self.send_queue)?)
    }

    /// Handles a positive acknowledgement of the usual form. Returns `None`, and has changed nothing, if
    /// [`Requester::handle_response`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every ACK")]
    pub(crate) fn handle_plain_ack<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        ack: PlainAck<'_>,
    ) -> Option<Result<(), Failure>> {
        let end = self.psns.answered(ack.headers.psn(), self.una, self.high)?.next();
        let reached = self.advance_inline(env, end);
        Some(
            self.conclude_ack(env, end, reached, || ack.headers.gap_hint())
                .and_then(|()| self.barrier.check(&self.send_queue)),
        )
    }

    /// Ends the acknowledgement of everything before `end`. `reached` tells whether that was completed: no READ before misses
    /// responses.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    fn conclude_ack<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        end: Sequence,
        reached: bool,
        hint: impl FnOnce() -> u16,
    ) -> Result<(), Failure> {
        if !reached {
            return self.handle_ack_before_responses(env, end);
        }
        if self.recovery.has_resent() {
            // Its PSN is right to the packet: late ones tell nothing new, forged ones have to hit it.
            let hint = if end == self.una { hint() } else { 0 };
            return self.continue_after_ack(env, hint);
        }
        Ok(())
    }

    /// Handles an acknowledgement of packets behind a READ whose responses are missing.
    #[inline(never)]
    fn handle_ack_before_responses<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        end: Sequence,
    ) -> Result<(), Failure> {
        if env.shared.config.early_placement {
            let (reads, requested) = self.reads(env);
            if reads.handle_ack(requested, end) {
                self.responses_lost(env)?;
            }
        } else if self.recovery.is_new_loss(self.una, self.next, env.now) {
            self.implied_nak(env)?;
        }
        Ok(())
    }

    fn handle_ack<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        aeth: AethRepr,
        hint: u16,
    ) -> Result<(), Failure> {
        let stats = &env.stats;
        match aeth.syndrome.kind() {
            SyndromeKind::Ack(_) => {
                let end = sequence.next();
                let reached = self.advance(env, end);
                self.conclude_ack(env, end, reached, || hint)
            }
            SyndromeKind::Nak(NakCode::PSN_SEQUENCE) => {
                stats.rx_nak_sequence.inc();
                //= rocev2 §7
                if sequence < self.una {
                    return Ok(());
                }
                self.advance(env, sequence);
                self.handle_sequence_nak(env, sequence)
            }
            SyndromeKind::RnrNak(code) => {
                stats.rx_nak_rnr.inc();
                if sequence < self.una {
                    return Ok(());
                }
                self.advance(env, sequence);
                // A duplicate arrives during the wait, or before the packet sent after it can have been answered.
                if !self.recovery.is_new_loss(self.una, self.next, env.now) {
                    return Ok(());
                }
                let kind = self.recovery.resend_after_rnr();
                self.go_back(env.now, kind);
                let may_wait = self.recovery.handle_rnr_nak(env.now, rnr_timer(code));
                may_wait.then_some(()).ok_or(Failure::RnrRetryExceeded)
            }
            SyndromeKind::Nak(code) => {
                if sequence < self.una {
                    return Ok(());
                }
                stats.rx_nak_fatal.inc();
                //= rocev2 §7
                //= R-QP-55
                self.advance(env, sequence);
                Err(Failure::from_nak(code))
            }
            SyndromeKind::Reserved => Ok(()),
        }
    }

    /// Handles the report that the peer misses the packet at `sequence`. Everything before it is acknowledged.
    fn handle_sequence_nak<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
    ) -> Result<(), Failure> {
        if env.shared.config.early_placement {
            let (reads, requested) = self.reads(env);
            if let Some(lost) = reads.handle_nak(requested, sequence) {
                return if lost { self.responses_lost(env) } else { Ok(()) };
            }
        }
        // A gap hint has named it before.
        if hints::is_on_its_way(&self.recovery, self.una, env.now) {
            return Ok(());
        }
        let again = self.recovery.is_lost_within_run(self.una, env.now);
        let probed = self.recovery.answers_probe(self.una);
        if again || probed || self.recovery.is_new_loss(self.una, self.next, env.now) {
            self.lost(env)?;
        }
        Ok(())
    }

    /// Continues after an acknowledgement while packets were sent again.
    #[inline(never)]
    fn continue_after_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, hint: u16) -> Result<(), Failure> {
        let Some(wqe) = self.send_queue.front().filter(|wqe| !wqe.is_read()) else { return Ok(()) };
        let storable = self.reads.storable(wqe, self.una, self.high);
        if hint != 0 {
            let missing = self.una.add(u64::from(hint));
            let mut sent = Sent { una: self.una, next: self.next, storable, high: self.high };
            if hints::is_unreported(&self.recovery, sent) {
                self.lost(env)?;
                sent.next = self.next;
            }
            if let Some(next) = hints::handle_hint(&mut self.recovery, missing, sent, env.now) {
                self.send_from(next);
            }
        }
        match self.recovery.handle_ack(self.una, storable, self.high, env.now) {
            AfterAck::Continue => {}
            AfterAck::Resend(kind) => self.go_back(env.now, kind),
            AfterAck::Newest => self.send_from(self.high.previous()),
        }
        Ok(())
    }
}
