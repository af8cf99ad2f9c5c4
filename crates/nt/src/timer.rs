//! The one-shot timer.

use crate::boxed::try_box;
use crate::sys;
use alloc::boxed::Box;
use core::ffi::c_void;
use core::time::Duration;

/// An `EX_TIMER` of high resolution with the routine it runs.
///
/// The routine runs at `DISPATCH_LEVEL`, after every [`Timer::set`] at most once; a later `set` moves a
/// deadline not yet reached. It may run once more while it is being moved or dropped, so it must not rely on
/// being due.
pub struct Timer {
    /// `Some` until dropped.
    object: Option<sys::Timer>,
    context: *mut c_void,
    free: unsafe fn(*mut c_void),
}

// SAFETY: the routine is `Send + Sync` by the bound of `try_new`; the kernel's timer may be set and deleted
// from any thread.
unsafe impl Send for Timer {}
// SAFETY: as above; `set` takes the kernel's own lock.
unsafe impl Sync for Timer {}

impl Timer {
    /// A timer that is not set; `None` when pool has run dry. IRQL <= `DISPATCH_LEVEL`.
    pub fn try_new<F: Fn() + Send + Sync + 'static>(routine: F) -> Option<Self> {
        let context = Box::into_raw(try_box(routine)?).cast::<c_void>();
        let mut timer = Self { object: None, context, free: free::<F> };
        // SAFETY: `run::<F>` gets `context`, which holds an `F` until `drop`, and `drop` deletes the timer
        // and waits for the routine first. On failure `timer` is dropped here and frees it.
        timer.object = Some(unsafe { sys::Timer::try_new(run::<F>, context) }?);
        Some(timer)
    }

    /// Runs the routine `after` from now, rounded up to 100 ns. IRQL <= `DISPATCH_LEVEL`.
    pub fn set(&self, after: Duration) {
        if let Some(object) = &self.object {
            let units = after.as_nanos().div_ceil(100).clamp(1, i64::MAX as u128);
            object.set(units as i64);
        }
    }
}

impl Drop for Timer {
    /// Cancels, and waits for a running routine. `PASSIVE_LEVEL`; not from the routine itself.
    fn drop(&mut self) {
        drop(self.object.take());
        // SAFETY: `context` came from `Box::into_raw` of the type `free` was made for; the timer is gone and
        // with it the routine's only other user.
        unsafe { (self.free)(self.context) };
    }
}

/// # Safety
/// `context` points to an `F`.
unsafe fn run<F: Fn()>(context: *mut c_void) {
    // SAFETY: the caller's promise; `F` is only ever borrowed shared.
    let routine = unsafe { &*context.cast::<F>() };
    routine();
}

/// # Safety
/// `context` came from `Box::<F>::into_raw` and is not used again.
unsafe fn free<F>(context: *mut c_void) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(context.cast::<F>()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, irql};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn it_runs_once_per_setting_at_dispatch_level() {
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
    fn a_dropped_timer_does_not_run() {
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
