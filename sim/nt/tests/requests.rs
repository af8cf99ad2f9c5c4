// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices and requests as a driver sees them. The driver's dispatch routine is a function of the test.
//!
//! What Windows does is known from the documentation of `IoCreateDevice`, `DEVICE_OBJECT` and `IRP_MJ_CREATE`.

use std::{
    mem::offset_of,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use crate::on_host::{
    correct, memory,
    served::{NAME, Request, create, serve},
    violates,
};
use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_HAS_NAME, DO_DEVICE_INITIALIZING, DO_EXCLUSIVE, DRIVER_OBJECT, IRP,
    IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, STATUS_CANCELLED, STATUS_NO_SUCH_DEVICE,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::io::{cancel_lock, complete, device},
};

const PAGE: usize = 4096;
const MILLISECOND: u64 = 1_000_000;

#[test]
fn a_create_request_says_how_the_file_is_opened() {
    correct(|host| {
        let (sent, received) = mpsc::channel();
        serve(host, move |request, major| {
            if major == IRP_MJ_CREATE {
                let location = request.location();
                // SAFETY: the parameters of a create request.
                let create = unsafe { location.Parameters.Create };
                let security = Guest::new(create.SecurityContext).read();
                let _ = sent.send((create.Options, security.DesiredAccess, security.FullCreateOptions));
            }
            -1
        });
        host.open_device(NAME).unwrap().close();
        // FILE_OPEN, synchronous, no directory; GENERIC_READ, GENERIC_WRITE and SYNCHRONIZE.
        assert_eq!(received.recv().unwrap(), (0x0100_0060, 0xc010_0000, 0x20));
    });
}

#[test]
fn an_error_has_no_output_and_a_warning_has() {
    const WARNING: i32 = 0x8000_0005_u32.cast_signed();
    correct(|host| {
        serve(host, |request, major| {
            if major != IRP_MJ_DEVICE_CONTROL {
                return -1;
            }
            // SAFETY: the parameters of an I/O control request.
            let code = unsafe { request.location().Parameters.DeviceIoControl.IoControlCode };
            request.complete(if code == 0 { STATUS_UNSUCCESSFUL } else { WARNING }, 4)
        });
        let file = host.open_device(NAME).unwrap();
        assert_eq!(file.ioctl(0, b"abcd", 4).output, b"");
        assert_eq!(file.ioctl(4, b"abcd", 4).output, b"abcd");
        file.close();
    });
}

static CANCELLED: AtomicUsize = AtomicUsize::new(0);

/// A cancel routine that completes the request later, on a worker.
unsafe extern "efiapi" fn completes_late(device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    CANCELLED.store(device.addr(), SeqCst);
    let request = Request { device: Guest::new(device), irp: Guest::new(irp) };
    let level: Guest<u8> = request.irp.field(offset_of!(IRP, CancelIrql));
    cancel_lock::IoReleaseCancelSpinLock(level.read());
    nt_sim::current().host().queue_work(move || {
        nt_sim::nt::time::sleep(3 * MILLISECOND);
        request.complete(STATUS_CANCELLED, 0);
    });
}

#[test]
fn a_request_that_is_completed_late_is_waited_for() {
    correct(|host| {
        let device =
            serve(
                host,
                |request, major| {
                    if major == IRP_MJ_DEVICE_CONTROL { request.pend(completes_late) } else { -1 }
                },
            );
        let file = host.open_device(NAME).unwrap();
        let pending = file.start_ioctl(0, b"", Vec::new());
        assert!(!pending.is_done());
        let start = host.world().now();
        file.close();
        assert!(host.world().now() - start >= 3 * MILLISECOND);
        assert_eq!(CANCELLED.load(SeqCst), device);
        assert!(pending.is_done());
        let result = pending.wait_for(Duration::ZERO).expect("it is completed");
        assert_eq!(result.status, STATUS_CANCELLED);
    });
}

#[test]
fn a_program_blocks_until_its_request_is_completed() {
    correct(|host| {
        serve(host, |request, major| {
            if major != IRP_MJ_DEVICE_CONTROL {
                return -1;
            }
            let pending = request.pend(completes_late);
            nt_sim::current().host().queue_work(move || {
                nt_sim::nt::time::sleep(3 * MILLISECOND);
                request.cancel_routine().write(0);
                request.complete(STATUS_SUCCESS, 0);
            });
            pending
        });
        let file = host.open_device(NAME).unwrap();
        let start = host.world().now();
        assert_eq!(file.ioctl(0, b"", 0).status, STATUS_SUCCESS);
        assert!(host.world().now() - start >= 3 * MILLISECOND);
        file.close();
    });
}

