// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interrupt request level (IRQL) of the calling processor.

use crate::sys;

pub use crate::level::{APC_LEVEL, DISPATCH_LEVEL, PASSIVE_LEVEL};

/// Returns the IRQL of the calling processor. Any IRQL.
#[must_use]
pub fn current() -> u8 {
    sys::irql()
}

/// Panics in debug builds if the caller's IRQL is above `limit`.
#[inline]
pub fn debug_assert_at_most(limit: u8) {
    debug_assert!(current() <= limit, "IRQL {} above {limit}", current());
}
