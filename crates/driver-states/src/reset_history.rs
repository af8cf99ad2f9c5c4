// SPDX-License-Identifier: MIT OR Apache-2.0

//! When a device that has failed is started again: a few times at once, then after pauses that grow while it goes on failing. Only a ring
//! that is corrupt again after each reset ends the attempts.

use core::time::Duration;

/// A device that works for this time after a reset has recovered: its next reset is the first one again.
const WELL: Duration = Duration::from_secs(60);
/// Resets one after the other without a pause.
const AT_ONCE: u32 = 3;
/// The first pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A ring that is corrupt more often than this number of times in [`WELL`] is corrupt beyond a reset.
const CORRUPT: usize = 3;

/// Why a device is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It has corrupted a ring.
    CorruptRing,
    /// It asks for a reset, or another reason that may pass.
    Other,
}

/// The last resets of a device. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct ResetHistory {
    /// Times of the last resets because of a corrupt ring, the oldest first.
    corrupt: [Option<u64>; CORRUPT],
    /// Resets since the device last worked for [`WELL`].
    count: u32,
    /// When the device was last started after a reset, if it has not failed since.
    started: Option<u64>,
}

impl ResetHistory {
    /// Returns the history of a device that has not failed.
    #[must_use]
    pub const fn new() -> Self {
        Self { corrupt: [None; CORRUPT], count: 0, started: None }
    }

    /// Records at the time `now` that the device has failed. Returns the pause between its reset and its start; `None` if resets do not help.
    pub fn fail(&mut self, cause: Cause, now: u64) -> Option<Duration> {
        if cause == Cause::CorruptRing {
            let [oldest, ..] = self.corrupt;
            if oldest.is_some_and(|oldest| !was_long_ago(oldest, now)) {
                return None;
            }
            self.corrupt.rotate_left(1);
            let [.., newest] = &mut self.corrupt;
            *newest = Some(now);
        }
        Some(self.pause(now))
    }

    /// Records at the time `now` a failure that may pass, as [`fail`](Self::fail) does.
    pub fn pause(&mut self, now: u64) -> Duration {
        if self.started.take().is_some_and(|started| was_long_ago(started, now)) {
            self.count = 0;
        }
        let further = self.count.checked_sub(AT_ONCE);
        self.count = self.count.saturating_add(1);
        further.map_or(Duration::ZERO, |further| {
            FIRST_PAUSE.saturating_mul(1_u32.checked_shl(further).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
        })
    }

    /// Notes at the time `now` that the device works again.
    pub fn start(&mut self, now: u64) {
        self.started = Some(now);
    }
}

/// Whether [`WELL`] has passed from a time to `now`.
const fn was_long_ago(time: u64, now: u64) -> bool {
    now.saturating_sub(time) >= WELL.as_nanos() as u64
}

impl Default for ResetHistory {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Fails and is started again after the pause, and works for `works` seconds. Returns the pauses in seconds.
    fn pauses<const N: usize>(
        history: &mut ResetHistory,
        now: &mut u64,
        cause: Cause,
        works: u64,
    ) -> [u64; N] {
        core::array::from_fn(|_| match history.fail(cause, *now) {
            Some(pause) => {
                *now += pause.as_nanos() as u64;
                history.start(*now);
                *now += works * SECOND;
                pause.as_secs()
            }
            None => u64::MAX,
        })
    }

    #[test]
    fn pauses_of_a_device_that_goes_on_failing_grow_up_to_a_minute() {
        for works in [0, 3, 59] {
            let (mut history, mut now) = (ResetHistory::new(), SECOND);
            let pauses = pauses(&mut history, &mut now, Cause::Other, works);
            assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60], "{works}");
        }
        let mut history = ResetHistory { count: u32::MAX, ..ResetHistory::new() };
        assert_eq!([history.pause(0), history.pause(0)], [LONGEST_PAUSE; 2]);
    }

    #[test]
    fn a_minute_of_work_forgets_the_failures_before() {
        let (mut history, mut now) = (ResetHistory::new(), 0);
        let _: [u64; 8] = pauses(&mut history, &mut now, Cause::Other, 1);
        now += 59 * SECOND;
        assert_eq!(pauses(&mut history, &mut now, Cause::Other, 60), [0; 20]);
    }

    /// A start that fails is a failure like any other.
    #[test]
    fn the_time_of_a_pause_is_no_time_of_work() {
        let mut history = ResetHistory::new();
        history.start(0);
        let pauses = [1, 2, 3, 4, 5].map(|hour| history.pause(hour * 3600 * SECOND).as_secs());
        assert_eq!(pauses, [0, 0, 0, 1, 2]);
    }

    #[test]
    fn only_a_ring_that_is_corrupt_again_after_each_reset_ends_the_attempts() {
        let (mut history, mut now) = (ResetHistory::new(), 0);
        assert_eq!(pauses(&mut history, &mut now, Cause::CorruptRing, 1), [0, 0, 0, u64::MAX]);
        let (mut history, mut now) = (ResetHistory::new(), 0);
        let pauses: [u64; 50] = pauses(&mut history, &mut now, Cause::CorruptRing, 25);
        assert!(!pauses.contains(&u64::MAX));
    }
}
