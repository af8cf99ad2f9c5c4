// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waits for the device, with or without a limit in time.
//!
//! A device model in the same machine answers within some ten microseconds, but a sleeping thread may not wake before the next clock tick,
//! on Windows up to 15.6 ms later. So a wait begins with short stalls of the processor, and its limit is a time, not a number of sleeps.

use core::time::Duration;

use crate::hal::Hal;

/// Number of stalls before the first sleep, and their length in microseconds.
const STALLS: u32 = 20;
const STALL_US: u32 = 10;
/// Length of a sleep in microseconds; longer if the platform's clock is coarser.
const SLEEP_US: u32 = 1000;
/// The same, after a second.
const LONG_SLEEP_US: u32 = 20_000;
const LONG: Duration = Duration::from_secs(1);

/// A wait. The caller checks its condition before the first call of [`go_on`](Self::go_on), and after each call that returns `true`. At
/// PASSIVE_LEVEL.
#[derive(Debug)]
pub struct Wait<'a, H> {
    hal: &'a H,
    /// Beginning of the wait, by [`Hal::now`].
    began: u64,
    /// End of the wait, by [`Hal::now`].
    deadline: u64,
    stalls: u32,
}

impl<'a, H: Hal> Wait<'a, H> {
    /// Begins a wait of at most `limit`.
    pub fn new(hal: &'a H, limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let began = hal.now();
        Self { hal, began, deadline: began.saturating_add(limit), stalls: 0 }
    }

    /// Begins a wait that the caller ends.
    pub fn without_limit(hal: &'a H) -> Self {
        Self { hal, began: hal.now(), deadline: u64::MAX, stalls: 0 }
    }

    /// Returns the time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.hal.now().saturating_sub(self.began))
    }

    /// Waits for a moment. Returns `false` at once if the limit is reached.
    pub fn go_on(&mut self) -> bool {
        if self.hal.now() >= self.deadline {
            return false;
        }
        if self.stalls < STALLS {
            self.stalls = self.stalls.wrapping_add(1);
            self.hal.stall(STALL_US);
        } else {
            self.hal.delay(if self.elapsed() < LONG { SLEEP_US } else { LONG_SLEEP_US });
        }
        true
    }
}
