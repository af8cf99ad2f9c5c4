// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message-signaled interrupts: registration, and dispatch of a message to the adapter's DPC.
//!
//! The ISR only queues the DPC. The DPC finds its target through an [`InterruptContext`], because NDIS needs the context before the adapter
//! is complete. Work that a DPC leaves is deferred ([`nt::Deferred`]), so that a device that keeps the DPC busy does not keep the processor
//! at `DISPATCH_LEVEL`.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_INTERRUPT_TYPE, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
    NDIS_MINIPORT_INTERRUPT_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
    NDIS_RECEIVE_THROTTLE_PARAMETERS, NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
    NDIS_STATUS_SUCCESS, NdisMDeregisterInterruptEx, NdisMRegisterInterruptEx,
};
use ndk_abi::nt::BOOLEAN;
use nt::{Deferred, Owner};

use super::message_processor::MessageProcessors;
use crate::events::{Failure, Request};

/// Handles the messages of an interrupt in its DPC. `DISPATCH_LEVEL`.
pub trait MessageHandler {
    /// Handles message `message` and indicates at most `limit` received frames. Returns whether NDIS must call again because
    /// more are pending; never with `u32::MAX`, which means no limit.
    fn message(&self, message: u32, limit: u32) -> bool;

    /// Processes a batch of a queue pair's deferred work. Returns whether work is left. `DISPATCH_LEVEL`.
    fn deferred(&self, pair: u32) -> bool;
}

/// NDIS's context of the interrupt. Refers to the handler.
struct InterruptContext<T> {
    /// Null until the handler is complete.
    target: AtomicPtr<T>,
}

/// The registered interrupt. Disconnecting or dropping it waits for running ISRs and DPCs.
pub struct Interrupt<T> {
    /// NDIS's handle; null once disconnected.
    handle: AtomicPtr<c_void>,
    context: Arc<InterruptContext<T>>,
    /// One for each queue pair.
    deferred: Vec<Arc<Deferred>>,
    messages: MessageProcessors,
}

// SAFETY: NDIS takes the handle on any thread, and the target is only ever borrowed shared, which `T: Sync` allows on any thread.
unsafe impl<T: Sync> Send for Interrupt<T> {}
// SAFETY: shared use loads and swaps atomic pointers, and borrows the target shared, which `T: Sync` allows.
unsafe impl<T: Sync> Sync for Interrupt<T> {}

impl<T: MessageHandler + Sync + 'static> Interrupt<T> {
    /// Registers for message interrupts, which are ignored until [`set_target`](Self::set_target). `PASSIVE_LEVEL`.
    pub fn register(adapter: NDIS_HANDLE) -> Result<Self, Failure> {
        let context = Arc::try_new(InterruptContext { target: AtomicPtr::new(null_mut()) });
        let context: Arc<InterruptContext<T>> = context.map_err(|_| Failure::NoResources)?;
        let mut characteristics = NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
                Revision: NDIS_MINIPORT_INTERRUPT_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
            },
            InterruptHandler: Some(line_isr),
            InterruptDpcHandler: Some(line_dpc),
            DisableInterruptHandler: Some(leave_line),
            EnableInterruptHandler: Some(leave_line),
            MsiSupported: 1,
            MsiSyncWithAllMessages: 0,
            MessageInterruptHandler: Some(message_isr),
            MessageInterruptDpcHandler: Some(message_dpc::<T>),
            DisableMessageInterruptHandler: Some(leave_message),
            EnableMessageInterruptHandler: Some(leave_message),
            InterruptType: NDIS_INTERRUPT_TYPE(0),
            MessageInfoTable: null_mut(),
        };
        let mut handle = null_mut();
        // SAFETY: the characteristics are complete. A reference to the context is kept below in `interrupt`, whose drop deregisters before it
        // releases the reference; after a failure NDIS keeps no context.
        let status = unsafe {
            NdisMRegisterInterruptEx(
                adapter,
                core::ptr::from_ref(&*context).cast_mut().cast(),
                &raw mut characteristics,
                &raw mut handle,
            )
        };
        if status != NDIS_STATUS_SUCCESS {
            return Err(Failure::Ndis(Request::RegisterInterrupt, status));
        }
        // SAFETY: null as initialized above, or the table that NDIS has set, which exists until the interrupt is deregistered. `disconnect`
        // withdraws it before. Then no thread reads it: OID requests have ended before NDIS halts the adapter, and `take_down` has waited
        // for the work item.
        let messages = unsafe { MessageProcessors::new(characteristics.MessageInfoTable) };
        let interrupt = Self { handle: AtomicPtr::new(handle), context, deferred: Vec::new(), messages };
        if characteristics.InterruptType != NDIS_INTERRUPT_TYPE::NDIS_CONNECT_MESSAGE_BASED {
            return Err(Failure::NoMessageInterrupts);
        }
        Ok(interrupt)
    }

    /// Creates a deferred routine for each of `pairs` queue pairs. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// There is no memory.
    pub fn add_deferred(&mut self, adapter: NDIS_HANDLE, pairs: usize) -> Result<(), Failure> {
        vec::reserve_exact(&mut self.deferred, pairs).map_err(|_| Failure::NoResources)?;
        for pair in (0_u32..).take(pairs) {
            let context = Arc::clone(&self.context);
            let deferred = Deferred::try_new(Owner::new(adapter), move || {
                let target = context.target.load(Ordering::Acquire);
                // SAFETY: null, or a target that outlives the interrupt, which stops the routine before it is dropped.
                unsafe { target.as_ref() }.is_some_and(|target| target.deferred(pair))
            });
            let deferred = deferred.and_then(|deferred| Arc::try_new(deferred).ok());
            vec::push_within_capacity(&mut self.deferred, deferred.ok_or(Failure::NoResources)?)
                .map_err(|_| Failure::NoResources)?;
        }
        Ok(())
    }

    /// Dispatches messages to `target` from now on.
    ///
    /// # Safety
    /// `target` is alive and borrowed shared only until this interrupt is disconnected.
    pub unsafe fn set_target(&self, target: *const T) {
        self.context.target.store(target.cast_mut(), Ordering::Release);
    }

    /// Returns the index of the processor that a message interrupts; `None` if it is unknown, or after
    /// [`disconnect`](Self::disconnect).
    pub fn processor_of(&self, message: u16) -> Option<u32> {
        self.messages.processor_of(message)
    }

    /// Returns the routines that run [`MessageHandler::deferred`], one for each queue pair.
    pub fn deferred(&self) -> &[Arc<Deferred>] {
        &self.deferred
    }
}

