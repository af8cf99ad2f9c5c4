// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles ACKs, NAKs and READ responses, and completes requests in order (IBTA Volume 1, section 9.7).

use super::sequence::Sequence;
use lock_api::RawMutex;

use super::env::Env;
use super::out_of_order::Placement;
use super::rc_transport::RcTransport;
use super::requester_state::Requester;
use super::retransmission::Resend;
use super::send_queue::{Payload, Wqe};
use crate::drop_reason::DropReason;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::{SgeCursor, TooShort};
use crate::work::{CompletionStatus, SendFlags, Sge};
use roce_wire::{AethRepr, NakCode, Operation, Packet, SyndromeKind, rnr_timer};

impl RcTransport {
    /// Handles a response packet.
    pub(super) fn handle_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let requester = &self.requester;
        //= rocev2 §7
        let sequence = requester
            .psns
            .sequence(packet.bth().psn(), requester.una)
            .filter(|&sequence| sequence < requester.high)
            .ok_or(DropReason::Sequence)?;
        let aeth = packet.aeth().map(|aeth| AethRepr::parse(&aeth));
        match (packet.info().operation, aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.handle_ack(env, sequence, aeth),
            (Operation::Read, _) => self.handle_read_response(env, sequence, packet),
            // This side sends no atomics.
            _ => return Err(DropReason::Opcode),
        }
        self.finish_failed_request(env);
        Ok(())
    }

    fn handle_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence, aeth: AethRepr) {
        let stats = &env.stats;
        match aeth.syndrome.kind() {
            SyndromeKind::Ack(_) => {
                let end = sequence.next();
                if !self.advance_inline(env, end) {
                    if self.is_new_loss(env) {
                        self.implied_nak(env);
                    }
                } else if self.requester.recovery.has_resent() {
                    self.continue_after_ack(env);
                }
            }
            SyndromeKind::Nak(NakCode::PSN_SEQUENCE) => {
                stats.rx_nak_sequence.inc();
                //= rocev2 §7
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                let again = self.requester.recovery.is_lost_within_run(self.requester.una, env.now);
                let probed = self.requester.recovery.answers_probe(self.requester.una);
                if again || probed || self.is_new_loss(env) {
                    self.lost(env);
                }
            }
            SyndromeKind::RnrNak(code) => {
                stats.rx_nak_rnr.inc();
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                // A duplicate arrives during the wait, or before the packet sent after it can have been answered.
                if !self.is_new_loss(env) {
                    return;
                }
                let kind = self.requester.recovery.resend_after_rnr();
                self.requester.go_back(env.now, kind, None);
                if !self.requester.recovery.handle_rnr_nak(env.now, rnr_timer(code)) {
                    self.fail(env, Some(CompletionStatus::RnrRetryExceeded));
                }
            }
            SyndromeKind::Nak(code) => {
                if sequence < self.requester.una {
                    return;
                }
                stats.rx_nak_fatal.inc();
                //= rocev2 §7
                //= R-QP-55
                self.advance(env, sequence);
                self.fail(env, Some(CompletionStatus::from_nak(code)));
            }
            SyndromeKind::Reserved => {}
        }
    }

    /// Continues after an acknowledgement while packets were sent again.
    #[inline(never)]
    fn continue_after_ack<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let requester = &mut self.requester;
        let oldest = self.send_queue.front();
        let Some(wqe) = oldest.filter(|wqe| !wqe.is_read()) else { return };
        let storable = requester.storable(wqe);
        if let Some(kind) = requester.recovery.handle_ack(requester.una, storable, requester.high, env.now) {
            requester.go_back(env.now, kind, oldest);
        }
    }

    /// [`RcTransport::advance_inline`] for what is rarer than an ACK.
    #[inline(never)]
    fn advance<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
        self.advance_inline(env, end)
    }

    /// Completes requests that are acknowledged before `end`. Returns `false` when it stops at a READ whose
    /// responses are missing.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    fn advance_inline<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
        let before = self.requester.una;
        let mut reached = true;
        while self.requester.una < end {
            let Some(wqe) = self.send_queue.front() else { break };
            if wqe.is_read() {
                reached = false;
                break;
            }
            self.requester.una = wqe.end().min(end);
            if self.requester.una < wqe.end() {
                break;
            }
            self.complete_front(env);
        }
        if self.requester.una > before {
            self.requester.handle_progress(env.now);
        }
        reached
    }

    /// [`RcTransport::complete_front`] for what is rarer than an ACK.
    #[inline(never)]
    fn complete_oldest<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.complete_front(env);
    }

    /// Completes the oldest request with success.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    fn complete_front<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        // Its entry is free before its completion can be polled.
        //= R-QP-2
        //= R-QP-22
        let Some(wqe) = self.send_queue.pop() else { return };
        self.requester.request_completed(&wqe);
        //= R-CQ-30
        //= R-QP-26
        if !wqe.flags.contains(SendFlags::SILENT) {
            let done = env.completion(wqe.context, wqe.kind(), CompletionStatus::Success, wqe.length);
            env.push_completion(&env.qp.send_cq, done, false);
        }
        if self.send_queue.has_local() {
            self.complete_local(env);
        }
    }

    fn handle_read_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        //= rocev2 §7
        if sequence < self.requester.una {
            self.write_response_again(env, sequence, packet);
            return;
        }
        // A READ response acknowledges everything before it.
        if !self.advance(env, sequence) {
            self.store_out_of_order_response(env, sequence, packet);
            let requester = &mut self.requester;
            // Responses that were in flight when the requester went back report nothing new. A PSN that does
            // not rise does: the responder started again, and the same response was lost again.
            let again = requester.newest_after_gap.replace(sequence).is_some_and(|last| sequence <= last);
            if again || requester.recovery.is_unhandled_loss(requester.una, requester.next) {
                self.implied_nak(env);
            }
            return;
        }
        let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read()) else {
            self.fail(env, Some(CompletionStatus::BadResponse));
            return;
        };
        if !self.fits(wqe, sequence, packet) {
            self.fail(env, Some(CompletionStatus::BadResponse));
            return;
        }
        let mut sink = self.requester.response_cursor;
        //= R-QP-43
        if self.store_response(env, wqe, &mut sink, sequence, packet).is_err() {
            self.fail(env, Some(CompletionStatus::LocalProtection));
            return;
        }
        let (end, invalidates) = (wqe.end(), wqe.invalidates_sink());
        let requester = &mut self.requester;
        requester.response_cursor = sink;
        requester.newest_after_gap = None;
        // Stored responses count now.
        let kept = u64::from(requester.out_of_order.take_contiguous(sequence));
        requester.una = sequence.next().add(kept);
        requester.responses_received(wqe, sequence);
        //= R-CQ-57
        if requester.una == end {
            if invalidates && !self.invalidate_sink(env) {
                self.fail(env, Some(CompletionStatus::MemoryManagement));
                return;
            }
            self.complete_oldest(env);
        }
        self.requester.handle_progress(env.now);
    }

    /// Invalidates the key of the first element of the oldest READ, which is complete. Returns `false` if there is none,
    /// or if it cannot be invalidated.
    //= R-QP-85
    //= R-QP-86
    #[inline(never)]
    fn invalidate_sink<R: RawMutex>(&self, env: &Env<'_, R>) -> bool {
        let Some(Payload::Sges([first, ..])) =
            self.send_queue.front().map(|wqe| self.send_queue.payload(wqe))
        else {
            return false;
        };
        env.shared.regions.invalidate(env.qp.scope(), first.key).is_ok()
    }

    /// Returns whether a response has the expected length and ends the chunk where it must.
    fn fits(&self, wqe: &Wqe, sequence: Sequence, packet: &Packet<'_>) -> bool {
        let into = sequence.since(wqe.first);
        let offset = into.saturating_mul(u64::from(self.requester.mtu)) as u32;
        let expected = wqe.length.saturating_sub(offset).min(self.requester.mtu);
        // After a loss a responder may start with First or continue with Middle (rocev2 §6), but it must end
        // at the end of the chunk.
        let last = sequence.next() == Requester::chunk_end(wqe, sequence);
        packet.info().last == last && packet.payload().len() == expected as usize
    }

    /// Copies the payload of a response to the READ's memory.
    #[inline]
    fn store_response<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        wqe: &Wqe,
        sink: &mut SgeCursor,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Result<(), AccessError> {
        self.at_response(wqe, sink, sequence, packet.payload(), |sge, within, bytes| {
            env.shared.regions.write_local(env.qp.pd, sge, within, bytes)
        })
    }

    /// Returns whether the READ's memory holds the payload of a response.
    #[inline(never)]
    fn holds_response<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        wqe: &Wqe,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        let mut sink = self.requester.response_cursor;
        let held = self.at_response(wqe, &mut sink, sequence, packet.payload(), |sge, within, bytes| {
            let held = env.shared.regions.holds_local(env.qp.pd, sge, within, bytes);
            held.then_some(()).ok_or(AccessError)
        });
        held.is_ok()
    }

    /// Calls `each` for the pieces of the READ's memory that the payload of a response takes.
    #[inline]
    fn at_response(
        &self,
        wqe: &Wqe,
        sink: &mut SgeCursor,
        sequence: Sequence,
        payload: &[u8],
        mut each: impl FnMut(&Sge, u32, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let Payload::Sges(sges) = self.send_queue.payload(wqe) else { return Err(AccessError) };
        let into = sequence.since(wqe.first);
        let offset = into.saturating_mul(u64::from(self.requester.mtu)) as u32;
        let mut rest = payload;
        sink.seek(sges, offset).map_err(|TooShort| AccessError)?;
        sink.walk(sges, payload.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            each(sge, within, now)
        })
    }

    /// Stores a response to the oldest READ that arrived after a gap.
    fn store_out_of_order_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let requester = &self.requester;
        let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read() && sequence < wqe.end()) else {
            return;
        };
        if !env.shared.config.early_placement {
            return;
        }
        let mut sink = requester.response_cursor;
        if !self.requester.out_of_order.reach(self.requester.una, sequence) {
            return;
        }
        let requester = &self.requester;
        match requester.out_of_order.place(requester.una, sequence) {
            Placement::Store
                if self.fits(wqe, sequence, packet)
                    && self.store_response(env, wqe, &mut sink, sequence, packet).is_ok() =>
            {
                self.requester.out_of_order.record(sequence);
            }
            Placement::Compare if !self.holds_response(env, wqe, sequence, packet) => {
                self.requester.out_of_order.forget(sequence);
            }
            _ => {}
        }
    }

    /// Writes a response again that follows in order after a filled gap: the packet stored in its place may have been
    /// forged.
    #[inline(never)]
    fn write_response_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read() && sequence >= wqe.first) else {
            return;
        };
        if self.fits(wqe, sequence, packet) && self.requester.out_of_order.follows(sequence) {
            let mut sink = self.requester.response_cursor;
            // It was writable before.
            let _ = self.store_response(env, wqe, &mut sink, sequence, packet);
        }
    }

    /// Handles an implied NAK: an answer to a later packet shows that the response at `una` was lost.
    fn implied_nak<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        env.stats.implied_naks.inc();
        self.lost(env);
    }

    /// Goes back after the loss of the packet at `una`, or of its response.
    fn lost<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let requester = &mut self.requester;
        if !requester.recovery.may_retry(env.now) {
            self.fail(env, Some(CompletionStatus::RetryExceeded));
            return;
        }
        let oldest = self.send_queue.front();
        let kind = match oldest {
            // Without early placement nothing behind the gap is stored here.
            Some(wqe) if wqe.is_read() && env.shared.config.early_placement => requester.resend_read(wqe),
            Some(wqe) if wqe.is_read() => Resend::GoBackN,
            Some(wqe) => {
                let storable = requester.storable(wqe);
                requester.recovery.resend_for_loss(requester.una, storable, requester.high)
            }
            None => Resend::GoBackN,
        };
        requester.go_back(env.now, kind, oldest);
    }

    fn is_new_loss<R: RawMutex>(&self, env: &Env<'_, R>) -> bool {
        let requester = &self.requester;
        requester.recovery.is_new_loss(requester.una, requester.next, env.now)
    }
}
