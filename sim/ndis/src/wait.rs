// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting at `PASSIVE_LEVEL`, and ending what others wait for.

use nt_sim::{Event, current};

/// Nanoseconds between two checks of a wait without an event.
const POLL_INTERVAL: u64 = 10_000;

/// Waits until `condition` holds.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let me = current();
    while !condition() {
        me.park(Some(me.world().now() + POLL_INTERVAL));
    }
}

/// Waits for an event without a time limit.
pub(crate) fn wait(event: &Event) {
    while !event.is_set() {
        event.wait_any();
    }
}

/// Does something when it is dropped, also when a panic of a host's thread unwinds: others wait for it.
pub(crate) struct OnExit<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnExit<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
