// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loss recovery of the requester: round-trip time, retry counters, and what to send again.
//!
//! A peer that misses a packet sends one sequence NAK, or its answers imply the loss. By the specification it
//! drops everything after the gap and the requester resends everything: go-back-N. At 1% loss that sends every
//! byte twice, at 5% seven times. This engine as responder stores the later packets ([`crate::transport::out_of_order`],
//! [`crate::transport::responder::gaps::stash`]). So the requester first tries selective repeat: it resends the lost packet,
//! continues behind those already sent, and checks the answer. A peer that acknowledges this packet alone and then reports
//! the next one as lost stored nothing; after [`MAX_SELECTIVE_FAILURES`] of these the requester uses go-back-N for the next
//! [`GO_BACK_N_LOSSES`] losses before it tries again. A peer that reports the loss of the very next packet at once misses
//! several in a row, or has stored nothing: the requester resends twice as many packets, and so on. Of a peer that was
//! never seen to store packets, that is a failure after [`MAX_UNPROVEN_RUN`] packets.
//!
//! A loss that is not reported (a lost last packet, NAK or ACK) is found by a timer: the requester sends one
//! probe packet, whose answer tells what the peer has. The first one is the newest packet (RFC 8985's tail loss probe, [`timeout`]),
//! later ones are the oldest. A probe is cheap, so it may be sent long before the agreed ACK timeout. Only a passed ACK timeout
//! uses a retry. An answer that covers more than the oldest packet was late: only the newest packet is sent again then, whose answer
//! tells whether the others were lost.

mod hinted;
pub(crate) mod hints;
mod reads;
pub(crate) mod retransmission;
mod retries;
pub(crate) mod round_trip;
pub(crate) mod timeout;
pub(crate) mod window;

use crate::transport::sequence::Sequence;
use core::mem::offset_of;
use core::time::Duration;

use self::hinted::Hinted;
use self::retransmission::{Resend, Retransmission};
use self::round_trip::{Rtt, Sample, SampleKind};
use self::timeout::RetransmitTimeout;
use self::window::Window;
use crate::config::{Config, MOST_PACKETS};
use crate::conn::Timing;
use crate::time::{Instant, nanos};
use crate::transport::peer::Peer;

/// Failures of selective repeat, in a row, before go-back-N is used.
const MAX_SELECTIVE_FAILURES: u8 = 3;

/// Packets resent at once by selective repeat to a peer that may store nothing.
const MAX_UNPROVEN_RUN: u64 = 16;

/// Mean number of packets from one loss to the next from which on each is repaired on its own.
const RARE: u64 = 40;

/// Retransmissions of the same oldest packet at reports of its loss, without a wait between them, while the round-trip time is unknown.
const HASTY: u8 = 8;

/// Retransmission timeout before a round trip is measured, in minimum resend times.
const INITIAL_TIMEOUT_FACTOR: u64 = 4;

/// Losses handled by go-back-N before selective repeat is tried again.
const GO_BACK_N_LOSSES: u8 = 16;

/// Packet that is sent after a positive acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterAck {
    /// The packet that was next before.
    Continue,
    /// Packets are sent again.
    Resend(Resend),
    /// The newest one alone, again: those before it may be on their way still, and its answer tells which are not.
    Newest,
}

