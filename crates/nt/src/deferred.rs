// SPDX-License-Identifier: MIT OR Apache-2.0

//! A routine that runs in batches at `DISPATCH_LEVEL`: in a DPC, and under load in a work item that lowers the IRQL between
//! batches.
//!
//! A DPC that queues itself again keeps its processor at `DISPATCH_LEVEL`: the processor runs queued DPCs until none is left.
//! After 120 s without a return below, Windows stops with bug check 0x133. (WDK: `KeShouldYieldProcessor`, bug check 0x133.)

use crate::callback::Callback;
use crate::handover::{Handover, Next};
use crate::irql::{self, AtDispatch};
use crate::processor::OnProcessor;
use crate::work::Owner;
use crate::{event::Event, sys, time};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};
use fallible::{AliasableBox, try_box};

/// Time after which work that is left moves to the work item, in nanoseconds.
const LONGEST: u64 = 1_000_000;
/// Longest time at `DISPATCH_LEVEL` if the system asks for the processor. (WDK: a DPC should not run longer than 100 us.)
const COURTEOUS: u64 = 100_000;
/// Batches of one run of the work item. It is queued again for the remainder, behind others.
const WORKER_BATCHES: usize = 64;

/// Measures how long work was left at the end of each batch.
pub struct Streak {
    /// When the first of these batches ended; 0 if the last batch left nothing.
    began: AtomicU64,
}

impl Default for Streak {
    fn default() -> Self {
        Self::new()
    }
}

impl Streak {
    #[must_use]
    pub const fn new() -> Self {
        Self { began: AtomicU64::new(0) }
    }

    /// Records the end of a batch in a DPC. Returns whether what is left must not be processed in another DPC. `more`: the
    /// batch left work. `DISPATCH_LEVEL`.
    pub fn is_over(&self, more: bool) -> bool {
        // Also DPCs that leave nothing can follow each other without end, one for each interrupt.
        if irql::ticks_at_dispatch() != 0 {
            self.began.store(0, Ordering::Relaxed);
            return true;
        }
        if !more {
            self.began.store(0, Ordering::Relaxed);
            return false;
        }
        let now = time::now();
        let began = self.began.load(Ordering::Relaxed);
        if began == 0 {
            self.began.store(now, Ordering::Relaxed);
            return false;
        }
        let spent = now.saturating_sub(began);
        let over = spent > LONGEST || (spent > COURTEOUS && irql::should_yield());
        if over {
            self.began.store(0, Ordering::Relaxed);
        }
        over
    }
}

/// A routine that runs in batches; see the module.
///
/// Batches do not overlap. Dropping it stops it and waits for a running batch: at `PASSIVE_LEVEL`, and not from the routine.
pub struct Deferred(AliasableBox<Inner>);

struct Inner {
    state: Handover,
    streak: Streak,
    dpc: sys::Dpc,
    item: sys::WorkItem,
    /// Shared: it is being set while `stop` returns and this is freed.
    stopped: fallible::Arc<Event>,
    flushed: Event,
    /// Index of the processor that runs the batches; `None` for any.
    processor: Option<u32>,
    routine: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The address of an [`Inner`], once there is one.
struct Link(core::sync::atomic::AtomicPtr<Inner>);

impl Deferred {
    /// Returns a routine that is not queued; `None` if pool is exhausted. `routine` processes one batch at `DISPATCH_LEVEL` and
    /// returns whether it left work. `owner` outlives the result. `PASSIVE_LEVEL`.
    #[must_use]
    pub fn try_new<F: Fn() -> bool + Send + Sync + 'static>(owner: Owner, routine: F) -> Option<Self> {
        Self::with_processor(owner, None, routine)
    }

