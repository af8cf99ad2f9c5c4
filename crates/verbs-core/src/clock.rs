// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time that the engine counts.

use std::time::Instant as SystemInstant;

use roce::Instant;

/// A monotonic clock that began when the device was opened.
#[derive(Debug)]
pub struct Clock(SystemInstant);

impl Clock {
    pub fn new() -> Self {
        Self(SystemInstant::now())
    }

    /// Returns the time since the start, never 0.
    pub fn now(&self) -> Instant {
        let nanos = self.0.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).saturating_add(1))
    }
}
