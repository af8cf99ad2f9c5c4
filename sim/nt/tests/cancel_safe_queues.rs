// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cancel-safe queues. The queue's routines are functions of the test.
//!
//! What Windows does is known from "Cancel-Safe IRP Queues" of the WDK, and from the documentation of the functions and routines.

use std::{mem::offset_of, sync::Arc};

use crate::on_host::{
    correct, memory,
    served::{NAME, Request, serve},
    violates,
};
use ndk_abi::nt::{
    IRP, IRP_MJ_DEVICE_CONTROL, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use nt_sim::{
    BugCheck, Host, Irql, current,
    guest::Guest,
    nt::{
        io::{
            complete::IofCompleteRequest,
            csq::{
                IoCsqInitialize, IoCsqInitializeEx, IoCsqInsertIrp, IoCsqInsertIrpEx, IoCsqRemoveIrp,
                IoCsqRemoveNextIrp,
            },
            irp::GuestIrp,
        },
        spin_lock::{KeAcquireSpinLockRaiseToDpc, KeReleaseSpinLock},
    },
};

const MISUSE: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
/// Offsets behind the `IO_CSQ`: the lock, the number of requests, the requests.
const LOCK: usize = 64;
const COUNT: usize = 72;
const IRPS: usize = 80;
/// Offset of a context.
const CONTEXT: usize = 512;

fn count(queue: usize) -> Guest<usize> {
    Guest::from_address(queue + COUNT)
}

fn place(queue: usize, index: usize) -> Guest<*mut IRP> {
    Guest::from_address(queue + IRPS + 8 * index)
}

fn lock(queue: usize) -> Guest<usize> {
    Guest::from_address(queue + LOCK)
}

fn requests(queue: usize) -> Vec<*mut IRP> {
    (0..count(queue).read()).map(|index| place(queue, index).read()).collect()
}

unsafe extern "efiapi" fn insert(queue: usize, irp: *mut IRP) {
    assert_eq!(current().irql(), Irql::DISPATCH_LEVEL, "the lock is held");
    let at = count(queue).read();
    place(queue, at).write(irp);
    count(queue).write(at + 1);
}

/// Refuses the context 13.
unsafe extern "efiapi" fn insert_ex(queue: usize, irp: *mut IRP, context: usize) -> i32 {
    if context == 13 {
        return STATUS_UNSUCCESSFUL;
    }
    // SAFETY: a function of this test.
    unsafe { insert(queue, irp) };
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn remove(queue: usize, irp: *mut IRP) {
    assert_eq!(current().irql(), Irql::DISPATCH_LEVEL, "the lock is held");
    let left: Vec<_> = requests(queue).into_iter().filter(|&other| other != irp).collect();
    assert_eq!(left.len() + 1, count(queue).read(), "it is in the queue");
    count(queue).write(left.len());
    for (index, irp) in left.into_iter().enumerate() {
        place(queue, index).write(irp);
    }
}

/// The context is 0, or the I/O control code.
unsafe extern "efiapi" fn peek(queue: usize, after: *mut IRP, context: usize) -> *mut IRP {
    let all = requests(queue);
    let first = all.iter().position(|&irp| irp == after).map_or(0, |index| index + 1);
    let matches = |irp: &*mut IRP| context == 0 || code(Guest::new(*irp)) == context;
    all.into_iter().skip(first).find(matches).unwrap_or(std::ptr::null_mut())
}

unsafe extern "efiapi" fn acquire(queue: usize, level: *mut u8) {
    Guest::new(level).write(KeAcquireSpinLockRaiseToDpc(lock(queue)));
}

unsafe extern "efiapi" fn release(queue: usize, level: u8) {
    KeReleaseSpinLock(lock(queue), level);
}

unsafe extern "efiapi" fn canceled(_: usize, irp: *mut IRP) {
    assert_eq!(current().irql(), Irql::PASSIVE_LEVEL);
    finish(Guest::new(irp), STATUS_CANCELLED);
}

fn finish(irp: Guest<IRP>, status: i32) {
    GuestIrp(irp).set_status(status, 0);
    IofCompleteRequest(irp, 0);
}

fn code(irp: Guest<IRP>) -> usize {
    // SAFETY: the parameters of an I/O control request.
    let parameters = unsafe { GuestIrp(irp).location().read().Parameters.DeviceIoControl };
    parameters.IoControlCode as usize
}

/// A queue with these routines, initialized by one of both functions.
fn queue(host: &Host, extended: bool) -> usize {
    let queue = memory::<u8>(host).address();
    let first = if extended { insert_ex as *const () } else { insert as *const () } as usize;
    let initialize = if extended { IoCsqInitializeEx } else { IoCsqInitialize };
    let address = |routine: *const ()| routine as usize;
    let status = initialize(
        queue,
        first,
        address(remove as *const ()),
        address(peek as *const ()),
        address(acquire as *const ()),
        address(release as *const ()),
        address(canceled as *const ()),
    );
    assert_eq!(status, STATUS_SUCCESS);
    queue
}

/// A driver that calls `insert` with each I/O control request.
fn serving(host: &Host, insert: impl Fn(Request) -> i32 + Send + Sync + 'static) {
    serve(host, move |request, major| if major == IRP_MJ_DEVICE_CONTROL { insert(request) } else { -1 });
}

/// A driver that inserts each I/O control request.
fn queueing(host: &Host, queue: usize, context: usize) {
    serving(host, move |request| {
        IoCsqInsertIrp(queue, request.irp, context);
        STATUS_PENDING
    });
}

#[test]
fn requests_leave_a_queue_as_the_driver_finds_them() {
    for extended in [false, true] {
        correct(move |host| {
            let queue = queue(host, extended);
            queueing(host, queue, 0);
            let file = host.open_device(NAME).unwrap();
            let pending = [4, 8, 12].map(|code| file.start_ioctl(code, b"", Vec::new()));
            assert!(IoCsqRemoveNextIrp(queue, 16).is_null());
            for code in [8, 4, 12] {
                let irp = IoCsqRemoveNextIrp(queue, if code == 8 { 8 } else { 0 });
                assert_eq!(self::code(irp), code);
                finish(irp, STATUS_SUCCESS);
            }
            assert!(IoCsqRemoveNextIrp(queue, 0).is_null());
            for one in pending {
                assert_eq!(one.wait().status, STATUS_SUCCESS);
            }
            file.close();
        });
    }
}

#[test]
fn cancelled_requests_leave_a_queue() {
    correct(|host| {
        let queue = queue(host, false);
        queueing(host, queue, 0);
        let file = host.open_device(NAME).unwrap();
        let pending = [4, 8].map(|code| file.start_ioctl(code, b"", Vec::new()));
        assert!(pending[0].cancel());
        assert_eq!(count(queue).read(), 1);
        file.close();
        assert_eq!(pending.map(|one| one.wait().status), [STATUS_CANCELLED; 2]);
        assert_eq!(count(queue).read(), 0);
    });
}

/// "If the IRP to be inserted has already been canceled, IoCsqInsertIrp does not attempt to insert the IRP" (WDK).
#[test]
fn a_request_that_is_cancelled_already_is_not_inserted() {
    correct(|host| {
        let queue = queue(host, true);
        serving(host, move |request| {
            request.irp.field::<u8>(offset_of!(IRP, Cancel)).write(1);
            assert_eq!(IoCsqInsertIrpEx(queue, request.irp, 0, 13), STATUS_SUCCESS, "it is not asked");
            assert_eq!(count(queue).read(), 0);
            STATUS_PENDING
        });
        let file = host.open_device(NAME).unwrap();
        assert_eq!(file.ioctl(4, b"", 0).status, STATUS_CANCELLED);
        file.close();
    });
}

#[test]
fn a_driver_refuses_a_request_for_its_queue() {
    correct(|host| {
        let queue = queue(host, true);
        serving(host, move |request| match IoCsqInsertIrpEx(queue, request.irp, 0, 13) {
            STATUS_UNSUCCESSFUL => request.complete(STATUS_UNSUCCESSFUL, 0),
            status => status,
        });
        let file = host.open_device(NAME).unwrap();
        assert_eq!(file.ioctl(4, b"", 0).status, STATUS_UNSUCCESSFUL);
        file.close();
    });
}

#[test]
fn a_context_names_its_request_until_it_leaves() {
    correct(|host| {
        let queue = queue(host, false);
        let context = queue + CONTEXT;
        queueing(host, queue, context);
        let file = host.open_device(NAME).unwrap();
        let pending = file.start_ioctl(4, b"", Vec::new());
        let irp = IoCsqRemoveIrp(queue, context);
        assert_eq!(code(irp), 4);
        assert!(IoCsqRemoveIrp(queue, context).is_null());
        finish(irp, STATUS_SUCCESS);
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        let pending = file.start_ioctl(4, b"", Vec::new());
        assert!(pending.cancel());
        assert!(IoCsqRemoveIrp(queue, context).is_null());
        file.close();
    });
}

/// Of a request that is removed while it is cancelled, one of both gets it.
#[test]
fn removal_and_cancellation_race() {
    correct(|host| {
        let queue = queue(host, false);
        queueing(host, queue, 0);
        let file = host.open_device(NAME).unwrap();
        for _ in 0..50 {
            let pending = Arc::new(file.start_ioctl(4, b"", Vec::new()));
            let cancelling = pending.clone();
            let other = host.spawn("cancels", move || _ = cancelling.cancel());
            let irp = IoCsqRemoveNextIrp(queue, 0);
            if !irp.is_null() {
                finish(irp, STATUS_SUCCESS);
            }
            other.join().unwrap();
            assert!(pending.is_done());
        }
        file.close();
    });
}

#[test]
fn misuse_of_cancel_safe_queues_is_reported() {
    violates(MISUSE, "IoCsqRemoveNextIrp of a cancel-safe queue that is not initialized", |host| {
        IoCsqRemoveNextIrp(memory::<u8>(host).address(), 0);
    });
    violates(MISUSE, "which is not an IRP that a driver was given", |host| {
        IoCsqInsertIrp(queue(host, false), memory(host), 0);
    });
    violates(MISUSE, "DriverContext[3] of an IRP in a cancel-safe queue was changed", |host| {
        let queue = queue(host, false);
        queueing(host, queue, 0);
        let file = host.open_device(NAME).unwrap();
        let _pending = file.start_ioctl(4, b"", Vec::new());
        let irp: Guest<IRP> = Guest::new(requests(queue)[0]);
        irp.field::<usize>(offset_of!(IRP, Tail.Overlay.DriverContext) + 24).write(0);
        IoCsqRemoveNextIrp(queue, 0);
    });
    violates(BugCheck::IRQL_UNEXPECTED_VALUE, "CsqReleaseLock returned at DISPATCH_LEVEL", |host| {
        unsafe extern "efiapi" fn keeps(_: usize, _: u8) {}
        let queue = queue(host, false);
        Guest::<usize>::from_address(queue + 40).write(keeps as *const () as usize);
        IoCsqRemoveNextIrp(queue, 0);
    });
}