    /// Creates a routine whose batches all run on the active processor with this index.
    #[must_use]
    pub fn try_new_on<F: Fn() -> bool + Send + Sync + 'static>(
        owner: Owner,
        processor: u32,
        routine: F,
    ) -> Option<Self> {
        Self::with_processor(owner, Some(processor), routine)
    }

    fn with_processor<F: Fn() -> bool + Send + Sync + 'static>(
        owner: Owner,
        processor: Option<u32>,
        routine: F,
    ) -> Option<Self> {
        let link = fallible::Arc::try_new(Link(core::sync::atomic::AtomicPtr::default())).ok()?;
        let of_dpc = fallible::Arc::clone(&link);
        let callback = Callback::try_new(move || {
            let inner = of_dpc.0.load(Ordering::Acquire);
            if !inner.is_null() {
                // SAFETY: the value of `link`, whose runner this is.
                unsafe { Inner::run_in_dpc(inner) };
            }
        });
        let inner = AliasableBox::try_new(Inner {
            state: Handover::new(),
            streak: Streak::new(),
            dpc: sys::Dpc::try_new(callback.ok()?, processor)?,
            item: sys::WorkItem::try_new(owner.handle())?,
            stopped: fallible::Arc::try_new(Event::try_new()?).ok()?,
            flushed: Event::try_new()?,
            processor,
            routine: try_box(routine).ok()?,
        });
        let inner = inner.ok()?;
        link.0.store(inner.as_ptr(), Ordering::Release);
        Some(Self(inner))
    }

    /// Requests a batch, in a DPC on this processor, or on the routine's own, unless a batch is already under way. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn queue(&self) {
        if self.0.state.request() {
            self.0.dpc.queue();
        }
    }

    /// Requests a batch in the work item, for a caller that is itself a DPC and has used up its time. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn queue_worker(&self) {
        if self.0.state.request_worker() {
            // SAFETY: alive; the request made a worker the runner.
            unsafe { Inner::queue_worker(self.0.as_ptr()) };
        }
    }

    /// Waits for the end of the batch that runs or is queued now; others may follow. `PASSIVE_LEVEL`, one caller at a time, and
    /// not from the routine.
    pub fn flush(&self) {
        self.0.flushed.clear();
        if self.0.state.await_batch() {
            self.0.flushed.wait();
        }
    }

    /// Stops: no batch begins from now on, and none runs when this returns. `PASSIVE_LEVEL`.
    pub fn stop(&self) {
        if self.0.state.stop() {
            self.0.stopped.wait();
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Runs a batch and wakes a thread that waits for its end. Returns whether it left work. At `DISPATCH_LEVEL`.
    fn batch(&self) -> bool {
        let more = self.state.begin() && (self.routine)();
        // While this is still the runner: `stop` waits for the runner before the event is freed.
        if self.state.take_awaited() {
            self.flushed.set();
        }
        more
    }

    /// At `DISPATCH_LEVEL`.
    ///
    /// # Safety
    /// As for [`end`](Self::end).
    unsafe fn run_in_dpc(this: *const Self) {
        // SAFETY: alive: the caller is the runner.
        let more = unsafe { &*this }.batch();
        // SAFETY: the caller is the runner, so the object is alive until `end`.
        let yields = unsafe { &(*this).streak }.is_over(more);
        // SAFETY: this function has the contract of `end`: the caller is the runner, and does not access the object afterwards unless it
        // stays the runner.
        match unsafe { Self::end(this, more, yields) } {
            Next::Idle | Next::Stopped => {}
            // SAFETY: alive: a DPC is the runner still.
            Next::Dpc => unsafe { &(*this).dpc }.queue(),
            // SAFETY: alive: the runner passes its role on to the worker that is queued here.
            Next::Worker => unsafe { Self::queue_worker(this) },
        }
    }

    /// Ends a batch; see [`Handover::end`]. Wakes a thread that stops the routine.
    ///
    /// # Safety
    /// `this` is alive, and the caller is its runner. If the result is `Idle` or `Stopped` the caller is no longer: `this` may be
    /// freed before this function returns, so that callers have no reference to it.
    unsafe fn end(this: *const Self, more: bool, yields: bool) -> Next {
        // SAFETY: alive until the state has changed; the reference is to an atomic alone, which is not accessed afterwards.
        let next = unsafe { &(*this).state }.end(more, yields);
        if next == Next::Stopped {
            // SAFETY: alive until the event is set.
            let stopped = fallible::Arc::clone(unsafe { &(*this).stopped });
            stopped.set();
        }
        next
    }

    /// # Safety
    /// `this` is alive, and a worker that is not queued or running is its runner, or the caller is that worker.
    unsafe fn queue_worker(this: *const Self) {
        // SAFETY: alive: the worker has not ended.
        let item = unsafe { &(*this).item }.raw();
        // SAFETY: queued once at a time, by the contract. `this` lives until the worker has ended.
        unsafe { item.queue(run_in_worker, this.cast_mut().cast()) };
    }
}

/// At `PASSIVE_LEVEL`.
///
/// # Safety
/// `context` is an [`Inner`], whose runner is this worker.
unsafe extern "efiapi" fn run_in_worker(context: *mut core::ffi::c_void, _item: *mut core::ffi::c_void) {
    let inner = context.cast_const().cast::<Inner>();
    // SAFETY: alive: this is the runner.
    let processor = unsafe { (*inner).processor };
    let _processor = processor.map(OnProcessor::new);
    for _ in 0..WORKER_BATCHES {
        let more = {
            let _level = AtDispatch::new();
            // SAFETY: alive: this worker is the runner until `end` says otherwise.
            unsafe { &*inner }.batch()
        };
        // SAFETY: as above; it is not accessed if this is the end.
        match unsafe { Inner::end(inner, more, true) } {
            Next::Idle | Next::Stopped => return,
            Next::Dpc | Next::Worker => {}
        }
    }
    // SAFETY: this worker is the runner still.
    unsafe { Inner::queue_worker(inner) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    const OWNER: Owner = Owner::new(core::ptr::null_mut());
    /// Time limit of a wait. Miri is some hundred times slower.
    const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 10 });

    #[test]
    fn batches_run_at_dispatch_level_until_none_is_left() {
        const LAST: usize = if cfg!(miri) { 50 } else { 1000 };
        let seen = Arc::new((AtomicUsize::new(0), Event::try_new().unwrap()));
        let of_routine = Arc::clone(&seen);
        let deferred = Deferred::try_new(OWNER, move || {
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
            let count = of_routine.0.fetch_add(1, Ordering::SeqCst);
            if count == LAST {
                of_routine.1.set();
            }
            count < LAST
        })
        .unwrap();
        deferred.queue();
        assert!(seen.1.wait_for(LIMIT));
        drop(deferred);
        assert_eq!(seen.0.load(Ordering::SeqCst), LAST + 1);
    }

    #[test]
    fn batches_of_a_processor_run_there_in_dpcs_and_in_the_worker() {
        let last = crate::processor::count() - 1;
        let seen = Arc::new((AtomicUsize::new(0), Event::try_new().unwrap()));
        let of_routine = Arc::clone(&seen);
        let deferred = Deferred::try_new_on(OWNER, last, move || {
            assert_eq!(crate::processor::current(), last);
            of_routine.0.fetch_add(1, Ordering::SeqCst);
            of_routine.1.set();
            false
        })
        .unwrap();
        for queue in [Deferred::queue, Deferred::queue_worker] {
            seen.1.clear();
            queue(&deferred);
            assert!(seen.1.wait_for(LIMIT));
        }
        drop(deferred);
        assert_eq!(seen.0.load(Ordering::SeqCst), 2);
    }

    /// A DPC of the hosted implementation is a thread of its own.
    #[test]
    fn endless_work_moves_to_the_worker() {
        let names = Arc::new((AtomicUsize::new(0), Event::try_new().unwrap()));
        let of_routine = Arc::clone(&names);
        let deferred = Deferred::try_new(OWNER, move || {
            std::thread::sleep(Duration::from_micros(100));
            if std::thread::current().name() == Some("work item") {
                of_routine.1.set();
            } else {
                of_routine.0.fetch_add(1, Ordering::SeqCst);
            }
            true
        })
        .unwrap();
        deferred.queue();
        assert!(names.1.wait_for(LIMIT));
        assert!((1..=12).contains(&names.0.load(Ordering::SeqCst)), "{}", names.0.load(Ordering::SeqCst));
        deferred.stop();
    }

    #[test]
    fn flush_waits_for_the_running_batch() {
        let seen = Arc::new((Event::try_new().unwrap(), AtomicUsize::new(0)));
        let of_routine = Arc::clone(&seen);
        let deferred = Deferred::try_new(OWNER, move || {
            of_routine.0.set();
            std::thread::sleep(Duration::from_millis(20));
            of_routine.1.fetch_add(1, Ordering::SeqCst);
            false
        })
        .unwrap();
        deferred.flush();
        for queue in [Deferred::queue, Deferred::queue_worker] {
            let before = seen.1.load(Ordering::SeqCst);
            seen.0.clear();
            queue(&deferred);
            assert!(seen.0.wait_for(LIMIT));
            deferred.flush();
            // More than one if the batch was about to end: the runner looks for waiting threads after another.
            assert!(seen.1.load(Ordering::SeqCst) > before);
        }
    }

    /// Flushing at any moment of a batch returns, and the routine can be dropped right after it.
    #[test]
    fn flush_returns_at_any_moment() {
        for round in 0..if cfg!(miri) { 10 } else { 1000 } {
            let deferred = Deferred::try_new(OWNER, || false).unwrap();
            let queue = if round % 2 == 0 { Deferred::queue } else { Deferred::queue_worker };
            queue(&deferred);
            deferred.flush();
        }
    }

    #[test]
    fn stopping_an_idle_routine_does_not_wait() {
        Deferred::try_new(OWNER, || false).unwrap().stop();
    }
}
