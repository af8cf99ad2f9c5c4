// SPDX-License-Identifier: MIT OR Apache-2.0

//! Poll objects: NDIS polls for received frames at `PASSIVE_LEVEL` or `DISPATCH_LEVEL`, in place of the driver's DPC and deferred routine.
//! A poll object serves zero or more queue pairs, and indicates the NBLs that are queued for it, in order. With receive side scaling there
//! is one object for each processor, and NDIS polls it there.
//!
//! NDIS repeats the call as long as a call indicates NBLs, then has the driver enable the interrupts, and calls once
//! more. A call suppresses the interrupts: one that indicates nothing while they are enabled requests them again. NDIS does not see RDMA
//! frames: if some are left at that moment, the driver requests the next call.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{
    NDIS_ANY_NUMBER_OF_NBLS, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_POLL_CHARACTERISTICS, NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_POLL_DATA, NDIS_POLL_NOTIFICATION,
    NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_STATUS_SUCCESS, NdisDeregisterPoll,
    NdisRegisterPoll, NdisRequestPoll, NdisSetPollAffinity,
};
use nt::SpinLock;
use nt::irql::AtDispatch;

use super::drain::Drain;
use super::sleep::sleep;
use crate::nbl::NblList;

/// Interval of the checks whether a handler still runs, in microseconds.
const FLUSH_INTERVAL_US: u32 = 1000;

/// Most NBLs that one call indicates.
const BATCH: u32 = 128;

/// Handles the calls to poll objects. `DISPATCH_LEVEL`.
pub trait PollHandler {
    /// Handles received frames of an object's queue pairs, and [queues](PollObjects::queue) NBLs; NDIS accepts at most `limit`. Returns
    /// whether frames are left.
    fn poll(&self, object: u32, limit: u32) -> bool;

    /// Enables or disables the receive interrupts of an object's pairs. Returns whether frames have arrived for which no interrupt will
    /// arrive.
    fn set_receive_interrupt(&self, object: u32, is_enabled: bool) -> bool;
}

/// NDIS's context of a poll object. Refers to the handler.
struct PollContext<T> {
    /// Null until the handler is complete, and after [`PollObjects::disconnect`].
    target: AtomicPtr<T>,
    /// The object's number.
    object: u32,
    /// NBLs that the object will indicate.
    waiting: SpinLock<NblList>,
    /// NDIS's handle; null before registration, and once deregistered.
    handle: AtomicPtr<c_void>,
    /// The object's handler runs. NDIS runs it once at a time.
    is_running: AtomicBool,
    /// NDIS has enabled the interrupts last: it may not call again by itself.
    is_notified: AtomicBool,
    /// Whether a call has found nothing to indicate since a request.
    drain: Drain,
}

impl<T> PollContext<T> {
    fn request(&self) {
        let handle = self.handle.load(Ordering::Acquire);
        if !handle.is_null() {
            // SAFETY: registered, and not deregistered before the handlers and the interrupt that lead here have ended.
            unsafe { NdisRequestPoll(handle, null_mut()) };
        }
    }
}

/// The poll objects of an adapter. Disconnecting or dropping them waits for running handlers.
pub struct PollObjects<T> {
    contexts: Vec<Arc<PollContext<T>>>,
    /// The object that serves each queue pair.
    of_pairs: Vec<u32>,
}

impl<T: PollHandler + Sync + 'static> PollObjects<T> {
    /// Registers `count` objects. `of_pairs` names the object that serves each queue pair; `processor` returns the processor on which an
    /// object is polled, if it is bound to one. `None` if NDIS refuses or there is no memory. `PASSIVE_LEVEL`.
    pub fn register(
        adapter: NDIS_HANDLE,
        count: u32,
        of_pairs: Vec<u32>,
        processor: impl Fn(u32) -> Option<u32>,
    ) -> Option<Arc<Self>> {
        let mut this = Self { contexts: Vec::new(), of_pairs };
        vec::reserve_exact(&mut this.contexts, count as usize).ok()?;
        let characteristics = NDIS_POLL_CHARACTERISTICS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NDIS_POLL_CHARACTERISTICS_REVISION_1,
                Size: NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1,
            },
            SetPollNotificationHandler: Some(set_notification::<T>),
            PollHandler: Some(poll::<T>),
        };
        for object in 0..count {
            let context = PollContext {
                target: AtomicPtr::new(null_mut()),
                object,
                waiting: SpinLock::new(NblList::new()),
                handle: AtomicPtr::new(null_mut()),
                is_running: AtomicBool::new(false),
                is_notified: AtomicBool::new(false),
                drain: Drain::default(),
            };
            let context = Arc::try_new(context).ok()?;
            let mut handle = null_mut();
            // SAFETY: the characteristics are complete; the context lives until `disconnect` has deregistered.
            let status = unsafe {
                NdisRegisterPoll(
                    adapter,
                    core::ptr::from_ref(&*context).cast_mut().cast(),
                    &raw const characteristics,
                    &raw mut handle,
                )
            };
            if status != NDIS_STATUS_SUCCESS {
                return None;
            }
            context.handle.store(handle, Ordering::Release);
            if let Some(number) = processor(object).and_then(nt::processor::number) {
                // SAFETY: registered above; the number is our own variable.
                unsafe { NdisSetPollAffinity(handle, &raw const number) };
            }
            vec::push_within_capacity(&mut this.contexts, context).ok()?;
        }
        Arc::try_new(this).ok()
    }

    /// Dispatches calls to `target` from now on.
    ///
    /// # Safety
    /// `target` is alive and borrowed shared only until the objects are disconnected.
    pub unsafe fn set_target(&self, target: *const T) {
        for context in &self.contexts {
            context.target.store(target.cast_mut(), Ordering::Release);
        }
    }
}

