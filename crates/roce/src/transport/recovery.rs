//! Loss recovery of the requester: round-trip time, retry counters, and what to send again.
//!
//! A peer that misses a packet sends one sequence NAK, or its answers imply the loss. By the specification it
//! drops everything after the gap and the requester resends everything: go-back-N. At 1% loss that sends every
//! byte twice, at 5% seven times. This engine as responder stores the later packets of the same
//! message ([`super::out_of_order`]). So the requester first tries selective repeat: it resends the lost packet,
//! continues behind that message, and checks the answer. A peer that then misses the very next packet
//! stored nothing; after [`MAX_SELECTIVE_FAILURES`] of these the requester uses go-back-N for the next
//! [`GO_BACK_N_LOSSES`] losses before it tries again.
//!
//! A loss that is not reported (a lost last packet, NAK or ACK) is found by a timer: the requester sends one
//! probe packet, whose answer tells what the peer has. A probe is cheap, so it may be sent long before the
//! agreed ACK timeout (compare the tail loss probe of RFC 8985). Only a passed ACK timeout uses a retry.

use core::ops::Range;
use core::time::Duration;

use super::peer::Peer;
use crate::config::Config;
use crate::time::{Instant, nanos};

/// An RNR retry count that means to try for ever.
const NO_LIMIT: u8 = 7;

/// Losses after which a peer seems to have kept nothing, in a row, before it is believed.
const MAX_SELECTIVE_FAILURES: u8 = 3;

/// Losses that are then answered by sending everything again, before the peer is tried once more.
const GO_BACK_N_LOSSES: u8 = 16;

/// Shortest times without an answer, before any answer was seen.
const INITIAL_RESEND_FACTOR: u32 = 16;

/// What is sent again when the requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    /// The oldest packet and everything after it.
    GoBackN,
    /// The oldest packet, and everything from this number on: what lies between has arrived, unless the peer
    /// keeps nothing.
    Selective(u64),
    /// The oldest READ request, and everything from this number on: answers between are kept here.
    Read(u64),
    /// The oldest packet alone, until it is answered.
    Probe,
}

/// A time that the requester went back.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    /// To which packet.
    first: u64,
    /// The packet after those that this one stood for: after itself, but for a READ request.
    end: u64,
    /// The packet that was to be sent for the first time next.
    high: u64,
    at: Instant,
    kind: Resend,
    /// It has been answered.
    answered: bool,
}

/// What is known of losses and delays.
#[derive(Debug)]
pub(super) struct Recovery {
    retries: u8,
    /// Retries since the last progress.
    retries_used: u8,
    rnr_retries: u8,
    rnr_retries_used: u8,
    /// Since when the peer has had no receive.
    rnr_since: Option<Instant>,
    /// Nothing is sent before this.
    pub(super) rnr_until: Option<Instant>,
    /// Longest that a request goes without an answer before that costs a retry; zero for ever.
    ack_timeout: Duration,
    min_resend: Duration,
    rnr_limit: Duration,
    /// When the last answer came, or when the first unanswered packet was sent.
    last_progress: Instant,
    /// How long after that, or after an answer was asked for, the oldest packet is sent again, doubled with
    /// every time.
    resend: Duration,
    /// The end of what answers were asked for, and when that response_start, with no such answer due before.
    ack_requested: Option<(u64, Instant)>,
    /// A packet whose answer is awaited to measure the round trip.
    sample: Option<Sample>,
    rtt: Option<Rtt>,
    /// The last time the requester went back.
    retransmission: Option<Retransmission>,
    /// Below [`MAX_SELECTIVE_FAILURES`]: how often in a row the peer seems to have kept nothing. From there on: losses
    /// since that was believed.
    selective_failures: u8,
}

/// A packet whose answer is awaited to measure the round trip.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sequence: u64,
    sent: Instant,
    /// The peer has been asked again meanwhile: it is slow, or something was lost.
    ambiguous: bool,
}

/// Retransmission trips, in nanoseconds: unlike those of [`Duration`], divisions of integers cannot panic here.
#[derive(Clone, Copy, Debug)]
struct Rtt {
    smoothed: u64,
    variation: u64,
    shortest: u64,
}

