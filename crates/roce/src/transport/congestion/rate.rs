// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transmit rate of one queue pair: the reaction point of DCQCN (Zhu et al., "Congestion Control for
//! Large-Scale RDMA Deployments", SIGCOMM 2015).
//!
//! A CNP lowers the rate by half of `alpha`, an estimate of the congestion. The rate rises in rounds, each an
//! amount of time or of bytes: first half-way back to where it was (fast recovery), then beyond it in
//! steps. There is no timer per step: the effect of elapsed time is computed when a frame is to be sent, in
//! integers, so the same input gives the same output. Until the first CNP frames are not paced.
//!
//! Timers can be much later than the time from one frame to the next: 0.5 to 1 ms with the high-resolution timers of
//! Windows, 15.6 ms with its ordinary ones. So a timer does not send frames one by one:
//!
//! * A sender whose timer is late has a credit: as much as the rate would have sent meanwhile.
//! * It is spent in bursts at twice the rate, whose last packet requests an ACK. The ACK sends the next burst, so that the round
//!   trip is the clock and the timer starts it. READ responses have no ACKs: each timer spends the whole credit.
//! * The time for which a timer is late counts as one round of recovery at most. Nothing is sent meanwhile that could be
//!   marked; if the rate rose with the time alone, it would be above the old one after each tick.

use core::mem::offset_of;
use core::time::Duration;

use crate::congestion::{CongestionConfig, CongestionMode, DcqcnConfig};
use crate::time::{Instant, nanos};

/// `alpha` in fixed point: this is 1.
const ONE: u32 = 1 << 16;

/// Time for which a sender may make up that had nothing to send, or was held by something else than its rate.
const IDLE_CREDIT: Duration = Duration::from_micros(64);

/// Time for which a sender may make up that had frames to send: its timer was late. More than a tick of Windows' ordinary
/// timers, 15.625 ms.
const LATE_CREDIT: Duration = Duration::from_millis(20);

/// A burst is sent at this power of two times the rate.
const BURST_SHIFT: u32 = 1;

/// With this gain `alpha` reaches 0 after 4000 intervals, which bounds the computation.
const MAX_GAIN: u32 = 9;

/// Rounds of recovery that are computed one by one. A sender that was idle for longer starts again without limit.
const MAX_ROUNDS: u64 = 1024;

/// The transmit rate of a queue pair. What each packet uses comes last: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RateLimiter {
    current: u64,
    /// The rate that recovery approaches.
    target: u64,
    alpha: u32,
    /// When `alpha` last changed.
    alpha_since: Instant,
    /// When the present round in time response_start.
    round_since: Instant,
    /// Bytes sent in the current byte round.
    round_bytes: u64,
    /// Time and byte rounds since the last CNP.
    rounds: u32,
    byte_rounds: u32,
    last_cnp: Option<Instant>,
    /// The time of the present burst, and when its next frame may be sent: at twice the rate.
    burst: Instant,
    burst_next: Instant,
    /// Since when the sender has nothing to send, or is held by something else than its rate, such as its window.
    held: Option<Instant>,
    /// When the next frame may be sent. The time since then is the credit of a burst.
    next: Instant,
    /// Whether a frame waits for `next`, with a timer or without.
    waits: bool,
    /// Whether a timer is needed for the next frame.
    waiting: bool,
    /// Whether frames are paced.
    limited: bool,
}

impl RateLimiter {
    /// Offset from which on each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, waits);

    pub(crate) const UNLIMITED: Self = Self {
        limited: false,
        current: 0,
        target: 0,
        alpha: ONE,
        alpha_since: Instant::from_nanos(0),
        round_since: Instant::from_nanos(0),
        round_bytes: 0,
        rounds: 0,
        byte_rounds: 0,
        last_cnp: None,
        next: Instant::from_nanos(0),
        burst: Instant::from_nanos(0),
        burst_next: Instant::from_nanos(0),
        waiting: false,
        held: None,
        waits: false,
    };

