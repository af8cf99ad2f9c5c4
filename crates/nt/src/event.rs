// SPDX-License-Identifier: MIT OR Apache-2.0

//! The notification event.

use crate::sys;
use core::time::Duration;

/// A `KEVENT` of type `NotificationEvent`: once set, it satisfies all waits until it is cleared.
pub struct Event(sys::Event);

impl Event {
    /// Returns an event that is not set; `None` if pool is exhausted. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        sys::Event::try_new().map(Self)
    }

    /// Sets the event and releases all waiters. IRQL <= `DISPATCH_LEVEL`.
    pub fn set(&self) {
        self.0.set();
    }

    /// Clears the event. IRQL <= `DISPATCH_LEVEL`.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Waits until the event is set. `PASSIVE_LEVEL`.
    pub fn wait(&self) {
        self.0.wait(None);
    }

    /// Waits until the event is set or `limit` has passed. Returns whether it was set. `PASSIVE_LEVEL`.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.0.wait(Some(limit))
    }
}