/// Loss recovery state of a requester. What each packet uses comes first: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recovery {
    /// End of the wait after an RNR NAK. No request is sent before.
    pub(crate) rnr_until: Option<Instant>,
    pub(crate) timeout: RetransmitTimeout,
    /// The packet whose acknowledgement measures the round-trip time.
    sample: Sample,
    rtt: Option<Rtt>,
    /// How many packets may be unacknowledged, unless a loss is repaired.
    pub(crate) window: Window,
    /// READ responses before it were requested again.
    repaired: Sequence,
    /// When the peer sent the first RNR NAK without progress since.
    rnr_since: Option<Instant>,
    /// Retries since the last progress.
    retries_used: u8,
    rnr_retries_used: u8,
    retries: u8,
    rnr_retries: u8,
    /// Below [`MAX_SELECTIVE_FAILURES`]: failures of selective repeat in a row. From there on: losses since then,
    /// which are handled by go-back-N.
    selective_failures: u8,
    /// The peer has stored packets after a gap before.
    peer_stores: bool,
    /// The mean number of packets from what was resent to the next loss, up to [`RARE`], in eighths.
    spacing: u16,
    /// The last retransmission.
    retransmission: Option<Retransmission>,
    /// The round trip that connection management has measured, in nanoseconds: an upper bound of that without queues.
    pub(in crate::transport::requester) connecting: u64,
    /// The packet of a run of resent packets that was last reported lost, [`Sequence::MAX`] for none; when it was first, and
    /// how many times.
    reported_within_run: (Sequence, Instant, u8),
    /// The first packet of a burst, whose acknowledgement measures the path.
    path_sample: Sample,
    rnr_limit: Duration,
    /// Packets that the peer has named as missing.
    pub(in crate::transport::requester) hinted: Hinted,
}

impl Recovery {
    /// Offset up to which each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, retransmission) + size_of::<u64>();

    /// Before the peer is known.
    pub(crate) const IDLE: Self = Self {
        retries: 0,
        retries_used: 0,
        rnr_retries: 0,
        rnr_retries_used: 0,
        rnr_since: None,
        rnr_until: None,
        timeout: RetransmitTimeout::IDLE,
        rnr_limit: Duration::ZERO,
        hinted: Hinted::NONE,
        sample: Sample::NONE,
        path_sample: Sample::NONE,
        rtt: None,
        window: Window::IDLE,
        retransmission: None,
        connecting: u64::MAX,
        repaired: Sequence::ZERO,
        selective_failures: 0,
        peer_stores: false,
        reported_within_run: (Sequence::MAX, Instant::from_nanos(0), 0),
        spacing: RARE as u16 * 8,
    };