impl<T> Interrupt<T> {
    /// Deregisters the interrupt and waits for running ISRs, DPCs and the deferred routine, which use the target until then.
    /// `PASSIVE_LEVEL`.
    pub fn disconnect(&self) {
        // From now on DPCs do nothing and defer nothing.
        self.context.target.store(null_mut(), Ordering::Release);
        for deferred in &self.deferred {
            deferred.stop();
        }
        self.messages.withdraw();
        let handle = self.handle.swap(null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            // SAFETY: registered in `register`, deregistered once, at PASSIVE_LEVEL.
            unsafe { NdisMDeregisterInterruptEx(handle) };
        }
    }
}

impl<T> Drop for Interrupt<T> {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// `MiniportInterrupt`: the device never raises line interrupts; it uses messages only.
unsafe extern "efiapi" fn line_isr(
    _context: NDIS_HANDLE,
    queue_dpc: *mut BOOLEAN,
    _targets: *mut u32,
) -> BOOLEAN {
    // SAFETY: NDIS passes a variable of its own, valid for the call, for the answer.
    unsafe { *queue_dpc = 0 };
    0
}

unsafe extern "efiapi" fn line_dpc(
    _context: NDIS_HANDLE,
    _dpc: *mut c_void,
    _throttle: *mut c_void,
    _reserved: *mut c_void,
) {
}

/// Called by NDIS for diagnostics. Messages are edge-triggered: there is no source to disable. DIRQL.
unsafe extern "efiapi" fn leave_line(_context: NDIS_HANDLE) {}

/// Called by NDIS for diagnostics. Messages are edge-triggered: there is no source to disable. DIRQL.
unsafe extern "efiapi" fn leave_message(_context: NDIS_HANDLE, _message: u32) {}

/// `MiniportMessageInterrupt`, at DIRQL. The event indices suppress further messages until the DPC requests them.
unsafe extern "efiapi" fn message_isr(
    _context: NDIS_HANDLE,
    _message: u32,
    queue_dpc: *mut BOOLEAN,
    targets: *mut u32,
) -> BOOLEAN {
    // SAFETY: NDIS passes a variable of its own, valid for the call, for the answer.
    unsafe { *queue_dpc = 1 };
    if !targets.is_null() {
        // SAFETY: NDIS's own variable; 0 means the default DPC alone.
        unsafe { *targets = 0 };
    }
    1
}

unsafe extern "efiapi" fn message_dpc<T: MessageHandler>(
    context: NDIS_HANDLE,
    message: u32,
    _dpc: *mut c_void,
    throttle: *mut c_void,
    _reserved: *mut c_void,
) {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    let target = context.target.load(Ordering::Acquire);
    // SAFETY: null, or a target that outlives the interrupt (`Interrupt::set_target`).
    let Some(target) = (unsafe { target.as_ref() }) else { return };
    let throttle = throttle.cast::<NDIS_RECEIVE_THROTTLE_PARAMETERS>();
    // SAFETY: null, or NDIS's structure for this DPC alone.
    let Some(throttle) = (unsafe { throttle.as_mut() }) else {
        target.message(message, u32::MAX);
        return;
    };
    let more = target.message(message, throttle.MaxNblsToIndicate);
    throttle.MoreNblsPending = u32::from(more);
}
