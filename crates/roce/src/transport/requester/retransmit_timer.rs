// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport timer (IBTA Volume 1, section 9.7): retransmission after an ACK timeout, and the wait after
//! an RNR NAK.

use lock_api::RawMutex;

use super::recovery::retransmission::Resend;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::work::CompletionStatus;

impl RcTransport {
    /// Returns the deadline of the requester.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.state != State::Rts {
            return None;
        }
        let recovery = &self.requester.recovery;
        //= rocev2 §7
        if let Some(until) = recovery.rnr_until {
            return Some(until);
        }
        self.requester.waiting().then(|| recovery.deadline(self.requester.una))
    }

    /// Handles the deadline if it has passed: ends an RNR wait, or retransmits.
    pub(crate) fn check_deadline<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.deadline().is_none_or(|deadline| deadline > env.now) {
            return;
        }
        let requester = &mut self.requester;
        if requester.recovery.end_rnr_wait(env.now) {
            // The requester went back when the RNR NAK arrived.
            return;
        }
        env.stats.timeouts.inc();
        env.trace(requester.psns.psn(requester.una), TraceEvent::TimedOut);
        let retries_used = requester.recovery.retries_used();
        if !requester.recovery.may_retry(env.now) {
            self.fail(env, Some(CompletionStatus::RetryExceeded));
            return;
        }
        requester.recovery.back_off();
        if !self.probe_for_responses(env) {
            self.requester.go_back(env.now, Resend::Probe { selective: true }, None);
        }
        if self.requester.recovery.retries_used() > retries_used {
            self.report_suspect_path(env);
        }
    }
}
