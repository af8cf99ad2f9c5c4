// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device `\Device\SmbDirect` and its IOCTLs. All run in the caller's thread at `PASSIVE_LEVEL`.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place behind two pointers is one access")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::{NonNull, null_mut};

use fallible::try_box;
use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_OBJECT, FILE_DEVICE_SECURE_OPEN, FILE_DEVICE_UNKNOWN,
    IO_STACK_LOCATION, IO_STATUS_BLOCK_Anonymous, IRP, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE,
    IRP_MJ_DEVICE_CONTROL, IoCreateDevice, IoDeleteDevice, IofCompleteRequest, NTSTATUS,
    STATUS_BUFFER_TOO_SMALL, STATUS_DEVICE_NOT_READY, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
};
use ndk_consumer::Adapter;
use ndk_consumer::os::Event as _;
use ndk_consumer::transfer::{Failure, Generated, Report};
use smb_consumer::MemoryStore;
use smb_consumer::control::{self, Answer, Order};

use crate::kernel::{Event, Kernel};
use crate::name::{Name, name};
use crate::status::{Result, check, no_memory, status_of};
use crate::wsk::Wsk;

static DEVICE_NAME: Name<17> = name(control::DEVICE);

/// All of the driver's state. The device extension points to it.
struct Device {
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
    let state = Device { wsk: Wsk::register()?, kernel: Arc::new(Kernel), listening: Event::new() };
    let state = try_box(state).map_err(no_memory)?;
    // SAFETY: this function's contract; the I/O manager lets the entry point fill in these members.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
        if let Some(entry) = object.MajorFunction.get_mut(usize::from(major)) {
            *entry = Some(dispatch);
        }
    }
    let (mut name, mut device) = (DEVICE_NAME.string(), null_mut());
    // SAFETY: the driver's own object; the name is copied.
    check(unsafe {
        IoCreateDevice(
            driver,
            size_of::<*mut Device>() as u32,
            &raw mut name,
            FILE_DEVICE_UNKNOWN,
            FILE_DEVICE_SECURE_OPEN,
            0,
            &raw mut device,
        )
    })?;
    let device = NonNull::new(device).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
    // SAFETY: a member of the driver's own device object, whose extension has room for a pointer.
    let extension = unsafe { (*device.as_ptr()).DeviceExtension }.cast::<*mut Device>();
    // SAFETY: as above.
    unsafe { extension.write(Box::into_raw(state)) };
    // SAFETY: as above. From here on the device can be opened.
    let flags = unsafe { &mut (*device.as_ptr()).Flags };
    *flags &= !DO_DEVICE_INITIALIZING;
    Ok(())
}

impl Device {
    /// Handles an IOCTL; returns its output.
    fn control(&self, code: u32, input: &[u8]) -> Result<Vec<u8>> {
        if code == control::LISTENING {
            self.listening.wait(None);
            return Ok(Vec::new());
        }
        let order = Order::parse(input).ok_or(STATUS_INVALID_PARAMETER)?;
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
        Ok(Answer::from(side).emit())
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

/// Handles a request; returns the number of output bytes.
///
/// # Safety
/// Both are those of a call of the dispatch routine.
unsafe fn handle(object: *mut DEVICE_OBJECT, irp: NonNull<IRP>) -> Result<usize> {
    // SAFETY: the request is this driver's; this alternative of the union is the one in use until it is completed.
    let location = unsafe { (*irp.as_ptr()).Tail.Overlay.CurrentStackLocation };
    // SAFETY: the current stack location of the request.
    let location: &IO_STACK_LOCATION = unsafe { &*location };
    if location.MajorFunction != IRP_MJ_DEVICE_CONTROL {
        return Ok(0);
    }
    // SAFETY: a device object of this driver; its extension has a pointer, null until the device is complete.
    let device = unsafe { (*object).DeviceExtension.cast::<*const Device>().read() };
    // SAFETY: the state lives until the driver is unloaded.
    let device = unsafe { device.as_ref() }.ok_or(STATUS_DEVICE_NOT_READY)?;
    // SAFETY: the alternative of IRP_MJ_DEVICE_CONTROL.
    let parameters = unsafe { location.Parameters.DeviceIoControl };
    // SAFETY: the request is this driver's; the buffer of the buffered method.
    let buffer = unsafe { (*irp.as_ptr()).AssociatedIrp.SystemBuffer }.cast::<u8>();
    let mut input = [0; Order::LEN];
    let length = parameters.InputBufferLength as usize;
    let input = input.get_mut(..length).ok_or(STATUS_INVALID_PARAMETER)?;
    if length != 0 && !buffer.is_null() {
        // SAFETY: the I/O manager has copied `length` bytes of input to the buffer.
        unsafe { buffer.copy_to_nonoverlapping(input.as_mut_ptr(), length) };
    }
    let output = device.control(parameters.IoControlCode, input)?;
    if output.len() > parameters.OutputBufferLength as usize || (buffer.is_null() && !output.is_empty()) {
        return Err(STATUS_BUFFER_TOO_SMALL);
    }
    if !output.is_empty() {
        // SAFETY: the length was checked.
        unsafe { buffer.copy_from_nonoverlapping(output.as_ptr(), output.len()) };
    }
    Ok(output.len())
}

/// The dispatch routine of all requests. Called in the thread of the caller, at `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn dispatch(object: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let Some(irp) = NonNull::new(irp) else { return STATUS_INVALID_DEVICE_REQUEST };
    // SAFETY: the I/O manager passes a device object of this driver and a request for it.
    let outcome = unsafe { handle(object, irp) };
    let (status, information) = (status_of(outcome.map(drop)), outcome.unwrap_or(0));
    // SAFETY: the request is this driver's until the call below.
    let block = unsafe { &mut (*irp.as_ptr()).IoStatus };
    block.Anonymous = IO_STATUS_BLOCK_Anonymous { Status: status };
    block.Information = information;
    // SAFETY: completed once, and not used afterwards. IO_NO_INCREMENT.
    unsafe { IofCompleteRequest(irp.as_ptr(), 0) };
    status
}

/// The driver is unloaded: all its files are closed, so that nothing is in progress. `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn unload(driver: *mut DRIVER_OBJECT) {
    // SAFETY: the I/O manager passes the driver's own object.
    let object = unsafe { (*driver).DeviceObject };
    if object.is_null() {
        return;
    }
    // SAFETY: the driver's only device; its extension has the pointer that `create` wrote.
    let device = unsafe { (*object).DeviceExtension.cast::<*mut Device>().read() };
    // SAFETY: created once, deleted once.
    unsafe { IoDeleteDevice(object) };
    // SAFETY: from `Box::into_raw`, and not used afterwards.
    drop(unsafe { Box::from_raw(device) });
}
