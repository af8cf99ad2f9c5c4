// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work that one thread does at a time, without a lock: a thread that finds another one at it leaves its part to that one.

use core::sync::atomic::AtomicUsize;

use fallible::Word;

const FREE: usize = 0;
const TAKEN: usize = 1;
/// Taken, and another thread has asked for the turn meanwhile.
const ASKED: usize = 2;

/// A turn, which one thread has at a time. Unlike a lock, it is kept while functions of others are called.
pub struct Turn<W = AtomicUsize>(W);

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// Returns a turn that no thread has.
    #[must_use]
    pub fn new() -> Self {
        Self::with_word()
    }
}

impl<W: Word> Turn<W> {
    fn with_word() -> Self {
        Self(W::new(FREE))
    }

    /// Takes the turn, and sees what its last holder did. Returns `false` if another thread has it, which then learns of this
    /// call from [`end`](Self::end), after everything that this thread did before.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.update(|state| if state == FREE { TAKEN } else { ASKED }) == FREE
    }

    /// Ends the caller's turn. Returns whether another thread has asked for it meanwhile: then there may be work that the caller has
    /// not seen, and the caller, or a thread that it arranges for, takes the turn again.
    #[must_use]
    pub fn end(&self) -> bool {
        self.0.update(|_| FREE) == ASKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_learns_that_the_turn_was_asked_for() {
        let turn = Turn::new();
        assert!(turn.take());
        assert!(!turn.end(), "no other thread came");
        assert!(turn.take());
        assert!(!turn.take() && !turn.take());
        assert!(turn.end());
        assert!(turn.take(), "it is free, also after others asked for it");
        assert!(!turn.end());
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use core::sync::atomic::Ordering;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize as Counter};
    use loom::thread;

    ::models::loom_word!(LoomWord: fallible::Word);

    struct Work {
        turn: Turn<LoomWord>,
        ready: Counter,
        busy: AtomicBool,
    }

    impl Work {
        fn add_and_do(&self) {
            self.ready.fetch_add(1, Ordering::Relaxed);
            while self.turn.take() {
                assert!(!self.busy.swap(true, Ordering::Relaxed), "two threads have the turn");
                self.ready.swap(0, Ordering::Relaxed);
                self.busy.store(false, Ordering::Relaxed);
                if !self.turn.end() {
                    return;
                }
            }
        }
    }

    #[test]
    fn model_one_thread_at_a_time_does_the_work_of_all() {
        loom::model(|| {
            let work = Arc::new(Work {
                turn: Turn::with_word(),
                ready: Counter::new(0),
                busy: AtomicBool::new(false),
            });
            let others = [(); 2].map(|()| {
                let work = work.clone();
                thread::spawn(move || work.add_and_do())
            });
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(work.ready.load(Ordering::Relaxed), 0, "work is left");
        });
    }
}
