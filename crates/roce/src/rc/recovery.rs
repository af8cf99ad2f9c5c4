//! What is known of losses and delays, and what that means: when to go back, and what to send again.
//!
//! A peer that misses a packet says so once (a sequence NAK), or its answers show it. By the standard it
//! drops whatever comes after, and everything is sent again: go-back-N, which at a loss of one in a hundred
//! sends every byte twice, and at one in twenty seven times. A peer of this kind keeps what comes after
//! inside the same message ([`super::ahead`]). So the requester sends the lost packet and goes on behind that
//! message, and watches: a peer that then misses the very next packet did not keep anything, and after
//! [`TRIALS`] of that it gets plain go-back-N, until it is tried again.
//!
//! A loss that nobody reports (the last packet, a NAK, an acknowledgement) is found by time. That costs one
//! packet, whose answer tells what the peer has: so it may be asked soon, long before the time that was
//! agreed upon, which is what a retry costs.

use core::ops::Range;
use core::time::Duration;

use super::Peer;
use crate::engine::Config;
use crate::time::{Instant, nanos};

/// An RNR retry count that means to try for ever.
const NO_LIMIT: u8 = 7;

/// Losses after which a peer seems to have kept nothing, in a row, before it is believed.
const TRIALS: u8 = 3;

/// Losses that are then answered by sending everything again, before the peer is tried once more.
const PLAIN: u8 = 16;

/// Shortest times without an answer, before any answer was seen.
const UNKNOWN: u32 = 16;

/// What is sent again when the requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    /// The oldest packet and everything after it.
    All,
    /// The oldest packet, and everything from this number on: what lies between has arrived, unless the peer
    /// keeps nothing.
    Around(u64),
    /// The oldest READ request, and everything from this number on: answers between are kept here.
    Request(u64),
    /// The oldest packet alone, until it is answered.
    Probe,
}

/// A time that the requester went back.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// To which packet.
    to: u64,
    /// The packet after those that this one stood for: after itself, but for a READ request.
    until: u64,
    /// The packet that was to be sent for the first time next.
    high: u64,
    at: Instant,
    how: Resend,
    /// It has been answered.
    answered: bool,
}

/// What is known of losses and delays.
#[derive(Debug)]
pub(super) struct Recovery {
    retries: u8,
    /// Retries since the last progress.
    spent: u8,
    rnr_retries: u8,
    rnr_spent: u8,
    /// Since when the peer has had no receive.
    rnr_since: Option<Instant>,
    /// Nothing is sent before this.
    pub(super) rnr_until: Option<Instant>,
    /// Longest that a request goes without an answer before that costs a retry; zero for ever.
    ack_timeout: Duration,
    min_resend: Duration,
    rnr_limit: Duration,
    /// When the last answer came, or when the first unanswered packet was sent.
    progress: Instant,
    /// How long after that, or after an answer was asked for, the oldest packet is sent again, doubled with
    /// every time.
    resend: Duration,
    /// The end of what answers were asked for, and when that began, with no such answer due before.
    ask: Option<(u64, Instant)>,
    /// A packet whose answer is awaited to measure the round trip.
    sample: Option<Sample>,
    rtt: Option<Rtt>,
    /// The last time the requester went back.
    round: Option<Round>,
    /// Below [`TRIALS`]: how often in a row the peer seems to have kept nothing. From there on: losses
    /// since that was believed.
    doubts: u8,
}

/// A packet whose answer is awaited to measure the round trip.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sequence: u64,
    sent: Instant,
    /// The peer has been asked again meanwhile: it is slow, or something was lost.
    doubtful: bool,
}

