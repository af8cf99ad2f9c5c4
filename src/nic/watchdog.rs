// SPDX-License-Identifier: MIT OR Apache-2.0

//! A timer that runs while transmit slots are outstanding, and has its owner check whether the device returns them.
//!
//! NDIS's own check (`MiniportCheckForHangEx`) is not for drivers of Windows Server, and NDIS would reset the miniport, not the queue.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::Arc;
use nt::Timer;

/// Time from the first outstanding slot to the check.
const INTERVAL: Duration = Duration::from_millis(250);

/// The timer. Dropping its last reference waits for a running check: at `PASSIVE_LEVEL`.
pub struct Watchdog {
    timer: Timer,
    is_started: Arc<AtomicBool>,
}

impl Watchdog {
    /// Returns a timer that calls `check` at `DISPATCH_LEVEL`, which starts it again as needed; `None` without memory.
    pub fn try_new(check: impl Fn() + Send + Sync + 'static) -> Option<Arc<Self>> {
        let is_started = Arc::try_new(AtomicBool::new(false)).ok()?;
        let of_timer = Arc::clone(&is_started);
        let timer = Timer::try_new(move || {
            // Before the check: a sender that comes later starts the timer again.
            of_timer.store(false, Ordering::Release);
            check();
        })?;
        Arc::try_new(Self { timer, is_started }).ok()
    }

    /// Has the check made soon, unless one is due. IRQL <= `DISPATCH_LEVEL`.
    pub fn start(&self) {
        if !self.is_started.load(Ordering::Relaxed) && !self.is_started.swap(true, Ordering::AcqRel) {
            self.timer.set(INTERVAL);
        }
    }
}
