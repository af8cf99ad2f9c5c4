// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stacks of devices, IRPs of drivers, completion routines. The drivers' routines are functions of the test.
//!
//! What Windows does is known from the documentation of the functions, from "Managing IRPs" of the WDK, and from the list of I/O
//! verification errors of bug check 0xC9.

use std::{
    ffi::c_void,
    mem::offset_of,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::on_host::{correct, counted, memory, until_written, violates};
use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_OBJECT, IO_STACK_LOCATION, IRP, IRP_MJ_DEVICE_CONTROL,
    SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, SL_PENDING_RETURNED, STATUS_CANCELLED,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_MORE_PROCESSING_REQUIRED, STATUS_PENDING, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL, UNICODE_STRING,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{
        io::{
            allocated::{IoAllocateIrp, IoFreeIrp, IoReuseIrp},
            attach::{
                IoAttachDeviceToDeviceStack, IoAttachDeviceToDeviceStackSafe, IoDetachDevice,
                IoGetAttachedDevice, IoGetAttachedDeviceReference,
            },
            cancel::IoCancelIrp,
            complete::{IofCompleteRequest, complete_next},
            device::{self, IoDeleteDevice},
            dispatch::IofCallDriver,
            irp::GuestIrp,
        },
        thread_objects::ObfDereferenceObject,
    },
};

const NAME: &str = r"\Device\Stack";
const IO: BugCheck = BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION;
const MISUSE: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
const ALWAYS: u8 = SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL;

type Device = Guest<DEVICE_OBJECT>;
type Irp = Guest<IRP>;
/// A dispatch routine: the device, the request, and the device below.
type Dispatch = fn(Device, Irp, Device) -> i32;
type Completion = unsafe extern "efiapi" fn(*mut DEVICE_OBJECT, *mut IRP, *mut c_void) -> i32;

