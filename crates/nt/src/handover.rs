// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which context runs a routine in batches: no more than one at a time, a DPC or a worker, and none while there is nothing to
//! do. No request is lost between the end of a batch and the next request.

use core::sync::atomic::{AtomicUsize, Ordering};

use fallible::Word;

/// A batch is requested.
const REQUESTED: usize = 1;
/// A DPC is queued or running.
const DPC: usize = 2;
/// A worker is queued or running.
const WORKER: usize = 4;
/// No further batch is to begin.
const STOPPED: usize = 8;
/// A thread waits for the end of a batch.
const AWAITED: usize = 16;

const RUNNER: usize = DPC | WORKER;

/// Next step after a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The runner ends. The next request queues a DPC.
    Idle,
    /// The runner ends, and the thread that stops it must be woken.
    Stopped,
    /// A DPC must be queued for the next batch.
    Dpc,
    /// A worker must run the next batch.
    Worker,
}

/// The state of a routine that runs in batches.
#[derive(Debug)]
pub struct Handover<W = AtomicUsize>(W);

impl Default for Handover {
    fn default() -> Self {
        Self::new()
    }
}

impl Handover {
    /// Returns the state of a routine that does not run.
    #[must_use]
    pub fn new() -> Self {
        Self::with_word()
    }
}

impl<W: Word> Handover<W> {
    fn with_word() -> Self {
        Self(W::new(0))
    }

    /// Requests a batch. Returns `true` if the caller must queue the DPC.
    #[must_use]
    pub fn request(&self) -> bool {
        self.request_in(DPC)
    }

    /// Requests a batch by a worker. Returns `true` if the caller must queue the worker.
    #[must_use]
    pub fn request_worker(&self) -> bool {
        self.request_in(WORKER)
    }

    fn request_in(&self, runner: usize) -> bool {
        let before = self.0.update(|state| {
            let runner = if state & (RUNNER | STOPPED) == 0 { runner } else { 0 };
            state | REQUESTED | runner
        });
        before & (RUNNER | STOPPED) == 0
    }

