//! The deferred procedure call: run soon, at `DISPATCH_LEVEL`, on nobody's stack.

use crate::boxed::try_box;
use crate::sys;
use alloc::boxed::Box;
use core::ffi::c_void;

/// A `KDPC` with the routine it runs.
///
/// Queueing one that is queued already changes nothing; queueing one whose routine is running makes it run
/// again, possibly at the same time on another processor.
pub struct Dpc {
    /// `Some` until dropped.
    object: Option<sys::Dpc>,
    context: *mut c_void,
    free: unsafe fn(*mut c_void),
}

// SAFETY: the routine is `Send + Sync` by the bound of `try_new`; a KDPC is queued from any thread.
unsafe impl Send for Dpc {}
// SAFETY: as above.
unsafe impl Sync for Dpc {}

impl Dpc {
    /// A DPC that is not queued; `None` when pool has run dry. IRQL <= `DISPATCH_LEVEL`.
    pub fn try_new<F: Fn() + Send + Sync + 'static>(routine: F) -> Option<Self> {
        let context = Box::into_raw(try_box(routine)?).cast::<c_void>();
        let mut dpc = Self { object: None, context, free: free::<F> };
        // SAFETY: `run::<F>` gets `context`, which holds an `F` until `drop`, and `drop` takes the DPC out of
        // its queue and waits for the routine first. On failure `dpc` is dropped here and frees it.
        dpc.object = Some(unsafe { sys::Dpc::try_new(run::<F>, context) }?);
        Some(dpc)
    }

    /// Runs the routine soon. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(&self) {
        if let Some(object) = &self.object {
            object.queue();
        }
    }
}

impl Drop for Dpc {
    /// Takes it out of its queue and waits for a running routine. `PASSIVE_LEVEL`; not from the routine
    /// itself.
    fn drop(&mut self) {
        drop(self.object.take());
        // SAFETY: `context` came from `Box::into_raw` of the type `free` was made for; the DPC is gone and
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
    use std::time::Duration;

    #[test]
    fn it_runs_at_dispatch_level_after_being_queued() {
        let ran = Arc::new(Event::try_new().unwrap());
        let signal = Arc::clone(&ran);
        let dpc = Dpc::try_new(move || {
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
            signal.set();
        })
        .unwrap();
        dpc.queue();
        assert!(ran.wait_for(Duration::from_secs(10)));
    }
}
