// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one-shot timer.

use crate::callback::Callback;
use crate::sys;
use core::time::Duration;

/// A high-resolution `EX_TIMER` with the routine it runs.
///
/// The routine runs at `DISPATCH_LEVEL`, at most once after every [`Timer::set`]; a later `set` moves a deadline that
/// was not reached. The routine may run once more while the timer is set again or dropped, so it must not assume that
/// its deadline was reached.
///
/// Dropping it cancels it and waits for a running routine: at `PASSIVE_LEVEL`, and not from the routine itself.
pub struct Timer(sys::Timer);

impl Timer {
    /// Returns a timer that is not set, or `None` if there is no memory. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn try_new<F: Fn() + Send + Sync + 'static>(routine: F) -> Option<Self> {
        sys::Timer::try_new(Callback::try_new(routine).ok()?).map(Self)
    }

    /// Runs the routine `after` from now, rounded up to 100 ns. IRQL <= `DISPATCH_LEVEL`.
    pub fn set(&self, after: Duration) {
        let units = after.as_nanos().div_ceil(100).clamp(1, i64::MAX as u128);
        self.0.set(units as i64);
    }
}

#[cfg(not(all(windows, feature = "kernel")))]
pub use sys::with_timers_behind;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::irql;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    #[test]
    fn timer_runs_once_per_set_at_dispatch_level() {
        let fired = Arc::new((AtomicUsize::new(0), Event::try_new().unwrap()));
        let seen = Arc::clone(&fired);
        let timer = Timer::try_new(move || {
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
            seen.0.fetch_add(1, Ordering::SeqCst);
            seen.1.set();
        })
        .unwrap();
        timer.set(Duration::from_millis(1));
        assert!(fired.1.wait_for(Duration::from_secs(10)));
        drop(timer);
        assert_eq!(fired.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn timer_behind_a_gate_runs_once_it_is_open() {
        let gate = Arc::new(Mutex::new(()));
        let fired = Arc::new((AtomicUsize::new(0), Event::try_new().unwrap()));
        let seen = Arc::clone(&fired);
        let create = move || {
            Timer::try_new(move || {
                seen.0.fetch_add(1, Ordering::SeqCst);
                seen.1.set();
            })
        };
        let timer = with_timers_behind(Arc::clone(&gate), create).unwrap();
        let other = Arc::new(Event::try_new().unwrap());
        let of_other = Arc::clone(&other);
        let open = Timer::try_new(move || of_other.set()).unwrap();
        let held = gate.lock().unwrap();
        timer.set(Duration::ZERO);
        open.set(Duration::from_millis(20));
        assert!(other.wait_for(Duration::from_secs(10)), "another timer is not behind it");
        assert_eq!(fired.0.load(Ordering::SeqCst), 0);
        drop(held);
        assert!(fired.1.wait_for(Duration::from_secs(10)));
    }

    #[test]
    fn dropped_timer_does_not_run() {
        let fired = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&fired);
        let timer = Timer::try_new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        timer.set(Duration::from_secs(3600));
        drop(timer);
        assert_eq!(fired.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&fired), 1);
    }
}