    /// Begins a batch: called by the runner, before it looks for work. Returns `false` if there is to be none.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.0.update(|state| state & !REQUESTED) & STOPPED == 0
    }

    /// Ends a batch that left work if `more`. `yields` moves what remains from the DPC to a worker.
    #[must_use]
    pub fn end(&self, more: bool, yields: bool) -> Next {
        let next = |state: usize| {
            // A thread that began to wait after the runner looked for one is found after another batch.
            if state & STOPPED != 0 && state & AWAITED == 0 {
                (Next::Stopped, STOPPED)
            } else if !more && state & (REQUESTED | AWAITED) == 0 {
                (Next::Idle, 0)
            } else if yields || state & WORKER != 0 {
                (Next::Worker, state & !DPC | WORKER)
            } else {
                (Next::Dpc, state)
            }
        };
        next(self.0.update(|state| next(state).1)).0
    }

    /// Returns `true` if a runner is queued or running: it calls [`take_awaited`](Self::take_awaited) after a batch.
    #[must_use]
    pub fn await_batch(&self) -> bool {
        self.0.update(|state| if state & RUNNER == 0 { state } else { state | AWAITED }) & RUNNER != 0
    }

    /// Called by the runner between a batch and its [`end`](Self::end). Returns `true` if a thread waits, which must be woken.
    #[must_use]
    pub fn take_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AWAITED != 0
            && self.0.update(|state| state & !AWAITED) & AWAITED != 0
    }

    /// Stops: no batch begins from now on. Returns `true` if a runner is queued or running, whose [`end`](Self::end) returns
    /// [`Next::Stopped`].
    #[must_use]
    pub fn stop(&self) -> bool {
        self.0.update(|state| state | STOPPED) & RUNNER != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runner_serves_all_requests() {
        let state = Handover::new();
        assert!(state.request());
        assert!(!state.request() && !state.request_worker(), "a DPC is queued");
        assert!(state.begin());
        assert!(!state.request(), "the DPC is running");
        assert_eq!(state.end(false, false), Next::Dpc);
        assert!(state.begin());
        assert_eq!(state.end(false, false), Next::Idle);
        assert!(state.request(), "no DPC is queued");
    }

    #[test]
    fn worker_keeps_the_work_until_none_is_left() {
        let state = Handover::new();
        assert!(state.request() && state.begin());
        assert_eq!(state.end(true, false), Next::Dpc);
        assert!(state.begin());
        assert_eq!(state.end(true, true), Next::Worker);
        assert!(state.begin());
        assert!(!state.request(), "the worker runs");
        assert_eq!(state.end(false, false), Next::Worker);
        assert!(state.begin());
        assert_eq!(state.end(false, true), Next::Idle, "there is nothing to yield");
        assert!(state.request_worker());
        assert!(state.begin());
        assert_eq!(state.end(false, false), Next::Idle);
    }

    #[test]
    fn waiting_thread_is_found_by_the_runner() {
        let state = Handover::new();
        assert!(!state.await_batch(), "nothing runs");
        assert!(state.request() && state.await_batch() && state.begin());
        assert!(state.take_awaited() && !state.take_awaited());
        assert!(state.await_batch(), "the runner has not ended");
        assert_eq!(state.end(false, false), Next::Dpc, "it looks again");
        assert!(state.begin() && state.take_awaited());
        assert_eq!(state.end(false, false), Next::Idle);
        assert!(!state.await_batch());
    }

    #[test]
    fn waiting_thread_is_found_after_a_stop() {
        let state = Handover::new();
        assert!(state.request_worker() && state.begin() && !state.take_awaited());
        assert!(state.await_batch() && state.stop());
        assert_eq!(state.end(false, true), Next::Worker);
        assert!(!state.begin() && state.take_awaited());
        assert_eq!(state.end(false, true), Next::Stopped);
        assert!(!state.await_batch());
    }

    #[test]
    fn nothing_begins_after_a_stop() {
        let state = Handover::new();
        assert!(state.request() && state.begin());
        assert!(state.stop(), "a DPC runs");
        assert_eq!(state.end(true, false), Next::Stopped);
        assert!(!state.request() && !state.request_worker() && !state.begin());
        assert!(!Handover::new().stop());
        let queued = Handover::new();
        assert!(queued.request() && queued.stop() && !queued.begin());
        assert_eq!(queued.end(false, false), Next::Stopped);
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize as Counter};
    use loom::thread;

    ::models::loom_word!(LoomWord: fallible::Word);

    struct Routine {
        state: Handover<LoomWord>,
        work: Counter,
        running: AtomicBool,
    }

    impl Routine {
        fn request(&self) {
            self.work.fetch_add(1, Ordering::AcqRel);
            if self.state.request() {
                self.run();
            }
        }

        /// The runner, until it ends.
        fn run(&self) {
            loop {
                assert!(!self.running.swap(true, Ordering::AcqRel), "two runners");
                if self.state.begin() {
                    self.work.swap(0, Ordering::AcqRel);
                }
                self.running.store(false, Ordering::Release);
                if matches!(self.state.end(false, false), Next::Idle | Next::Stopped) {
                    return;
                }
            }
        }
    }

    /// A routine, and a thread that requests it.
    fn requested_by_another() -> (Arc<Routine>, thread::JoinHandle<()>) {
        let routine = Arc::new(Routine {
            state: Handover::with_word(),
            work: Counter::new(0),
            running: AtomicBool::new(false),
        });
        let other = {
            let routine = routine.clone();
            thread::spawn(move || routine.request())
        };
        (routine, other)
    }

    #[test]
    fn model_requests_during_a_batch_are_served_by_one_runner() {
        loom::model(|| {
            let (routine, other) = requested_by_another();
            routine.request();
            other.join().unwrap();
            assert_eq!(routine.work.load(Ordering::Acquire), 0, "a request is lost");
        });
    }

    #[test]
    fn model_no_batch_begins_after_a_stop() {
        loom::model(|| {
            let (routine, other) = requested_by_another();
            if !routine.state.stop() {
                // No runner is left: none begins.
                assert!(!routine.state.request() && !routine.running.load(Ordering::Acquire));
            }
            other.join().unwrap();
            assert!(!routine.state.begin());
        });
    }
}
