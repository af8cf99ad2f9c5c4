// SPDX-License-Identifier: MIT OR Apache-2.0

//! A driver with a device, whose dispatch routine is a function of the test.

use std::mem::offset_of;

use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_OBJECT, IO_STACK_LOCATION, IRP, SL_PENDING_RETURNED,
    STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
};
use nt_sim::{
    Host,
    guest::Guest,
    nt::io::{complete, device, irp::GuestIrp},
};

use super::{counted, memory};

/// The name of the device.
pub const NAME: &str = r"\Device\Native";

/// A request that the driver has.
#[derive(Clone, Copy)]
pub struct Request {
    pub device: Guest<DEVICE_OBJECT>,
    pub irp: Guest<IRP>,
}

impl Request {
    pub fn location(self) -> IO_STACK_LOCATION {
        GuestIrp(self.irp).location().read()
    }

    pub fn complete(self, status: i32, information: usize) -> i32 {
        GuestIrp(self.irp).set_status(status, information);
        complete::IofCompleteRequest(self.irp, 0);
        status
    }

    /// Makes the request pending; `cancelled` is its cancel routine.
    pub fn pend(self, cancelled: unsafe extern "efiapi" fn(*mut DEVICE_OBJECT, *mut IRP)) -> i32 {
        let control = GuestIrp(self.irp).location().field::<u8>(offset_of!(IO_STACK_LOCATION, Control));
        control.write(control.read() | SL_PENDING_RETURNED);
        self.cancel_routine().write(cancelled as *const () as usize);
        STATUS_PENDING
    }

    pub fn cancel_routine(self) -> Guest<usize> {
        self.irp.field(offset_of!(IRP, CancelRoutine))
    }
}

type Routine = Box<dyn Fn(Request, u8) -> i32 + Send + Sync>;

unsafe extern "efiapi" fn dispatch(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> i32 {
    let request = Request { device: Guest::new(device), irp: Guest::new(irp) };
    let extension: Guest<Guest<Routine>> = Guest::new(request.device.read().DeviceExtension.cast());
    // SAFETY: `serve` stored it, and it is never freed.
    let routine = unsafe { &*extension.read().as_ptr() };
    routine(request, request.location().MajorFunction)
}

/// Makes a device; returns its address.
pub fn create(
    host: &Host,
    driver: Guest<DRIVER_OBJECT>,
    name: Option<&str>,
    extension: u32,
    exclusive: bool,
) -> usize {
    let result = memory::<usize>(host);
    let name: Guest<UNICODE_STRING> = name.map_or(Guest::null(), |name| counted(host, name, 0));
    let status = device::IoCreateDevice(driver, extension, name, 0x22, 0x100, exclusive.into(), result);
    assert_eq!(status, STATUS_SUCCESS);
    result.read()
}

fn flags(device: usize) -> Guest<u32> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, Flags))
}

/// Makes a driver with a device, whose requests `routine` gets; create, cleanup and close succeed without it if it returns -1.
pub fn serve(host: &Host, routine: impl Fn(Request, u8) -> i32 + Send + Sync + 'static) -> usize {
    let driver = memory::<DRIVER_OBJECT>(host);
    let entries: Guest<usize> = driver.field(offset_of!(DRIVER_OBJECT, MajorFunction));
    for major in 0..28 {
        entries.add(major).write(dispatch as *const () as usize);
    }
    let device = create(host, driver, Some(NAME), 8, false);
    let routine: Routine = Box::new(move |request, major| match routine(request, major) {
        -1 => request.complete(STATUS_SUCCESS, 0),
        status => status,
    });
    let extension = Guest::from_address(device + size_of::<DEVICE_OBJECT>());
    extension.write(std::ptr::from_mut(Box::leak(Box::new(routine))));
    flags(device).write(flags(device).read() & !DO_DEVICE_INITIALIZING);
    device
}
