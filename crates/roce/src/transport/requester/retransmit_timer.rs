// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport timer (IBTA Volume 1, section 9.7): retransmission after an ACK timeout, and the wait after
//! an RNR NAK.

use lock_api::RawMutex;

use super::Requester;
use super::recovery::retransmission::Resend;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::failure::Failure;

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

    /// Handles the deadline if it has passed: ends an RNR wait, or retransmits. Returns whether the peer has not answered for an
    /// ACK timeout, so that the path to it is suspect.
    pub(crate) fn handle_timeout<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<bool, Failure> {
        if self.deadline().is_none_or(|deadline| deadline > env.now) {
            return Ok(false);
        }
        if self.recovery.end_rnr_wait(env.now) {
            // The requester went back when the RNR NAK arrived.
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
}
