// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interrupt request level (IRQL) of the calling processor.

use crate::sys;

pub use crate::level::{APC_LEVEL, DISPATCH_LEVEL, PASSIVE_LEVEL};

/// Returns the IRQL of the calling processor. Any IRQL.
#[must_use]
pub fn current() -> u8 {
    sys::irql()
}

/// Returns whether the system asks a caller to return below `DISPATCH_LEVEL`. IRQL >= `DISPATCH_LEVEL`.
#[must_use]
pub fn should_yield() -> bool {
    sys::should_yield()
}

/// Returns the clock ticks since the processor was last below `DISPATCH_LEVEL`, as the DPC watchdog counts them; 0 if it
/// does not. IRQL >= `DISPATCH_LEVEL`.
#[must_use]
pub fn ticks_at_dispatch() -> u32 {
    sys::ticks_at_dispatch()
}

/// The caller is at `DISPATCH_LEVEL` while this lives.
pub struct AtDispatch {
    previous: u8,
    /// An IRQL belongs to a processor.
    not_send: core::marker::PhantomData<*const ()>,
}

impl AtDispatch {
    /// Raises the IRQL to `DISPATCH_LEVEL`. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn new() -> Self {
        Self { previous: sys::raise_to_dispatch(), not_send: core::marker::PhantomData }
    }
}

impl Default for AtDispatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for AtDispatch {
    fn drop(&mut self) {
        sys::lower(self.previous);
    }
}

/// Runs `body` with this IRQL on this thread. For tests, which are hosted.
#[cfg(not(all(windows, feature = "kernel")))]
pub fn at_level<R>(level: u8, body: impl FnOnce() -> R) -> R {
    sys::at_irql(level, body)
}

/// Panics in debug builds if the caller's IRQL is above `limit`.
#[inline]
pub fn debug_assert_at_most(limit: u8) {
    debug_assert!(current() <= limit, "IRQL {} above {limit}", current());
}
