// SPDX-License-Identifier: MIT OR Apache-2.0

//! A timer that runs while transmit slots are outstanding, and calls its owner to check whether the device returns
//! them.
//!
//! NDIS's own check (`MiniportCheckForHangEx`) must not be implemented by drivers for Windows Server, and NDIS would reset the whole
//! miniport, not one queue.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::Arc;
use nt::Timer;

/// Time from the start of the timer to the check.
const INTERVAL: Duration = Duration::from_millis(250);

/// The timer. Dropping its last reference waits for a running check: at `PASSIVE_LEVEL`.
pub struct Watchdog {
    timer: Timer,
    is_started: Arc<AtomicBool>,
}

impl Watchdog {
    /// Returns a timer that calls `check` at `DISPATCH_LEVEL`; `check` restarts the timer as needed. `None` if there is
    /// no memory.
    pub fn try_new(check: impl Fn() + Send + Sync + 'static) -> Option<Arc<Self>> {
        let is_started = Arc::try_new(AtomicBool::new(false)).ok()?;
        let of_timer = Arc::clone(&is_started);
        let timer = Timer::try_new(move || {
            // Cleared before the check, so that a later sender starts the timer again.
            of_timer.store(false, Ordering::Release);
            check();
        })?;
        Arc::try_new(Self { timer, is_started }).ok()
    }

    /// Starts the timer, unless it is running. IRQL <= `DISPATCH_LEVEL`.
    pub fn start(&self) {
        if !self.is_started.load(Ordering::Relaxed) && !self.is_started.swap(true, Ordering::AcqRel) {
            self.timer.set(INTERVAL);
        }
    }
}
