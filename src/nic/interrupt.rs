// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message-signaled interrupts: registration, and dispatch of a message to the adapter's DPC.
//!
//! The ISR only queues the DPC. The DPC finds its target through an [`InterruptContext`], because NDIS takes the
//! context before the adapter is complete.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use fallible::AliasableBox;
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_INTERRUPT_TYPE, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
    NDIS_MINIPORT_INTERRUPT_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
    NDIS_RECEIVE_THROTTLE_PARAMETERS, NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
    NDIS_STATUS_SUCCESS, NdisMDeregisterInterruptEx, NdisMQueueDpcEx, NdisMRegisterInterruptEx,
};
use ndk_abi::nt::{BOOLEAN, GROUP_AFFINITY, KeGetCurrentProcessorNumberEx, PROCESSOR_NUMBER};

use crate::events::{Failure, Request};

/// Handles the messages of an interrupt in its DPC. `DISPATCH_LEVEL`.
pub trait MessageHandler {
    /// Handles message `message` and indicates at most `limit` received frames. Returns whether NDIS must call again because
    /// more are pending; never with `u32::MAX`, which means no limit.
    fn message(&self, message: u32, limit: u32) -> bool;
}

/// NDIS's context of the interrupt: refers to the handler.
struct InterruptContext<T> {
    /// Null until the handler is complete.
    target: AtomicPtr<T>,
}

/// The registered interrupt. Dropping it waits for running ISRs and DPCs.
pub struct Interrupt<T> {
    handle: NDIS_HANDLE,
    context: AliasableBox<InterruptContext<T>>,
}

// SAFETY: a handle that NDIS takes on any thread, and an atomic pointer.
unsafe impl<T: Sync> Send for Interrupt<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Interrupt<T> {}

impl<T: MessageHandler + Sync> Interrupt<T> {
    /// Registers for message interrupts, which are ignored until [`set_target`](Self::set_target). `PASSIVE_LEVEL`.
    pub fn register(adapter: NDIS_HANDLE) -> Result<Self, Failure> {
        let context = AliasableBox::try_new(InterruptContext { target: AtomicPtr::new(null_mut()) });
        let context = context.map_err(|_| Failure::NoResources)?;
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
        // SAFETY: the characteristics are complete; the context lives until `drop` has deregistered.
        let status = unsafe {
            NdisMRegisterInterruptEx(
                adapter,
                context.as_ptr().cast(),
                &raw mut characteristics,
                &raw mut handle,
            )
        };
        if status != NDIS_STATUS_SUCCESS {
            return Err(Failure::Ndis(Request::RegisterInterrupt, status));
        }
        let interrupt = Self { handle, context };
        if characteristics.InterruptType != NDIS_INTERRUPT_TYPE::NDIS_CONNECT_MESSAGE_BASED {
            return Err(Failure::NoMessageInterrupts);
        }
        Ok(interrupt)
    }

    /// Dispatches messages to `target` from now on.
    ///
    /// # Safety
    /// `target` outlives this interrupt.
    pub unsafe fn set_target(&self, target: *const T) {
        self.context.target.store(target.cast_mut(), Ordering::Release);
    }

    /// NDIS's handle of the interrupt; valid until dropped.
    pub fn handle(&self) -> NDIS_HANDLE {
        self.handle
    }

    /// Runs the DPC of `message` once more, on this processor. `DISPATCH_LEVEL`.
    pub fn queue_dpc(&self, message: u32) {
        // SAFETY: registered as long as `self` lives.
        unsafe { queue_dpc(self.handle, message) };
    }
}

/// Runs the DPC of `message` soon, on this processor. `DISPATCH_LEVEL`, so that it stays this processor.
///
/// # Safety
/// `interrupt` is NDIS's handle of a registered interrupt.
pub unsafe fn queue_dpc(interrupt: NDIS_HANDLE, message: u32) {
    let mut here = PROCESSOR_NUMBER { Group: 0, Number: 0, Reserved: 0 };
    // SAFETY: callable at any IRQL; the result is our own variable.
    unsafe { KeGetCurrentProcessorNumberEx(&raw mut here) };
    // A group has at most 64 processors.
    let mask = 1_usize.wrapping_shl(here.Number.into());
    let mut target = GROUP_AFFINITY { Mask: mask, Group: here.Group, Reserved: [0; 3] };
    // SAFETY: this function's contract; the target set lives through the call.
    unsafe { NdisMQueueDpcEx(interrupt, message, &raw mut target, null_mut()) };
}

impl<T> Drop for Interrupt<T> {
    fn drop(&mut self) {
        // DPCs do nothing from now on, so that none queues itself again.
        self.context.target.store(null_mut(), Ordering::Release);
        // SAFETY: registered in `register`, deregistered once, at PASSIVE_LEVEL.
        unsafe { NdisMDeregisterInterruptEx(self.handle) };
    }
}

/// Line interrupts are never the device's: it uses messages only.
unsafe extern "efiapi" fn line_isr(
    _context: NDIS_HANDLE,
    queue_dpc: *mut BOOLEAN,
    _targets: *mut u32,
) -> BOOLEAN {
    // SAFETY: NDIS's own variable.
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

/// As [`leave_line`].
unsafe extern "efiapi" fn leave_message(_context: NDIS_HANDLE, _message: u32) {}

/// DIRQL. The device's event indices suppress further messages until the DPC has requested them.
unsafe extern "efiapi" fn message_isr(
    _context: NDIS_HANDLE,
    _message: u32,
    queue_dpc: *mut BOOLEAN,
    targets: *mut u32,
) -> BOOLEAN {
    // SAFETY: NDIS's own variable.
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
