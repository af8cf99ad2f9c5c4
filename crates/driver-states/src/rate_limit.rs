// SPDX-License-Identifier: MIT OR Apache-2.0

//! The limit of how often an event is written to a log that people read: a few at once, then one in an interval. What is left out is
//! counted.

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The limit of one event: a token bucket, as the time at which it is full again.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// Nanoseconds.
    full_at: u64,
    omitted: u32,
}

impl RateLimit {
    /// Number of events at once.
    pub const BURST: u32 = 5;
    /// Time after which one more may be written, in nanoseconds.
    pub const INTERVAL: u64 = 600 * SECOND;

    /// Returns the limit of an event that was not written yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { full_at: 0, omitted: 0 }
    }

    /// Decides on an event at the time `now`, in nanoseconds. If it may be written, returns the number of those that were left out since the
    /// one before.
    pub fn admit(&mut self, now: u64) -> Option<u32> {
        const LONGEST_DEBT: u64 = (RateLimit::BURST as u64 - 1) * RateLimit::INTERVAL;
        if self.full_at.saturating_sub(now) > LONGEST_DEBT {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.full_at = self.full_at.max(now).saturating_add(Self::INTERVAL);
        Some(self.take_omitted())
    }

    /// Returns the number of events that were left out and not reported, which are reported now.
    pub fn take_omitted(&mut self) -> u32 {
        core::mem::take(&mut self.omitted)
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400 * SECOND;

    #[test]
    fn a_storm_of_a_day_is_bounded_and_each_event_is_written_or_counted() {
        let mut limit = RateLimit::new();
        let (mut written, mut omitted, mut sent) = (0, 0, 0_u64);
        // From a while after boot on, one event each 100 ms.
        for now in (DAY..2 * DAY).step_by(SECOND as usize / 10) {
            sent += 1;
            if let Some(before) = limit.admit(now) {
                written += 1;
                omitted += u64::from(before);
            }
        }
        omitted += u64::from(limit.take_omitted());
        assert_eq!(written, u64::from(RateLimit::BURST) + DAY / RateLimit::INTERVAL - 1);
        assert_eq!(written + omitted, sent);
    }

    #[test]
    fn the_next_event_says_how_many_were_left_out() {
        let mut limit = RateLimit::new();
        for _ in 0..RateLimit::BURST {
            assert_eq!(limit.admit(7), Some(0));
        }
        for now in [7, 8, RateLimit::INTERVAL + 6] {
            assert_eq!(limit.admit(now), None);
        }
        assert_eq!(limit.admit(RateLimit::INTERVAL + 7), Some(3));
        assert_eq!(limit.take_omitted(), 0);
    }

    #[test]
    fn events_that_come_seldom_are_all_written() {
        let mut limit = RateLimit::new();
        for now in (0..100).map(|number| number * RateLimit::INTERVAL) {
            assert_eq!(limit.admit(now), Some(0));
        }
    }
}
