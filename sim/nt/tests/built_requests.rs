// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that the I/O manager builds for drivers (WDK, `IoBuildDeviceIoControlRequest`, `IoBuildSynchronousFsdRequest`).

use std::mem::offset_of;

use crate::on_host::{correct, memory, served::serve, violates, wait};
use ndk_abi::nt::{
    DEVICE_OBJECT, DO_BUFFERED_IO, DO_DIRECT_IO, EVENT_TYPE, IO_STATUS_BLOCK, IRP, IRP_MJ_DEVICE_CONTROL,
    IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE, KEVENT, LARGE_INTEGER, METHOD_BUFFERED,
    METHOD_NEITHER, METHOD_OUT_DIRECT, SL_PENDING_RETURNED, STATUS_PENDING, STATUS_SUCCESS, STATUS_TIMEOUT,
    STATUS_UNSUCCESSFUL,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{
        dispatcher::{KeInitializeEvent, KeReadStateEvent},
        io::{
            allocated::IoFreeIrp,
            built::{IoBuildDeviceIoControlRequest, IoBuildSynchronousFsdRequest},
            dispatch::IofCallDriver,
        },
        mdl::GuestMdl,
        time,
    },
};

/// The arguments that a driver passes with a request.
struct Caller {
    event: Guest<KEVENT>,
    status: Guest<IO_STATUS_BLOCK>,
    input: Guest<u8>,
    output: Guest<u8>,
}

impl Caller {
    fn new(host: &Host) -> Self {
        let event = memory::<KEVENT>(host);
        KeInitializeEvent(event, EVENT_TYPE::NotificationEvent, 0);
        let (input, output) = (memory::<u8>(host), memory::<u8>(host));
        input.write_bytes(b"question");
        output.write_bytes(b"........");
        Self { event, status: memory(host), input, output }
    }

    fn control(&self, device: usize, code: u32, is_internal: bool) -> Guest<IRP> {
        let device = Guest::from_address(device);
        let (event, status) = (self.event, self.status);
        IoBuildDeviceIoControlRequest(
            code,
            device,
            self.input,
            8,
            self.output,
            8,
            is_internal.into(),
            event,
            status,
        )
    }

    fn transfer(&self, device: usize, major: u8, offset: Guest<LARGE_INTEGER>) -> Guest<IRP> {
        let device = Guest::from_address(device);
        IoBuildSynchronousFsdRequest(major.into(), device, self.output, 8, offset, self.event, self.status)
    }

    fn outcome(&self) -> (i32, usize) {
        let status = self.status.field::<i32>(offset_of!(IO_STATUS_BLOCK, Anonymous.Status)).read();
        (status, self.status.read().Information)
    }

