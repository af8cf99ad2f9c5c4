// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock whose holder serves the requests of threads that found it taken, so that they need not wait.

use core::sync::atomic::{AtomicUsize, Ordering};

use fallible::Word;
use lock_api::{Mutex, RawMutex};

use crate::lock::RawSpinLock;

/// A value behind a lock, and whether service of it is requested.
pub struct ServedLock<T, R: RawMutex = RawSpinLock, W = AtomicUsize> {
    /// The kinds of work that threads left to the holder of the lock, one bit each.
    requested: W,
    value: Mutex<R, T>,
}

impl<T, R: RawMutex, W: Word> ServedLock<T, R, W> {
    /// Returns a lock that is free.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { requested: W::new(0), value: Mutex::new(value) }
    }

    /// Calls `serve` with the lock held, unless another thread holds it, which does so then: up to `passes` times, for threads
    /// that found the lock taken meanwhile. `kind` is one bit: calls with the same bit do the same work, and each does that of
    /// all. `serve` receives whether it must arrange for requests that it does not serve: those of other kinds, and in the
    /// last pass those that follow. IRQL <= `DISPATCH_LEVEL`.
    pub fn serve(&self, kind: usize, passes: usize, mut serve: impl FnMut(&mut T, bool)) {
        self.requested.fetch_or(kind, Ordering::SeqCst);
        for pass in 1..=passes {
            // The holder of the lock reads the requests after it releases the lock, so that one of the two serves. This fence
            // orders the request before the lock; the one in `is_requested` orders the lock before the request.
            W::fence(Ordering::SeqCst);
            let Some(mut value) = self.value.try_lock() else { return };
            // Also those that arrived since the lock was taken: their threads found it taken.
            let others = self.take_requests() & !kind;
            serve(&mut value, others != 0 || pass == passes);
            drop(value);
            if !self.is_requested() {
                return;
            }
        }
    }

    /// Calls `use_it` with the lock held. Then, if service was requested meanwhile, `postpone`, which must arrange for it.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn with<U>(&self, use_it: impl FnOnce(&mut T) -> U, postpone: impl FnOnce(&mut T)) -> U {
        let result = use_it(&mut self.value.lock());
        if self.is_requested() {
            let mut value = self.value.lock();
            self.take_requests();
            postpone(&mut value);
        }
        result
    }

    /// Clears the requests and returns them. Acquires the work that their threads added before.
    fn take_requests(&self) -> usize {
        self.requested.update(|_| 0)
    }

    /// Whether a thread found the lock taken and left its work to the holder, which has released the lock.
    fn is_requested(&self) -> bool {
        W::fence(Ordering::SeqCst);
        self.requested.load(Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use ::models::ModelLock;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Counter;
    use loom::thread;

    ::models::loom_word!(LoomWord: fallible::Word);

    /// Work of two kinds that is ready, and whether a routine that does all of it later is queued.
    struct Work {
        ready: [Counter; 2],
        lock: ServedLock<bool, ModelLock, LoomWord>,
    }

    impl Work {
        fn new() -> Arc<Self> {
            Arc::new(Self { ready: [Counter::new(0), Counter::new(0)], lock: ServedLock::new(false) })
        }

        fn add_and_serve(&self, kind: usize, passes: usize) {
            self.ready[kind].fetch_add(1, Ordering::Relaxed);
            self.lock.serve(1 << kind, passes, |postponed, postpones| {
                self.ready[kind].store(0, Ordering::Relaxed);
                *postponed |= postpones;
            });
        }

        /// No work is left, unless the routine is queued.
        fn check(&self) {
            let postponed = self.lock.with(|postponed| *postponed, |_| panic!("a request is left"));
            let is_done = self.ready.iter().all(|ready| ready.load(Ordering::Relaxed) == 0);
            assert!(postponed || is_done, "work is left, and no thread does it");
        }
    }

    fn threads_of_kinds(kinds: [usize; 2]) {
        loom::model(move || {
            let work = Work::new();
            let others = kinds.map(|kind| {
                let work = work.clone();
                thread::spawn(move || work.add_and_serve(kind, 2))
            });
            for other in others {
                other.join().unwrap();
            }
            work.check();
        });
    }

    #[test]
    fn model_work_of_threads_that_find_the_lock_taken_is_done() {
        threads_of_kinds([0, 0]);
    }

    /// Also if the request arrives between the moments at which the holder takes the lock and the requests.
    #[test]
    fn model_work_of_another_kind_is_postponed_by_the_holder_of_the_lock() {
        threads_of_kinds([0, 1]);
    }

    #[test]
    fn model_work_that_arrives_while_the_lock_is_held_for_another_reason_is_postponed() {
        loom::model(|| {
            let work = Work::new();
            let other = {
                let work = work.clone();
                thread::spawn(move || work.add_and_serve(0, 3))
            };
            // An access with the lock held, for loom to switch threads there.
            work.lock.with(|_| work.ready[0].load(Ordering::Relaxed), |postponed| *postponed = true);
            other.join().unwrap();
            work.check();
        });
    }
}
