// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transmit rate of one queue pair: the reaction point of DCQCN (Zhu et al., "Congestion Control for
//! Large-Scale RDMA Deployments", SIGCOMM 2015).
//!
//! A CNP lowers the rate by half of `alpha`, an estimate of the congestion. The rate rises in rounds, each an
//! amount of time or of bytes: first half-way back to where it was (fast recovery), then beyond it in
//! steps. There is no timer per step: the effect of elapsed time is computed when a frame is to be sent, in
//! integers, so the same input gives the same output. Until the first CNP frames are not paced.

use core::time::Duration;

use crate::congestion::{CongestionConfig, CongestionMode, DcqcnConfig};
use crate::time::{Instant, nanos};

/// `alpha` in fixed point: this is 1.
const ONE: u32 = 1 << 16;

/// Lateness of the timer that a sender may make up for: some ticks.
const CREDIT: Duration = Duration::from_micros(64);

/// With this gain `alpha` reaches 0 after 4000 intervals, which bounds the computation.
const MAX_GAIN: u32 = 9;

/// Rounds of recovery that are computed one by one. A sender that was idle for longer starts again without limit.
const MAX_ROUNDS: u64 = 1024;

/// The transmit rate of a queue pair.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Whether frames are paced.
    limited: bool,
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
    /// When the next frame may be sent.
    next: Instant,
    /// Whether a frame waits for that.
    waiting: bool,
}

impl RateLimiter {
    pub(super) const UNLIMITED: Self = Self {
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
        waiting: false,
    };

    /// Returns whether frames are paced.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Handles a CNP. Returns whether the rate was lowered.
    pub(super) fn handle_cnp(&mut self, now: Instant, config: &CongestionConfig) -> bool {
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

    /// Returns whether a frame may be sent now.
    pub(super) fn may_send(&mut self, now: Instant, reaction: &DcqcnConfig) -> bool {
        self.advance(now, reaction);
        !self.limited || self.next <= now
    }

    /// Records that a frame waits.
    pub(super) fn wait(&mut self) {
        self.waiting = true;
    }

    /// Returns when the waiting frame may be sent.
    #[inline]
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.waiting.then_some(self.next)
    }

    /// Ends the wait.
    pub(super) fn wake(&mut self) {
        self.waiting = false;
    }

    /// Accounts for a frame of `bytes` bytes that was sent.
    pub(super) fn sent(&mut self, now: Instant, bytes: usize, reaction: &DcqcnConfig) {
        if !self.limited {
            return;
        }
        self.waiting = false;
        let bytes = bytes as u64;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(CREDIT)));
        self.next = self.next.max(earliest) + Duration::from_nanos(transmit_nanos(bytes, self.current));
        self.round_bytes = self.round_bytes.saturating_add(bytes);
        if self.round_bytes >= reaction.increase_bytes {
            self.round_bytes = 0;
            self.byte_rounds = self.byte_rounds.saturating_add(1);
            self.increase(reaction);
        }
    }

    /// Returns whether the rate is so low that each packet should request an ACK, so that the requester does not
    /// take the pauses for losses.
    #[inline]
    pub(super) fn is_slow(&self) -> bool {
        /// Bits per second: a packet of 4 KiB in about 0.3 ms.
        const CRAWL: u64 = 100_000_000;
        self.limited && self.current < CRAWL
    }

    /// Computes the effect of the time that has passed.
    fn advance(&mut self, now: Instant, reaction: &DcqcnConfig) {
        if !self.limited {
            return;
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
        assert!(rate.may_send(at(0), &config.reaction) && !rate.is_limited());
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
                rate.may_send(at(from + round * 55), &config.reaction);
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
        whole.may_send(at(5000), &config.reaction);
        for time in (61..=5000).step_by(7).chain([5000]) {
            pieces.may_send(at(time), &config.reaction);
        }
        assert_eq!((whole.current, whole.target, whole.alpha), (pieces.current, pieces.target, pieces.alpha));
        assert!(whole.is_limited());
    }

    #[test]
    fn rate_is_unlimited_again_after_a_long_pause() {
        let config = reacting();
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        rate.may_send(at(10_000_000), &config.reaction);
        assert!(!rate.is_limited());
        rate.handle_cnp(at(10_000_000), &config);
        assert_eq!(rate.current, config.reaction.line_rate / 2);
    }

    #[test]
    fn frames_are_paced_at_the_rate() {
        let mut config = reacting();
        // No recovery within the test.
        config.reaction.increase_interval = Duration::from_secs(1);
        let mut rate = RateLimiter::UNLIMITED;
        rate.handle_cnp(at(0), &config);
        let mut bytes = 0;
        // A timer with a tick of 16 us; 5 Gb/s.
        for tick in 0..1000 {
            let now = at(tick * 16);
            while rate.may_send(now, &config.reaction) {
                rate.sent(now, 1000, &config.reaction);
                bytes += 1000;
            }
        }
        let expected = 5_000_000_000 / 8 * 16 / 1000;
        assert!(u64::abs_diff(bytes, expected) < expected / 100, "{bytes} of {expected}");
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
