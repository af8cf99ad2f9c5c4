// SPDX-License-Identifier: MIT OR Apache-2.0

//! The request of a miniport to remove its adapter.

use std::{mem, time::Duration};

use parking_lot::Mutex;

/// The removal of an adapter that its miniport asks for.
#[derive(Default)]
pub struct RemovalRequest {
    is_asked: Mutex<bool>,
    delay: Mutex<Duration>,
}

impl RemovalRequest {
    /// Has the PnP manager begin the removal so much later than the miniport asks for it.
    pub fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    pub(crate) fn delay(&self) -> Duration {
        *self.delay.lock()
    }

    /// Returns true at the first call.
    pub(crate) fn ask(&self) -> bool {
        !mem::replace(&mut *self.is_asked.lock(), true)
    }
}
