// SPDX-License-Identifier: MIT OR Apache-2.0

//! The monotonic clock.

use crate::sys;

/// Returns the nanoseconds since boot. Never decreases. Any IRQL.
#[must_use]
pub fn now() -> u64 {
    sys::interrupt_time().saturating_mul(100)
}

/// Busy-waits so many microseconds, at most 50. Any IRQL.
pub fn stall(microseconds: u32) {
    sys::stall(microseconds);
}
