// SPDX-License-Identifier: MIT OR Apache-2.0

//! Retries of a requester, and the wait after an RNR NAK.

use core::time::Duration;

use super::Recovery;
use super::retransmission::Resend;
use super::round_trip::Sample;
use crate::time::Instant;

/// RNR retry count 7: no limit.
const NO_LIMIT: u8 = 7;

impl Recovery {
    /// Accounts for going back once more. Returns `false` when no retry is left.
    ///
    /// By the specification every timeout and every NAK that sends the requester back uses a retry. Here a retry
    /// is used when the ACK timeout has passed without progress, whether the peer is silent or reports the same
    /// loss repeatedly. Before that, resending is free and finds a lost last packet early. The requester gives up
    /// exactly when one without any answer and with as many retries would.
    pub(crate) fn may_retry(&mut self, now: Instant) -> bool {
        //= rocev2 §7
        let waited = now.nanos_since(self.timeout.last_progress);
        let due = self.timeout.ack_timeout.saturating_mul(u64::from(self.retries_used).saturating_add(1));
        if self.timeout.ack_timeout != 0 && waited >= due {
            self.retries_used = self.retries_used.saturating_add(1);
        }
        self.retries_used <= self.retries
    }

    /// Returns the retries used since the last progress.
    pub(crate) fn retries_used(&self) -> u8 {
        self.retries_used
    }

    /// Returns what to resend after the wait for the peer's receive.
    pub(crate) fn resend_after_rnr(&self) -> Resend {
        // A peer that was not ready twice may not be ready for long: one packet at a time is sent to ask.
        if self.rnr_since.is_some() { Resend::Probe { selective: false } } else { Resend::GoBackN }
    }

    /// Handles an RNR NAK: waits for `timer`. Returns `false` when the RNR retries or the RNR limit are used up.
    pub(crate) fn handle_rnr_nak(&mut self, now: Instant, timer: Duration) -> bool {
        let since = *self.rnr_since.get_or_insert(now);
        //= rocev2 §7
        self.rnr_until = Some(now + timer);
        // A pending sample would include the wait.
        self.sample = Sample::NONE;
        self.retries_used = 0;
        if let Some(last) = &mut self.retransmission {
            // The wait is what separates this retransmission from the next.
            last.repeats = 0;
        }
        //= R-QP-7
        if now.duration_since(since) >= self.rnr_limit {
            return false;
        }
        self.rnr_retries_used = self.rnr_retries_used.saturating_add(1).min(NO_LIMIT);
        self.rnr_retries >= NO_LIMIT || self.rnr_retries_used <= self.rnr_retries
    }

    /// Ends the wait after an RNR NAK if it is over. Returns `true` once per wait.
    pub(crate) fn end_rnr_wait(&mut self, now: Instant) -> bool {
        if self.rnr_until.take_if(|until| *until <= now).is_none() {
            return false;
        }
        self.timeout.last_progress = now;
        // Packets are resent from now on: the wait is not part of the round trip.
        if let Some(retransmission) = &mut self.retransmission {
            retransmission.at = now;
        }
        true
    }
}
