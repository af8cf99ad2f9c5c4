//! The half that listens: acknowledgements and READ responses complete requests, in order.

use lock_api::RawMutex;

use super::ahead::Place;
use super::recovery::Resend;
use super::requester::Requester;
use super::send::{Payload, Wqe};
use super::sges::{Cursor, TooShort};
use super::{Env, Rc};
use crate::engine::Reason;
use crate::region::AccessError;
use crate::work::{SendFlags, Status};
use roce_wire::{AethRepr, NakCode, Operation as WireOperation, Packet, SyndromeKind, rnr_timer};

impl Rc {
    /// A packet that answers this side's requests.
    pub(super) fn handle_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), Reason> {
        let requester = &self.requester;
        //= rocev2 §7
        let sequence = requester
            .stream
            .sequence(packet.bth().psn(), requester.una)
            .filter(|&sequence| sequence < requester.high)
            .ok_or(Reason::Sequence)?;
        let aeth = packet.aeth().map(|aeth| AethRepr::parse(&aeth));
        match (packet.info().operation, aeth) {
            (WireOperation::Acknowledge, Some(aeth)) => self.handle_ack(env, sequence, aeth),
            (WireOperation::Read, _) => self.handle_read_response(env, sequence, packet),
            // Nobody here asks for atomics.
            _ => return Err(Reason::Opcode),
        }
        self.check_poison(env);
        Ok(())
    }

    fn handle_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: u64, aeth: AethRepr) {
        let stats = &env.engine.stats;
        match aeth.syndrome.kind() {
            SyndromeKind::Ack(_) => {
                let end = sequence.saturating_add(1);
                if !self.advance(env, end) {
                    if self.is_news(env) {
                        self.implied_nak(env);
                    }
                } else if self.requester.recovery.is_refuted(self.requester.una) {
                    self.requester.go_back(env.now, Resend::All, None);
                }
            }
            SyndromeKind::Nak(NakCode::PSN_SEQUENCE) => {
                stats.rx_nak_sequence.inc();
                //= rocev2 §7
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                if self.is_news(env) {
                    self.lost(env);
                }
            }
            SyndromeKind::RnrNak(code) => {
                stats.rx_nak_rnr.inc();
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                let how = self.requester.recovery.after_rnr();
                self.requester.go_back(env.now, how, None);
                if !self.requester.recovery.wait_for_receive(env.now, rnr_timer(code)) {
                    self.fail(env, Some(Status::RnrRetryExceeded));
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
                self.fail(env, Some(Status::from_nak(code)));
            }
            SyndromeKind::Reserved => {}
        }
    }

    /// Everything before `end` is answered, but for READs, which are answered by their responses: `false`
    /// when one of those stands in between.
    fn advance<R: RawMutex>(&mut self, env: &Env<'_, R>, end: u64) -> bool {
        let before = self.requester.una;
        let mut reached = true;
        while self.requester.una < end {
            let Some(wqe) = self.send.front() else { break };
            if wqe.is_read() {
                reached = false;
                break;
            }
            self.requester.una = wqe.end().min(end);
            if self.requester.una < wqe.end() {
                break;
            }
            self.complete_oldest(env);
        }
        if self.requester.una > before {
            self.requester.progressed(env.now);
        }
        reached
    }

    /// The oldest request has succeeded.
    #[inline]
    fn complete_oldest<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let Some(wqe) = self.send.pop() else { return };
        self.requester.popped(&wqe);
        //= R-CQ-30
        //= R-QP-26
        if !wqe.flags.contains(SendFlags::SILENT) {
            env.complete_send(wqe.context, wqe.kind(), Status::Success, wqe.length);
        }
        if self.send.has_local() {
            self.complete_done(env);
        }
    }

    fn handle_read_response<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: u64, packet: &Packet<'_>) {
        //= rocev2 §7
        if sequence < self.requester.una {
            return;
        }
        // It acknowledges what was before.
        if !self.advance(env, sequence) {
            self.keep_response(env, sequence, packet);
            let requester = &mut self.requester;
            // What was on its way when the requester went back is no news. A number that does not rise is:
            // the responder has begun anew, and the same response was lost again.
            let again = requester.missed.replace(sequence).is_some_and(|last| sequence <= last);
            if again || requester.recovery.is_unknown(requester.una, requester.next) {
                self.implied_nak(env);
            }
            return;
        }
        let Some(wqe) = self.send.front().filter(|wqe| wqe.is_read()) else {
            self.fail(env, Some(Status::BadResponse));
            return;
        };
        if !self.fits(wqe, sequence, packet) {
            self.fail(env, Some(Status::BadResponse));
            return;
        }
        let mut sink = self.requester.sink;
        //= R-QP-43
        if self.store_response(env, wqe, &mut sink, sequence, packet).is_err() {
            self.fail(env, Some(Status::LocalProtection));
            return;
        }
        let end = wqe.end();
        let requester = &mut self.requester;
        requester.sink = sink;
        requester.missed = None;
        // Those that came too early count now.
        let kept = u64::from(requester.ahead.follow(sequence).full);
        requester.una = sequence.saturating_add(1).saturating_add(kept);
        requester.responses_came(wqe, sequence);
        //= R-CQ-57
        if requester.una == end {
            self.complete_oldest(env);
        }
        self.requester.progressed(env.now);
    }

    /// Whether a response is as long as it has to be, and ends where it has to.
    fn fits(&self, wqe: &Wqe, sequence: u64, packet: &Packet<'_>) -> bool {
        let into = sequence.saturating_sub(wqe.first);
        let offset = into.saturating_mul(u64::from(self.requester.mtu)) as u32;
        let expected = wqe.length.saturating_sub(offset).min(self.requester.mtu);
        // Whether it begins with First or goes on with Middle after a loss is the responder's choice (rocev2
        // §6); where it ends is not.
        let last = sequence.saturating_add(1) == Requester::chunk_end(wqe, sequence);
        packet.info().last == last && packet.payload().len() == expected as usize
    }

    /// Copies a response to where it belongs.
    fn store_response<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        wqe: &Wqe,
        sink: &mut Cursor,
        sequence: u64,
        packet: &Packet<'_>,
    ) -> Result<(), AccessError> {
        let Payload::Sges(sges) = self.send.payload(wqe) else { return Err(AccessError) };
        let into = sequence.saturating_sub(wqe.first);
        let offset = into.saturating_mul(u64::from(self.requester.mtu)) as u32;
        let mut rest = packet.payload();
        sink.seek(sges, offset).map_err(|TooShort| AccessError)?;
        sink.walk(sges, rest.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            env.engine.regions.write_local(env.qp.pd, sge, within, now)
        })
    }

    /// Keeps a response to the oldest READ that came before an earlier one.
    fn keep_response<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: u64, packet: &Packet<'_>) {
        let requester = &self.requester;
        let Some(wqe) = self.send.front().filter(|wqe| wqe.is_read() && sequence < wqe.end()) else { return };
        let Place::Take(distance) = requester.ahead.place(requester.una, sequence, false) else { return };
        let mut sink = requester.sink;
        if self.fits(wqe, sequence, packet)
            && self.store_response(env, wqe, &mut sink, sequence, packet).is_ok()
        {
            self.requester.ahead.note(distance, None);
        }
    }

    /// An answer to a later packet shows that the response at `una` was lost.
    fn implied_nak<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        env.engine.stats.implied_naks.inc();
        self.lost(env);
    }

    /// The packet at `una`, or its response, was lost.
    fn lost<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let requester = &mut self.requester;
        if !requester.recovery.may_go_back(env.now) {
            self.fail(env, Some(Status::RetryExceeded));
            return;
        }
        let oldest = self.send.front();
        let how = match oldest {
            Some(wqe) if wqe.is_read() => requester.request_again(wqe),
            Some(wqe) => requester.recovery.around(requester.una, wqe.first..wqe.end(), requester.high),
            None => Resend::All,
        };
        requester.go_back(env.now, how, oldest);
    }

    fn is_news<R: RawMutex>(&self, env: &Env<'_, R>) -> bool {
        let requester = &self.requester;
        requester.recovery.is_news(requester.una, requester.next, env.now)
    }
}
