// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupts: registration, and dispatch of a message, or of the line, to the adapter's DPC.
//!
//! The ISR of a message only queues the DPC. That of the line, which other devices may share, reads the device's interrupt status first: it
//! tells whether the interrupt is the device's, and ends it. The DPC finds its target through an [`InterruptContext`], because NDIS needs the context before the adapter
//! is complete. Work that a DPC leaves is deferred ([`nt::Deferred`]), so that a device that keeps the DPC busy does not keep the processor
//! at `DISPATCH_LEVEL`.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_INTERRUPT_TYPE, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
    NDIS_MINIPORT_INTERRUPT_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
    NDIS_RECEIVE_THROTTLE_PARAMETERS, NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
    NDIS_STATUS_SUCCESS, NdisMDeregisterInterruptEx, NdisMRegisterInterruptEx,
    NdisMSynchronizeWithInterruptEx,
};
use ndk_abi::nt::BOOLEAN;
use nt::{Deferred, Owner};

use virtio_net::Causes;

use super::message_processor::MessageProcessors;
use super::pci_resources::{is_line_enabled, set_line_enabled};
use crate::events::{Failure, Request};

/// Handles the interrupts of a device, most of them in its DPC. `DISPATCH_LEVEL` unless a method says otherwise.
pub trait InterruptHandler {
    /// Takes the causes of the line's interrupt from the device, which de-asserts the line. Empty if the interrupt is not the device's. DIRQL.
    fn take_causes(&self) -> Causes;

    /// Handles the line's interrupt, as [`message`](Self::message) does a message.
    fn line(&self, causes: Causes, limit: u32) -> bool;

    /// Handles message `message` and indicates at most `limit` received frames. Returns whether NDIS must call again because
    /// more are pending; never with `u32::MAX`, which means no limit.
    fn message(&self, message: u32, limit: u32) -> bool;

    /// Processes a batch of a queue pair's deferred work. Returns whether work is left.
    fn deferred(&self, pair: u32) -> bool;
}

/// NDIS's context of the interrupt. Refers to the handler.
struct InterruptContext<T> {
    /// Null until the handler is complete.
    target: AtomicPtr<T>,
    adapter: Owner,
    /// Reasons for which the device must not assert the line: `NO_TARGET`, `NO_POWER`, `DIAGNOSIS`.
    line_holds: AtomicU8,
    /// Causes of the line's interrupt that its DPC has not handled.
    causes: AtomicU8,
    /// Here, so that the interrupt is no larger in the stack frame of `MiniportInitializeEx`.
    is_line: AtomicBool,
    /// Whether the device could assert its line when the interrupt was registered.
    was_enabled: AtomicBool,
}

/// There is no handler, so that an interrupt of the device is not claimed, and does not end.
const NO_TARGET: u8 = 1 << 0;
/// The device has no power, and its registers must not be read.
const NO_POWER: u8 = 1 << 1;
/// NDIS has disabled the interrupt.
const DIAGNOSIS: u8 = 1 << 2;

impl<T> InterruptContext<T> {
    /// Adds or removes a reason for which the device must not assert the line. Any IRQL.
    fn hold_line(&self, reason: u8, is_held: bool) {
        if !self.is_line.load(Ordering::Relaxed) {
            return;
        }
        if is_held {
            self.line_holds.fetch_or(reason, Ordering::AcqRel);
        } else {
            self.line_holds.fetch_and(!reason, Ordering::AcqRel);
        }
        // Another processor may change the reasons meanwhile: the last write follows from the last reasons.
        let mut holds = self.line_holds.load(Ordering::Acquire);
        loop {
            set_line_enabled(self.adapter.handle(), holds == 0);
            let now = self.line_holds.load(Ordering::Acquire);
            if now == holds {
                return;
            }
            holds = now;
        }
    }

    /// Lets the device assert its line, or not, as it was found. No handler runs, and the device was reset.
    fn restore_line(&self) {
        if self.is_line.load(Ordering::Relaxed) {
            set_line_enabled(self.adapter.handle(), self.was_enabled.load(Ordering::Relaxed));
        }
    }
}

impl<T: InterruptHandler> InterruptContext<T> {
    /// Returns the handler; `None` before it is complete.
    fn target(&self) -> Option<&T> {
        let target = self.target.load(Ordering::Acquire);
        // SAFETY: null, or a target that outlives the interrupt (`Interrupt::set_target`).
        unsafe { target.as_ref() }
    }
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

impl<T: InterruptHandler + Sync + 'static> Interrupt<T> {
    /// Registers for message interrupts, or for the line of a device without messages. They are ignored until
    /// [`set_target`](Self::set_target). `PASSIVE_LEVEL`.
    pub fn register(adapter: NDIS_HANDLE) -> Result<Self, Failure> {
        let context = Arc::try_new(InterruptContext {
            target: AtomicPtr::new(null_mut()),
            adapter: Owner::new(adapter),
            line_holds: AtomicU8::new(0),
            causes: AtomicU8::new(0),
            is_line: AtomicBool::new(false),
            was_enabled: AtomicBool::new(is_line_enabled(adapter)),
        });
        let context: Arc<InterruptContext<T>> = context.map_err(|_| Failure::NoResources)?;
        let mut characteristics = NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
                Revision: NDIS_MINIPORT_INTERRUPT_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
            },
            InterruptHandler: Some(line_isr::<T>),
            InterruptDpcHandler: Some(line_dpc::<T>),
            DisableInterruptHandler: Some(disable_line::<T>),
            EnableInterruptHandler: Some(enable_line::<T>),
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
        let is_line = characteristics.InterruptType != NDIS_INTERRUPT_TYPE::NDIS_CONNECT_MESSAGE_BASED;
        context.is_line.store(is_line, Ordering::Relaxed);
        context.hold_line(NO_TARGET, true);
        Ok(Self { handle: AtomicPtr::new(handle), context, deferred: Vec::new(), messages })
    }

    /// Returns whether the device interrupts by its line.
    pub fn is_line(&self) -> bool {
        self.context.is_line.load(Ordering::Relaxed)
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
                // The interrupt stops the routine before it is dropped.
                context.target().is_some_and(|target| target.deferred(pair))
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
        self.context.hold_line(NO_TARGET, false);
    }

    /// Returns the index of the processor that a message interrupts; `None` if it is unknown, or after
    /// [`disconnect`](Self::disconnect).
    pub fn processor_of(&self, message: u16) -> Option<u32> {
        self.messages.processor_of(message)
    }

    /// Returns the routines that run [`InterruptHandler::deferred`], one for each queue pair.
    pub fn deferred(&self) -> &[Arc<Deferred>] {
        &self.deferred
    }
}