/// Round trips, in nanoseconds: unlike those of [`Duration`], divisions of integers cannot panic here.
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
        spent: 0,
        rnr_retries: 0,
        rnr_spent: 0,
        rnr_since: None,
        rnr_until: None,
        ack_timeout: Duration::ZERO,
        min_resend: Duration::ZERO,
        rnr_limit: Duration::ZERO,
        progress: Instant::from_nanos(0),
        resend: Duration::ZERO,
        ask: None,
        sample: None,
        rtt: None,
        round: None,
        doubts: 0,
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
        self.round = None;
    }

    /// When the packet at `una`, the oldest, is sent again.
    pub(super) fn deadline(&self, una: u64) -> Instant {
        match self.ask {
            Some((end, at)) if end > una => self.progress.max(at) + self.resend,
            // The peer need not answer yet: packets that leave one by one, say.
            _ => self.progress + self.ack_timeout.max(self.resend),
        }
    }

    fn first_resend(&self) -> Duration {
        let estimate = match self.rtt {
            Some(rtt) => {
                // Half a round trip more: where answers come evenly, they vary by less than the next one may.
                let usual = rtt.smoothed.saturating_add(rtt.smoothed / 2);
                Duration::from_nanos(usual.saturating_add(rtt.variation.saturating_mul(4)))
            }
            None => self.min_resend.saturating_mul(UNKNOWN),
        };
        self.at_most_timeout(estimate.max(self.min_resend))
    }

    fn at_most_timeout(&self, time: Duration) -> Duration {
        if self.ack_timeout.is_zero() { time } else { time.min(self.ack_timeout) }
    }

    /// The deadline has passed: the next one is farther away.
    pub(super) fn timed_out(&mut self) {
        // `resend` counts from the last progress: each pause is twice the one before, up to the agreed time.
        let pause = self.at_most_timeout(self.resend);
        self.resend = self.resend.saturating_add(pause);
    }

    /// A packet is sent, and nothing was awaited before.
    pub(super) fn begins_waiting(&mut self, una: u64, now: Instant) {
        if self.round.is_none_or(|round| round.to != una) {
            self.progress = now;
        }
    }

    /// The packet at `sequence` is sent, for the `first` time or again, and asks for answers up to `end`; all
    /// before `una` is answered.
    pub(super) fn asked(&mut self, una: u64, sequence: u64, end: u64, first: bool, now: Instant) {
        self.ask = match self.ask {
            // Asking again, or for more while an answer is due, does not buy the peer time.
            Some((old, at)) if !first || old > una => Some((old.max(end), at)),
            Some((old, _)) => Some((old.max(end), now)),
            None => Some((end, now)),
        };
        if first && self.sample.is_none() {
            self.sample = Some(Sample { sequence, sent: now, doubtful: false });
        }
    }

    /// Something has been answered: all before `una`.
    pub(super) fn progressed(&mut self, una: u64, now: Instant) {
        //= rocev2 §7
        self.spent = 0;
        self.rnr_spent = 0;
        self.rnr_since = None;
        self.progress = now;
        if let Some(sample) = self.sample.take_if(|sample| una > sample.sequence) {
            let took = nanos(now.duration_since(sample.sent));
            // A peer that has become slow is learned of step by step, and a loss costs little.
            let most = self.rtt.filter(|_| sample.doubtful).map(|rtt| rtt.smoothed.saturating_mul(2));
            self.measured(most.map_or(took, |most| took.min(most)));
        }
        self.resend = self.first_resend();
        self.judge(una, now);
    }

    /// A round trip took so many nanoseconds.
    fn measured(&mut self, rtt: u64) {
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
    fn judge(&mut self, una: u64, now: Instant) {
        let Some(round) = self.round.filter(|round| !round.answered && una > round.to) else { return };
        self.round = Some(Round { answered: true, ..round });
        if round.how == Resend::Probe {
            // It may have been another packet's answer that was slow.
            return;
        }
        // Otherwise the packet was late, not lost.
        let answered = self.answered_since(round.at, now);
        if let Resend::Around(_) = round.how
            && answered
        {
            let kept = una > round.to.saturating_add(1);
            self.doubts = if kept { 0 } else { self.doubts.saturating_add(1) };
        }
        if answered {
            // Where much is lost, few packets that are sent once are answered.
            self.measured(nanos(now.duration_since(round.at)));
        }
    }

    /// What to send again of the message in `packets` after its packet at `una` was lost; `high` is the first
    /// packet that was never sent.
    pub(super) fn around(&mut self, una: u64, packets: Range<u64>, high: u64) -> Resend {
        // With nothing to be sent behind the message, its newest packet is sent again: it shows a peer that
        // does not get the lost one that it was lost again.
        let resume = packets.end.min(high.saturating_sub(1));
        // A message that has not begun has no place for its packets. Nor has a peer that misses the next
        // packet now kept any of the others.
        if resume <= una.saturating_add(1) || una == packets.start || self.is_refuted(una) {
            return Resend::All;
        }
        if self.doubts >= TRIALS {
            self.doubts = self.doubts.saturating_add(1);
            if self.doubts <= TRIALS.saturating_add(PLAIN) {
                return Resend::All;
            }
            self.doubts = TRIALS.saturating_sub(1);
        }
        Resend::Around(resume)
    }

    /// Whether the answer to a packet that was sent again, all before `una`, shows that the peer has not kept
    /// what was left out.
    pub(super) fn is_refuted(&self, una: u64) -> bool {
        match self.round {
            Some(Round { to, how: Resend::Around(resume), .. }) => {
                una == to.saturating_add(1) && una < resume
            }
            _ => false,
        }
    }

    /// The requester goes back to the packet at `to`; `high` is the first that was never sent.
    pub(super) fn went_back(&mut self, to: u64, high: u64, how: Resend, now: Instant) {
        // The answer to a packet that is sent twice tells little of the round trip.
        if how == Resend::Probe {
            self.sample = self.sample.map(|sample| Sample { doubtful: true, ..sample });
        } else {
            self.sample = None;
        }
        self.round = Some(Round { to, until: to, high, at: now, how, answered: false });
    }

    /// The packet at `sequence` was sent again, up to `end`; where to go on.
    pub(super) fn sent_again(&mut self, sequence: u64, end: u64) -> u64 {
        let Some(round) = self.round.as_mut().filter(|round| round.to == sequence) else { return end };
        round.until = end;
        match round.how {
            Resend::Around(resume) | Resend::Request(resume) => resume.max(end),
            Resend::All | Resend::Probe => end,
        }
    }

    /// Whether the packet at `next` has to wait for the answer to a probe.
    #[inline]
    pub(super) fn holds(&self, una: u64, next: u64) -> bool {
        match self.round {
            Some(Round { to, how: Resend::Probe, .. }) => una <= to && next > to,
            _ => false,
        }
    }

    /// Whether a loss at `una` that is reported now is news: not the echo of one that the requester has gone
    /// back for already. `next` is the packet to be sent next.
    pub(super) fn is_news(&self, una: u64, next: u64, now: Instant) -> bool {
        self.is_unknown(una, next) || self.is_behind(una, next) && self.is_answerable(now)
    }

    /// Whether the packet at `una` has not been sent again.
    pub(super) fn is_unknown(&self, una: u64, next: u64) -> bool {
        let Some(round) = self.round else { return self.is_behind(una, next) };
        let passed_over = match round.how {
            Resend::Around(resume) | Resend::Request(resume) => (round.until..resume).contains(&una),
            Resend::All | Resend::Probe => false,
        };
        self.is_behind(una, next) && (una >= round.high || passed_over)
    }

    /// Whether the packet at `una` was sent, and is not about to be sent again anyway.
    fn is_behind(&self, una: u64, next: u64) -> bool {
        //= rocev2 §7
        self.rnr_until.is_none() && una < next
    }

    /// Whether what was sent again can have been answered by now.
    fn is_answerable(&self, now: Instant) -> bool {
        // An answer takes a round trip. As long as none was measured, who answers sooner than the requester
        // would ask again is not believed: each answer may have a window sent again.
        self.round.is_none_or(|round| match self.rtt {
            Some(_) => self.answered_since(round.at, now),
            None => now.duration_since(round.at) >= self.min_resend,
        })
    }

    /// Accounts for having to go back once more; `false` when no retry is left for that.
    ///
    /// By the rule every timeout and every NAK that sends the requester back counts. Here a retry is each
    /// time that the agreed timeout has passed without progress: the same patience, whether the peer is
    /// silent, or reports the same loss over and over. Before that, resending is free, and finds a lost tail
    /// early. That is safe, since it gives up as late as a requester that hears nothing and has as many
    /// retries, and no later.
    pub(super) fn may_go_back(&mut self, now: Instant) -> bool {
        //= rocev2 §7
        let waited = now.duration_since(self.progress);
        let due = self.ack_timeout.saturating_mul(u32::from(self.spent).saturating_add(1));
        if !self.ack_timeout.is_zero() && waited >= due {
            self.spent = self.spent.saturating_add(1);
        }
        self.spent <= self.retries
    }

    /// What to send again once the peer's wait for a receive is over.
    pub(super) fn after_rnr(&self) -> Resend {
        // A peer that was not ready twice may not be for long: it is asked by one packet at a time.
        if self.rnr_since.is_some() { Resend::Probe } else { Resend::All }
    }

    /// The peer had no receive: waits for `timer`. `false` when that has gone on for too long.
    pub(super) fn wait_for_receive(&mut self, now: Instant, timer: Duration) -> bool {
        let since = *self.rnr_since.get_or_insert(now);
        //= rocev2 §7
        self.rnr_until = Some(now + timer);
        // A sample that was under way would measure the wait.
        self.sample = None;
        self.spent = 0;
        //= R-QP-7
        if now.duration_since(since) >= self.rnr_limit {
            return false;
        }
        self.rnr_spent = self.rnr_spent.saturating_add(1).min(NO_LIMIT);
        self.rnr_retries >= NO_LIMIT || self.rnr_spent <= self.rnr_retries
    }

    /// Whether that wait is over, which it is only once.
    pub(super) fn wait_is_over(&mut self, now: Instant) -> bool {
        if self.rnr_until.take_if(|until| *until <= now).is_none() {
            return false;
        }
        self.progress = now;
        // What is sent again is sent from now on: the wait is no part of the way there and back.
        if let Some(round) = &mut self.round {
            round.at = now;
        }
        true
    }
}