    /// Returns whether frames are paced.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Handles a CNP. Returns whether the rate was lowered.
    pub(crate) fn handle_cnp(&mut self, now: Instant, config: &CongestionConfig) -> bool {
        let reaction = &config.reaction;
        let again = self.last_cnp.is_some_and(|last| now.duration_since(last) < config.notify_interval);
        if config.mode != CongestionMode::React || again {
            return false;
        }
        self.advance(now, reaction);
        if !self.limited {
            self.limited = true;
            self.current = reaction.line_rate;
            self.alpha = ONE;
            self.next = self.next.max(now);
        }
        //= rocev2 §14
        self.target = self.current;
        let cut = u128::from(self.current).saturating_mul(u128::from(self.alpha)) >> 17;
        self.current = self.current.saturating_sub(cut as u64).max(reaction.min_rate).max(1);
        let gain = reaction.gain_shift.min(MAX_GAIN);
        self.alpha = self.alpha.saturating_sub(self.alpha >> gain).saturating_add(ONE >> gain).min(ONE);
        self.last_cnp = Some(now);
        self.alpha_since = now;
        self.round_since = now;
        self.round_bytes = 0;
        self.rounds = 0;
        self.byte_rounds = 0;
        true
    }

    /// Returns whether a frame may be sent now. `clocked` tells whether an ACK can be requested of the peer, so that the credit
    /// is spent in bursts.
    pub(crate) fn may_send(&mut self, now: Instant, clocked: bool, reaction: &DcqcnConfig) -> bool {
        if self.waits && self.next > now {
            return false;
        }
        self.advance(now, reaction);
        self.waits = false;
        if !clocked || self.burst != now {
            // A burst has one frame at least.
            self.burst = now;
            self.burst_next = self.burst_next.min(now);
        }
        if let Some(since) = self.held.take() {
            // The credit is what it was, or that of an idle sender.
            let idle = now.before(IDLE_CREDIT).max(self.next);
            self.next = idle.min(self.next + now.duration_since(since));
        }
        !self.limited || self.next.max(self.burst_next) <= now
    }

    /// Returns when the frame after one of `bytes` bytes may be sent, by the rate and within the burst.
    fn after(&self, now: Instant, bytes: u64) -> (Instant, Instant) {
        let time = transmit_nanos(bytes, self.current);
        (
            self.next.max(now.before(LATE_CREDIT)) + Duration::from_nanos(time),
            self.burst_next.max(now.before(IDLE_CREDIT)) + Duration::from_nanos(time >> BURST_SHIFT),
        )
    }

    /// Records that a frame waits.
    pub(crate) fn wait(&mut self) {
        self.waiting = true;
        self.waits = true;
    }

    /// Returns when the waiting frame may be sent.
    #[inline]
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.waiting.then_some(self.next.max(self.burst_next))
    }

    /// Ends the wait.
    pub(crate) fn wake(&mut self) {
        self.waiting = false;
    }

    /// Records that no frame could be sent although the rate allowed it: there is none (`idle`), which ends the credit, or
    /// something else holds it.
    pub(crate) fn hold(&mut self, now: Instant, idle: bool) {
        self.held = Some(now);
        if idle {
            self.next = self.next.max(now);
        }
    }

    /// Accounts for a frame of `bytes` bytes that was sent.
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize, reaction: &DcqcnConfig) {
        if !self.limited {
            return;
        }
        self.waiting = false;
        let bytes = bytes as u64;
        (self.next, self.burst_next) = self.after(now, bytes);
        self.round_bytes = self.round_bytes.saturating_add(bytes);
        if self.round_bytes >= reaction.increase_bytes {
            self.round_bytes = 0;
            self.byte_rounds = self.byte_rounds.saturating_add(1);
            self.increase(reaction);
        }
    }

    /// Returns whether a request packet of `bytes` bytes that is sent now should request an ACK. `awaited` tells whether an ACK
    /// is requested already.
    ///
    /// The ACK of the last packet of a burst is when the next one is sent: a timer may be much later. At a low rate each packet
    /// requests one, so that the requester does not take the pauses for losses.
    #[cold]
    pub(crate) fn requests_ack(&self, now: Instant, bytes: u32, awaited: bool) -> bool {
        /// Bits per second: a packet of 4 KiB in about 0.3 ms.
        const CRAWL: u64 = 100_000_000;
        let (next, burst_next) = self.after(now, u64::from(bytes));
        self.current < CRAWL || (!awaited && next.max(burst_next) > now)
    }

    /// Computes the effect of the time that has passed.
    fn advance(&mut self, now: Instant, reaction: &DcqcnConfig) {
        if !self.limited {
            return;
        }
        if self.waits {
            let late = now.duration_since(self.next.max(self.burst_next));
            self.alpha_since = (self.alpha_since + late.saturating_sub(reaction.alpha_interval)).min(now);
            self.round_since = (self.round_since + late.saturating_sub(reaction.increase_interval)).min(now);
        }
        let (times, since) = elapsed_intervals(self.alpha_since, now, reaction.alpha_interval);
        self.alpha_since = since;
        self.alpha = decay(self.alpha, reaction.gain_shift.min(MAX_GAIN), times);
        let (rounds, since) = elapsed_intervals(self.round_since, now, reaction.increase_interval);
        self.round_since = since;
        if rounds > MAX_ROUNDS {
            self.limited = false;
        }
        for _ in 0..rounds.min(MAX_ROUNDS) {
            if !self.limited {
                break;
            }
            self.rounds = self.rounds.saturating_add(1);
            self.increase(reaction);
        }
    }

    /// Raises the rate: a round has passed without a CNP.
    fn increase(&mut self, reaction: &DcqcnConfig) {
        let fast = |rounds| rounds <= reaction.fast_rounds;
        //= rocev2 §14
        let step = match (fast(self.rounds), fast(self.byte_rounds)) {
            (true, true) => 0,
            (false, false) => reaction.hyper_step,
            _ => reaction.additive_step,
        };
        self.target = self.target.saturating_add(step).min(reaction.line_rate);
        // Rounded up, so that it reaches the target.
        let sum = self.current.saturating_add(self.target);
        self.current = (sum >> 1).saturating_add(sum & 1);
        if self.current >= reaction.line_rate {
            self.limited = false;
        }
    }
}

