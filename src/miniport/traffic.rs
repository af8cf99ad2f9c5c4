// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts the handlers and lists that a pause waits for: handlers that move frames between NDIS and the device, and received
//! NET_BUFFER_LISTs that the protocol stack holds.
//!
//! One word holds the count and the stopped flag, so that exactly one caller completes the pause: `MiniportPause` if the count is zero,
//! otherwise the last caller of [`leave`](Traffic::leave).

use core::sync::atomic::{AtomicU32, Ordering};

/// Flag: traffic is stopped. The bits above hold the count.
const STOPPED: u32 = 1;
const ONE: u32 = 2;

/// Traffic between NDIS and the device. Initially stopped.
pub struct Traffic(AtomicU32);

impl Traffic {
    pub const fn new() -> Self {
        Self(AtomicU32::new(STOPPED))
    }

    /// Starts traffic. The count is zero: the previous pause has completed.
    pub fn start(&self) {
        self.0.fetch_and(!STOPPED, Ordering::AcqRel);
    }

    /// Stops traffic. Returns `true` if the count is zero; otherwise a later [`leave`](Self::leave) returns `true`.
    pub fn stop(&self) -> bool {
        self.0.fetch_or(STOPPED, Ordering::AcqRel) < ONE
    }

    /// Enters; `false` if traffic is stopped.
    #[must_use]
    pub fn enter(&self) -> bool {
        let enter = |word: u32| if word & STOPPED == 0 { word.checked_add(ONE) } else { None };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }

    /// Adds one to the count. The caller has entered.
    pub fn join(&self) {
        self.0.fetch_add(ONE, Ordering::AcqRel);
    }

    /// Subtracts `count`. Returns `true` to the last caller after [`stop`](Self::stop), which must complete the pause. Other callers must
    /// not access the adapter afterwards.
    #[must_use]
    pub fn leave(&self, count: u32) -> bool {
        let left = count.wrapping_mul(ONE);
        count != 0 && self.0.fetch_sub(left, Ordering::AcqRel) == STOPPED.wrapping_add(left)
    }
}
