// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads of the driver, for what waits for long: the system's worker threads are few, and shared by all drivers.

use crate::sys;
use alloc::boxed::Box;
use core::ffi::c_void;
use fallible::try_box_or_return;

/// The driver object, which the I/O manager references as long as a thread runs. Hosted programs ignore it.
#[derive(Clone, Copy, Debug)]
pub struct DriverObject(*mut c_void);

// SAFETY: an opaque pointer, only ever passed back to the I/O manager, which takes it on any thread.
unsafe impl Send for DriverObject {}
// SAFETY: shared use copies the pointer; it is never dereferenced here.
unsafe impl Sync for DriverObject {}

impl DriverObject {
    /// `object` is the driver object of the calling image. Hosted programs may pass any value.
    #[must_use]
    pub const fn new(object: *mut c_void) -> Self {
        Self(object)
    }
}

/// Runs `routine` once at `PASSIVE_LEVEL`, on a thread of its own. The driver stays loaded until `routine` has returned; who
/// frees what `routine` refers to has to wait for it otherwise. `PASSIVE_LEVEL`.
///
/// # Errors
/// Returns the routine if resources are short.
pub fn start_thread<F: FnOnce() + Send + 'static>(driver: DriverObject, routine: F) -> Result<(), F> {
    let context = Box::into_raw(try_box_or_return(routine)?);
    // SAFETY: `run::<F>` takes the ownership of `context` that `into_raw` released, once: a thread runs its routine once.
    if unsafe { sys::start_thread(driver.0, run::<F>, context.cast()) } {
        return Ok(());
    }
    // SAFETY: from `into_raw`; no thread was started.
    Err(*unsafe { Box::from_raw(context) })
}

/// # Safety
/// `context` is an `F` released by `Box::into_raw`.
unsafe extern "efiapi" fn run<F: FnOnce()>(context: *mut c_void) {
    // SAFETY: by this function's contract the context is an `F` from `Box::into_raw`, and a thread runs once, so it is taken back once.
    let routine = *unsafe { Box::from_raw(context.cast::<F>()) };
    routine();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::irql;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn routine_of_a_thread_runs_at_passive_level() {
        let done = Arc::new(Event::try_new().unwrap());
        let signal = Arc::clone(&done);
        let routine = move || {
            assert_eq!(irql::current(), irql::PASSIVE_LEVEL);
            signal.set();
        };
        assert!(start_thread(DriverObject::new(core::ptr::null_mut()), routine).is_ok());
        assert!(done.wait_for(Duration::from_secs(10)));
    }
}
