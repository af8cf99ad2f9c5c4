// SPDX-License-Identifier: MIT OR Apache-2.0

//! Latency histograms.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Longest latency that is recorded as such, in nanoseconds: one hour.
const MAX: u64 = 3_600_000_000_000;
/// Values from 2 * `HALF` on fall into `HALF` ranges per power of two: a range is below 1 % of its values.
const HALF: u64 = 128;
/// The upper end of the first range of [`LatencyHistogram::by_power_of_two`], in nanoseconds.
const FIRST: u64 = 1000;

/// A histogram of latencies, in nanoseconds.
#[derive(Clone, Default)]
pub struct LatencyHistogram {
    /// Numbers of latencies by range, up to the range of the longest.
    counts: Vec<u64>,
    count: u64,
    /// The upper end of the range of the longest latency.
    max: u64,
}

impl LatencyHistogram {
    /// Records one latency; more than an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        let value = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min(MAX);
        let range = range_of(value);
        if range >= self.counts.len() {
            self.counts.resize(range + 1, 0);
        }
        self.counts[range] += 1;
        self.count += 1;
        self.max = self.max.max(last_of(range));
    }

    /// Returns the number of latencies recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the longest latency; 0 if there is none.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the latency that a share of `quantile` (0 to 1) of all latencies does not exceed; 0 if there is none.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let share = quantile * self.count as f64;
        // Rounded up; the first latency at least.
        let wanted = (share as u64 + u64::from(share > share as u64 as f64)).clamp(1, self.count.max(1));
        let mut seen = 0;
        let range = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        Duration::from_nanos(range.map_or(0, last_of))
    }

    /// Returns the latencies by powers of two of a microsecond: the upper end of each range, and how many are in it.
    /// Ranges before the shortest latency are left out.
    #[must_use]
    pub fn by_power_of_two(&self) -> Vec<(Duration, u64)> {
        let mut powers: Vec<(Duration, u64)> = Vec::new();
        let mut end = FIRST;
        for (range, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count != 0) {
            while first_of(range) >= end {
                end *= 2;
                if !powers.is_empty() {
                    powers.push((Duration::from_nanos(end - 1), 0));
                }
            }
            match powers.last_mut() {
                Some((_, sum)) => *sum += count,
                None => powers.push((Duration::from_nanos(end - 1), count)),
            }
        }
        powers
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let length = self.counts.len().max(other.counts.len());
        self.counts.resize(length, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }
}

/// Returns the range of a value: 0 to 2 * `HALF` - 1 are ranges of one value each.
const fn range_of(value: u64) -> usize {
    let shift = (u64::BITS - (value / HALF).leading_zeros()).saturating_sub(1) as u64;
    (shift * HALF + (value >> shift)) as usize
}

/// Returns the lowest value of a range.
const fn first_of(range: usize) -> u64 {
    let range = range as u64;
    let shift = (range / HALF).saturating_sub(1);
    (range - shift * HALF) << shift
}

/// Returns the highest value of a range.
const fn last_of(range: usize) -> u64 {
    first_of(range + 1) - 1
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut histogram = LatencyHistogram::default();
        for microseconds in 1..=100 {
            histogram.record(Duration::from_micros(microseconds));
        }
        for (quantile, expected) in [(0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = histogram.quantile(quantile).as_nanos();
            assert!(found.abs_diff(expected) <= expected / 100, "{quantile}: {found}");
        }
    }

    #[test]
    fn ranges_follow_each_other_and_hold_their_values() {
        let mut range = 0;
        for value in (0..5000).chain([MAX - 1, MAX]) {
            let found = range_of(value);
            assert!(value > 5000 || (range..=range + 1).contains(&found), "{value}: {found} after {range}");
            assert!((first_of(found)..=last_of(found)).contains(&value), "{value}: {found}");
            assert!((last_of(found) - first_of(found)) * 100 < value.max(1), "{value}: {found}");
            range = found;
        }
    }

    #[test]
    fn powers_of_two_begin_at_the_shortest_latency_and_have_no_gaps() {
        let mut histogram = LatencyHistogram::default();
        for nanos in [1999, 2000, 9000, 9001] {
            histogram.record(Duration::from_nanos(nanos));
        }
        let powers = [(1999, 1), (3999, 1), (7999, 0), (15_999, 2)];
        assert_eq!(
            histogram.by_power_of_two(),
            powers.map(|(end, count)| (Duration::from_nanos(end), count))
        );
    }

    #[test]
    fn merged_histograms_count_all_latencies() {
        let (mut one, mut other) = (LatencyHistogram::default(), LatencyHistogram::default());
        one.record(Duration::from_micros(1));
        other.record(Duration::from_hours(2));
        one.merge(&other);
        assert_eq!(one.count(), 2);
        assert!(one.max() >= Duration::from_secs(3595), "{:?}", one.max());
    }

    #[test]
    fn empty_histogram_returns_zero() {
        assert_eq!(LatencyHistogram::default().quantile(0.5), Duration::ZERO);
    }
}
