// SPDX-License-Identifier: MIT OR Apache-2.0

//! The retransmission timeout (RFC 6298), and the probe of the newest packet before it (tail loss probe, RFC 8985, section 7).
//!
//! After about two round trips without an answer, the newest packet is sent once more: what the peer answers to it shows whether a packet or
//! the answer was lost. If it does not answer for a retransmission timeout more, the oldest packet is sent again. Each of both doubles
//! the timeouts until a packet that was sent once measures the round trip (Karn's algorithm; RFC 6298, sections 3 and 5).
//!
//! In a queue, the probe is repeated meanwhile, each time after twice as long, until the minimum retransmission
//! timeout has passed, as QUIC does (RFC 9002, section 6.2): a port that is full drops probes, too, and a sender that waits for longer
//! than the others gets nothing.
//!
//! Before the first measurement, the probe is sent after three times what connection management has measured, and after a minimum
//! retransmission timeout at most: RFC 8985 would wait for a second, but a probe that was not needed costs one frame.
//!
//! The estimate is [`Rtt::timeout`](super::round_trip::Rtt::timeout).

use crate::time::Instant;
use crate::transport::sequence::Sequence;

/// The retransmission timeout of a requester. Each packet uses it: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RetransmitTimeout {
    /// When the last acknowledgement arrived, or the first unacknowledged packet was sent.
    pub(super) last_progress: Instant,
    /// ACK timeout: time without progress that costs a retry; zero for no timeout. This and the next three are in
    /// nanoseconds: arithmetic of [`Duration`](core::time::Duration) is slow.
    pub(super) ack_timeout: u64,
    pub(super) min_resend: u64,
    /// The first timeout after progress: that of the tail probe.
    pub(super) first_resend: u64,
    /// The next timeout, from the last progress, or from the first AckReq after it. Backs off exponentially.
    pub(super) resend: u64,
    /// End of the packets for which an ACK is requested, and when the first of these requests was sent.
    pub(super) ack_requested: Option<(Sequence, Instant)>,
    /// The start of the wait in which the last tail probe was sent.
    probed: Instant,
    /// Minimum time before a tail probe.
    min_probe: u64,
}

impl RetransmitTimeout {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        last_progress: Instant::from_nanos(0),
        ack_timeout: 0,
        min_resend: 0,
        first_resend: 0,
        resend: 0,
        ack_requested: None,
        probed: Instant::from_nanos(0),
        min_probe: 0,
    };

    /// Sets the ACK timeout, and the minimum times before a retransmission and before a tail probe of a connection, in
    /// nanoseconds.
    pub(super) fn begin(&mut self, ack_timeout: u64, min_resend: u64, min_probe: u64) {
        self.ack_timeout = ack_timeout;
        (self.min_resend, self.min_probe) = (min_resend, min_probe);
        self.first_resend = self.at_most_ack_timeout(min_resend);
        self.reset();
    }

    /// Sets the ACK timeout, in nanoseconds.
    pub(super) fn set_ack_timeout(&mut self, ack_timeout: u64) {
        self.ack_timeout = ack_timeout;
    }

    /// Returns when `una`, the oldest unacknowledged packet, is sent again.
    #[inline]
    pub(crate) fn deadline(&self, una: Sequence) -> Instant {
        match self.ack_requested {
            Some((end, at)) if end > una => self.last_progress.max(at).after_nanos(self.resend),
            // No ACK is requested yet, for example when packets leave one by one.
            _ => self.last_progress.after_nanos(self.ack_timeout.max(self.resend)),
        }
    }

    /// Returns whether an ACK is requested for `una`, the oldest unacknowledged packet, or one behind it.
    pub(crate) fn awaits_ack(&self, una: Sequence) -> bool {
        self.ack_requested.is_some_and(|(end, _)| end > una)
    }

    /// Accounts for a packet with AckReq, sent for the `first` time or again, whose ACK covers everything before `end`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small message")]
    pub(super) fn record_ack_request(&mut self, una: Sequence, end: Sequence, first: bool, now: Instant) {
        self.ack_requested = match self.ack_requested {
            // Another AckReq while an ACK is due does not give the peer more time.
            Some((old, at)) if !first || old > una => Some((old.max(end), at)),
            Some((old, _)) => Some((old.max(end), now)),
            None => Some((end, now)),
        };
    }

    /// Sets the time before a tail probe, by an estimate in nanoseconds. Ends the back-off.
    #[inline]
    pub(super) fn set_first(&mut self, estimate: u64) {
        self.first_resend = self.at_most_ack_timeout(estimate.max(self.min_probe));
    }

    #[inline]
    fn at_most_ack_timeout(&self, time: u64) -> u64 {
        if self.ack_timeout == 0 { time } else { time.min(self.ack_timeout) }
    }

    /// Starts with the first timeout again, after progress.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.resend = self.first_resend;
    }

    /// Backs off: the deadline has passed, the next one is farther away.
    pub(crate) fn back_off(&mut self) {
        // `resend` counts from the last progress: each pause is twice the one before, up to the ACK timeout.
        let pause = self.at_most_ack_timeout(self.resend);
        self.resend = self.resend.saturating_add(pause);
        self.back_off_first();
    }

    /// Doubles the first timeout, until a round trip is measured. At most to a quarter of the ACK timeout: the next loss after a
    /// partition should not take as long to be found, and a peer that is slower costs probes only.
    fn back_off_first(&mut self) {
        let doubled = self.first_resend.saturating_mul(2);
        let limit = if self.ack_timeout == 0 { doubled } else { self.ack_timeout / 4 };
        self.first_resend = self.first_resend.max(doubled.min(limit));
    }

    /// Returns the time of the last progress, or of the AckReq after it.
    fn waits_since(&self) -> Instant {
        self.ack_requested.map_or(self.last_progress, |(_, at)| self.last_progress.max(at))
    }

    /// Returns whether a tail probe was sent and nothing was acknowledged since.
    pub(crate) fn has_probed(&self) -> bool {
        self.probed == self.waits_since()
    }

    /// Returns whether the minimum time before a retransmission has passed.
    pub(crate) fn has_waited(&self, now: Instant) -> bool {
        now.nanos_since(self.waits_since()) >= self.min_resend
    }

    /// Handles the deadline of `una`: returns whether a tail probe is sent now. That is the first timeout after progress, and those that
    /// follow within the minimum time before a retransmission if it may be sent `again`. `timeout` nanoseconds after the last one is the
    /// retransmission timeout.
    pub(super) fn begin_probe(&mut self, una: Sequence, timeout: u64, again: bool) -> bool {
        let since = self.waits_since();
        // After an ACK timeout, a retry is due.
        if !self.awaits_ack(una)
            || self.probed == since && !(again && self.resend < self.at_most_ack_timeout(self.min_resend))
            || self.ack_timeout != 0 && self.first_resend >= self.ack_timeout
        {
            return false;
        }
        self.probed = since;
        let mut pause = timeout.max(self.first_resend);
        if !again || self.resend.saturating_add(pause) >= self.min_resend {
            pause = pause.max(self.min_resend);
        }
        self.resend = self.resend.saturating_add(self.at_most_ack_timeout(pause));
        self.back_off_first();
        true
    }

    /// Restarts the timeout: the peer has answered, if not what is awaited.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.reset();
        if let Some((_, at)) = &mut self.ack_requested {
            *at = now;
        }
    }
}
