// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work items: calls at `PASSIVE_LEVEL`, on a system worker thread. [`WorkItem`] calls a routine once, [`ReusableWorkItem`]
//! once for each time it is queued.

use crate::sys;
use alloc::boxed::Box;
use core::ffi::c_void;
use fallible::try_box_or_return;

/// The NDIS object for which work items are allocated: a miniport adapter or driver handle. NDIS keeps the driver
/// loaded until their routines have returned. Hosted programs ignore it.
#[derive(Clone, Copy, Debug)]
pub struct Owner(*mut c_void);

// SAFETY: an opaque handle, only ever passed back to NDIS, which takes it on any thread.
unsafe impl Send for Owner {}
// SAFETY: shared use copies the handle; it is never dereferenced here.
unsafe impl Sync for Owner {}

impl Owner {
    /// `handle` is an NDIS handle that outlives every work item allocated for it. Hosted programs may pass any value.
    #[must_use]
    pub const fn new(handle: *mut c_void) -> Self {
        Self(handle)
    }

    /// Returns the NDIS handle.
    #[must_use]
    pub const fn handle(self) -> *mut c_void {
        self.0
    }
}

/// A routine with everything that queueing it needs: allocation may fail, queueing cannot. Dropping it drops the routine
/// without running it.
pub struct WorkItem<F: FnOnce() + Send + 'static>(Box<Item<F>>);

struct Item<F> {
    routine: F,
    handle: sys::WorkItem,
}

impl<F: FnOnce() + Send + 'static> WorkItem<F> {
    /// Allocates a work item for `routine`. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// Returns the routine if pool is exhausted.
    pub fn try_new(owner: Owner, routine: F) -> Result<Self, F> {
        let Some(handle) = sys::WorkItem::try_new(owner.0) else { return Err(routine) };
        try_box_or_return(Item { routine, handle }).map(Self).map_err(|item| item.routine)
    }

    /// Queues the routine to run once at `PASSIVE_LEVEL`. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(self) {
        let item = Box::into_raw(self.0);
        // SAFETY: `item` is a live, exclusive `Item`; the handle is copied out of it.
        let handle = unsafe { (*item).handle.raw() };
        // SAFETY: `run::<F>` takes the ownership of `item` that `into_raw` released, once: a new work item is queued once.
        unsafe { handle.queue(run::<F>, item.cast()) };
    }
}

/// # Safety
/// `context` is an `Item<F>` released by `Box::into_raw`.
unsafe extern "efiapi" fn run<F: FnOnce()>(context: *mut c_void, _item: *mut c_void) {
    let Item { routine, handle } = {
        // SAFETY: by this function's contract the context is an `Item<F>` from `Box::into_raw`, and the item runs once, so it is taken
        // back once.
        let item = unsafe { Box::from_raw(context.cast::<Item<F>>()) };
        *item
    };
    // A work item may be freed by its own routine. Free it and its memory first, so that both are gone when the routine
    // reports to another thread that all work is done.
    #[cfg_attr(
        not(all(windows, feature = "kernel")),
        allow(clippy::drop_non_drop, reason = "the hosted one frees nothing")
    )]
    drop(handle);
    routine();
}

/// A type whose values a [`ReusableWorkItem`] works on.
pub trait Work {
    /// The routine of the work item. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `this` is what was passed to [`ReusableWorkItem::queue`].
    unsafe fn work(this: *const Self);
}

/// A work item that is allocated once and queued any number of times.
pub struct ReusableWorkItem(sys::WorkItem);

impl ReusableWorkItem {
    /// Allocates a work item; `None` if pool is exhausted. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn try_new(owner: Owner) -> Option<Self> {
        sys::WorkItem::try_new(owner.0).map(Self)
    }

    /// Queues the work item: `T::work(this)` is called once at `PASSIVE_LEVEL`. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Safety
    /// The work item is not queued, and is not dropped before its routine is called. `this` is sound to pass to `T::work` then,
    /// on any thread.
    pub unsafe fn queue<T: Work>(&self, this: *const T) {
        // SAFETY: not queued, by the contract, which also covers `this`.
        unsafe { self.0.raw().queue(run_again::<T>, this.cast_mut().cast()) };
    }
}

/// # Safety
/// `context` is what was passed to [`ReusableWorkItem::queue`] for `T`. The work item is not accessed: the routine may cause it
/// to be queued again or dropped.
unsafe extern "efiapi" fn run_again<T: Work>(context: *mut c_void, _item: *mut c_void) {
    // SAFETY: the caller of `queue` has promised that the object lives until its `work` returns.
    unsafe { T::work(context.cast_const().cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::irql;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn routine_runs_at_passive_level() {
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

    struct Counter {
        item: ReusableWorkItem,
        calls: AtomicU32,
        done: Event,
    }

    impl Work for Counter {
        unsafe fn work(this: *const Self) {
            assert_eq!(irql::current(), irql::PASSIVE_LEVEL);
            // SAFETY: the counter lives until `done` is set.
            let this = unsafe { &*this };
            if this.calls.fetch_add(1, Ordering::Relaxed) == 9 {
                this.done.set();
            } else {
                // SAFETY: its routine was called; the counter lives.
                unsafe { this.item.queue(this) };
            }
        }
    }

    #[test]
    fn reusable_item_is_queued_again_by_its_routine() {
        let item = ReusableWorkItem::try_new(Owner::new(core::ptr::null_mut())).unwrap();
        let counter = Arc::new(Counter { item, calls: AtomicU32::new(0), done: Event::try_new().unwrap() });
        // SAFETY: not queued before; the counter lives until the last call.
        unsafe { counter.item.queue(Arc::as_ptr(&counter)) };
        assert!(counter.done.wait_for(Duration::from_secs(10)));
        assert_eq!(counter.calls.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn dropping_an_item_that_was_not_queued_drops_its_routine() {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        drop(WorkItem::try_new(Owner::new(core::ptr::null_mut()), move || drop(inside)).ok());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
