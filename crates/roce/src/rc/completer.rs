//! The half that listens: acknowledgements and READ responses complete requests, in order.

use lock_api::RawMutex;

use super::requester::Requester;
use super::send::Payload;
use super::{Env, Rc};
use crate::engine::Reason;
use crate::region::AccessError;
use crate::wire::{AethRepr, NakCode, Operation as WireOperation, Packet, SyndromeKind, rnr_timer};
use crate::work::{SendFlags, Status};

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
                    self.implied_nak(env);
                }
            }
            SyndromeKind::Nak(NakCode::PSN_SEQUENCE) => {
                stats.rx_nak_sequence.inc();
                //= rocev2 §7
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                self.lost(env);
            }
            SyndromeKind::RnrNak(code) => {
                stats.rx_nak_rnr.inc();
                if sequence < self.requester.una {
                    return;
                }
                self.advance(env, sequence);
                self.requester.go_back(env.now);
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
            self.implied_nak(env);
            return;
        }
        let Some(wqe) = self.send.front().filter(|wqe| wqe.is_read()) else {
            self.fail(env, Some(Status::BadResponse));
            return;
        };
        let into = sequence.saturating_sub(wqe.first);
        let offset = into.saturating_mul(u64::from(self.requester.mtu)) as u32;
        let expected = wqe.length.saturating_sub(offset).min(self.requester.mtu);
        let chunk_done = sequence.saturating_add(1) == Requester::chunk_end(wqe, sequence);
        // Whether it begins with First or goes on with Middle after a loss is the responder's choice (rocev2
        // §6); where it ends is not.
        if packet.info().last != chunk_done || packet.payload().len() != expected as usize {
            self.fail(env, Some(Status::BadResponse));
            return;
        }
        let Payload::Sges(sges) = self.send.payload(wqe) else { return };
        let sink = &mut self.requester.sink;
        let mut rest = packet.payload();
        let stored = sink.seek(sges, offset).map_err(|_| AccessError).and_then(|()| {
            sink.walk(sges, expected, AccessError, |sge, within, len| {
                let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
                rest = later;
                env.engine.regions.write_local(env.qp.pd, sge, within, now)
            })
        });
        //= R-QP-43
        if stored.is_err() {
            self.fail(env, Some(Status::LocalProtection));
            return;
        }
        let done = sequence.saturating_add(1) == wqe.end();
        self.requester.una = sequence.saturating_add(1);
        if chunk_done {
            self.requester.chunk_done();
        }
        //= R-CQ-57
        if done {
            self.complete_oldest(env);
        }
        self.requester.progressed(env.now);
    }

    /// An answer to a later packet shows that the response at `una` was lost.
    fn implied_nak<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.requester.is_news(env.now) {
            env.engine.stats.implied_naks.inc();
        }
        self.lost(env);
    }

    /// The packet at `una`, or its response, was lost.
    fn lost<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if !self.requester.is_news(env.now) {
            return;
        }
        if !self.requester.recovery.may_go_back(env.now) {
            self.fail(env, Some(Status::RetryExceeded));
            return;
        }
        self.requester.go_back(env.now);
    }
}
