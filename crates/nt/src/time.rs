// SPDX-License-Identifier: MIT OR Apache-2.0

//! The monotonic clock.

use crate::sys;

/// Returns the nanoseconds since boot. Never decreases. Any IRQL.
#[must_use]
pub fn now() -> u64 {
    sys::interrupt_time().saturating_mul(100)
}