    pub(crate) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.retries = peer.retries;
        self.rnr_retries = peer.rnr_retries;
        let Timing { min_resend, min_probe, .. } = config.timing;
        self.timeout.begin(nanos(peer.ack_timeout), nanos(min_resend), nanos(min_probe));
        self.rnr_limit = config.timing.rnr_limit;
        let most = u64::from(config.most_packets(peer.mtu.bytes() as u32));
        self.window = Window::new(u64::from(config.window.clamp(2, MOST_PACKETS)), most);
    }

    /// Sets retry counts and ACK timeout, after [`Recovery::begin`].
    pub(crate) fn begin_sending(&mut self, retries: u8, rnr_retries: u8, ack_timeout: Duration) {
        self.retries = retries;
        self.rnr_retries = rnr_retries;
        self.timeout.set_ack_timeout(nanos(ack_timeout));
    }

    /// Sets the time before the first tail probe by `round_trip`, in nanoseconds, which connection management has measured. It includes what
    /// the peer's consumer took to answer, so it may only shorten that time, and is no part of the estimate: the first packet whose
    /// acknowledgement measures the round trip replaces it. What is longer by far later is taken for a queue.
    pub(crate) fn expect_round_trip(&mut self, round_trip: u64) {
        self.connecting = round_trip;
        let timeout = Rtt::with_sample(None, round_trip).timeout();
        self.timeout.set_first(timeout.min(self.timeout.min_resend));
        self.timeout.reset();
    }

    /// Returns how many packets may be unacknowledged, of which `una` is the oldest. While a loss is repaired by selective
    /// repeat, more: those behind it are not acknowledged, but have left the path.
    #[inline(never)]
    pub(crate) fn extended_window(&self, una: Sequence) -> u64 {
        match self.retransmission {
            Some(Retransmission { high, kind: Resend::Selective { .. }, .. })
                if (una < high || self.hinted.sent(una).is_some()) && self.peer_stores =>
            {
                self.window.extended()
            }
            _ => self.window.packets(),
        }
    }

    /// Returns whether what was resent from `una` on should have been acknowledged by now.
    #[inline(never)]
    pub(crate) fn is_overdue(&self, una: Sequence, now: Instant) -> bool {
        let wait = self.rtt.map_or(u64::MAX, Rtt::answer_time);
        let is_overdue = |resent: Retransmission| {
            resent.first == una
                && now.nanos_since(resent.at) >= wait
                && matches!(resent.kind, Resend::Selective { .. })
        };
        let hinted = self.hinted.sent(una).is_some_and(|at| now.nanos_since(at) >= wait);
        self.peer_stores && (hinted || self.retransmission.is_some_and(is_overdue))
    }

    /// The packet that was sent last measures the path, and not the time until an acknowledgement: those behind it will wait in
    /// a queue.
    pub(crate) fn sample_path(&mut self) {
        self.path_sample = core::mem::replace(&mut self.sample, Sample::NONE);
    }

    /// Measures the path if its sample is acknowledged.
    #[inline(never)]
    fn measure_path(&mut self, una: Sequence, now: Instant) {
        if una > self.path_sample.sequence && self.path_sample.kind == SampleKind::Usual {
            let took = now.nanos_since(self.path_sample.sent);
            self.window.measure(1, took);
            self.path_sample = Sample::NONE;
            if self.rtt.is_none() {
                self.add_rtt_sample(took);
            }
        }
    }

    /// Stops: nothing is awaited.
    pub(crate) fn stop(&mut self) {
        self.rnr_until = None;
        self.retransmission = None;
        self.hinted.clear();
    }

    /// Accounts for a packet that is sent while nothing is outstanding.
    pub(crate) fn start_waiting(&mut self, now: Instant) {
        self.timeout.last_progress = now;
    }

    /// Accounts for a packet with AckReq at `sequence`, sent for the `first` time or again, whose ACK covers
    /// everything before `end`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small message")]
    pub(crate) fn record_ack_request(
        &mut self,
        una: Sequence,
        sequence: Sequence,
        end: Sequence,
        first: bool,
        now: Instant,
    ) {
        self.timeout.record_ack_request(una, end, first, now);
        if first && self.sample.sequence == Sequence::MAX {
            let recovered = una >= self.repaired
                && self.retransmission.is_none_or(|retransmission| una >= retransmission.high);
            let kind = if recovered { SampleKind::Usual } else { SampleKind::AfterLoss };
            self.sample = Sample { sequence, sent: now, una, kind };
        }
    }

    /// Handles progress: everything before `una` is acknowledged.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    pub(crate) fn handle_progress(&mut self, una: Sequence, now: Instant) {
        //= rocev2 §7
        self.retries_used = 0;
        self.rnr_retries_used = 0;
        self.rnr_since = None;
        self.timeout.last_progress = now;
        if una > self.sample.sequence {
            self.sample.sequence = Sequence::MAX;
            let took = now.nanos_since(self.sample.sent);
            if self.sample.kind == SampleKind::Usual {
                self.window.measure(una.since(self.sample.una), took);
            } else {
                self.window.rise();
            }
            // Until another packet measures it, the timeouts stay as they were backed off.
            if self.sample.kind != SampleKind::Ambiguous {
                self.add_rtt_sample(took);
            }
        }
        if self.window.is_unmeasured() {
            self.measure_path(una, now);
        }
        self.timeout.reset();
        if self.retransmission.is_some() {
            self.evaluate_retransmission(una, now);
        }
    }

    /// Adds a round-trip time sample, in nanoseconds.
    #[inline]
    fn add_rtt_sample(&mut self, rtt: u64) {
        let rtt = Rtt::with_sample(self.rtt, rtt);
        self.rtt = Some(rtt);
        self.timeout.set_first(rtt.timeout());
    }

    /// Returns whether a packet sent at `at` can have been acknowledged by now: a round trip has passed, or its length is unknown.
    fn answered_since(&self, at: Instant, now: Instant) -> bool {
        now.nanos_since(at) >= self.window.round_trip()
    }

    /// Evaluates the acknowledgement of a retransmitted packet: whether the peer stored the packets after it.
    #[inline(never)]
    fn evaluate_retransmission(&mut self, una: Sequence, now: Instant) {
        let Some(retransmission) = self.retransmission.filter(|retransmission| !retransmission.passed) else {
            return;
        };
        let passed = una > retransmission.end;
        self.retransmission = Some(Retransmission { answered: true, passed, ..retransmission });
        // The acknowledgement after a probe may be the late one of another packet. And if an acknowledgement comes too
        // soon, the first copy of the packet was late, not lost.
        if matches!(retransmission.kind, Resend::Probe { .. }) || !self.answered_since(retransmission.at, now)
        {
            return;
        }
        if passed && matches!(retransmission.kind, Resend::Selective { .. }) {
            self.selective_failures = 0;
            self.peer_stores = true;
        }
        if !retransmission.answered && self.rtt.is_some() {
            // The first copy was lost: the peer has reported that, or a packet behind it has arrived without it. With many losses, few packets that are sent once measure the round trip.
            let took = now.nanos_since(retransmission.at);
            self.add_rtt_sample(took);
            self.window.measure_again(took);
        }
    }

    /// Returns what to resend after the loss of the packet at `una`. A peer may store packets up to `storable`. `high` is the
    /// first packet that was never sent.
    pub(crate) fn resend_for_loss(&mut self, una: Sequence, storable: Sequence, high: Sequence) -> Resend {
        // With nothing else to send, the newest packet is sent again: it shows the peer another loss of the resent packet.
        let resume = storable.min(high.previous());
        let run = self.next_run(una);
        self.window.lose(una, high, self.connecting);
        if run >= MAX_UNPROVEN_RUN {
            self.window.shrink(una, high);
        }
        let proven = self.peer_stores && self.selective_failures < MAX_SELECTIVE_FAILURES;
        if resume <= una || !proven && resume <= una.add(run) {
            return Resend::GoBackN;
        }
        let dropped = match self.retransmission {
            Some(Retransmission { kind: Resend::Selective { run_end, .. }, alone, .. }) => {
                alone && una == run_end
            }
            _ => false,
        };
        if dropped || run > MAX_UNPROVEN_RUN && !self.peer_stores {
            self.selective_failures = self.selective_failures.saturating_add(1);
            return Resend::GoBackN;
        }
        if self.selective_failures >= MAX_SELECTIVE_FAILURES {
            self.selective_failures = self.selective_failures.saturating_add(1);
            if self.selective_failures <= MAX_SELECTIVE_FAILURES.saturating_add(GO_BACK_N_LOSSES) {
                return Resend::GoBackN;
            }
            self.selective_failures = MAX_SELECTIVE_FAILURES.saturating_sub(1);
        }
        let run = run.max(self.expected_run(una, high));
        Resend::Selective { run_end: una.add(run).min(resume), resume }
    }

    /// Returns the number of packets to resend at once if many were lost. A peer reports one loss in a round trip, and
    /// meanwhile the window fills. Half of the packets up to where the next loss is expected often repair another one in the
    /// same round trip.
    fn expected_run(&mut self, una: Sequence, high: Sequence) -> u64 {
        if let Some(Retransmission { kind: Resend::Selective { run_end, .. }, .. }) = self.retransmission
            && una > run_end
        {
            let sample = una.since(run_end).min(RARE) as u16;
            self.spacing = self.spacing.saturating_sub(self.spacing / 8).saturating_add(sample);
        }
        let spacing = u64::from(self.spacing / 8);
        let many = spacing < RARE / 2 + RARE / 4 && high.since(una) >= spacing.saturating_mul(2);
        if many && self.peer_stores { (spacing / 2).max(1) } else { 1 }
    }

    /// Returns the number of packets to resend at once from `una` on: twice as many as before if the packet right after
    /// those is missing, too.
    fn next_run(&self, una: Sequence) -> u64 {
        match self.retransmission {
            Some(Retransmission { first, kind: Resend::Selective { run_end, .. }, .. }) if una == run_end => {
                let run = run_end.since(first);
                run.saturating_mul(if run < MAX_UNPROVEN_RUN { 2 } else { 8 })
            }
            _ => 1,
        }
    }

    /// Returns whether a probe is answered: `una` is the packet that the peer misses.
    pub(crate) fn answers_probe(&self, una: Sequence) -> bool {
        match self.retransmission {
            Some(Retransmission { first, kind: Resend::Probe { selective: true }, .. }) => una > first,
            _ => false,
        }
    }

    /// Returns whether packets were sent again.
    #[inline]
    pub(crate) fn has_resent(&self) -> bool {
        self.retransmission.is_some()
    }

    /// Handles a positive acknowledgement of everything before `una`, with the arguments of [`Recovery::resend_for_loss`].
    ///
    /// If it covers a run of selective repeat and no more, the peer may not have stored the packets that were left out:
    /// otherwise it would cover them, or a NAK report the next gap. What the peer answers to the next packet tells. If it
    /// covers a probe alone, the peer may miss the next packet; if it covers more, the peer had the packet before, and was late.
    #[inline]
    pub(crate) fn handle_ack(
        &mut self,
        una: Sequence,
        storable: Sequence,
        high: Sequence,
        now: Instant,
    ) -> AfterAck {
        let Some(retransmission) = self.retransmission else { return AfterAck::Continue };
        match retransmission.kind {
            Resend::Selective { run_end, resume } => {
                let alone = una == retransmission.end && una == run_end && una < resume;
                if alone && self.answered_since(retransmission.at, now) {
                    self.retransmission = Some(Retransmission { alone, ..retransmission });
                }
                AfterAck::Continue
            }
            Resend::Probe { selective: true } if una > retransmission.first => {
                // Only once.
                self.retransmission = None;
                if una > retransmission.first.next() && una < high && storable >= high {
                    return AfterAck::Newest;
                }
                // Only if that leaves out many.
                let many = storable.min(high).since(una) > MAX_UNPROVEN_RUN;
                if many && self.selective_failures < MAX_SELECTIVE_FAILURES {
                    AfterAck::Resend(self.resend_for_loss(una, storable, high))
                } else {
                    AfterAck::Continue
                }
            }
            _ => AfterAck::Continue,
        }
    }

    /// Handles the deadline of `una`: returns whether the newest packet is sent again now, as a tail probe. Not behind another probe.
    /// `again` tells whether it may be repeated.
    pub(crate) fn begin_tail_probe(&mut self, una: Sequence, again: bool) -> bool {
        if self.awaits_answer(una, una.next()) {
            return false;
        }
        let initial = self.timeout.min_resend.saturating_mul(INITIAL_TIMEOUT_FACTOR);
        let timeout = self.rtt.map_or(initial, Rtt::timeout);
        let begun = self.timeout.begin_probe(una, timeout, again);
        if begun {
            // What is acknowledged next may be the answer to the probe.
            self.sample.kind = SampleKind::Ambiguous;
            self.path_sample = Sample::NONE;
        }
        begun
    }

    /// Records that the requester goes back to `first`. `high` is the first packet that was never sent.
    pub(crate) fn record_go_back(&mut self, first: Sequence, high: Sequence, kind: Resend, now: Instant) {
        // The acknowledgement of a packet sent twice does not measure the round trip (Karn's algorithm).
        if matches!(kind, Resend::Probe { .. }) {
            self.sample.kind = SampleKind::Ambiguous;
        } else {
            self.sample = Sample::NONE;
        }
        self.path_sample = Sample::NONE;
        if kind == Resend::GoBackN {
            self.window.shrink(first, high);
        }
        self.hinted.leave();
        self.hinted.mark_sent(first, now);
        if !matches!(kind, Resend::Selective { .. }) {
            self.hinted.clear();
        }
        self.reported_within_run.0 = Sequence::MAX;
        let repeats = match self.retransmission {
            Some(last) if last.first == first => last.repeats.saturating_add(1),
            _ => 0,
        };
        self.retransmission = Some(Retransmission {
            first,
            repeats,
            end: first,
            high,
            at: now,
            kind,
            answered: false,
            passed: false,
            alone: false,
        });
    }

    /// Returns whether the packet at `next` is one of those that selective repeat sends again, before `high`.
    pub(crate) fn is_resending(&self, next: Sequence, high: Sequence) -> bool {
        let selective = self.retransmission.map(|retransmission| retransmission.kind);
        next < high && matches!(selective, Some(Resend::Selective { .. } | Resend::Probe { selective: true }))
    }

    /// Returns whether the packet at `sequence` is the last of a run of resent packets.
    pub(crate) fn ends_run(&self, sequence: Sequence) -> bool {
        match self.retransmission {
            Some(Retransmission { kind: Resend::Selective { run_end, .. }, .. }) => {
                sequence.next() == run_end
            }
            _ => false,
        }
    }

    /// Returns whether the packet at `next` has to wait for the acknowledgement of a probe.
    #[inline]
    pub(crate) fn awaits_answer(&self, una: Sequence, next: Sequence) -> bool {
        match self.retransmission {
            Some(Retransmission { first, kind: Resend::Probe { .. }, .. }) => una <= first && next > first,
            _ => false,
        }
    }

    /// Returns whether a loss at `una` reported now is a new one, not the report of a loss that the requester
    /// went back for already. `next` is the next packet to send.
    pub(crate) fn is_new_loss(&self, una: Sequence, next: Sequence, now: Instant) -> bool {
        self.is_unhandled_loss(una, next)
            || self.was_sent(una, next) && self.could_be_answered(now) && !self.is_within_run(una)
    }

    /// Returns whether the packet at `una` is not the first of a run of resent packets. A peer that stores packets reports
    /// it when the one before arrives, while its copy is right behind.
    fn is_within_run(&self, una: Sequence) -> bool {
        match self.retransmission {
            Some(Retransmission { first, end, kind: Resend::Selective { .. }, .. }) => {
                una > first && una < end
            }
            _ => false,
        }
    }

    /// Returns whether the loss of the packet at `una` is reported again while it is in a run of resent packets: its copy is
    /// lost, too.
    pub(crate) fn is_lost_within_run(&mut self, una: Sequence, now: Instant) -> bool {
        if !self.is_within_run(una) {
            return false;
        }
        let (reported, at, times) = self.reported_within_run;
        if reported != una {
            self.reported_within_run = (una, now, 1);
            return false;
        }
        self.reported_within_run.2 = times.saturating_add(1);
        // Not the second copy of the same NAK: a report has two copies at most.
        times >= 2 || self.answered_since(at, now)
    }

    /// Returns whether the packet at `una` was lost and not sent again.
    pub(crate) fn is_unhandled_loss(&self, una: Sequence, next: Sequence) -> bool {
        let Some(retransmission) = self.retransmission else { return self.was_sent(una, next) };
        let passed_over = match retransmission.kind {
            Resend::Selective { resume, .. } | Resend::Read(resume) => {
                (retransmission.end..resume).contains(&una)
            }
            Resend::GoBackN | Resend::Probe { .. } => false,
        };
        self.was_sent(una, next) && (una >= retransmission.high || passed_over)
    }

    /// Returns whether the packet at `una` was sent and is not about to be sent again anyway.
    fn was_sent(&self, una: Sequence, next: Sequence) -> bool {
        //= rocev2 §7
        self.rnr_until.is_none() && una < next
    }

    /// Returns whether the last retransmission can have been acknowledged by now.
    ///
    /// While the round-trip time is unknown, each report of a loss counts, so that an early one is repaired at once. The minimum resend time
    /// bounds that: the peer may report each retransmission twice, and a loss that is reported endlessly would otherwise double the frames
    /// each time.
    fn could_be_answered(&self, now: Instant) -> bool {
        let Some(last) = self.retransmission else { return true };
        let is_hasty = last.repeats >= HASTY && self.window.is_unmeasured();
        let since = now.nanos_since(last.at);
        if is_hasty { since >= self.timeout.min_resend } else { since >= self.window.round_trip() }
    }
}

#[cfg(test)]
mod tests;
