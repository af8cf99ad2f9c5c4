// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time, and the scheduling of threads.
//!
//! Every thread of a simulation blocks through [`Clock`] only: [`park`](Clock::park)
//! with an optional deadline, woken by [`unpark`](Clock::unpark), with the permit semantics of
//! `std::thread::park`. Waits, delays, dispatch tokens and event queues are built on these two, so that there
//! can be two clocks:
//!
//! * *threaded*: the operating system schedules the threads, time is real;
//! * *deterministic*: one thread runs at a time; time is virtual, advances with every call of an import,
//!   and jumps to the next deadline when every thread is parked. The same seed gives the same run.
//!
//! Times are nanoseconds since the simulation was built.

mod deterministic;
mod step;
mod threaded;

use std::sync::Arc;

pub use step::{Step, Work};

use crate::thread::shared::ThreadShared;

/// The clock of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockKind {
    /// Real threads, real time.
    Threaded,
    /// One thread at a time, virtual time; the seed decides every choice.
    Deterministic { seed: u64 },
}

pub struct Clock {
    mode: Mode,
}

enum Mode {
    Threaded(threaded::Threaded),
    Deterministic(deterministic::Deterministic),
}

impl Clock {
    pub(crate) fn new(kind: ClockKind) -> Self {
        let mode = match kind {
            ClockKind::Threaded => Mode::Threaded(threaded::Threaded::new()),
            ClockKind::Deterministic { seed } => Mode::Deterministic(deterministic::Deterministic::new(seed)),
        };
        Self { mode }
    }

    #[must_use]
    pub fn is_deterministic(&self) -> bool {
        matches!(self.mode, Mode::Deterministic(_))
    }

    /// Returns the nanoseconds since the simulation was built.
    #[must_use]
    pub fn now(&self) -> u64 {
        match &self.mode {
            Mode::Threaded(clock) => clock.now(),
            Mode::Deterministic(clock) => clock.now(),
        }
    }

    /// Blocks the calling thread until it is unparked or `deadline` has passed. May return early.
    pub fn park(&self, me: &Arc<ThreadShared>, deadline: Option<u64>) {
        match &self.mode {
            Mode::Threaded(clock) => clock.park(me, deadline),
            Mode::Deterministic(clock) => clock.park(me, deadline),
        }
    }

    /// Wakes a parked thread. The next park of a thread that is not parked returns at once.
    pub fn unpark(&self, thread: &Arc<ThreadShared>) {
        match &self.mode {
            Mode::Threaded(clock) => clock.unpark(thread),
            Mode::Deterministic(clock) => clock.unpark(thread),
        }
    }

    /// Lets other threads run: for loops that poll.
    pub fn yield_now(&self, me: &Arc<ThreadShared>) {
        match &self.mode {
            Mode::Threaded(_) => std::thread::yield_now(),
            Mode::Deterministic(clock) => clock.yield_now(me),
        }
    }

    /// Accounts for one step of the calling thread: virtual time advances. Returns `None` where time is real.
    #[inline]
    pub fn step(&self) -> Option<Step> {
        match &self.mode {
            Mode::Threaded(_) => None,
            Mode::Deterministic(clock) => Some(clock.step()),
        }
    }

    /// Advances virtual time by the cost of `work` that is more than a step.
    #[inline]
    pub fn charge(&self, work: Work) {
        if let Mode::Deterministic(clock) = &self.mode {
            clock.charge(work);
        }
    }

    /// Blocks the calling thread for `nanos` without letting it be unparked.
    pub fn stall(&self, me: &Arc<ThreadShared>, nanos: u64) {
        let deadline = self.now().saturating_add(nanos);
        match &self.mode {
            Mode::Threaded(clock) => clock.stall(deadline),
            Mode::Deterministic(clock) => clock.stall(me, deadline),
        }
    }

    /// Registers a thread before its first instruction.
    pub(crate) fn register(&self, thread: &Arc<ThreadShared>) {
        if let Mode::Deterministic(clock) = &self.mode {
            clock.register(thread);
        }
    }

    /// Called on a new thread: returns when it may run.
    pub(crate) fn begin(&self, me: &Arc<ThreadShared>) {
        if let Mode::Deterministic(_) = &self.mode {
            me.gate.wait();
        }
    }

    /// Called at the end of a thread.
    pub(crate) fn finish(&self, me: &Arc<ThreadShared>) {
        if let Mode::Deterministic(clock) = &self.mode {
            clock.finish(me);
        }
    }

    /// Removes the calling thread from the simulation; it never runs again.
    pub(crate) fn park_forever(&self, me: &Arc<ThreadShared>) -> ! {
        if let Mode::Deterministic(clock) = &self.mode {
            clock.finish(me);
        }
        loop {
            std::thread::park();
        }
    }

    /// Returns whether every thread is parked without a deadline, so that none can ever run again.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        match &self.mode {
            Mode::Threaded(_) => false,
            Mode::Deterministic(clock) => clock.is_stuck(),
        }
    }
}
