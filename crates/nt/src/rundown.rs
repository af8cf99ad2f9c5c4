//! Rundown protection: many short users of a thing, one who waits for the last of them.

use crate::event::Event;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Set once running down has begun; the count of users is in the bits above.
const RUNNING_DOWN: usize = 1;
const USER: usize = 2;

/// Lets users in until [`Rundown::wait`] is called, which lets nobody in any more and returns when the last
/// user has left.
pub struct Rundown {
    state: AtomicUsize,
    last_left: Event,
}

/// A user is inside as long as this lives.
pub struct RundownGuard<'a>(&'a Rundown);

impl Rundown {
    /// `None` when pool has run dry.
    pub fn try_new() -> Option<Self> {
        Some(Self { state: AtomicUsize::new(0), last_left: Event::try_new()? })
    }

    /// Enters; `None` when running down has begun. IRQL <= `DISPATCH_LEVEL`.
    pub fn enter(&self) -> Option<RundownGuard<'_>> {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & RUNNING_DOWN == 0).then(|| state.checked_add(USER)).flatten()
            })
            .is_ok()
            .then(|| RundownGuard(self))
    }

    /// Lets nobody in from now on and waits for those inside. `PASSIVE_LEVEL`. A second call waits likewise.
    pub fn wait(&self) {
        match self.state.fetch_or(RUNNING_DOWN, Ordering::AcqRel) {
            // Nobody is inside, and nobody comes who would say so.
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
    fn nobody_enters_once_running_down_has_begun() {
        let rundown = Rundown::try_new().unwrap();
        drop(rundown.enter().unwrap());
        rundown.wait();
        assert!(rundown.enter().is_none());
        rundown.wait();
    }

    #[test]
    fn the_wait_ends_when_the_last_user_leaves() {
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