impl<T> PollObjects<T> {
    /// Has NDIS poll an object. Any IRQL.
    pub fn request(&self, object: u32) {
        if let Some(context) = self.contexts.get(object as usize) {
            context.request();
        }
    }

    /// Has NDIS poll the object that serves a queue pair. Any IRQL.
    pub fn request_for(&self, pair: u32) {
        if let Some(&object) = self.of_pairs.get(pair as usize) {
            self.request(object);
        }
    }

    /// Returns the queue pairs that an object serves.
    pub fn pairs_of(&self, object: u32) -> impl Iterator<Item = u32> {
        let of_pairs = (0..).zip(&self.of_pairs);
        of_pairs.filter(move |(_, of_pair)| **of_pair == object).map(|(pair, _)| pair)
    }

    /// Queues NBLs that an object indicates when it is polled. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(&self, object: u32, lists: NblList) {
        // Every processor in the indirection table, or without RSS every queue pair, has an object.
        if let Some(context) = self.contexts.get(object as usize) {
            context.waiting.lock().append(lists);
        }
    }

    /// Waits until no handler runs. `PASSIVE_LEVEL`.
    pub fn flush(&self) {
        for context in &self.contexts {
            while context.is_running.load(Ordering::Acquire) {
                sleep(FLUSH_INTERVAL_US);
            }
        }
    }

    /// Has NDIS poll each object until a call finds nothing to indicate: then NDIS has indicated everything that earlier calls found. The
    /// wait ends when `go_on`, which waits for a moment, returns `false`. `PASSIVE_LEVEL`, one caller at a time.
    pub fn drain(&self, go_on: &mut impl FnMut() -> bool) {
        for context in &self.contexts {
            context.drain.request();
            context.request();
        }
        while !self.contexts.iter().all(|context| context.drain.is_done()) && go_on() {}
    }

    /// Deregisters the objects and waits for running handlers, which use the target until then. The interrupt must be disconnected already.
    /// `PASSIVE_LEVEL`.
    pub fn disconnect(&self) {
        for context in &self.contexts {
            // Handlers do nothing from now on.
            context.target.store(null_mut(), Ordering::Release);
            let handle = context.handle.load(Ordering::Acquire);
            if !handle.is_null() {
                // SAFETY: registered in `register`; deregistered once, because the handle is cleared below; at PASSIVE_LEVEL.
                unsafe { NdisDeregisterPoll(handle) };
                context.handle.store(null_mut(), Ordering::Release);
            }
        }
    }
}

impl<T> Drop for PollObjects<T> {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// `NdisPoll`.
unsafe extern "efiapi" fn poll<T: PollHandler>(context: *mut c_void, data: *mut NDIS_POLL_DATA) {
    // SAFETY: the context registered in `PollObjects::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<PollContext<T>>() };
    let target = context.target.load(Ordering::Acquire);
    // SAFETY: null, or a target that outlives the objects (`PollObjects::set_target`).
    let Some(target) = (unsafe { target.as_ref() }) else { return };
    // SAFETY: NDIS's structure for this call alone.
    let receive = unsafe { &mut (*data).Receive };
    context.is_running.store(true, Ordering::Release);
    context.drain.begin();
    let ((lists, count), more) = {
        let _at_dispatch = AtDispatch::new();
        let limit = receive.MaxNblsToIndicate;
        let more = target.poll(context.object, limit);
        let (taken, more) = {
            let mut waiting = context.waiting.lock();
            (waiting.take_first(BATCH.min(limit)), more || !waiting.is_empty())
        };
        // Without a list NDIS may make no other call, and this one has suppressed the interrupts.
        if taken.1 == 0
            && context.is_notified.load(Ordering::Relaxed)
            && target.set_receive_interrupt(context.object, true)
        {
            context.request();
        }
        (taken, more)
    };
    context.drain.end(count == 0 && !more);
    context.is_running.store(false, Ordering::Release);
    receive.IndicatedNblChain = lists.first();
    receive.NumberOfIndicatedNbls = count;
    receive.NumberOfRemainingNbls = if more { NDIS_ANY_NUMBER_OF_NBLS } else { 0 };
}

/// `NdisSetPollNotification`.
unsafe extern "efiapi" fn set_notification<T: PollHandler>(
    context: *mut c_void,
    notification: *mut NDIS_POLL_NOTIFICATION,
) {
    // SAFETY: the context registered in `PollObjects::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<PollContext<T>>() };
    // SAFETY: NDIS's structure for this call alone.
    let is_enabled = unsafe { (*notification).Enabled } != 0;
    // Also before there is a target: NDIS begins at the registration.
    context.is_notified.store(is_enabled, Ordering::Relaxed);
    let target = context.target.load(Ordering::Acquire);
    // SAFETY: null, or a target that outlives the objects (`PollObjects::set_target`).
    let Some(target) = (unsafe { target.as_ref() }) else { return };
    let _at_dispatch = AtDispatch::new();
    if target.set_receive_interrupt(context.object, is_enabled) {
        context.request();
    }
}
