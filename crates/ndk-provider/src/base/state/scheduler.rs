// SPDX-License-Identifier: MIT OR Apache-2.0

//! The timer and the deferred routines that drive the engine.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use nt::{Deferred, SpinLock, Timer};

/// The timer and the deferred routines that drive the engine. Absent before the provider has started and after it has
/// stopped.
pub struct Scheduler {
    running: SpinLock<Option<Routines>>,
    /// When the timer expires, in nanoseconds; `u64::MAX` if it is not set.
    due: AtomicU64,
}

/// Routines that drive the engine. Dropped in this order: the timer and the events queue the others.
pub struct Routines {
    pub timer: Timer,
    pub events: Deferred,
    /// Notifications of queues with an affinity: one routine for each processor, by its index. Empty if there is
    /// one processor only.
    pub processors: Vec<Deferred>,
}

impl Scheduler {
    pub const fn new() -> Self {
        Self { running: SpinLock::new(None), due: AtomicU64::new(u64::MAX) }
    }

    /// Puts the timer and the deferred routines in place. From now on they can be set and queued.
    pub fn start(&self, routines: Routines) {
        *self.running.lock() = Some(routines);
    }

    /// Stops the timer and the deferred routines and waits until they no longer run. `PASSIVE_LEVEL`.
    pub fn stop(&self) {
        // Dropped at the end, when the lock is released.
        let _routines = self.running.lock().take();
    }

    /// Records that the timer has expired, so that it may be set again.
    pub fn timer_expired(&self) {
        self.due.store(u64::MAX, Ordering::Release);
    }

    /// Queues the routine that makes the callbacks that are due. IRQL <= `DISPATCH_LEVEL`.
    pub fn defer(&self) {
        if let Some(routines) = &*self.running.lock() {
            routines.events.queue();
        }
    }

    /// Queues the routine that makes notifications on a processor. IRQL <= `DISPATCH_LEVEL`.
    pub fn defer_on(&self, processor: u32) {
        if let Some(routines) = &*self.running.lock()
            && let Some(routine) = routines.processors.get(processor as usize)
        {
            routine.queue();
        }
    }

    /// Sets the timer to expire at `timeout`, in nanoseconds, unless it expires earlier. IRQL <= `DISPATCH_LEVEL`.
    pub fn set_timer(&self, timeout: u64) {
        if self.due.load(Ordering::Acquire) <= timeout {
            return;
        }
        // Under the lock, so that the timer is set to the time in `due` when two threads set it.
        if let Some(routines) = &*self.running.lock()
            && self.due.fetch_min(timeout, Ordering::AcqRel) > timeout
        {
            let after = Duration::from_nanos(timeout.saturating_sub(nt::time::now()));
            routines.timer.set(after);
        }
    }
}
