// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device `\Device\NdkExample`: how it comes and goes, and its requests.

mod control;
mod file;
mod input;
mod name;
mod request;
mod waiting;

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicU64;

use fallible::{Arc, try_box};
use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_OBJECT, FILE_DEVICE_SECURE_OPEN, FILE_DEVICE_UNKNOWN, IRP,
    IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IoCreateDevice, IoCreateSymbolicLink,
    IoDeleteDevice, IoDeleteSymbolicLink, NTSTATUS, STATUS_DEVICE_NOT_READY, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_PENDING,
};
use nt::SpinLock;

use self::file::File;
use self::name::{Name, name};
use self::request::Request;
use self::waiting::Waiting;
use crate::server::Server;
use crate::status::{Result, check, no_memory, status_of};
use crate::wsk::Wsk;

static DEVICE_NAME: Name<18> = name(r"\Device\NdkExample");
static LINK_NAME: Name<22> = name(r"\DosDevices\NdkExample");

/// All of the driver's state. The device extension points to it.
pub struct Device {
    // Declared in the order in which unloading needs them dropped: no more opens, then the rest.
    _link: Link,
    object: DeviceObject,
    /// The running server.
    server: SpinLock<Option<Running>>,
    /// Requests that wait for the end of the server.
    waiting: Waiting,
    /// Servers so far.
    servers: AtomicU64,
    wsk: Arc<Wsk>,
}

/// A server, and the open file that started it: it ends with that file at the latest.
struct Running {
    server: Server,
    owner: usize,
    number: u64,
}

/// The device object, deleted when dropped.
struct DeviceObject(NonNull<DEVICE_OBJECT>);

/// The symbolic link, deleted when dropped.
struct Link;

// SAFETY: a device object may be used from any thread.
unsafe impl Send for DeviceObject {}
// SAFETY: as above.
unsafe impl Sync for DeviceObject {}

/// Sets the driver's entry points and creates the device. On failure nothing is left. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the driver object of the entry point.
pub unsafe fn create(driver: *mut DRIVER_OBJECT) -> Result {
    // SAFETY: this function's contract; the I/O manager lets the entry point fill in these members.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
        if let Some(entry) = object.MajorFunction.get_mut(usize::from(major)) {
            *entry = Some(dispatch);
        }
    }
    let wsk = Arc::try_new(Wsk::register()?).map_err(no_memory)?;
    // SAFETY: this function's contract.
    let object = unsafe { DeviceObject::create(driver) }?;
    let raw = object.0;
    let link = Link::create()?;
    let (server, waiting, servers) = (SpinLock::new(None), Waiting::new(), AtomicU64::new(0));
    let device = Device { _link: link, object, server, waiting, servers, wsk };
    let device = try_box(device).map_err(no_memory)?;
    // SAFETY: a member of the driver's own device object, whose extension has room for a pointer.
    let extension = unsafe { (*raw.as_ptr()).DeviceExtension }.cast::<*mut Device>();
    // SAFETY: as above.
    unsafe { extension.write(Box::into_raw(device)) };
    // SAFETY: as above. From here on the device can be opened.
    let flags = unsafe { &mut (*raw.as_ptr()).Flags };
    *flags &= !DO_DEVICE_INITIALIZING;
    Ok(())
}

impl DeviceObject {
    /// # Safety
    /// `driver` is the driver's object.
    unsafe fn create(driver: *mut DRIVER_OBJECT) -> Result<Self> {
        let mut name = DEVICE_NAME.string();
        let mut device = null_mut();
        // A device that ships has a security descriptor: IoCreateDeviceSecure, or the INF of its service.
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
        NonNull::new(device).map(Self).ok_or(STATUS_INSUFFICIENT_RESOURCES)
    }
}

impl Drop for DeviceObject {
    fn drop(&mut self) {
        // SAFETY: created once, deleted once.
        unsafe { IoDeleteDevice(self.0.as_ptr()) };
    }
}

impl Link {
    fn create() -> Result<Self> {
        let (mut link, mut device) = (LINK_NAME.string(), DEVICE_NAME.string());
        // SAFETY: both names are copied.
        check(unsafe { IoCreateSymbolicLink(&raw mut link, &raw mut device) })?;
        Ok(Self)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut link = LINK_NAME.string();
        // SAFETY: created once, deleted once. It cannot fail for a link that exists.
        unsafe { IoDeleteSymbolicLink(&raw mut link) };
    }
}

impl Device {
    /// Returns the state behind a device object of this driver.
    ///
    /// # Safety
    /// `object` is a device object of this driver, in a dispatch routine: the driver is not unloaded meanwhile.
    unsafe fn of<'a>(object: *mut DEVICE_OBJECT) -> Option<&'a Self> {
        // SAFETY: this function's contract; the extension has a pointer, null until the device is complete.
        let extension = unsafe { (*object).DeviceExtension }.cast::<*mut Self>();
        // SAFETY: as above.
        let device = unsafe { extension.read() };
        // SAFETY: the state lives until the driver is unloaded.
        unsafe { device.as_ref() }
    }

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

    /// The last handle of an open file is closed: ends all that the file has started. `PASSIVE_LEVEL`.
    fn clean_up(&self, request: &Request) {
        let Some(file) = request.file_context() else { return };
        self.waiting.cancel_of(request.file());
        file.close();
        let is_owner = |running: &mut Running| running.owner == request.file();
        let owned = self.server.lock().take_if(is_owner);
        self.stopped(owned);
    }

    /// Ends a server that is taken from the device, and the requests that wait for its end. `PASSIVE_LEVEL`.
    fn stopped(&self, running: Option<Running>) {
        if let Some(running) = running {
            drop(running.server);
            self.waiting.server_ended(running.number);
        }
    }
}

/// The dispatch routine of all requests. Called in the thread of the caller, at `PASSIVE_LEVEL`.
unsafe extern "efiapi" fn dispatch(object: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let Some(irp) = NonNull::new(irp) else { return STATUS_INVALID_DEVICE_REQUEST };
    // SAFETY: the I/O manager passes a request for this driver, which completes it.
    let request = unsafe { Request::new(irp) };
    // SAFETY: the I/O manager passes a device object of this driver.
    let outcome = match unsafe { Device::of(object) } {
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
    // SAFETY: the I/O manager passes the driver's own object.
    let object = unsafe { (*driver).DeviceObject };
    if object.is_null() {
        return;
    }
    // SAFETY: the driver's only device; its extension has a pointer, set by `create`.
    let extension = unsafe { (*object).DeviceExtension }.cast::<*mut Device>();
    // SAFETY: as above.
    let device = unsafe { extension.read() };
    // SAFETY: from `Box::into_raw`, and not used afterwards.
    drop(unsafe { Box::from_raw(device) });
}
