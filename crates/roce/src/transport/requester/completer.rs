// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles ACKs and NAKs, and completes requests in order (IBTA Volume 1, section 9.7).

use crate::transport::sequence::Sequence;
use lock_api::RawMutex;

use super::recovery::retransmission::Resend;
use crate::drop_reason::DropReason;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::packet::placement::Placement;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::work::{CompletionStatus, SendFlags};
use roce_wire::{AethRepr, NakCode, Operation, Packet, PlainAck, SyndromeKind, rnr_timer};

impl RcTransport {
    /// Handles a response packet. It may set `placement` instead of copying the payload: [`RcTransport::finish_response_packet`] then
    /// follows.
    pub(crate) fn handle_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
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
            (Operation::Read, _) => self.handle_read_response(env, sequence, packet, placement),
            // This side sends no atomics.
            _ => return Err(DropReason::Opcode),
        }
        self.finish_failed_request(env);
        Ok(())
    }

    /// Continues with the READ response in order whose payload was copied to the READ's memory before `end`.
    pub(crate) fn finish_response_packet<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        end: SgeCursor,
        placed: Result<(), AccessError>,
    ) {
        self.response_stored(env, packet, end, placed);
        self.finish_failed_request(env);
    }

    /// Handles an acknowledgement of the usual form. Its ICRC was checked. Returns `false`, and has changed nothing, if
    /// [`RcTransport::handle`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every ACK")]
    pub(crate) fn handle_plain_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, ack: PlainAck<'_>) -> bool {
        //= rocev2 §6
        let is_peer = self.link.as_ref().is_some_and(|link| link.template.is_reverse_of_plain(ack.headers));
        let requester = &self.requester;
        //= rocev2 §7
        let sequence = requester.psns.sequence(ack.headers.psn(), requester.una);
        let Some(sequence) = sequence.filter(|&sequence| sequence < requester.high) else { return false };
        // In other states, it may establish the connection, or is of no use.
        if self.state != State::Rts || !is_peer {
            return false;
        }
        self.handle_positive(env, sequence.next());
        self.finish_failed_request(env);
        self.last_received = Some(env.now);
        true
    }

    /// Handles the acknowledgement of everything before `end`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    fn handle_positive<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) {
        if !self.advance_inline(env, end) {
            self.handle_ack_before_responses(env, end);
        } else if self.requester.recovery.has_resent() {
            self.continue_after_ack(env);
        }
    }

    /// [`RcTransport::handle_positive`] for what is rarer than an ACK of the usual form.
    #[inline(never)]
    fn handle_any_positive<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) {
        self.handle_positive(env, end);
    }

    /// Handles an acknowledgement of packets behind a READ whose responses are missing.
    #[inline(never)]
    fn handle_ack_before_responses<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) {
        if env.shared.config.early_placement {
            self.handle_ack_after_gap(env, end);
        } else if self.is_new_loss(env) {
            self.implied_nak(env);
        }
    }

    fn handle_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence, aeth: AethRepr) {
        let stats = &env.stats;
        match aeth.syndrome.kind() {
            SyndromeKind::Ack(_) => self.handle_any_positive(env, sequence.next()),
            SyndromeKind::Nak(NakCode::PSN_SEQUENCE) => {
                stats.rx_nak_sequence.inc();
                //= rocev2 §7
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                if self.handle_lost_request(env, sequence) {
                    return;
                }
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
    pub(crate) fn advance<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
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

    /// Completes requests behind READs that were acknowledged while responses were missing.
    pub(crate) fn advance_acknowledged<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.advance(env, self.requester.acknowledged);
    }

    /// [`RcTransport::complete_front`] for what is rarer than an ACK.
    #[inline(never)]
    pub(crate) fn complete_oldest<R: RawMutex>(&mut self, env: &Env<'_, R>) {
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

    /// Handles an implied NAK: an answer to a later packet shows that the response at `una` was lost.
    pub(crate) fn implied_nak<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        env.stats.implied_naks.inc();
        self.lost(env);
    }

    /// Goes back after the loss of the packet at `una`, or of its response.
    pub(crate) fn lost<R: RawMutex>(&mut self, env: &Env<'_, R>) {
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
