// SPDX-License-Identifier: MIT OR Apache-2.0

//! Latency histograms.

use core::fmt;
use core::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is recorded as such, in nanoseconds: one hour.
const MAX: u64 = 3_600_000_000_000;
/// Significant decimal digits: values are off by less than 1 %.
const DIGITS: u8 = 2;

/// A histogram of latencies, in nanoseconds.
#[derive(Clone)]
pub struct LatencyHistogram(Histogram<u64>);

impl LatencyHistogram {
    /// Records one latency; more than an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the number of latencies recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the longest latency; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// Returns the latency that a share of `quantile` (0 to 1) of all latencies does not exceed; 0 if there is none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile).min(self.0.max()))
    }

    /// Returns the latencies by powers of two of a microsecond: the upper end of each range, and how many are in it.
    /// Ranges before the shortest latency are left out.
    #[must_use]
    pub fn by_power_of_two(&self) -> Vec<(Duration, u64)> {
        self.0
            .iter_log(1000, 2.0)
            .map(|step| (Duration::from_nanos(step.value_iterated_to()), step.count_since_last_iteration()))
            .skip_while(|(_, count)| *count == 0)
            .collect()
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Self) {
        // Cannot fail: both have the same bounds.
        let _ = self.0.add(&other.0);
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(Histogram::new_with_max(MAX, DIGITS).expect("the bounds are valid"))
    }
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