unsafe extern "efiapi" fn dispatch(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> i32 {
    let (device, irp) = (Guest::new(device), Guest::new(irp));
    let extension: Guest<usize> = Guest::new(device.read().DeviceExtension.cast());
    if location(irp).read().MajorFunction != IRP_MJ_DEVICE_CONTROL {
        return finish(irp, STATUS_SUCCESS);
    }
    // SAFETY: `add` stored a `Dispatch` there.
    let routine: Dispatch = unsafe { std::mem::transmute(extension.read()) };
    routine(device, irp, Guest::from_address(extension.add(1).read()))
}

fn location(irp: Irp) -> Guest<IO_STACK_LOCATION> {
    GuestIrp(irp).location()
}

/// `IoGetNextIrpStackLocation`.
fn next(irp: Irp) -> Guest<IO_STACK_LOCATION> {
    Guest::from_address(location(irp).address() - size_of::<IO_STACK_LOCATION>())
}

/// `IoSkipCurrentIrpStackLocation`.
fn skip(irp: Irp) {
    let current: Guest<i8> = irp.field(offset_of!(IRP, CurrentLocation));
    let pointer: Guest<usize> = irp.field(offset_of!(IRP, Tail.Overlay.CurrentStackLocation));
    current.write(current.read() + 1);
    pointer.write(pointer.read() + size_of::<IO_STACK_LOCATION>());
}

/// `IoCopyCurrentIrpStackLocationToNext`.
fn copy(irp: Irp) {
    let mut copied = location(irp).read();
    copied.Control = 0;
    copied.CompletionRoutine = None;
    copied.Context = std::ptr::null_mut();
    next(irp).write(copied);
}

/// `IoSetCompletionRoutine`.
fn set_routine(irp: Irp, routine: Completion, context: usize, control: u8) {
    let next = next(irp);
    next.field(offset_of!(IO_STACK_LOCATION, CompletionRoutine)).write(routine as *const () as usize);
    next.field(offset_of!(IO_STACK_LOCATION, Context)).write(context);
    next.field(offset_of!(IO_STACK_LOCATION, Control)).write(control);
}

/// `IoMarkIrpPending`.
fn mark_pending(irp: Irp) {
    let control: Guest<u8> = location(irp).field(offset_of!(IO_STACK_LOCATION, Control));
    control.write(control.read() | SL_PENDING_RETURNED);
}

fn pending_returned(irp: Irp) -> bool {
    irp.read().PendingReturned != 0
}

fn finish(irp: Irp, status: i32) -> i32 {
    GuestIrp(irp).set_status(status, 0);
    IofCompleteRequest(irp, 0);
    status
}

/// Makes a device on top of `below`; the lowest has the name.
fn add(host: &Host, below: Device, routine: Dispatch) -> Device {
    let driver = memory::<DRIVER_OBJECT>(host);
    let entries: Guest<usize> = driver.field(offset_of!(DRIVER_OBJECT, MajorFunction));
    for major in 0..28 {
        entries.add(major).write(dispatch as *const () as usize);
    }
    let result = memory::<usize>(host);
    let name: Guest<UNICODE_STRING> = if below.is_null() { counted(host, NAME, 0) } else { Guest::null() };
    assert_eq!(device::IoCreateDevice(driver, 16, name, 0x22, 0x100, 0, result), STATUS_SUCCESS);
    let device: Device = Guest::from_address(result.read());
    let lower = if below.is_null() { Guest::null() } else { IoAttachDeviceToDeviceStack(device, below) };
    let extension: Guest<usize> = Guest::new(device.read().DeviceExtension.cast());
    extension.write(routine as usize);
    extension.add(1).write(lower.address());
    let flags: Guest<u32> = device.field(offset_of!(DEVICE_OBJECT, Flags));
    flags.write(flags.read() & !DO_DEVICE_INITIALIZING);
    device
}

/// A stack of two devices with these drivers; returns both, the lower one first.
fn stack(host: &Host, lower: Dispatch, upper: Dispatch) -> (Device, Device) {
    let lower = add(host, Guest::null(), lower);
    (lower, add(host, lower, upper))
}

/// Sends a request of a program to a stack with these drivers; returns its status.
fn request(host: &std::sync::Arc<Host>, lower: Dispatch, upper: Dispatch) -> i32 {
    stack(host, lower, upper);
    let file = host.open_device(NAME).expect("the stack opens");
    let status = file.ioctl(0, b"", 0).status;
    file.close();
    status
}

/// Keeps the request.
fn keeps(_: Device, irp: Irp, _: Device) -> i32 {
    mark_pending(irp);
    STATUS_PENDING
}

fn succeeds(_: Device, irp: Irp, _: Device) -> i32 {
    finish(irp, STATUS_SUCCESS)
}

fn fails(_: Device, irp: Irp, _: Device) -> i32 {
    finish(irp, STATUS_UNSUCCESSFUL)
}

/// Completes the request 1 ms later, on a worker.
fn completes_later(_: Device, irp: Irp, _: Device) -> i32 {
    mark_pending(irp);
    nt_sim::current().host().queue_work(move || {
        nt_sim::nt::time::sleep(1_000_000);
        finish(irp, STATUS_SUCCESS);
    });
    STATUS_PENDING
}

/// Completes the request at once, although it marks it pending.
fn pends_and_completes(_: Device, irp: Irp, _: Device) -> i32 {
    mark_pending(irp);
    finish(irp, STATUS_SUCCESS);
    STATUS_PENDING
}

fn skips(_: Device, irp: Irp, below: Device) -> i32 {
    skip(irp);
    IofCallDriver(below, irp)
}

fn copies(_: Device, irp: Irp, below: Device) -> i32 {
    copy(irp);
    IofCallDriver(below, irp)
}

/// Passes the request on with a completion routine.
fn passes_on(irp: Irp, below: Device, routine: Completion) -> i32 {
    copy(irp);
    set_routine(irp, routine, 77, ALWAYS);
    IofCallDriver(below, irp)
}

/// A completion routine that lets the completion continue.
unsafe extern "efiapi" fn continues(device: *mut DEVICE_OBJECT, irp: *mut IRP, context: *mut c_void) -> i32 {
    assert_eq!(context.addr(), 77);
    assert!(!device.is_null(), "its driver's device");
    if pending_returned(Guest::new(irp)) {
        mark_pending(Guest::new(irp));
    }
    STATUS_SUCCESS
}

fn with_a_routine(_: Device, irp: Irp, below: Device) -> i32 {
    passes_on(irp, below, continues)
}

#[test]
fn a_stack_has_a_location_for_each_device() {
    correct(|host| {
        let lower = add(host, Guest::null(), succeeds);
        assert_eq!((lower.read().StackSize, IoGetAttachedDevice(lower)), (1, lower));
        lower.field::<u32>(offset_of!(DEVICE_OBJECT, AlignmentRequirement)).write(3);
        let middle = add(host, lower, skips);
        let upper = add(host, lower, skips);
        assert_eq!([middle, upper].map(|device| device.read().StackSize), [2, 3]);
        assert_eq!([middle, upper].map(|device| device.read().AlignmentRequirement), [3, 3]);
        assert_eq!(lower.read().AttachedDevice, middle.as_ptr());
        assert_eq!(middle.read().AttachedDevice, upper.as_ptr());
        assert_eq!(IoGetAttachedDeviceReference(lower), upper);
        ObfDereferenceObject(upper.address());
        IoDetachDevice(middle);
        assert_eq!(IoGetAttachedDevice(lower), middle);
        assert!(middle.read().AttachedDevice.is_null());
        let below = memory::<usize>(host);
        assert_eq!(IoAttachDeviceToDeviceStackSafe(upper, middle, below), STATUS_SUCCESS);
        assert_eq!(below.read(), middle.address());
        for device in [middle, lower] {
            IoDetachDevice(device);
        }
        for device in [upper, middle, lower] {
            IoDeleteDevice(device);
        }
    });
}

#[test]
fn requests_go_to_the_highest_device_and_are_passed_on() {
    let uppers: [Dispatch; 3] = [skips, copies, with_a_routine];
    for upper in uppers {
        for (lower, status) in [
            (succeeds as Dispatch, STATUS_SUCCESS),
            (fails, STATUS_UNSUCCESSFUL),
            (completes_later, STATUS_SUCCESS),
            (pends_and_completes, STATUS_SUCCESS),
        ] {
            correct(move |host| assert_eq!(request(host, lower, upper), status));
        }
    }
    correct(|host| {
        let refuses: Dispatch = |_, irp, _| finish(irp, STATUS_INVALID_DEVICE_REQUEST);
        assert_eq!(request(host, succeeds, refuses), STATUS_INVALID_DEVICE_REQUEST);
    });
}

static DEVICE: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_completion_routine_gets_its_drivers_device() {
    unsafe extern "efiapi" fn stores(device: *mut DEVICE_OBJECT, irp: *mut IRP, context: *mut c_void) -> i32 {
        DEVICE.store(device.addr(), SeqCst);
        // SAFETY: a function of this test.
        unsafe { continues(device, irp, context) }
    }
    correct(|host| {
        let (_, upper) = stack(host, succeeds, |_, irp, below| passes_on(irp, below, stores));
        let file = host.open_device(NAME).expect("the stack opens");
        let _ = file.ioctl(0, b"", 0);
        file.close();
        assert_eq!(DEVICE.load(SeqCst), upper.address());
    });
}

/// The driver completes the request itself after its completion routine kept it.
#[test]
fn a_driver_can_keep_a_request_that_a_lower_one_completed() {
    unsafe extern "efiapi" fn keeps(_: *mut DEVICE_OBJECT, _: *mut IRP, _: *mut c_void) -> i32 {
        STATUS_MORE_PROCESSING_REQUIRED
    }
    let upper: Dispatch = |_, irp, below| {
        assert_eq!(passes_on(irp, below, keeps), STATUS_UNSUCCESSFUL);
        finish(irp, STATUS_SUCCESS)
    };
    correct(move |host| assert_eq!(request(host, fails, upper), STATUS_SUCCESS));
}

/// Frees the IRP of a driver, and counts its calls where the context says.
unsafe extern "efiapi" fn frees(device: *mut DEVICE_OBJECT, irp: *mut IRP, context: *mut c_void) -> i32 {
    assert!(device.is_null(), "the driver has no stack location");
    IoFreeIrp(Guest::new(irp));
    let count: Guest<u32> = Guest::new(context.cast());
    count.write(count.read() + 1);
    STATUS_MORE_PROCESSING_REQUIRED
}

/// An IRP of a driver for the device, with an I/O control request in its next location.
fn control_irp(device: Device) -> Irp {
    let irp = IoAllocateIrp(device.read().StackSize, 0);
    next(irp).field(0).write(IRP_MJ_DEVICE_CONTROL);
    irp
}

#[test]
fn a_driver_sends_and_frees_its_own_requests() {
    let lowers: [(Dispatch, i32); 3] =
        [(succeeds, STATUS_SUCCESS), (fails, STATUS_UNSUCCESSFUL), (completes_later, STATUS_PENDING)];
    for (lower, status) in lowers {
        correct(move |host| {
            let (_, upper) = stack(host, lower, skips);
            let irp = control_irp(upper);
            let header = irp.read();
            assert_eq!((header.Type, header.StackCount, header.CurrentLocation), (6, 2, 3));
            assert_eq!(usize::from(header.Size), size_of::<IRP>() + 2 * size_of::<IO_STACK_LOCATION>());
            let count: Guest<u32> = memory(host);
            set_routine(irp, frees, count.address(), ALWAYS);
            assert_eq!(IofCallDriver(upper, irp), status);
            until_written(count);
            assert_eq!(count.read(), 1);
        });
    }
}

#[test]
fn a_completion_routine_is_called_for_the_outcomes_that_it_was_set_for() {
    correct(|host| {
        for (lower, control, is_called) in [
            (succeeds as Dispatch, SL_INVOKE_ON_SUCCESS, true),
            (succeeds, SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL, false),
            (fails, SL_INVOKE_ON_ERROR, true),
            (fails, SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_CANCEL, false),
        ] {
            unsafe extern "efiapi" fn counts(_: *mut DEVICE_OBJECT, _: *mut IRP, count: *mut c_void) -> i32 {
                let count: Guest<u32> = Guest::new(count.cast());
                count.write(count.read() + 1);
                STATUS_SUCCESS
            }
            unsafe extern "efiapi" fn keeps(_: *mut DEVICE_OBJECT, _: *mut IRP, _: *mut c_void) -> i32 {
                STATUS_MORE_PROCESSING_REQUIRED
            }
            let count: Guest<u32> = memory(host);
            let lower = add(host, Guest::null(), lower);
            // The routine in the driver's own location ends the completion.
            let irp = IoAllocateIrp(2, 0);
            set_routine(irp, keeps, 0, ALWAYS);
            let current: Guest<i8> = irp.field(offset_of!(IRP, CurrentLocation));
            let pointer: Guest<usize> = irp.field(offset_of!(IRP, Tail.Overlay.CurrentStackLocation));
            current.write(2);
            pointer.write(pointer.read() - size_of::<IO_STACK_LOCATION>());
            next(irp).field(0).write(IRP_MJ_DEVICE_CONTROL);
            set_routine(irp, counts, count.address(), control);
            IofCallDriver(lower, irp);
            assert_eq!(count.read(), u32::from(is_called));
            IoFreeIrp(irp);
            IoDeleteDevice(lower);
        }
    });
}

#[test]
fn a_cancelled_request_calls_the_routine_for_cancellation() {
    unsafe extern "efiapi" fn cancelled(_: *mut DEVICE_OBJECT, irp: *mut IRP) {
        let irp: Irp = Guest::new(irp);
        let level: Guest<u8> = irp.field(offset_of!(IRP, CancelIrql));
        nt_sim::nt::io::cancel_lock::IoReleaseCancelSpinLock(level.read());
        finish(irp, STATUS_CANCELLED);
    }
    let pends: Dispatch = |_, irp, _| {
        mark_pending(irp);
        irp.field(offset_of!(IRP, CancelRoutine)).write(cancelled as *const () as usize);
        STATUS_PENDING
    };
    correct(move |host| {
        let lower = add(host, Guest::null(), pends);
        let irp = control_irp(lower);
        let count: Guest<u32> = memory(host);
        set_routine(irp, frees, count.address(), SL_INVOKE_ON_CANCEL);
        assert_eq!(IofCallDriver(lower, irp), STATUS_PENDING);
        assert_eq!(IoCancelIrp(irp), 1);
        assert_eq!(count.read(), 1);
    });
}

#[test]
fn an_irp_is_used_again() {
    unsafe extern "efiapi" fn keeps(_: *mut DEVICE_OBJECT, _: *mut IRP, _: *mut c_void) -> i32 {
        STATUS_MORE_PROCESSING_REQUIRED
    }
    correct(|host| {
        let lower = add(host, Guest::null(), fails);
        let irp = IoAllocateIrp(1, 0);
        for _ in 0..3 {
            next(irp).field(0).write(IRP_MJ_DEVICE_CONTROL);
            set_routine(irp, keeps, 0, ALWAYS);
            assert_eq!(IofCallDriver(lower, irp), STATUS_UNSUCCESSFUL);
            assert_eq!(GuestIrp(irp).status().0, STATUS_UNSUCCESSFUL);
            IoReuseIrp(irp, STATUS_SUCCESS);
            assert_eq!((GuestIrp(irp).status().0, irp.read().CurrentLocation), (STATUS_SUCCESS, 2));
        }
        IoFreeIrp(irp);
    });
}

/// As Winsock Kernel completes the IRP of a call.
#[test]
fn the_kernel_completes_a_request_in_its_next_location() {
    correct(|host| {
        let irp = IoAllocateIrp(1, 0);
        let count: Guest<u32> = memory(host);
        set_routine(irp, frees, count.address(), ALWAYS);
        complete_next(irp);
        assert_eq!(count.read(), 1);
    });
    violates(
        BugCheck::NO_MORE_IRP_STACK_LOCATIONS,
        "an IRP was passed to the kernel that has no stack location for it",
        |_| {
            let irp = IoAllocateIrp(1, 0);
            let current: Guest<i8> = irp.field(offset_of!(IRP, CurrentLocation));
            current.write(1);
            complete_next(irp);
        },
    );
}

/// A request to a stack violates a rule.
fn violates_in_a_stack(text: &str, lower: Dispatch, upper: Dispatch) {
    violates(IO, text, move |host| {
        request(host, lower, upper);
    });
}

#[test]
fn misuse_of_the_stack_locations_of_a_request_is_reported() {
    violates_in_a_stack(
        "IoCallDriver of a request while its cancel routine is set",
        succeeds,
        |_, irp, below| {
            irp.field(offset_of!(IRP, CancelRoutine)).write(1_usize);
            copies(below, irp, below)
        },
    );
    violates_in_a_stack(
        "whose next stack location is marked pending; a driver that calls IoMarkIrpPending must copy its location to the next",
        succeeds,
        |_, irp, below| {
            mark_pending(irp);
            skips(below, irp, below)
        },
    );
    violates(
        IO,
        "whose next stack location has the completion routine of the driver above; use IoCopyCurrentIrpStackLocationToNext",
        |host| {
            let lower = add(host, Guest::null(), succeeds);
            let middle = add(host, lower, |_, irp, below| {
                next(irp).write(location(irp).read());
                IofCallDriver(below, irp)
            });
            add(host, middle, with_a_routine);
            let file = host.open_device(NAME).expect("the stack opens");
            let _ = file.ioctl(0, b"", 0);
        },
    );
    violates(
        BugCheck::NO_MORE_IRP_STACK_LOCATIONS,
        "IoCallDriver of an IRP with 1 stack locations, all of which are in use",
        |host| {
            let (_, upper) = stack(host, succeeds, copies);
            let irp = IoAllocateIrp(1, 0);
            next(irp).field(0).write(IRP_MJ_DEVICE_CONTROL);
            IofCallDriver(upper, irp);
        },
    );
}

#[test]
fn misuse_of_requests_that_were_passed_on_is_reported() {
    violates_in_a_stack(
        "a request was completed by a driver that passed it on and does not have it",
        keeps,
        |_, irp, below| {
            copy(irp);
            IofCallDriver(below, irp);
            finish(irp, STATUS_SUCCESS)
        },
    );
    violates_in_a_stack(
        "IoCallDriver of a request that the driver passed on and does not have",
        keeps,
        |_, irp, below| {
            copy(irp);
            IofCallDriver(below, irp);
            IofCallDriver(below, irp)
        },
    );
    violates_in_a_stack(
        "returned 0x0, but a driver to which it passed the request on still has it",
        keeps,
        |_, irp, below| {
            copies(below, irp, below);
            STATUS_SUCCESS
        },
    );
    violates(IO, "which is no device", |host| {
        request(host, succeeds, |device, irp, below| {
            copy(irp);
            let _ = device;
            IofCallDriver(below.field(16), irp)
        });
    });
    violates(IO, "which is not an IRP", |host| {
        let lower = add(host, Guest::null(), succeeds);
        IofCallDriver(lower, memory(host));
    });
}

#[test]
fn misuse_in_completion_routines_is_reported() {
    unsafe extern "efiapi" fn forgets(_: *mut DEVICE_OBJECT, _: *mut IRP, _: *mut c_void) -> i32 {
        STATUS_SUCCESS
    }
    violates_in_a_stack(
        "a completion routine did not call IoMarkIrpPending although PendingReturned was set in its IRP",
        completes_later,
        |_, irp, below| passes_on(irp, below, forgets),
    );
    violates(
        IO,
        "a completion routine freed its IRP and returned 0x0 instead of STATUS_MORE_PROCESSING_REQUIRED",
        |host| {
            unsafe extern "efiapi" fn frees(_: *mut DEVICE_OBJECT, irp: *mut IRP, _: *mut c_void) -> i32 {
                IoFreeIrp(Guest::new(irp));
                STATUS_SUCCESS
            }
            let lower = add(host, Guest::null(), succeeds);
            let irp = control_irp(lower);
            set_routine(irp, frees, 0, ALWAYS);
            IofCallDriver(lower, irp);
        },
    );
    violates(
        IO,
        "an IRP of IoAllocateIrp was completed by all drivers; its completion routine must keep it (STATUS_MORE_PROCESSING_REQUIRED)",
        |host| {
            let lower = add(host, Guest::null(), succeeds);
            IofCallDriver(lower, control_irp(lower));
        },
    );
}

#[test]
fn misuse_of_irps_of_drivers_is_reported() {
    violates(IO, "IoAllocateIrp with 0 stack locations", |_| {
        IoAllocateIrp(0, 0);
    });
    violates(IO, "which is not an IRP", |host| IoFreeIrp(memory(host)));
    violates(IO, "IoFreeIrp of an IRP that IoAllocateIrp has not returned", |host| {
        request(
            host,
            |_, irp, _| {
                IoFreeIrp(irp);
                STATUS_SUCCESS
            },
            skips,
        );
    });
    violates(IO, "IoReuseIrp of an IRP that is in use by a driver", |host| {
        let lower = add(host, Guest::null(), completes_later);
        let irp = control_irp(lower);
        IofCallDriver(lower, irp);
        IoReuseIrp(irp, STATUS_SUCCESS);
    });
    violates(BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, "was completed a second time", |host| {
        let lower = add(host, Guest::null(), succeeds);
        let irp = IoAllocateIrp(lower.read().StackSize, 0);
        IofCompleteRequest(irp, 0);
    });
}

#[test]
fn misuse_of_stacks_is_reported() {
    violates(MISUSE, "is attached to a device; call IoDetachDevice first", |host| {
        let (_, upper) = stack(host, succeeds, skips);
        IoDeleteDevice(upper);
    });
    violates(MISUSE, "to which no device is attached", |host| {
        let (lower, _) = stack(host, succeeds, skips);
        IoDetachDevice(lower);
        IoDetachDevice(lower);
    });
    violates(MISUSE, "which is attached already", |host| {
        let (lower, upper) = stack(host, succeeds, skips);
        IoAttachDeviceToDeviceStack(upper, lower);
    });
    violates(MISUSE, "which is in this stack", |host| {
        let lower = add(host, Guest::null(), succeeds);
        IoAttachDeviceToDeviceStack(lower, lower);
    });
    violates(MISUSE, "IoAttachDeviceToDeviceStack of", |host| {
        let lower = add(host, Guest::null(), succeeds);
        IoAttachDeviceToDeviceStack(memory(host), lower);
    });
    violates(MISUSE, "IoGetAttachedDevice of", |host| {
        IoGetAttachedDevice(memory(host));
    });
}

/// A lower device that was deleted goes when it is detached.
#[test]
fn a_deleted_device_stays_until_it_is_detached() {
    correct(|host| {
        let (lower, upper) = stack(host, succeeds, skips);
        IoDeleteDevice(lower);
        assert!(host.memory.pfn(lower.address()).is_some());
        IoDetachDevice(lower);
        assert!(host.memory.pfn(lower.address()).is_none());
        IoDeleteDevice(upper);
    });
}
