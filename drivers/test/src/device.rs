// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device whose I/O control codes use the I/O manager correctly, or violate one of its rules.

use core::{
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use ndk_abi::nt::{
    DEVICE_OBJECT, DISPATCH_LEVEL, DRIVER_OBJECT, FILE_DEVICE_UNKNOWN, IRP, IRP_MJ_CLEANUP, IRP_MJ_CLOSE,
    IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IoAcquireCancelSpinLock, IoCancelIrp, IoCreateDevice,
    IoCreateSymbolicLink, IoDeleteDevice, IoDeleteSymbolicLink, IoReleaseCancelSpinLock, IofCompleteRequest,
    KSPIN_LOCK, KeAcquireSpinLockAtDpcLevel, KeAcquireSpinLockRaiseToDpc, KeInitializeSpinLock, KeLowerIrql,
    KeReleaseSpinLock, KfRaiseIrql, MDL, MEMORY_CACHING_TYPE, MmMapLockedPagesSpecifyCache, NTSTATUS,
    RtlInitUnicodeString, SL_PENDING_RETURNED, STATUS_ACCESS_DENIED, STATUS_BUFFER_OVERFLOW,
    STATUS_CANCELLED, STATUS_INVALID_DEVICE_REQUEST, STATUS_PENDING, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
    UNICODE_STRING,
};

use crate::{
    memory::{read, stay, write},
    request::location,
    stack,
};

/// A service: its name, and what its `DriverEntry` does.
type Service = (&'static str, fn(*mut DRIVER_OBJECT) -> NTSTATUS);

/// All services that have the device; the name says what is special.
pub const ALL: &[Service] = &[
    ("device", device),
    ("exclusive device", exclusive_device),
    ("device stack", device_stack),
    ("device leak", leak_device),
    ("link leak", leak_link),
    ("entries cleared", entries_cleared),
    ("device in a failing entry", failing_entry),
    ("no unload routine", no_unload_routine),
];

const EXTENSION: u32 = 24;

static DEVICE: AtomicPtr<DEVICE_OBJECT> = AtomicPtr::new(null_mut());
static LINKED: AtomicU32 = AtomicU32::new(0);
/// Requests of each kind: create, cleanup, close.
static REQUESTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
static HELD: AtomicPtr<IRP> = AtomicPtr::new(null_mut());

/// Calls `body` with a counted string.
fn with_name<T>(text: &str, body: impl FnOnce(*mut UNICODE_STRING) -> T) -> T {
    let mut characters = [0_u16; 64];
    for (slot, byte) in characters.iter_mut().zip(text.bytes()) {
        *slot = byte.into();
    }
    let mut name = UNICODE_STRING::zeroed();
    // SAFETY: a terminated string that lives as long as `name`.
    unsafe { RtlInitUnicodeString(&raw mut name, characters.as_ptr()) };
    body(&raw mut name)
}

fn create(driver: *mut DRIVER_OBJECT, exclusive: u8) -> NTSTATUS {
    let mut device = null_mut();
    // SAFETY: the driver's own object, a name, and a place for the result; at PASSIVE_LEVEL.
    let status = with_name(r"\Device\Test", |name| unsafe {
        IoCreateDevice(driver, EXTENSION, name, FILE_DEVICE_UNKNOWN, 0, exclusive, &raw mut device)
    });
    DEVICE.store(device, SeqCst);
    status
}

fn link() -> NTSTATUS {
    let status = with_name(r"\DosDevices\Test", |link| {
        // SAFETY: both names are counted strings that live during the call, which runs at PASSIVE_LEVEL.
        with_name(r"\Device\Test", |device| unsafe { IoCreateSymbolicLink(link, device) })
    });
    LINKED.store(u32::from(status == STATUS_SUCCESS), SeqCst);
    status
}

fn set_entries(driver: *mut DRIVER_OBJECT) {
    for (major, routine) in [
        (IRP_MJ_CREATE, create_request as ndk_abi::nt::DRIVER_DISPATCH),
        (IRP_MJ_CLEANUP, cleanup_request),
        (IRP_MJ_CLOSE, close_request),
        (IRP_MJ_DEVICE_CONTROL, control_request),
    ] {
        // SAFETY: the pointer that `DriverEntry` got: the driver's own object, which outlives the driver; no other
        // reference exists.
        let driver = unsafe { &mut *driver };
        driver.MajorFunction[usize::from(major)] = Some(routine);
    }
}

fn device(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    set_entries(driver);
    match create(driver, 0) {
        STATUS_SUCCESS => link(),
        status => status,
    }
}

fn exclusive_device(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    set_entries(driver);
    create(driver, 1);
    link()
}

/// The device, and another one that is attached to it.
fn device_stack(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    match device(driver) {
        STATUS_SUCCESS => stack::attach(driver, DEVICE.load(SeqCst)),
        status => status,
    }
}

fn leak_device(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    let status = device(driver);
    DEVICE.store(null_mut(), SeqCst);
    status
}

fn leak_link(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    let status = device(driver);
    LINKED.store(0, SeqCst);
    status
}

/// Clears all entries, as some drivers do, and sets none.
fn entries_cleared(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    for major in 0..28 {
        // SAFETY: the pointer that `DriverEntry` got: the driver's own object, which outlives the driver; no other
        // reference exists.
        let driver = unsafe { &mut *driver };
        driver.MajorFunction[major] = None;
    }
    create(driver, 0);
    link()
}

fn failing_entry(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    device(driver);
    unload();
    STATUS_UNSUCCESSFUL
}

fn no_unload_routine(driver: *mut DRIVER_OBJECT) -> NTSTATUS {
    // SAFETY: the pointer that `DriverEntry` got: the driver's own object, which outlives the driver; no other
    // reference exists.
    let driver = unsafe { &mut *driver };
    driver.DriverUnload = None;
    STATUS_SUCCESS
}

/// Removes what the service made, except for what it leaks.
pub fn unload() {
    stack::detach();
    if LINKED.swap(0, SeqCst) != 0 {
        // SAFETY: the name is a counted string that lives during the call, which runs at PASSIVE_LEVEL.
        with_name(r"\DosDevices\Test", |name| unsafe { IoDeleteSymbolicLink(name) });
    }
    let device = DEVICE.swap(null_mut(), SeqCst);
    if !device.is_null() {
        // SAFETY: a device that this driver created and has not deleted; no request for it is left at unload.
        unsafe { IoDeleteDevice(device) };
    }
}

/// Completes a request; returns its status.
fn finish(irp: *mut IRP, status: NTSTATUS, information: usize) -> NTSTATUS {
    // SAFETY: a request that the driver holds.
    let request = unsafe { &mut *irp };
    request.IoStatus.Anonymous.Status = status;
    request.IoStatus.Information = information;
    // SAFETY: as above; it is not used afterwards.
    unsafe { IofCompleteRequest(irp, 0) };
    stay();
    status
}

unsafe extern "efiapi" fn create_request(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    if let Some(status) = stack::pass_on(device, irp) {
        return status;
    }
    REQUESTS[0].fetch_add(1, SeqCst);
    // SAFETY: the location of a request that the driver holds.
    let file = unsafe { (*location(irp)).FileObject };
    // SAFETY: a create request has a file object.
    let file = unsafe { &mut *file };
    if file.FileName.Length != 0 {
        return finish(irp, STATUS_ACCESS_DENIED, 0);
    }
    file.FsContext = core::ptr::without_provenance_mut(0x1234);
    finish(irp, STATUS_SUCCESS, 0)
}

unsafe extern "efiapi" fn cleanup_request(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    if let Some(status) = stack::pass_on(device, irp) {
        return status;
    }
    REQUESTS[1].fetch_add(1, SeqCst);
    finish(irp, STATUS_SUCCESS, 0)
}

unsafe extern "efiapi" fn close_request(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    if let Some(status) = stack::pass_on(device, irp) {
        return status;
    }
    REQUESTS[2].fetch_add(1, SeqCst);
    finish(irp, STATUS_SUCCESS, 0)
}

/// An I/O control request.
struct Control {
    irp: *mut IRP,
    system: *mut u8,
    input: usize,
    output: usize,
}

unsafe extern "efiapi" fn control_request(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    if let Some(status) = stack::pass_on(device, irp) {
        return status;
    }
    // SAFETY: the location of a request that the driver holds.
    let location = unsafe { &*location(irp) };
    // SAFETY: the alternative of this kind of request.
    let parameters = unsafe { location.Parameters.DeviceIoControl };
    // SAFETY: a request that the driver holds.
    let associated = unsafe { (*irp).AssociatedIrp };
    // SAFETY: all alternatives of the union are pointers, so that any of them can be read.
    let system = unsafe { associated.SystemBuffer };
    let control = Control {
        irp,
        system: system.cast(),
        input: parameters.InputBufferLength as usize,
        output: parameters.OutputBufferLength as usize,
    };
    match (parameters.IoControlCode >> 2) & 0x7ff {
        0 => reverse(&control),
        1 => count_file_requests(&control),
        2 => checksum_of_second_buffer(&control),
        3 => fill_second_buffer(&control),
        4 => copy_between_raw_buffers(&control, parameters.Type3InputBuffer.cast()),
        5 => pend(&control, Some(cancelled)),
        6 => complete_held(&control),
        7 => finish(irp, STATUS_BUFFER_OVERFLOW, control.output),
        8 => finish(irp, STATUS_UNSUCCESSFUL, 0),
        9 => finish(irp, STATUS_SUCCESS, stack::send_own(DEVICE.load(SeqCst))),
        code => violate(code, &control),
    }
}

fn violate(code: u32, control: &Control) -> NTSTATUS {
    let irp = control.irp;
    match code {
        0x20 => {
            finish(irp, STATUS_SUCCESS, 0);
            finish_raw(irp)
        }
        0x21 => finish(irp, STATUS_PENDING, 0),
        0x22 => STATUS_PENDING,
        0x23 => {
            pend(control, None);
            STATUS_SUCCESS
        }
        0x24 => STATUS_SUCCESS,
        0x25 => {
            finish(irp, STATUS_SUCCESS, 0);
            STATUS_UNSUCCESSFUL
        }
        0x26 => {
            set_cancel_routine(irp, cancelled as *const () as usize);
            finish(irp, STATUS_SUCCESS, 0)
        }
        0x27 => finish(irp, STATUS_SUCCESS, control.output + 1),
        0x28 => {
            write(control.system.wrapping_add(control.input.max(control.output)));
            finish(irp, STATUS_SUCCESS, 0)
        }
        0x29 => {
            finish(irp, STATUS_SUCCESS, 0);
            core::hint::black_box(read(irp.cast()));
            STATUS_SUCCESS
        }
        0x2a => finish_with_lock_held(irp),
        0x2b => finish_raw(crate::memory::allocate(208).cast()),
        0x2c => pend(control, Some(keeps_the_lock)),
        0x2d => pend(control, None),
        0x2e => {
            finish(irp, STATUS_SUCCESS, 0);
            STATUS_PENDING
        }
        0x2f => {
            write(DEVICE.load(SeqCst).cast::<u8>().wrapping_add(size_of::<DEVICE_OBJECT>() + 32));
            finish(irp, STATUS_SUCCESS, 0)
        }
        0x30 => cancel_at_dispatch_level(control),
        0x31 => {
            // SAFETY: the location of a request that the driver holds.
            let file = unsafe { (*location(irp)).FileObject };
            write(file.cast::<u8>().wrapping_sub(1));
            finish(irp, STATUS_SUCCESS, 0)
        }
        _ => finish(irp, STATUS_INVALID_DEVICE_REQUEST, 0),
    }
}

/// Completes what may be no request.
fn finish_raw(irp: *mut IRP) -> NTSTATUS {
    // SAFETY: that the driver does not hold it is the violation.
    unsafe { IofCompleteRequest(irp, 0) };
    stay();
    STATUS_SUCCESS
}

fn finish_with_lock_held(irp: *mut IRP) -> NTSTATUS {
    let mut lock: KSPIN_LOCK = 0;
    // SAFETY: a word of our own.
    unsafe { KeInitializeSpinLock(&raw mut lock) };
    // SAFETY: a spin lock of value zero is initialized; it is a variable of this call.
    let level = unsafe { KeAcquireSpinLockRaiseToDpc(&raw mut lock) };
    let status = finish(irp, STATUS_SUCCESS, 0);
    // SAFETY: this thread acquired the lock above, at the level that is passed.
    unsafe { KeReleaseSpinLock(&raw mut lock, level) };
    status
}

fn reverse(control: &Control) -> NTSTATUS {
    let length = control.input.min(control.output);
    // SAFETY: the system buffer has the longer of both lengths.
    let buffer = unsafe { core::slice::from_raw_parts_mut(control.system, length) };
    buffer.reverse();
    finish(control.irp, STATUS_SUCCESS, length)
}

fn count_file_requests(control: &Control) -> NTSTATUS {
    for (index, count) in REQUESTS.iter().enumerate() {
        let place = control.system.wrapping_add(index);
        // SAFETY: the caller passes an output buffer of three bytes.
        unsafe { place.write(count.load(SeqCst) as u8) };
    }
    finish(control.irp, STATUS_SUCCESS, 3)
}

/// Maps the second buffer of a direct request.
fn second_buffer(irp: *mut IRP) -> *mut u8 {
    // SAFETY: a request that the driver holds.
    let mdl: *mut MDL = unsafe { (*irp).MdlAddress };
    // SAFETY: the I/O manager's MDL, with its pages locked.
    unsafe { MmMapLockedPagesSpecifyCache(mdl, 0, MEMORY_CACHING_TYPE::MmCached, null_mut(), 0, 16) }.cast()
}

fn checksum_of_second_buffer(control: &Control) -> NTSTATUS {
    // SAFETY: the mapping of the second buffer, of this length.
    let second = unsafe { core::slice::from_raw_parts(second_buffer(control.irp), control.output) };
    // SAFETY: the system buffer has the input.
    let first = unsafe { core::slice::from_raw_parts(control.system, control.input) };
    let sum: usize = second.iter().chain(first).map(|&byte| usize::from(byte)).sum();
    finish(control.irp, STATUS_SUCCESS, sum)
}

fn fill_second_buffer(control: &Control) -> NTSTATUS {
    // SAFETY: the mapping of the second buffer, of this length.
    unsafe { second_buffer(control.irp).write_bytes(0x5a, control.output) };
    finish(control.irp, STATUS_SUCCESS, control.output)
}

fn copy_between_raw_buffers(control: &Control, input: *mut u8) -> NTSTATUS {
    let length = control.input.min(control.output);
    // SAFETY: a request that the driver holds.
    let output = unsafe { (*control.irp).UserBuffer };
    // SAFETY: the requestor's buffers, at least this long.
    unsafe { input.copy_to(output.cast(), length) };
    finish(control.irp, STATUS_SUCCESS, length)
}

/// `IoSetCancelRoutine`; returns the old routine.
fn set_cancel_routine(irp: *mut IRP, routine: usize) -> usize {
    // SAFETY: a request that the driver holds.
    let member = unsafe { &raw mut (*irp).CancelRoutine }.cast::<AtomicUsize>();
    // SAFETY: an aligned word of it, which is accessed by exchanges only.
    unsafe { &*member }.swap(routine, SeqCst)
}

type CancelRoutine = unsafe extern "efiapi" fn(*mut DEVICE_OBJECT, *mut IRP);

fn pend(control: &Control, routine: Option<CancelRoutine>) -> NTSTATUS {
    // SAFETY: the location of a request that the driver holds.
    let location = unsafe { &mut *location(control.irp) };
    location.Control |= SL_PENDING_RETURNED;
    let mut level = 0;
    // SAFETY: a dispatch routine runs at PASSIVE_LEVEL, below the limit of DISPATCH_LEVEL, and does not hold the
    // lock.
    unsafe { IoAcquireCancelSpinLock(&raw mut level) };
    if let Some(routine) = routine {
        set_cancel_routine(control.irp, routine as *const () as usize);
    }
    HELD.store(control.irp, SeqCst);
    // SAFETY: this thread acquired the cancel spin lock above, at the level that is passed.
    unsafe { IoReleaseCancelSpinLock(level) };
    STATUS_PENDING
}

unsafe extern "efiapi" fn cancelled(_: *mut DEVICE_OBJECT, irp: *mut IRP) {
    HELD.store(null_mut(), SeqCst);
    // SAFETY: a request that the driver holds.
    let level = unsafe { (*irp).CancelIrql };
    // SAFETY: the lock is held when a cancel routine is called.
    unsafe { IoReleaseCancelSpinLock(level) };
    finish(irp, STATUS_CANCELLED, 0);
}

unsafe extern "efiapi" fn keeps_the_lock(_: *mut DEVICE_OBJECT, irp: *mut IRP) {
    HELD.store(irp, SeqCst);
    stay();
}

fn cancel_at_dispatch_level(control: &Control) -> NTSTATUS {
    pend(control, Some(keeps_another_lock));
    // SAFETY: the level is not below the current one, which is PASSIVE_LEVEL or DISPATCH_LEVEL here.
    let level = unsafe { KfRaiseIrql(DISPATCH_LEVEL) };
    // SAFETY: a request that the driver holds.
    unsafe { IoCancelIrp(control.irp) };
    // SAFETY: the level that raising has returned, which is not above the current one.
    unsafe { KeLowerIrql(level) };
    STATUS_PENDING
}

/// Returns at the right level with a lock of the driver held, instead of the cancel spin lock.
unsafe extern "efiapi" fn keeps_another_lock(_: *mut DEVICE_OBJECT, irp: *mut IRP) {
    HELD.store(irp, SeqCst);
    let lock: *mut KSPIN_LOCK = crate::memory::allocate(size_of::<KSPIN_LOCK>()).cast();
    // SAFETY: a word of our own.
    unsafe { KeInitializeSpinLock(lock) };
    // SAFETY: a request that the driver holds.
    let level = unsafe { (*irp).CancelIrql };
    // SAFETY: the lock is held when a cancel routine is called.
    unsafe { IoReleaseCancelSpinLock(level) };
    // SAFETY: initialized; the level before the cancellation is DISPATCH_LEVEL.
    unsafe { KeAcquireSpinLockAtDpcLevel(lock) };
    stay();
}

/// Completes the request that pends, if it is not being cancelled.
fn complete_held(control: &Control) -> NTSTATUS {
    let held = HELD.swap(null_mut(), SeqCst);
    if !held.is_null() && set_cancel_routine(held, 0) != 0 {
        // SAFETY: a request that the driver holds.
        let associated = unsafe { (*held).AssociatedIrp };
        // SAFETY: all alternatives of the union are pointers, so that any of them can be read.
        let system = unsafe { associated.SystemBuffer };
        // SAFETY: the held request's system buffer has at least a byte.
        unsafe { system.cast::<u8>().write(7) };
        finish(held, STATUS_SUCCESS, 1);
    }
    finish(control.irp, STATUS_SUCCESS, 0)
}
