// SPDX-License-Identifier: MIT OR Apache-2.0

//! Poll objects: NDIS calls for the received frames of each pair of queues, at `PASSIVE_LEVEL` or `DISPATCH_LEVEL`, instead of the
//! driver's DPC and its deferred routine.
//!
//! NDIS calls again while a call indicates lists, then has the interrupt enabled. It sees no RDMA frames: if some are left then, the
//! driver requests the next call.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{
    NDIS_ANY_NUMBER_OF_NBLS, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_POLL_CHARACTERISTICS, NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_POLL_DATA, NDIS_POLL_NOTIFICATION,
    NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    NdisDeregisterPoll, NdisRegisterPoll, NdisRequestPoll,
};
use nt::irql::AtDispatch;

use super::sleep::sleep;

/// Time between two looks at whether a handler runs, in microseconds.
const FLUSH_INTERVAL_US: u32 = 1000;

/// Handles the calls of poll objects. `DISPATCH_LEVEL`.
pub trait PollHandler {
    /// Handles received frames of a pair of queues; indicates at most `limit` lists.
    fn poll(&self, pair: u32, limit: u32) -> Received;

    /// Enables or disables the receive interrupt of a pair of queues. Returns whether frames have arrived for which none comes.
    fn set_receive_interrupt(&self, pair: u32, is_enabled: bool) -> bool;
}

/// What one call of [`PollHandler::poll`] received.
pub struct Received {
    /// The lists to indicate: `count` of them.
    pub chain: *mut NET_BUFFER_LIST,
    pub count: u32,
    /// Frames are left.
    pub more: bool,
}

/// NDIS's context of a poll object: refers to the handler.
struct PollContext<T> {
    /// Null until the handler is complete, and after [`PollObjects::disconnect`].
    target: AtomicPtr<T>,
    pair: u32,
    /// NDIS's handle; null before registration, and once deregistered.
    handle: AtomicPtr<c_void>,
    /// A handler runs. NDIS runs one at a time.
    is_running: AtomicBool,
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

/// A poll object for each pair of queues. Disconnecting or dropping them waits for running handlers.
pub struct PollObjects<T> {
    contexts: Vec<Arc<PollContext<T>>>,
}

impl<T: PollHandler + Sync + 'static> PollObjects<T> {
    /// Registers an object for each of so many pairs of queues; `None` if NDIS refuses or there is no memory. `PASSIVE_LEVEL`.
    pub fn register(adapter: NDIS_HANDLE, pairs: usize) -> Option<Arc<Self>> {
        let mut this = Self { contexts: Vec::new() };
        vec::reserve_exact(&mut this.contexts, pairs).ok()?;
        let characteristics = NDIS_POLL_CHARACTERISTICS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NDIS_POLL_CHARACTERISTICS_REVISION_1,
                Size: NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1,
            },
            SetPollNotificationHandler: Some(set_notification::<T>),
            PollHandler: Some(poll::<T>),
        };
        for pair in (0_u32..).take(pairs) {
            let context = PollContext {
                target: AtomicPtr::new(null_mut()),
                pair,
                handle: AtomicPtr::new(null_mut()),
                is_running: AtomicBool::new(false),
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
    /// Has NDIS call for the received frames of a pair of queues. Any IRQL.
    pub fn request(&self, pair: u32) {
        if let Some(context) = self.contexts.get(pair as usize) {
            context.request();
        }
    }

    /// Waits for the handlers that run. `PASSIVE_LEVEL`.
    pub fn flush(&self) {
        for context in &self.contexts {
            while context.is_running.load(Ordering::Acquire) {
                sleep(FLUSH_INTERVAL_US);
            }
        }
    }

    /// Deregisters the objects and waits for running handlers, which use the target until then. The interrupt was disconnected
    /// before. `PASSIVE_LEVEL`.
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
    let received = {
        let _at_dispatch = AtDispatch::new();
        target.poll(context.pair, receive.MaxNblsToIndicate)
    };
    context.is_running.store(false, Ordering::Release);
    receive.IndicatedNblChain = received.chain;
    receive.NumberOfIndicatedNbls = received.count;
    receive.NumberOfRemainingNbls = if received.more { NDIS_ANY_NUMBER_OF_NBLS } else { 0 };
}

/// `NdisSetPollNotification`.
unsafe extern "efiapi" fn set_notification<T: PollHandler>(
    context: *mut c_void,
    notification: *mut NDIS_POLL_NOTIFICATION,
) {
    // SAFETY: the context registered in `PollObjects::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<PollContext<T>>() };
    let target = context.target.load(Ordering::Acquire);
    // SAFETY: null, or a target that outlives the objects (`PollObjects::set_target`).
    let Some(target) = (unsafe { target.as_ref() }) else { return };
    // SAFETY: NDIS's structure for this call alone.
    let is_enabled = unsafe { (*notification).Enabled } != 0;
    let _at_dispatch = AtDispatch::new();
    if target.set_receive_interrupt(context.pair, is_enabled) {
        context.request();
    }
}