/// A driver may compare threads, for example of `IRP_MJ_CREATE` and of a request. It must not use the address otherwise.
#[test]
fn a_request_names_the_thread_that_made_it() {
    correct(|host| {
        let (sent, received) = mpsc::channel();
        serve(host, move |request, major| {
            if major == IRP_MJ_DEVICE_CONTROL {
                let thread: usize = request.irp.field(offset_of!(IRP, Tail.Overlay.Thread)).read();
                let _ = sent.send(thread);
            }
            -1
        });
        let file = host.open_device(NAME).unwrap();
        let [of_file, again] = [file.clone(), file.clone()];
        let other = host.spawn("other", move || _ = of_file.ioctl(0, b"", 0));
        other.join().unwrap();
        for _ in 0..2 {
            let _ = again.ioctl(0, b"", 0);
        }
        let [other, first, second] = [(); 3].map(|()| received.recv().unwrap());
        assert!(first == second && first != other);
        for thread in [other, first] {
            // As a pointer to a structure of the kernel is aligned; not canonical, so that its use faults.
            assert_eq!((thread % 0x40, thread >> 48), (0, 0xfe));
        }
        file.close();
    });
}

#[test]
fn a_second_completion_of_an_earlier_request_is_recognized() {
    violates(BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, "was completed a second time", |host| {
        let requests = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = requests.clone();
        serve(host, move |request, _| {
            seen.lock().unwrap().push(request);
            -1
        });
        let file = host.open_device(NAME).unwrap();
        let _ = file.ioctl(0, b"", 0);
        let first = requests.lock().unwrap()[0];
        complete::IofCompleteRequest(first.irp, 0);
    });
}

/// The extension follows the object, and both end at a page without access: nothing else shares their pages.
#[test]
fn a_device_object_describes_its_device() {
    correct(|host| {
        let driver = memory::<DRIVER_OBJECT>(host);
        for (extension, name, exclusive) in
            [(0_u32, None, false), (24, Some(r"\Device\A"), false), (5000, Some(r"\Device\B"), true)]
        {
            let address = create(host, driver, name, extension, exclusive);
            let object = Guest::<DEVICE_OBJECT>::from_address(address).read();
            let size = size_of::<DEVICE_OBJECT>() + extension as usize;
            assert_eq!(usize::from(object.Size), size);
            assert_eq!((address + size.next_multiple_of(16)) % PAGE, 0);
            let behind = if extension == 0 { 0 } else { address + size_of::<DEVICE_OBJECT>() };
            assert_eq!(object.DeviceExtension.addr(), behind);
            let named = if name.is_some() { DO_DEVICE_HAS_NAME } else { 0 };
            let alone = if exclusive { DO_EXCLUSIVE } else { 0 };
            assert_eq!(object.Flags, DO_DEVICE_INITIALIZING | named | alone);
            device::IoDeleteDevice(Guest::from_address(address));
        }
    });
}

#[test]
fn devices_of_a_driver_are_linked_and_the_deleted_ones_are_not() {
    fn linked(driver: Guest<DRIVER_OBJECT>) -> Vec<usize> {
        let some = |device: usize| (device != 0).then_some(device);
        let next =
            |&device: &usize| some(Guest::<DEVICE_OBJECT>::from_address(device).read().NextDevice.addr());
        let first = driver.field::<usize>(offset_of!(DRIVER_OBJECT, DeviceObject)).read();
        std::iter::successors(some(first), next).collect()
    }
    correct(|host| {
        let driver = memory::<DRIVER_OBJECT>(host);
        let [a, b, c, d] = [0; 4].map(|_| create(host, driver, None, 0, false));
        assert_eq!(linked(driver), [d, c, b, a]);
        device::IoDeleteDevice(Guest::from_address(c));
        assert_eq!(linked(driver), [d, b, a]);
        device::IoDeleteDevice(Guest::from_address(d));
        device::IoDeleteDevice(Guest::from_address(a));
        assert_eq!(linked(driver), [b]);
        device::IoDeleteDevice(Guest::from_address(b));
        assert_eq!(linked(driver), []);
    });
}

#[test]
fn a_device_that_is_being_initialized_cannot_be_opened() {
    correct(|host| {
        let driver = memory::<DRIVER_OBJECT>(host);
        create(host, driver, Some(NAME), 0, false);
        assert_eq!(host.open_device(NAME).err(), Some(STATUS_NO_SUCH_DEVICE));
    });
}

#[test]
fn a_deleted_device_stays_until_its_last_file_is_closed() {
    correct(|host| {
        let address = serve(host, |_, _| -1);
        let files = [0; 2].map(|_| host.open_device(NAME).unwrap());
        assert_eq!(files[0].object().read().DeviceObject.addr(), address);
        device::IoDeleteDevice(Guest::from_address(address));
        assert_eq!(host.open_device(NAME).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        files[0].close();
        // The driver still serves it.
        assert_eq!(files[1].ioctl(0, b"", 0).status, STATUS_SUCCESS);
        assert!(host.memory.pfn(address).is_some());
        files[1].close();
        assert!(host.memory.pfn(address).is_none());
    });
}