impl<T> Interrupt<T> {
    /// Sets whether the device has power. Without, interrupts of the line are those of other devices, and the ISR accesses no register from
    /// the return of this method on. `PASSIVE_LEVEL`.
    pub fn set_powered(&self, is_powered: bool) {
        self.context.hold_line(NO_POWER, !is_powered);
        let handle = self.handle.load(Ordering::Acquire);
        if self.context.is_line.load(Ordering::Relaxed) && !is_powered && !handle.is_null() {
            // SAFETY: registered, and not deregistered before the adapter's transitions have ended. Returns when no ISR runs.
            unsafe { NdisMSynchronizeWithInterruptEx(handle, 0, Some(nothing), null_mut()) };
        }
    }

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
            self.context.restore_line();
        }
    }
}

impl<T> Drop for Interrupt<T> {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// `MiniportInterrupt`, at DIRQL. Returns whether the interrupt is the device's.
unsafe extern "efiapi" fn line_isr<T: InterruptHandler>(
    context: NDIS_HANDLE,
    queue_dpc: *mut BOOLEAN,
    targets: *mut u32,
) -> BOOLEAN {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    let target = context.target().filter(|_| context.line_holds.load(Ordering::Acquire) & NO_POWER == 0);
    let causes = target.map_or(Causes::empty(), InterruptHandler::take_causes);
    context.causes.fetch_or(causes.bits(), Ordering::AcqRel);
    let is_own = !causes.is_empty();
    // SAFETY: NDIS passes a variable of its own, valid for the call, for the answer.
    unsafe { *queue_dpc = is_own.into() };
    if !targets.is_null() {
        // SAFETY: NDIS's own variable; 0 means the default DPC alone.
        unsafe { *targets = 0 };
    }
    is_own.into()
}

/// `MiniportInterruptDPC`.
unsafe extern "efiapi" fn line_dpc<T: InterruptHandler>(
    context: NDIS_HANDLE,
    _dpc: *mut c_void,
    throttle: *mut c_void,
    _reserved: *mut c_void,
) {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    let Some(target) = context.target() else { return };
    let causes = Causes::from_bits_retain(context.causes.swap(0, Ordering::AcqRel));
    // SAFETY: null, or NDIS's structure for this DPC alone.
    unsafe { throttled(throttle, |limit| target.line(causes, limit)) };
}

/// `MiniportDisableInterruptEx`, called by NDIS for diagnostics: keeps the device from asserting its line. DIRQL.
unsafe extern "efiapi" fn disable_line<T>(context: NDIS_HANDLE) {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    context.hold_line(DIAGNOSIS, true);
}

/// `MiniportEnableInterruptEx`: lets the device assert its line again, also for what has happened meanwhile. DIRQL.
unsafe extern "efiapi" fn enable_line<T>(context: NDIS_HANDLE) {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    context.hold_line(DIAGNOSIS, false);
}

/// Runs while no ISR does. DIRQL.
unsafe extern "efiapi" fn nothing(_context: NDIS_HANDLE) -> BOOLEAN {
    1
}

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

unsafe extern "efiapi" fn message_dpc<T: InterruptHandler>(
    context: NDIS_HANDLE,
    message: u32,
    _dpc: *mut c_void,
    throttle: *mut c_void,
    _reserved: *mut c_void,
) {
    // SAFETY: the context registered in `Interrupt::register`, alive until deregistered.
    let context = unsafe { &*context.cast::<InterruptContext<T>>() };
    let Some(target) = context.target() else { return };
    // SAFETY: null, or NDIS's structure for this DPC alone.
    unsafe { throttled(throttle, |limit| target.message(message, limit)) };
}

/// Handles an interrupt in a DPC with the limit that NDIS sets, and tells NDIS whether more frames are pending.
///
/// # Safety
/// `throttle` is null, or NDIS's structure for this DPC alone.
unsafe fn throttled(throttle: *mut c_void, handle: impl FnOnce(u32) -> bool) {
    let throttle = throttle.cast::<NDIS_RECEIVE_THROTTLE_PARAMETERS>();
    // SAFETY: by this function's contract null, or a structure that nothing else uses.
    let Some(throttle) = (unsafe { throttle.as_mut() }) else {
        handle(u32::MAX);
        return;
    };
    throttle.MoreNblsPending = u32::from(handle(throttle.MaxNblsToIndicate));
}
