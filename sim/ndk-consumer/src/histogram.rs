//! Latencies, kept in buckets of bounded relative error.

use core::fmt;
use core::time::Duration;

/// Buckets per power of two: values are off by less than 1/32.
const STEPS: usize = 32;
/// Powers of two covered: 64 - log2(STEPS), nanoseconds as `u64`.
const OCTAVES: usize = 60;

/// A histogram of durations, exact below 32 ns and within 3 % above.
#[derive(Clone)]
pub struct Histogram {
    buckets: Box<[u64; STEPS * OCTAVES]>,
    count: u64,
    max: u64,
}

impl Histogram {
    pub fn record(&mut self, value: Duration) {
        let nanoseconds = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.max = self.max.max(nanoseconds);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The value that a share of `quantile`, 0 to 1, of all values does not exceed; 0 when there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "a rank, and not negative")]
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(highest(index).min(self.max));
            }
        }
        Duration::ZERO
    }

    pub fn merge(&mut self, other: &Self) {
        for (into, from) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *into += from;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; STEPS * OCTAVES]), count: 0, max: 0 }
    }
}

/// The bucket of a value: its octave, and its leading bits inside it.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(STEPS.ilog2() + 1);
    shift as usize * STEPS + (value >> shift) as usize
}

/// The highest value of a bucket.
fn highest(index: usize) -> u64 {
    let shift = (index / STEPS).saturating_sub(1);
    let leading = (index - shift * STEPS) as u64;
    ((leading + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain((5..60).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let index = bucket(value);
            assert!(highest(index) >= value, "{value}");
            assert!(index == 0 || highest(index - 1) < value, "{value}");
            assert!(highest(index) - value <= value / 32, "{value}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred_values() {
        let mut histogram = Histogram::default();
        for microseconds in 1..=100 {
            histogram.record(Duration::from_micros(microseconds));
        }
        let near = |value: Duration, microseconds: u128| value.as_micros().abs_diff(microseconds) <= 3;
        assert!(near(histogram.quantile(0.5), 50), "{:?}", histogram.quantile(0.5));
        assert!(near(histogram.quantile(0.99), 99), "{:?}", histogram.quantile(0.99));
        assert_eq!(histogram.quantile(1.0), Duration::from_micros(100));
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