impl Recovery {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        retries: 0,
        retries_used: 0,
        rnr_retries: 0,
        rnr_retries_used: 0,
        rnr_since: None,
        rnr_until: None,
        ack_timeout: Duration::ZERO,
        min_resend: Duration::ZERO,
        rnr_limit: Duration::ZERO,
        last_progress: Instant::from_nanos(0),
        resend: Duration::ZERO,
        ack_requested: None,
        sample: None,
        rtt: None,
        retransmission: None,
        selective_failures: 0,
    };

    pub(super) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.retries = peer.retries;
        self.rnr_retries = peer.rnr_retries;
        self.ack_timeout = peer.ack_timeout;
        self.min_resend = config.timing.min_resend;
        self.rnr_limit = config.timing.rnr_limit;
        self.resend = self.first_resend();
    }

    /// Nothing is awaited any more.
    pub(super) fn stop(&mut self) {
        self.rnr_until = None;
        self.retransmission = None;
    }

    /// When the packet at `una`, the oldest, is sent again.
    pub(super) fn deadline(&self, una: u64) -> Instant {
        match self.ack_requested {
            Some((end, at)) if end > una => self.last_progress.max(at) + self.resend,
            // The peer need not answer yet: packets that leave one by one, say.
            _ => self.last_progress + self.ack_timeout.max(self.resend),
        }
    }

    fn first_resend(&self) -> Duration {
        let estimate = match self.rtt {
            Some(rtt) => {
                // Half a round trip more: where answers come evenly, they vary by less than the next one may.
                let usual = rtt.smoothed.saturating_add(rtt.smoothed / 2);
                Duration::from_nanos(usual.saturating_add(rtt.variation.saturating_mul(4)))
            }
            None => self.min_resend.saturating_mul(INITIAL_RESEND_FACTOR),
        };
        self.at_most_timeout(estimate.max(self.min_resend))
    }

    fn at_most_timeout(&self, time: Duration) -> Duration {
        if self.ack_timeout.is_zero() { time } else { time.min(self.ack_timeout) }
    }

    /// The deadline has passed: the next one is farther away.
    pub(super) fn back_off(&mut self) {
        // `resend` counts from the last progress: each pause is twice the one before, up to the agreed time.
        let pause = self.at_most_timeout(self.resend);
        self.resend = self.resend.saturating_add(pause);
    }

    /// A packet is sent, and nothing was awaited before.
    pub(super) fn start_waiting(&mut self, una: u64, now: Instant) {
        if self.retransmission.is_none_or(|retransmission| retransmission.first != una) {
            self.last_progress = now;
        }
    }

    /// The packet at `sequence` is sent, for the `first` time or again, and asks for answers up to `end`; all
    /// before `una` is answered.
    pub(super) fn record_ack_request(
        &mut self,
        una: u64,
        sequence: u64,
        end: u64,
        first: bool,
        now: Instant,
    ) {
        self.ack_requested = match self.ack_requested {
            // Asking again, or for more while an answer is due, does not buy the peer time.
            Some((old, at)) if !first || old > una => Some((old.max(end), at)),
            Some((old, _)) => Some((old.max(end), now)),
            None => Some((end, now)),
        };
        if first && self.sample.is_none() {
            self.sample = Some(Sample { sequence, sent: now, ambiguous: false });
        }
    }

    /// Something has been answered: all before `una`.
    pub(super) fn handle_progress(&mut self, una: u64, now: Instant) {
        //= rocev2 §7
        self.retries_used = 0;
        self.rnr_retries_used = 0;
        self.rnr_since = None;
        self.last_progress = now;
        if let Some(sample) = self.sample.take_if(|sample| una > sample.sequence) {
            let took = nanos(now.duration_since(sample.sent));
            // A peer that has become slow is learned of step by step, and a loss costs little.
            let most = self.rtt.filter(|_| sample.ambiguous).map(|rtt| rtt.smoothed.saturating_mul(2));
            self.add_rtt_sample(most.map_or(took, |most| took.min(most)));
        }
        self.resend = self.first_resend();
        self.evaluate_retransmission(una, now);
    }

    /// A round trip took so many nanoseconds.
    fn add_rtt_sample(&mut self, rtt: u64) {
        let old = self.rtt.unwrap_or(Rtt { smoothed: rtt, variation: rtt / 2, shortest: rtt });
        self.rtt = Some(Rtt {
            smoothed: old.smoothed.saturating_mul(7).saturating_add(rtt) / 8,
            variation: old.variation.saturating_mul(3).saturating_add(old.smoothed.abs_diff(rtt)) / 4,
            // Rises slowly, since what was once the shortest way may be so no more.
            shortest: old.shortest.saturating_add(old.shortest / 64).min(rtt),
        });
    }

    /// Whether so much time has passed since `at` that what was sent then can have been answered. The
    /// shortest round trip that was measured may have included a queue that is empty by now.
    fn answered_since(&self, at: Instant, now: Instant) -> bool {
        nanos(now.duration_since(at)) >= self.rtt.map_or(0, |rtt| rtt.shortest / 4)
    }

    /// Learns from the answer to a packet that was sent again whether the peer kept those after it.
    fn evaluate_retransmission(&mut self, una: u64, now: Instant) {
        let Some(retransmission) = self
            .retransmission
            .filter(|retransmission| !retransmission.answered && una > retransmission.first)
        else {
            return;
        };
        self.retransmission = Some(Retransmission { answered: true, ..retransmission });
        if retransmission.kind == Resend::Probe {
            // It may have been another packet's answer that was slow.
            return;
        }
        // Otherwise the packet was late, not lost.
        let answered = self.answered_since(retransmission.at, now);
        if let Resend::Selective(_) = retransmission.kind
            && answered
        {
            let kept = una > retransmission.first.saturating_add(1);
            self.selective_failures = if kept { 0 } else { self.selective_failures.saturating_add(1) };
        }
        if answered {
            // Where much is lost, few packets that are sent once are answered.
            self.add_rtt_sample(nanos(now.duration_since(retransmission.at)));
        }
    }

    /// What to send again of the message in `packets` after its packet at `una` was lost; `high` is the first
    /// packet that was never sent.
    pub(super) fn resend_for_loss(&mut self, una: u64, packets: Range<u64>, high: u64) -> Resend {
        // With nothing to be sent behind the message, its newest packet is sent again: it shows a peer that
        // does not get the lost one that it was lost again.
        let resume = packets.end.min(high.saturating_sub(1));
        // A message that has not begun has no place for its packets. Nor has a peer that misses the next
        // packet now kept any of the others.
        if resume <= una.saturating_add(1) || una == packets.start || self.selective_repeat_failed(una) {
            return Resend::GoBackN;
        }
        if self.selective_failures >= MAX_SELECTIVE_FAILURES {
            self.selective_failures = self.selective_failures.saturating_add(1);
            if self.selective_failures <= MAX_SELECTIVE_FAILURES.saturating_add(GO_BACK_N_LOSSES) {
                return Resend::GoBackN;
            }
            self.selective_failures = MAX_SELECTIVE_FAILURES.saturating_sub(1);
        }
        Resend::Selective(resume)
    }

    /// Whether the answer to a packet that was sent again, all before `una`, shows that the peer has not kept
    /// what was left out.
    pub(super) fn selective_repeat_failed(&self, una: u64) -> bool {
        match self.retransmission {
            Some(Retransmission { first, kind: Resend::Selective(resume), .. }) => {
                una == first.saturating_add(1) && una < resume
            }
            _ => false,
        }
    }

    /// The requester goes back to the packet at `to`; `high` is the first that was never sent.
    pub(super) fn record_go_back(&mut self, first: u64, high: u64, kind: Resend, now: Instant) {
        // The answer to a packet that is sent twice tells little of the round trip.
        if kind == Resend::Probe {
            self.sample = self.sample.map(|sample| Sample { ambiguous: true, ..sample });
        } else {
            self.sample = None;
        }
        self.retransmission =
            Some(Retransmission { first, end: first, high, at: now, kind, answered: false });
    }

    /// The packet at `sequence` was sent again, up to `end`; where to go on.
    pub(super) fn resume_after_resend(&mut self, sequence: u64, end: u64) -> u64 {
        let Some(retransmission) =
            self.retransmission.as_mut().filter(|retransmission| retransmission.first == sequence)
        else {
            return end;
        };
        retransmission.end = end;
        match retransmission.kind {
            Resend::Selective(resume) | Resend::Read(resume) => resume.max(end),
            Resend::GoBackN | Resend::Probe => end,
        }
    }

    /// Whether the packet at `next` has to wait for the answer to a probe.
    #[inline]
    pub(super) fn awaits_probe(&self, una: u64, next: u64) -> bool {
        match self.retransmission {
            Some(Retransmission { first, kind: Resend::Probe, .. }) => una <= first && next > first,
            _ => false,
        }
    }

    /// Whether a loss at `una` that is reported now is news: not the echo of one that the requester has gone
    /// back for already. `next` is the packet to be sent next.
    pub(super) fn is_new_loss(&self, una: u64, next: u64, now: Instant) -> bool {
        self.is_unhandled_loss(una, next) || self.was_sent(una, next) && self.could_be_answered(now)
    }

    /// Whether the packet at `una` has not been sent again.
    pub(super) fn is_unhandled_loss(&self, una: u64, next: u64) -> bool {
        let Some(retransmission) = self.retransmission else { return self.was_sent(una, next) };
        let passed_over = match retransmission.kind {
            Resend::Selective(resume) | Resend::Read(resume) => (retransmission.end..resume).contains(&una),
            Resend::GoBackN | Resend::Probe => false,
        };
        self.was_sent(una, next) && (una >= retransmission.high || passed_over)
    }

    /// Whether the packet at `una` was sent, and is not about to be sent again anyway.
    fn was_sent(&self, una: u64, next: u64) -> bool {
        //= rocev2 §7
        self.rnr_until.is_none() && una < next
    }

    /// Whether what was sent again can have been answered by now.
    fn could_be_answered(&self, now: Instant) -> bool {
        // An answer takes a round trip. As long as none was measured, who answers sooner than the requester
        // would ask again is not believed: each answer may have a window sent again.
        self.retransmission.is_none_or(|retransmission| match self.rtt {
            Some(_) => self.answered_since(retransmission.at, now),
            None => now.duration_since(retransmission.at) >= self.min_resend,
        })
    }

    /// Accounts for having to go back once more; `false` when no retry is left for that.
    ///
    /// By the rule every timeout and every NAK that sends the requester back counts. Here a retry is each
    /// time that the agreed timeout has passed without progress: the same patience, whether the peer is
    /// silent, or reports the same loss over and over. Before that, resending is free, and finds a lost tail
    /// early. That is safe, since it gives up as late as a requester that hears nothing and has as many
    /// retries, and no later.
    pub(super) fn may_retry(&mut self, now: Instant) -> bool {
        //= rocev2 §7
        let waited = now.duration_since(self.last_progress);
        let due = self.ack_timeout.saturating_mul(u32::from(self.retries_used).saturating_add(1));
        if !self.ack_timeout.is_zero() && waited >= due {
            self.retries_used = self.retries_used.saturating_add(1);
        }
        self.retries_used <= self.retries
    }

    /// What to send again once the peer's wait for a receive is over.
    pub(super) fn resend_after_rnr(&self) -> Resend {
        // A peer that was not ready twice may not be for long: it is asked by one packet at a time.
        if self.rnr_since.is_some() { Resend::Probe } else { Resend::GoBackN }
    }

    /// The peer had no receive: waits for `timer`. `false` when that has gone on for too long.
    pub(super) fn handle_rnr_nak(&mut self, now: Instant, timer: Duration) -> bool {
        let since = *self.rnr_since.get_or_insert(now);
        //= rocev2 §7
        self.rnr_until = Some(now + timer);
        // A sample that was under way would measure the wait.
        self.sample = None;
        self.retries_used = 0;
        //= R-QP-7
        if now.duration_since(since) >= self.rnr_limit {
            return false;
        }
        self.rnr_retries_used = self.rnr_retries_used.saturating_add(1).min(NO_LIMIT);
        self.rnr_retries >= NO_LIMIT || self.rnr_retries_used <= self.rnr_retries
    }

    /// Whether that wait is over, which it is only once.
    pub(super) fn end_rnr_wait(&mut self, now: Instant) -> bool {
        if self.rnr_until.take_if(|until| *until <= now).is_none() {
            return false;
        }
        self.last_progress = now;
        // What is sent again is sent from now on: the wait is no part of the way there and back.
        if let Some(retransmission) = &mut self.retransmission {
            retransmission.at = now;
        }
        true
    }
}
