// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moderation of a completion queue's notifications.

use core::time::Duration;

use crate::time::Instant;

/// How long a notification may be held back so that it covers more completions. Completions can be polled meanwhile.
///
/// Failed completions and faults of the queue are not held back, nor are the completions of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Maximum time from the completion to the notification; `None` for no limit. A notification comes up to a tick of
    /// the timer wheel (16.4 us) later, as every timeout does.
    pub interval: Option<Duration>,
    /// Number of unread completions at which the notification is made; the depth of the queue if that is less, or if
    /// `None`.
    pub count: Option<u32>,
}

impl Moderation {
    /// Returns whether a queue of `depth` entries with `unread` completions waits for more.
    pub(crate) fn waits_for_more(self, unread: usize, depth: usize) -> bool {
        //= R-CQ-47
        unread < self.count.map_or(depth, |count| depth.min(count as usize))
    }

    /// Returns when the notification of a completion at `since` is due at the latest.
    pub(crate) fn deadline(self, since: Instant) -> Option<Instant> {
        self.interval.map(|interval| since + interval)
    }
}
