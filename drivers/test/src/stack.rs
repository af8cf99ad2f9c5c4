// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device that is attached to the driver's other one, and requests that the driver sends to itself.

use core::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
};

use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_OBJECT, FILE_DEVICE_UNKNOWN, IO_STACK_LOCATION, IRP, IRP_MJ_DEVICE_CONTROL,
    IoAllocateIrp, IoAttachDeviceToDeviceStack, IoCreateDevice, IoDeleteDevice, IoDetachDevice, IoFreeIrp,
    IofCallDriver, NTSTATUS, SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS,
    SL_PENDING_RETURNED, STATUS_MORE_PROCESSING_REQUIRED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};

use crate::request::location;

static UPPER: AtomicPtr<DEVICE_OBJECT> = AtomicPtr::new(null_mut());
static LOWER: AtomicPtr<DEVICE_OBJECT> = AtomicPtr::new(null_mut());

/// The control code that fails, of function 8.
const FAIL: u32 = 0x22 << 16 | 0x808 << 2;
const ALWAYS: u8 = SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL;

/// Attaches a device without a name to `target`.
pub fn attach(driver: *mut DRIVER_OBJECT, target: *mut DEVICE_OBJECT) -> NTSTATUS {
    let mut device = null_mut();
    // SAFETY: the driver's own object and a place for the result, at PASSIVE_LEVEL; a device needs no name.
    let status = unsafe { IoCreateDevice(driver, 0, null_mut(), FILE_DEVICE_UNKNOWN, 0, 0, &raw mut device) };
    if status != STATUS_SUCCESS {
        return status;
    }
    // SAFETY: two devices of the driver, the first of which is attached to none.
    let lower = unsafe { IoAttachDeviceToDeviceStack(device, target) };
    UPPER.store(device, SeqCst);
    LOWER.store(lower, SeqCst);
    if lower.is_null() { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
}

/// Removes what [`attach`] made.
pub fn detach() {
    let lower = LOWER.swap(null_mut(), SeqCst);
    if !lower.is_null() {
        // SAFETY: the device to which the driver attached its own.
        unsafe { IoDetachDevice(lower) };
    }
    let upper = UPPER.swap(null_mut(), SeqCst);
    if !upper.is_null() {
        // SAFETY: a device of the driver, which is detached, and has no request at unload.
        unsafe { IoDeleteDevice(upper) };
    }
}

/// `IoGetNextIrpStackLocation`.
fn next(irp: *mut IRP) -> *mut IO_STACK_LOCATION {
    location(irp).wrapping_sub(1)
}

/// `IoSetCompletionRoutine`.
fn set_routine(irp: *mut IRP, routine: ndk_abi::nt::IO_COMPLETION_ROUTINE, context: *mut c_void) {
    // SAFETY: the next location of a request that the driver holds, which has one for the lower device.
    let next = unsafe { &mut *next(irp) };
    next.CompletionRoutine = Some(routine);
    next.Context = context;
    next.Control = ALWAYS;
}

/// Passes a request to the upper device on to the lower one; returns `None` for the lower device.
pub fn pass_on(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> Option<NTSTATUS> {
    if device != UPPER.load(SeqCst) || device.is_null() {
        return None;
    }
    // SAFETY: the location of a request that the driver holds.
    let mut copied = unsafe { location(irp).read() };
    copied.Control = 0;
    // SAFETY: its next location: the request has one for each device of the stack.
    unsafe { next(irp).write(copied) };
    set_routine(irp, continues, null_mut());
    // SAFETY: a request that the driver holds, and does not use afterwards.
    Some(unsafe { IofCallDriver(LOWER.load(SeqCst), irp) })
}

unsafe extern "efiapi" fn continues(_: *mut DEVICE_OBJECT, irp: *mut IRP, _: *mut c_void) -> NTSTATUS {
    // SAFETY: a request that a lower driver has completed.
    if unsafe { (*irp).PendingReturned } != 0 {
        // SAFETY: the driver's location in it.
        let location = unsafe { &mut *location(irp) };
        location.Control |= SL_PENDING_RETURNED;
    }
    STATUS_SUCCESS
}

/// Stores the status of a request where `context` says, and keeps it.
unsafe extern "efiapi" fn keeps(_: *mut DEVICE_OBJECT, irp: *mut IRP, context: *mut c_void) -> NTSTATUS {
    // SAFETY: a request that a lower driver has completed.
    let block = unsafe { (*irp).IoStatus };
    // SAFETY: the status is what a completed request has.
    let status = unsafe { block.Anonymous.Status };
    // SAFETY: the variable of `send_own`, which waits for this routine.
    unsafe { context.cast::<NTSTATUS>().write(status) };
    STATUS_MORE_PROCESSING_REQUIRED
}

/// Sends a request of the driver to its own device; returns how many statuses of it were as they must be.
pub fn send_own(device: *mut DEVICE_OBJECT) -> usize {
    // SAFETY: a dispatch routine runs below the limit of DISPATCH_LEVEL.
    let irp = unsafe { IoAllocateIrp(1, 0) };
    if irp.is_null() {
        return 0;
    }
    let mut seen: NTSTATUS = STATUS_SUCCESS;
    // SAFETY: the one location of the request.
    let control = unsafe { &mut *next(irp) };
    control.MajorFunction = IRP_MJ_DEVICE_CONTROL;
    control.Parameters.DeviceIoControl.IoControlCode = FAIL;
    set_routine(irp, keeps, (&raw mut seen).cast());
    // SAFETY: a device of the driver, and a request that no driver has.
    let returned = unsafe { IofCallDriver(device, irp) };
    // SAFETY: the driver's own request; the completion routine has kept it.
    unsafe { IoFreeIrp(irp) };
    [returned, seen].iter().filter(|&&status| status == STATUS_UNSUCCESSFUL).count()
}
