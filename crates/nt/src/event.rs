//! The notification event.

use crate::sys;
use core::time::Duration;

/// A `KEVENT` of type `NotificationEvent`: once set it lets everybody through until cleared.
pub struct Event(sys::Event);

impl Event {
    /// An event that is not set; `None` when pool has run dry.
    pub fn try_new() -> Option<Self> {
        sys::Event::try_new().map(Self)
    }

    /// Lets all waiters go. IRQL <= `DISPATCH_LEVEL`.
    pub fn set(&self) {
        self.0.set();
    }

    /// Makes later waiters wait. IRQL <= `DISPATCH_LEVEL`.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Waits until the event is set. `PASSIVE_LEVEL`.
    pub fn wait(&self) {
        self.0.wait(None);
    }

    /// Waits until the event is set or `limit` has passed; tells whether it was set. `PASSIVE_LEVEL`.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.0.wait(Some(limit))
    }
}
