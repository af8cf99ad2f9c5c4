// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock whose holder serves the requests of threads that found it taken, so that they need not wait.

use core::sync::atomic::{AtomicUsize, Ordering};

use fallible::Word;
use lock_api::{Mutex, RawMutex};

use crate::lock::RawSpinLock;

/// A value behind a lock, and whether service of it is requested.
pub struct ServedLock<T, R: RawMutex = RawSpinLock, W = AtomicUsize> {
    /// Not 0 if the holder of the lock is to serve once more.
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
    /// that found the lock taken meanwhile. `serve` receives whether it is the last pass: then it must arrange for the requests
    /// that follow. IRQL <= `DISPATCH_LEVEL`.
    pub fn serve(&self, passes: usize, mut serve: impl FnMut(&mut T, bool)) {
        self.requested.store(1, Ordering::SeqCst);
        for pass in 1..=passes {
            // The holder of the lock reads the request after it releases the lock, so that one of the two serves. This fence
            // orders the request before the lock; the one in `is_requested` orders the lock before the request.
            W::fence(Ordering::SeqCst);
            let Some(mut value) = self.value.try_lock() else { return };
            self.requested.store(0, Ordering::SeqCst);
            serve(&mut value, pass == passes);
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
            self.requested.store(0, Ordering::SeqCst);
            postpone(&mut value);
        }
        result
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

    /// Work that is ready, and whether a routine that does it later is queued.
    struct Work {
        ready: Counter,
        lock: ServedLock<bool, ModelLock, LoomWord>,
    }

    impl Work {
        fn new() -> Arc<Self> {
            Arc::new(Self { ready: Counter::new(0), lock: ServedLock::new(false) })
        }

        fn add_and_serve(&self, passes: usize) {
            self.ready.fetch_add(1, Ordering::AcqRel);
            self.lock.serve(passes, |postponed, last| {
                self.ready.swap(0, Ordering::AcqRel);
                *postponed |= last;
            });
        }

        /// No work is left, unless the routine is queued.
        fn check(&self) {
            let postponed = self.lock.with(|postponed| *postponed, |_| panic!("a request is left"));
            assert!(
                postponed || self.ready.load(Ordering::Acquire) == 0,
                "work is left, and no thread does it"
            );
        }
    }

    #[test]
    fn model_work_of_threads_that_find_the_lock_taken_is_done() {
        loom::model(|| {
            let work = Work::new();
            let others = [(); 2].map(|()| {
                let work = work.clone();
                thread::spawn(move || work.add_and_serve(2))
            });
            for other in others {
                other.join().unwrap();
            }
            work.check();
        });
    }

    #[test]
    fn model_work_that_arrives_while_the_lock_is_held_for_another_reason_is_postponed() {
        loom::model(|| {
            let work = Work::new();
            let other = {
                let work = work.clone();
                thread::spawn(move || work.add_and_serve(3))
            };
            // An access with the lock held, for loom to switch threads there.
            work.lock.with(|_| work.ready.load(Ordering::Acquire), |postponed| *postponed = true);
            other.join().unwrap();
            work.check();
        });
    }
}
