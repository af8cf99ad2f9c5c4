// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which context runs a routine in batches: no more than one at a time, a DPC or a worker, and none while there is nothing to
//! do. No request is lost between the end of a batch and the next request.

use crate::sync::{AtomicU32, Ordering};

/// A batch is requested.
const REQUESTED: u32 = 1;
/// A DPC is queued or running.
const DPC: u32 = 2;
/// A worker is queued or running.
const WORKER: u32 = 4;
/// No further batch is to begin.
const STOPPED: u32 = 8;
/// A thread waits for the end of a batch.
const AWAITED: u32 = 16;

const RUNNER: u32 = DPC | WORKER;

/// What follows a batch.
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
pub struct Handover(AtomicU32);

impl Default for Handover {
    fn default() -> Self {
        Self::new()
    }
}

impl Handover {
    /// Returns the state of a routine that does not run.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns the state of a routine that does not run.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
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

    fn request_in(&self, runner: u32) -> bool {
        let before = self.update(|state| {
            let runner = if state & (RUNNER | STOPPED) == 0 { runner } else { 0 };
            state | REQUESTED | runner
        });
        before & (RUNNER | STOPPED) == 0
    }

    /// Begins a batch: called by the runner, before it looks for work. Returns `false` if there is to be none.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.update(|state| state & !REQUESTED) & STOPPED == 0
    }

    /// Ends a batch that left work if `more`. `yields` moves what remains from the DPC to a worker.
    #[must_use]
    pub fn end(&self, more: bool, yields: bool) -> Next {
        let next = |state: u32| {
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
        next(self.update(|state| next(state).1)).0
    }

    /// Returns `true` if a runner is queued or running: it calls [`take_awaited`](Self::take_awaited) after a batch.
    #[must_use]
    pub fn await_batch(&self) -> bool {
        self.update(|state| if state & RUNNER == 0 { state } else { state | AWAITED }) & RUNNER != 0
    }

    /// Called by the runner between a batch and its [`end`](Self::end). Returns `true` if a thread waits, which must be woken.
    #[must_use]
    pub fn take_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AWAITED != 0 && self.update(|state| state & !AWAITED) & AWAITED != 0
    }

    /// Stops: no batch begins from now on. Returns `true` if a runner is queued or running, whose [`end`](Self::end) returns
    /// [`Next::Stopped`].
    #[must_use]
    pub fn stop(&self) -> bool {
        self.update(|state| state | STOPPED) & RUNNER != 0
    }

    /// Replaces the state and returns the one before.
    fn update(&self, next: impl Fn(u32) -> u32) -> u32 {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(state, next(state), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(found) => state = found,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
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
