//! Work items: one call at `PASSIVE_LEVEL`, on a thread of the kernel.

use crate::sys;
use alloc::boxed::Box;
use core::ffi::c_void;
use fallible::try_box_or_return;

/// The NDIS object in whose name work items are allocated: a miniport adapter or driver handle. NDIS keeps
/// the driver loaded until their routines have returned. Ignored on hosts.
#[derive(Clone, Copy, Debug)]
pub struct Owner(*mut c_void);

// SAFETY: an opaque handle, only ever passed back to NDIS, which takes it on any thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// `handle` is an NDIS handle that outlives every work item allocated for it. On hosts any value does.
    pub const fn new(handle: *mut c_void) -> Self {
        Self(handle)
    }

    /// The handle as NDIS gave it.
    pub const fn handle(self) -> *mut c_void {
        self.0
    }
}

/// A routine with everything it needs to be queued: allocation may fail, queueing cannot. Dropping it
/// instead drops the routine without running it.
pub struct WorkItem<F: FnOnce() + Send + 'static>(Box<Item<F>>);

struct Item<F> {
    routine: F,
    handle: sys::WorkItem,
}

impl<F: FnOnce() + Send + 'static> WorkItem<F> {
    /// Gives the routine back when pool has run dry. IRQL <= `DISPATCH_LEVEL`.
    pub fn try_new(owner: Owner, routine: F) -> Result<Self, F> {
        let Some(handle) = sys::WorkItem::try_new(owner.0) else { return Err(routine) };
        try_box_or_return(Item { routine, handle }).map(Self).map_err(|item| item.routine)
    }

    /// Runs the routine soon, once, at `PASSIVE_LEVEL`. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(self) {
        let item = Box::into_raw(self.0);
        // SAFETY: `item` is a live, exclusive `Item`; the handle is copied out of it.
        let handle = unsafe { (*item).handle.raw() };
        // SAFETY: `run::<F>` takes the ownership of `item` that `into_raw` gave up, once: a fresh work item
        // is queued once.
        unsafe { handle.queue(run::<F>, item.cast()) };
    }
}

/// # Safety
/// `context` is an `Item<F>` given up by `Box::into_raw`.
unsafe extern "efiapi" fn run<F: FnOnce()>(context: *mut c_void, _item: *mut c_void) {
    // SAFETY: the caller's promise.
    let item = unsafe { Box::from_raw(context.cast::<Item<F>>()) };
    let Item { routine, handle } = *item;
    // A work item may be freed by its own routine; do it first, so that nothing of it is left when the
    // routine tells somebody that everything is done.
    #[cfg_attr(not(windows), allow(clippy::drop_non_drop, reason = "a host's has nothing to free"))]
    drop(handle);
    routine();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, irql};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_routine_runs_at_passive_level() {
        let done = Arc::new(Event::try_new().unwrap());
        let signal = Arc::clone(&done);
        WorkItem::try_new(Owner::new(core::ptr::null_mut()), move || {
            assert_eq!(irql::current(), irql::PASSIVE_LEVEL);
            signal.set();
        })
        .ok()
        .unwrap()
        .queue();
        assert!(done.wait_for(Duration::from_secs(10)));
    }

    #[test]
    fn an_item_never_queued_drops_its_routine() {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        drop(WorkItem::try_new(Owner::new(core::ptr::null_mut()), move || drop(inside)).ok());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