/// Returns how often `interval` has passed since `since`, and the end of the last one.
fn elapsed_intervals(since: Instant, now: Instant, interval: Duration) -> (u64, Instant) {
    let interval = nanos(interval).max(1);
    let times = nanos(now.duration_since(since)) / interval;
    (times, since + Duration::from_nanos(times.saturating_mul(interval)))
}

/// Returns `alpha` after `times` intervals without a CNP.
fn decay(mut alpha: u32, gain: u32, times: u64) -> u32 {
    let mut left = times;
    // It loses at least 1 each time, so that it reaches 0.
    while left > 0 && alpha > 0 {
        alpha = alpha.saturating_sub((alpha >> gain).max(1));
        left = left.saturating_sub(1);
    }
    alpha
}

/// Returns the time to send `bytes` at `rate` bits per second, in nanoseconds.
fn transmit_nanos(bytes: u64, rate: u64) -> u64 {
    /// Nanobits in a byte.
    const SCALE: u64 = 8_000_000_000;
    bytes.saturating_mul(SCALE) / rate.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    fn reacting() -> CongestionConfig {
        let reaction = DcqcnConfig { line_rate: 10 * GIGABIT, ..DcqcnConfig::default() };
        CongestionConfig { mode: CongestionMode::React, reaction, ..CongestionConfig::default() }
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + micros * 1000)
    }

    //= rocev2 §14
    #[test]
    fn the_first_cnp_halves_the_rate_and_later_ones_lower_it_by_alpha() {
        let config = reacting();
        let mut rate = RateLimiter::UNLIMITED;
        assert!(rate.may_send(at(0), true, &config.reaction) && !rate.is_limited());
        assert!(rate.handle_cnp(at(0), &config));
        assert_eq!((rate.current, rate.target), (5 * GIGABIT, 10 * GIGABIT));
        assert!(!rate.handle_cnp(at(49), &config), "one CNP per interval counts");
        assert!(rate.handle_cnp(at(50), &config));
        assert_eq!((rate.current, rate.target), (5 * GIGABIT / 2, 5 * GIGABIT));
        for n in 2..100 {
            rate.handle_cnp(at(50 * n), &config);
        }
        assert_eq!(rate.current, config.reaction.min_rate, "not below the minimum rate");
    }

    /// The last packet of a burst, and each one at a low rate, requests an ACK: when it comes, the next burst may be sent.
    #[test]
    fn the_last_packet_of_a_burst_requests_an_ack() {
        let config = reacting();
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        let bytes = 4096;
        let mut requests = Vec::new();
        while rate.may_send(at(1000), true, &config.reaction) {
            let request = rate.requests_ack(at(1000), bytes, false);
            assert!(!rate.requests_ack(at(1000), bytes, true), "one is requested already");
            requests.push(request);
            rate.sent(at(1000), bytes as usize, &config.reaction);
        }
        assert!(rate.burst_next > at(1000) && rate.next < at(1000), "the rate allows more than the burst");
        assert!(
            rate.may_send(Instant::from_nanos(at(1000).as_nanos() + 1), true, &config.reaction),
            "the next burst"
        );
        let last = requests.pop();
        assert_eq!((last, requests.contains(&true)), (Some(true), false), "{requests:?}");
        assert!(requests.len() > 3);
        for (current, expected) in [(100_000_000, false), (99_999_999, true)] {
            let rate = RateLimiter { current, ..RateLimiter::UNLIMITED };
            assert_eq!(rate.requests_ack(at(1_000_000), 1, true), expected, "{current} bits per second");
        }
    }

    #[test]
    fn the_rate_is_not_limited_after_many_rounds_without_a_cnp() {
        let mut config = reacting();
        // The rate does not rise by itself.
        (config.reaction.additive_step, config.reaction.hyper_step) = (0, 0);
        let micros = config.reaction.increase_interval.as_micros() as u64;
        for (rounds, limited) in [(MAX_ROUNDS, true), (MAX_ROUNDS + 1, false)] {
            let mut rate = RateLimiter::UNLIMITED;
            rate.handle_cnp(at(0), &config);
            rate.handle_cnp(at(50), &config);
            rate.may_send(at(50 + rounds * micros), true, &config.reaction);
            assert_eq!(rate.is_limited(), limited, "{rounds} rounds");
        }
    }

    #[test]
    fn alpha_falls_by_its_gain_in_each_interval_down_to_zero() {
        assert_eq!(decay(ONE, 8, 0), ONE);
        assert_eq!(decay(ONE, 8, 1), ONE - 256);
        // (255/256)^177 is a half.
        let half = decay(ONE, 8, 177);
        assert!(half.abs_diff(ONE / 2) < ONE / 100, "{half}");
        assert!(decay(ONE, MAX_GAIN, 3000) > 0);
        assert_eq!(decay(ONE, MAX_GAIN, 4000), 0);
        assert_eq!(decay(ONE, 8, u64::MAX), 0);
    }

    /// Returns the rate after each time round.
    fn recovery(rate: &mut RateLimiter, from: u64, rounds: u64, config: &CongestionConfig) -> Vec<u64> {
        (1..=rounds)
            .map(|round| {
                rate.may_send(at(from + round * 55), true, &config.reaction);
                if rate.is_limited() { rate.current } else { config.reaction.line_rate }
            })
            .collect()
    }

    //= rocev2 §14
    #[test]
    fn rate_recovers_half_way_in_fast_recovery_and_then_in_steps() {
        let mut config = reacting();
        config.reaction.line_rate = 100 * GIGABIT;
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        rate.handle_cnp(at(50), &config);
        // The target is 50 Gb/s, the rate 25.
        let rates = recovery(&mut rate, 50, 7, &config);
        let expected: [u64; 5] = [37_500, 43_750, 46_875, 48_438, 49_219];
        for (rate, expected) in rates.iter().zip(expected) {
            assert_eq!((rate + 500_000) / 1_000_000, expected);
        }
        assert_eq!(rate.target, 50 * GIGABIT + 2 * config.reaction.additive_step);
        assert!(rates[6] > rates[5] && rates[6] < rate.target);
    }

    #[test]
    fn byte_and_time_rounds_together_use_the_hyper_step() {
        let mut config = reacting();
        config.reaction.increase_bytes = 1000;
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        rate.handle_cnp(at(50), &config);
        let target = rate.target;
        for _ in 0..6 {
            rate.sent(at(50), 1000, &config.reaction);
        }
        assert_eq!(rate.target, target + config.reaction.additive_step);
        recovery(&mut rate, 50, 6, &config);
        assert_eq!(rate.target, target + 6 * config.reaction.additive_step + config.reaction.hyper_step);
    }

    #[test]
    fn elapsed_time_has_the_same_effect_in_one_step_or_many() {
        let config = reacting();
        let reduced = || {
            let mut rate = RateLimiter::UNLIMITED;
            rate.handle_cnp(at(0), &config);
            rate.handle_cnp(at(60), &config);
            rate
        };
        let (mut whole, mut pieces) = (reduced(), reduced());
        whole.may_send(at(5000), true, &config.reaction);
        for time in (61..=5000).step_by(7).chain([5000]) {
            pieces.may_send(at(time), true, &config.reaction);
        }
        assert_eq!((whole.current, whole.target, whole.alpha), (pieces.current, pieces.target, pieces.alpha));
        assert!(whole.is_limited());
    }

    #[test]
    fn rate_is_unlimited_again_after_a_long_pause() {
        let config = reacting();
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        rate.may_send(at(10_000_000), true, &config.reaction);
        assert!(!rate.is_limited());
        rate.handle_cnp(at(10_000_000), &config);
        assert_eq!(rate.current, config.reaction.line_rate / 2);
    }

    /// Returns a sender at 5 Gb/s that does not recover within the test.
    fn paced() -> (RateLimiter, CongestionConfig) {
        let mut config = reacting();
        (config.reaction.increase_interval, config.reaction.increase_bytes) =
            (Duration::from_secs(1), u64::MAX);
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        (rate, config)
    }

    /// Sends frames of 1000 bytes while they may be sent, then waits. Returns their bytes.
    fn send_burst(rate: &mut RateLimiter, now: Instant, clocked: bool, config: &CongestionConfig) -> u64 {
        let mut bytes = 0;
        while rate.may_send(now, clocked, &config.reaction) {
            rate.sent(now, 1000, &config.reaction);
            bytes += 1000;
        }
        rate.wait();
        bytes
    }

    #[test]
    fn frames_are_paced_at_the_rate_whatever_the_tick_of_the_timer() {
        for tick in [1, 16, 500, 1000, 15_625] {
            let (mut rate, config) = paced();
            let ticks = 160_000 / tick;
            let bytes: u64 = (0..=ticks).map(|n| send_burst(&mut rate, at(n * tick), false, &config)).sum();
            let expected = 5_000_000_000 / 8 * ticks * tick / 1_000_000;
            assert!(u64::abs_diff(bytes, expected) < expected / 100, "tick {tick}: {bytes} of {expected}");
        }
    }

    #[test]
    fn a_credit_is_spent_at_twice_the_rate_while_acks_are_the_clock() {
        let (mut rate, config) = paced();
        send_burst(&mut rate, at(0), true, &config);
        // The timer is a millisecond late, then an ACK comes each 20 us: 12,500 bytes at the rate.
        let first = send_burst(&mut rate, at(1000), true, &config);
        assert_eq!(first, 81_000, "64 us at twice the rate, and a frame");
        let bursts: Vec<_> =
            (1..100).map(|n| send_burst(&mut rate, at(1000 + 20 * n), true, &config)).collect();
        assert!(bursts[..30].iter().all(|bytes| (24_000..=26_000).contains(bytes)), "{bursts:?}");
        assert!(bursts[60..].iter().all(|bytes| (12_000..=13_000).contains(bytes)), "{bursts:?}");
        let bytes = first + bursts.iter().sum::<u64>();
        assert!(bytes <= 5000 / 8 * 2980 + 1000, "{bytes}");
    }

    #[test]
    fn a_sender_gets_no_credit_for_time_without_frames_or_with_a_closed_window() {
        for idle in [true, false] {
            let (mut rate, config) = paced();
            send_burst(&mut rate, at(0), false, &config);
            for micros in (10..20_000).step_by(100) {
                assert!(rate.may_send(at(micros), false, &config.reaction));
                rate.hold(at(micros), idle);
            }
            let bytes = send_burst(&mut rate, at(20_000), false, &config);
            assert!(bytes <= 64 * 5000 / 8 + 1000, "idle {idle}: {bytes}");
        }
    }

    #[test]
    fn a_closed_window_keeps_the_credit_of_a_late_timer() {
        let (mut rate, config) = paced();
        send_burst(&mut rate, at(0), false, &config);
        assert!(rate.may_send(at(1000), false, &config.reaction));
        rate.hold(at(1000), false);
        let bytes = send_burst(&mut rate, at(3000), false, &config);
        assert!((600_000..=640_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_lateness_of_a_timer_counts_as_one_round_of_recovery() {
        let mut config = reacting();
        config.reaction.min_rate = GIGABIT / 10;
        // A frame of 1000 bytes takes 80 us at the minimum rate.
        for (late, rounds) in [(0, 1), (50, 2), (15_000, 2)] {
            let mut rate = RateLimiter::UNLIMITED;
            for n in 0..20 {
                rate.handle_cnp(at(50 * n), &config);
            }
            rate.hold(at(950), true);
            rate.sent(at(950), 1000, &config.reaction);
            assert!(!rate.may_send(at(951), true, &config.reaction));
            rate.wait();
            assert!(rate.may_send(at(1030 + late), true, &config.reaction));
            assert_eq!(rate.rounds, rounds, "{late} us late");
        }
    }

    #[test]
    fn cnps_have_no_effect_unless_the_mode_is_react() {
        for mode in [CongestionMode::Ignore, CongestionMode::Notify] {
            let mut rate = RateLimiter::UNLIMITED;
            assert!(!rate.handle_cnp(at(0), &CongestionConfig { mode, ..reacting() }));
            assert!(!rate.is_limited());
        }
    }
}
