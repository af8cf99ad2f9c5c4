// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rundown protection: many short users of an object, and a teardown that waits for the last of them
//! (the WDK's run-down protection, `EX_RUNDOWN_REF`).

use crate::event::Event;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Set when run-down has begun; the bits above count the users.
const RUNNING_DOWN: usize = 1;
const USER: usize = 2;

/// Admits users until [`Rundown::wait`] is called, which then admits no more and returns when the last user has left.
pub struct Rundown {
    state: AtomicUsize,
    last_left: Event,
}

/// Run-down protection held: [`Rundown::wait`] does not return while this lives.
pub struct RundownGuard<'a>(&'a Rundown);

impl Rundown {
    /// Returns an object that admits users; `None` if pool is exhausted.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        Some(Self { state: AtomicUsize::new(0), last_left: Event::try_new()? })
    }

    /// Acquires protection; `None` if run-down has begun. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn enter(&self) -> Option<RundownGuard<'_>> {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & RUNNING_DOWN == 0).then(|| state.checked_add(USER)).flatten()
            })
            .is_ok()
            .then(|| RundownGuard(self))
    }

    /// Begins run-down and waits until no user is left. `PASSIVE_LEVEL`. A second call waits as well.
    pub fn wait(&self) {
        match self.state.fetch_or(RUNNING_DOWN, Ordering::AcqRel) {
            // No user is left to set the event.
            0 => self.last_left.set(),
            _ => self.last_left.wait(),
        }
    }
}

impl Drop for RundownGuard<'_> {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(USER, Ordering::AcqRel) == RUNNING_DOWN | USER {
            self.0.last_left.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_is_admitted_after_run_down_began() {
        let rundown = Rundown::try_new().unwrap();
        drop(rundown.enter().unwrap());
        rundown.wait();
        assert!(rundown.enter().is_none());
        rundown.wait();
    }

    #[test]
    fn wait_returns_when_the_last_user_leaves() {
        let rundown = Rundown::try_new().unwrap();
        let inside = rundown.enter().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| rundown.wait());
            while rundown.enter().is_some() {}
            assert!(!waiter.is_finished());
            drop(inside);
            waiter.join().unwrap();
        });
    }
}
