// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device `\Device\SmbDirect` and its IOCTLs. All run in the caller's thread at `PASSIVE_LEVEL`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;

use driver_support::device::{self, DeviceObject};
use driver_support::name::{Name, name};
use driver_support::request::Request;
use driver_support::status::{Result, no_memory, status_of};
use driver_support::wsk::Wsk;
use fallible::try_box;
use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_OBJECT, IRP, IRP_MJ_DEVICE_CONTROL, NTSTATUS, STATUS_DEVICE_NOT_READY,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
};
use ndk_consumer::Adapter;
use ndk_consumer::os::Event as _;
use ndk_consumer::transfer::{Failure, Generated, Report};
use smb_consumer::MemoryStore;
use smb_consumer::control::{self, Answer, Order};

use crate::kernel::{Event, Kernel};

static DEVICE_NAME: Name<17> = name(control::DEVICE);

/// All of the driver's state. The device extension points to it.
struct Device {
    _object: DeviceObject,
    wsk: Wsk,
    kernel: Arc<Kernel>,
    /// A server listens, or has failed to.
    listening: Event,
}

/// Sets the driver's entry points and creates the device. On failure nothing is left. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the driver object of the entry point.
pub unsafe fn create(driver: *mut DRIVER_OBJECT) -> Result {
    // SAFETY: the caller passes the object that `DriverEntry` got, before any request can arrive.
    unsafe { device::set_entry_points(driver, dispatch, unload) };
    let wsk = Wsk::register()?;
    // SAFETY: the caller passes the object that `DriverEntry` got, at PASSIVE_LEVEL.
    let object = unsafe { DeviceObject::create(driver, &DEVICE_NAME) }?;
    let raw = object.as_ptr();
    let device = Device { _object: object, wsk, kernel: Arc::new(Kernel), listening: Event::new() };
    let device = try_box(device).map_err(no_memory)?;
    // SAFETY: the device was created above for this driver, and requests do not reach it before this call.
    unsafe { device::open_with(raw, device) };
    Ok(())
}

impl Device {
    /// Handles a request; returns the number of output bytes.
    fn handle(&self, request: &Request) -> Result<usize> {
        if request.major() != IRP_MJ_DEVICE_CONTROL {
            return Ok(0);
        }
        let code = request.code();
        if code == control::LISTENING {
            self.listening.wait(None);
            return Ok(0);
        }
        let order = Order::parse(&request.input::<{ Order::LEN }>()?).ok_or(STATUS_INVALID_PARAMETER)?;
        let side = match code {
            control::SERVE => {
                let outcome = self.serve(&order);
                // Also if it never listened: the caller of `LISTENING` must not wait.
                self.listening.set();
                outcome?
            }
            control::COPY => self.copy(&order)?,
            _ => return Err(STATUS_INVALID_DEVICE_REQUEST),
        };
        request.output(&Answer::from(side).emit())
    }

    fn serve(&self, order: &Order) -> Result<core::result::Result<Report, Box<Failure>>> {
        let mut store = MemoryStore::default();
        self.with_adapter(order.interface, |adapter| {
            let ready = |_| self.listening.set();
            smb_consumer::serve(adapter, &order.options(), order.local, &mut store, ready, &|_| {})
        })
    }

    fn copy(&self, order: &Order) -> Result<core::result::Result<Report, Box<Failure>>> {
        let source = Generated { seed: order.seed, bytes: order.bytes };
        self.with_adapter(order.interface, |adapter| {
            let options = order.options();
            smb_consumer::copy(adapter, &options, order.local, order.remote, "generated", &source, &|_| {})
        })
    }

    /// Opens the adapter of an interface, and closes it after `body`.
    fn with_adapter<T>(&self, interface: u32, body: impl FnOnce(&Arc<Adapter<Kernel>>) -> T) -> Result<T> {
        let raw = self.wsk.open(interface)?;
        let result = {
            // SAFETY: opened above, and closed below, after `body` has dropped all objects.
            let adapter = unsafe { Adapter::new(&self.kernel, raw) };
            body(&adapter)
        };
        // SAFETY: the adapter and all its objects are closed.
        unsafe { self.wsk.close(raw) };
        Ok(result)
    }
}

/// The dispatch routine of all requests. Called in the thread of the caller, at `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn dispatch(object: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let Some(irp) = NonNull::new(irp) else { return STATUS_INVALID_DEVICE_REQUEST };
    // SAFETY: the I/O manager passes a request for this driver, which completes it. Files have no contexts.
    let request = unsafe { Request::<()>::new(irp) };
    // SAFETY: the I/O manager passes a device object of this driver, whose state is a `Device`.
    let device = unsafe { device::state_of::<Device>(object) };
    let outcome = device.ok_or(STATUS_DEVICE_NOT_READY).and_then(|device| device.handle(&request));
    request.complete(status_of(outcome.map(drop)), outcome.unwrap_or(0))
}

/// The driver is unloaded: all its files are closed, so that nothing is in progress. `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn unload(driver: *mut DRIVER_OBJECT) {
    // SAFETY: the I/O manager passes the driver's own object; the state of its device is a `Device`.
    drop(unsafe { device::take_state::<Device>(driver) });
}
