// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waits for the device, with a limit in time.
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

/// A wait. The caller checks its condition before the first call of [`go_on`](Self::go_on), and after each call that returns `true`. At
/// PASSIVE_LEVEL.
#[derive(Debug)]
pub struct Wait<'a, H> {
    hal: &'a H,
    /// End of the wait, by [`Hal::now`].
    deadline: u64,
    stalls: u32,
}

impl<'a, H: Hal> Wait<'a, H> {
    /// Begins a wait of at most `limit`.
    pub fn new(hal: &'a H, limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self { hal, deadline: hal.now().saturating_add(limit), stalls: 0 }
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
            self.hal.delay(SLEEP_US);
        }
        true
    }
}