    fn output(&self) -> String {
        let mut bytes = [0; 8];
        self.output.read_bytes(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn send(device: usize, irp: Guest<IRP>) -> i32 {
    IofCallDriver(Guest::<DEVICE_OBJECT>::from_address(device), irp)
}

#[test]
fn control_request_returns_output_status_and_event_and_is_freed() {
    correct(|host| {
        let device = serve(host, |request, major| {
            if major != IRP_MJ_DEVICE_CONTROL {
                return -1;
            }
            let header = request.irp.read();
            assert_eq!(header.RequestorMode, 0, "KernelMode");
            // SAFETY: a buffered request has a system buffer.
            let buffer = Guest::new(unsafe { header.AssociatedIrp.SystemBuffer }.cast::<u8>());
            assert!(buffer.holds(b"question"));
            buffer.write_bytes(b"answer");
            request.complete(STATUS_SUCCESS, 6)
        });
        let caller = Caller::new(host);
        let irp = caller.control(device, METHOD_BUFFERED, false);
        assert_eq!(KeReadStateEvent(caller.event), 0);
        assert_eq!(send(device, irp), STATUS_SUCCESS);
        assert_eq!(wait(caller.event.address(), Some(0)), STATUS_SUCCESS);
        assert_eq!((caller.outcome(), caller.output()), ((STATUS_SUCCESS, 6), "answer..".into()));
        assert!(!host.objects.contains("IoBuildDeviceIoControlRequest", irp.address()));
    });
}

#[test]
fn request_that_pends_is_waited_for_and_a_failed_one_has_no_output() {
    correct(|host| {
        let device = serve(host, |request, major| {
            if major != IRP_MJ_INTERNAL_DEVICE_CONTROL {
                return -1;
            }
            let control = request.location().Control | SL_PENDING_RETURNED;
            nt_sim::nt::io::irp::GuestIrp(request.irp).location().field::<u8>(3).write(control);
            nt_sim::current().host().queue_work(move || {
                time::sleep(1_000_000);
                request.complete(STATUS_UNSUCCESSFUL, 4);
            });
            STATUS_PENDING
        });
        let caller = Caller::new(host);
        let irp = caller.control(device, METHOD_BUFFERED, true);
        assert_eq!(send(device, irp), STATUS_PENDING);
        assert_eq!(wait(caller.event.address(), Some(0)), STATUS_TIMEOUT);
        assert_eq!(wait(caller.event.address(), None), STATUS_SUCCESS);
        assert_eq!((caller.outcome().0, caller.output()), (STATUS_UNSUCCESSFUL, "........".into()));
    });
}

#[test]
fn request_without_a_method_has_the_buffers_of_its_driver() {
    correct(|host| {
        let device = serve(host, |request, major| {
            if major != IRP_MJ_DEVICE_CONTROL {
                return -1;
            }
            // SAFETY: the major function is that of a control request, whose location has these parameters.
            let control = unsafe { request.location().Parameters.DeviceIoControl };
            let input = Guest::new(control.Type3InputBuffer.cast::<u8>());
            let output = Guest::new(request.irp.read().UserBuffer.cast::<u8>());
            assert!(input.holds(b"question") && output.holds(b"........"));
            input.write_bytes(b"Q");
            output.write_bytes(b"A");
            request.complete(STATUS_SUCCESS, 0)
        });
        let caller = Caller::new(host);
        assert_eq!(send(device, caller.control(device, METHOD_NEITHER, false)), STATUS_SUCCESS);
        assert!(caller.input.holds(b"Question"));
        assert_eq!(caller.output(), "A.......");
    });
}

/// The buffer is passed as the flags of the device say.
#[test]
fn reads_and_writes_pass_the_buffer_as_the_device_wants_it() {
    correct(|host| {
        for flag in [DO_BUFFERED_IO, DO_DIRECT_IO, 0] {
            let device = serve(host, move |request, major| {
                if ![IRP_MJ_READ, IRP_MJ_WRITE].contains(&major) {
                    return -1;
                }
                // SAFETY: a read or a write, whose parameters are alike.
                let transfer = unsafe { request.location().Parameters.Read };
                assert_eq!((transfer.Length, transfer.ByteOffset.QuadPart), (8, 512));
                let header = request.irp.read();
                let buffer = match flag {
                    // SAFETY: a buffered request has a system buffer.
                    DO_BUFFERED_IO => Guest::new(unsafe { header.AssociatedIrp.SystemBuffer }.cast::<u8>()),
                    DO_DIRECT_IO => {
                        let mdl = GuestMdl(Guest::new(header.MdlAddress));
                        Guest::from_address(mdl.start() + mdl.byte_offset() as usize)
                    }
                    _ => Guest::new(header.UserBuffer.cast::<u8>()),
                };
                if major == IRP_MJ_WRITE {
                    assert!(buffer.holds(b"........"));
                } else {
                    buffer.write_bytes(b"read");
                }
                request.complete(STATUS_SUCCESS, 4)
            });
            let flags =
                Guest::<DEVICE_OBJECT>::from_address(device).field::<u32>(offset_of!(DEVICE_OBJECT, Flags));
            flags.write(flags.read() | flag);
            let offset = memory::<LARGE_INTEGER>(host);
            offset.write(LARGE_INTEGER { QuadPart: 512 });
            let caller = Caller::new(host);
            assert_eq!(send(device, caller.transfer(device, IRP_MJ_WRITE, offset)), STATUS_SUCCESS);
            assert_eq!((caller.outcome(), caller.output()), ((STATUS_SUCCESS, 4), "........".into()));
            assert_eq!(send(device, caller.transfer(device, IRP_MJ_READ, offset)), STATUS_SUCCESS);
            assert_eq!((caller.outcome(), caller.output()), ((STATUS_SUCCESS, 4), "read....".into()));
            nt_sim::nt::io::device::IoDeleteDevice(Guest::from_address(device));
        }
    });
}

#[test]
fn request_that_the_io_manager_frees_is_not_the_drivers_to_free() {
    violates(
        BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
        "of an IRP that IoAllocateIrp has not returned",
        |host| {
            let device = serve(host, |_, _| -1);
            IoFreeIrp(Caller::new(host).control(device, METHOD_OUT_DIRECT, false));
        },
    );
}

#[test]
fn request_is_null_without_memory_and_held_until_it_is_sent() {
    correct(|host| {
        let device = serve(host, |_, _| -1);
        let caller = Caller::new(host);
        host.low_resources.fail_nth(0);
        assert!(caller.control(device, METHOD_BUFFERED, false).is_null());
        let irp = caller.control(device, METHOD_BUFFERED, false);
        assert!(host.objects.contains("IoBuildDeviceIoControlRequest", irp.address()));
        assert_eq!(send(device, irp), STATUS_SUCCESS);
        assert!(!host.objects.contains("IoBuildDeviceIoControlRequest", irp.address()));
    });
}
