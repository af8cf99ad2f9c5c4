// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport timer (IBTA Volume 1, section 9.7): tail probe, retransmission after an ACK timeout, and the wait after an RNR NAK.

use lock_api::RawMutex;

use super::Requester;
use super::payload::Payload;
use super::recovery::Recovery;
use super::recovery::retransmission::Resend;
use super::send_queue::Wqe;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::sequence::Sequence;

impl Requester {
    /// Returns the deadline of the requester.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        //= rocev2 §7
        if let Some(until) = self.recovery.rnr_until {
            return Some(until);
        }
        (self.una < self.next).then(|| self.recovery.timeout.deadline(self.una))
    }

    /// Handles the deadline if it has passed: ends an RNR wait, probes, or retransmits. Returns whether the peer has not answered for an
    /// ACK timeout, so that the path to it is suspect.
    pub(crate) fn handle_timeout<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<bool, Failure> {
        if self.deadline().is_none_or(|deadline| deadline > env.now) {
            return Ok(false);
        }
        if self.recovery.end_rnr_wait(env.now) {
            // The requester went back when the RNR NAK arrived.
            return Ok(false);
        }
        // A probe that is not possible is not waited for, once a retransmission is due.
        let probes = can_probe_tail(self, env) || !self.recovery.timeout.has_waited(env.now);
        // In a queue, the probe may be lost, too. Of READs, a peer that is only late would send much twice.
        let is_read = self.send_queue.at(self.high.previous()).is_none_or(Wqe::is_read);
        let Recovery { window, timeout, connecting, .. } = &mut self.recovery;
        let again = window.is_low() || !is_read && window.has_queue(*connecting);
        if again && timeout.has_probed() {
            window.lose(self.una, self.high, *connecting);
        }
        if probes && self.recovery.begin_tail_probe(self.una, again) {
            self.probe_tail(env);
            return Ok(false);
        }
        env.stats.timeouts.inc();
        env.trace(self.psns.psn(self.una), TraceEvent::TimedOut);
        let retries_used = self.recovery.retries_used();
        if !self.recovery.may_retry(env.now) {
            return Err(Failure::RetryExceeded);
        }
        self.recovery.timeout.back_off();
        let (reads, requested) = self.reads(env);
        if env.shared.config.early_placement && reads.probe(requested) {
            self.recovery.record_repair(self.high);
        } else {
            self.go_back(env.now, Resend::Probe { selective: true });
        }
        Ok(self.recovery.retries_used() > retries_used)
    }

    /// Sends the newest packet again, so that the peer reports what it misses (RFC 8985, section 7.3). Of READs, requests the
    /// responses of the oldest chunk again that are missing. Nothing if packets are to be sent again anyway, or if the newest one
    /// cannot be sent alone.
    fn probe_tail<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.next < self.high {
            return;
        }
        let (reads, requested) = self.reads(env);
        if env.shared.config.early_placement && reads.probe(requested) {
            self.recovery.record_repair(self.high);
        } else {
            let newest = self.high.previous();
            if !can_send_again(self, env, newest) {
                return;
            }
            self.send_from(newest);
        }
        env.stats.tail_probes.inc();
    }
}

/// Returns whether [`Requester::probe_tail`] has something to send, or packets are to be sent again anyway.
fn can_probe_tail<R: RawMutex>(requester: &mut Requester, env: &Env<'_, R>) -> bool {
    let newest = requester.high.previous();
    let are_reads = env.shared.config.early_placement && requester.reads(env).1.read_at(newest).is_some();
    requester.next < requester.high || are_reads || can_send_again(requester, env, newest)
}

/// Returns whether a packet can be sent again alone. Not one of a READ request behind other requests: its place among those granted is
/// not known. And none whose memory the consumer has taken back: the request may have arrived, and a probe must not end it.
//= R-CONSUMER-16
fn can_send_again<R: RawMutex>(requester: &Requester, env: &Env<'_, R>, packet: Sequence) -> bool {
    let Some(wqe) = requester.send_queue.at(packet).filter(|wqe| !wqe.is_read()) else { return false };
    match requester.send_queue.payload(wqe) {
        Payload::Inline(_) => true,
        Payload::Sges(sges) => {
            sges.iter().all(|sge| env.shared.regions.is_known_local(env.qp.pd, sge, false))
        }
    }
}
