// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device `\Device\NdkExample`: how it comes and goes, and its requests.

mod control;
mod file;
mod input;
mod link;
mod state;
mod waiting;

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

use driver_support::device::{self, DeviceObject};
use driver_support::status::{Result, no_memory, status_of};
use driver_support::wsk::Wsk;
use fallible::{Arc, try_box};
use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_OBJECT, IRP, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL,
    NTSTATUS, STATUS_DEVICE_NOT_READY, STATUS_INVALID_DEVICE_REQUEST, STATUS_PENDING,
};
use nt::SpinLock;

use self::file::{File, Request};
use self::link::{DEVICE_NAME, Link};
use self::state::Device;
use self::waiting::Waiting;

/// Sets the driver's entry points and creates the device. On failure nothing is left. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the driver object of the entry point.
pub unsafe fn create(driver: *mut DRIVER_OBJECT) -> Result {
    // SAFETY: the caller passes the object that `DriverEntry` got, before any request can arrive.
    unsafe { device::set_entry_points(driver, dispatch, unload) };
    let wsk = Arc::try_new(Wsk::register()?).map_err(no_memory)?;
    // SAFETY: the caller passes the object that `DriverEntry` got, at PASSIVE_LEVEL.
    let object = unsafe { DeviceObject::create(driver, &DEVICE_NAME) }?;
    let raw = object.as_ptr();
    let link = Link::create()?;
    let (server, waiting, servers) = (SpinLock::new(None), Waiting::new(), AtomicU64::new(0));
    let device = Device { _link: link, object, server, waiting, servers, wsk };
    let device = try_box(device).map_err(no_memory)?;
    // SAFETY: the device was created above for this driver, and requests do not reach it before this call.
    unsafe { device::open_with(raw, device) };
    Ok(())
}

impl Device {
    fn handle(&self, request: &Request) -> Result<usize> {
        match request.major() {
            IRP_MJ_CREATE => {
                request.set_file_context(File::new()?);
                Ok(0)
            }
            IRP_MJ_CLEANUP => {
                self.clean_up(request);
                Ok(0)
            }
            IRP_MJ_CLOSE => {
                drop(request.take_file_context());
                Ok(0)
            }
            IRP_MJ_DEVICE_CONTROL => self.control(request),
            _ => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }
}

/// The dispatch routine of all requests. Called in the thread of the caller, at `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn dispatch(object: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let Some(irp) = NonNull::new(irp) else { return STATUS_INVALID_DEVICE_REQUEST };
    // SAFETY: the I/O manager passes a request for this driver, which completes it.
    let request = unsafe { Request::new(irp) };
    // SAFETY: the I/O manager passes a device object of this driver, whose state is a `Device`.
    let outcome = match unsafe { device::state_of::<Device>(object) } {
        Some(device) => device.handle(&request),
        None => Err(STATUS_DEVICE_NOT_READY),
    };
    match outcome {
        Err(STATUS_PENDING) => {
            // Another thread completes it, or has already.
            request.leave_pending()
        }
        Err(status) => request.complete(status, 0),
        Ok(information) => request.complete(status_of(Ok(())), information),
    }
}

/// The driver is unloaded: all its files are closed, so that nothing is in progress. `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn unload(driver: *mut DRIVER_OBJECT) {
    // SAFETY: the I/O manager passes the driver's own object; the state of its device is a `Device`.
    drop(unsafe { device::take_state::<Device>(driver) });
}
