// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rundown protection: many short users of an object, and a teardown that waits for the last of them
//! (the WDK's run-down protection, `EX_RUNDOWN_REF`).

use crate::event::Event;
use core::sync::atomic::{AtomicUsize, Ordering};
use fallible::Word;

/// Set when run-down has begun; the bits above count the users.
const RUNNING_DOWN: usize = 1;
const USER: usize = 2;

/// Admits users until [`Rundown::wait`] is called, which then admits no more and returns when the last user has left.
pub struct Rundown {
    users: Users,
    last_left: Event,
}

/// The users, and whether run-down has begun.
struct Users<W = AtomicUsize>(W);

impl<W: Word> Users<W> {
    fn none() -> Self {
        Self(W::new(0))
    }

    /// Adds a user; `false` if run-down has begun.
    fn enter(&self) -> bool {
        let mut state = self.0.load(Ordering::Relaxed);
        while state & RUNNING_DOWN == 0 {
            let Some(next) = state.checked_add(USER) else { return false };
            match self.0.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// Removes a user. Returns `true` if it was the last one and run-down has begun.
    fn leave(&self) -> bool {
        self.0.fetch_sub(USER, Ordering::AcqRel) == RUNNING_DOWN | USER
    }

    /// Begins run-down. Returns `true` if it had not begun and there is no user.
    fn run_down(&self) -> bool {
        self.0.fetch_or(RUNNING_DOWN, Ordering::AcqRel) == 0
    }
}

/// Run-down protection held: [`Rundown::wait`] does not return while this lives.
pub struct RundownGuard<'a>(&'a Rundown);

impl Rundown {
    /// Returns an object that admits users; `None` if pool is exhausted.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        Some(Self { users: Users::none(), last_left: Event::try_new()? })
    }

    /// Acquires protection; `None` if run-down has begun. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn enter(&self) -> Option<RundownGuard<'_>> {
        self.users.enter().then(|| RundownGuard(self))
    }

    /// Begins run-down and waits until no user is left. `PASSIVE_LEVEL`. A second call waits as well.
    pub fn wait(&self) {
        if self.users.run_down() {
            // No user is left to set the event.
            self.last_left.set();
        } else {
            self.last_left.wait();
        }
    }
}

impl Drop for RundownGuard<'_> {
    fn drop(&mut self) {
        if self.0.users.leave() {
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

#[cfg(test)]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    ::models::loom_word!(LoomWord: fallible::Word);

    struct Object {
        users: Users<LoomWord>,
        /// The event: whether it is set, and its waiter.
        last_left: (AtomicBool, Notify),
        value: UnsafeCell<usize>,
    }

    // SAFETY: loom checks accesses to the cell.
    unsafe impl Sync for Object {}

    #[test]
    fn model_teardown_follows_all_users() {
        loom::model(|| {
            let object = Arc::new(Object {
                users: Users::none(),
                last_left: (AtomicBool::new(false), Notify::new()),
                value: UnsafeCell::new(7),
            });
            let users = [(); 2].map(|()| {
                let object = object.clone();
                thread::spawn(move || {
                    if object.users.enter() {
                        // SAFETY: loom reports a concurrent write.
                        object.value.with(|value| assert_eq!(unsafe { *value }, 7, "used after teardown"));
                        if object.users.leave() {
                            object.last_left.0.store(true, Ordering::Release);
                            object.last_left.1.notify();
                        }
                    }
                })
            });
            let waits = !object.users.run_down();
            while waits && !object.last_left.0.load(Ordering::Acquire) {
                object.last_left.1.wait();
            }
            // SAFETY: loom reports a concurrent access.
            object.value.with_mut(|value| unsafe { *value = 0 });
            for user in users {
                user.join().unwrap();
            }
        });
    }
}
