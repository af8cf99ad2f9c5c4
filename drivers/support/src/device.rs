// SPDX-License-Identifier: MIT OR Apache-2.0

//! A driver's device object, whose extension points to the driver's state.
#![allow(unsafe_code, reason = "calls of Windows and its structures")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place behind two pointers is one access")]

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_DISPATCH, DRIVER_OBJECT, DRIVER_UNLOAD,
    FILE_DEVICE_SECURE_OPEN, FILE_DEVICE_UNKNOWN, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE,
    IRP_MJ_DEVICE_CONTROL, IoCreateDevice, IoDeleteDevice, STATUS_INSUFFICIENT_RESOURCES,
};

use crate::name::Name;
use crate::status::{Result, check};

/// The device object, deleted when dropped.
pub struct DeviceObject(NonNull<DEVICE_OBJECT>);

// SAFETY: a device object may be used from any thread.
unsafe impl Send for DeviceObject {}
// SAFETY: the I/O manager synchronizes accesses to a device object; a shared reference gives out its address only.
unsafe impl Sync for DeviceObject {}

/// Sets the routines that the I/O manager calls: `dispatch` for opens, closes and IOCTLs. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the driver object of the entry point, which has not returned.
pub unsafe fn set_entry_points(driver: *mut DRIVER_OBJECT, dispatch: DRIVER_DISPATCH, unload: DRIVER_UNLOAD) {
    // SAFETY: this function's contract; the I/O manager lets the entry point fill in these members.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
        if let Some(entry) = object.MajorFunction.get_mut(usize::from(major)) {
            *entry = Some(dispatch);
        }
    }
}

impl DeviceObject {
    /// Creates the device `name`, which cannot be opened yet. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The status of `IoCreateDevice`.
    ///
    /// # Safety
    /// `driver` is the driver's object.
    pub unsafe fn create<const N: usize>(driver: *mut DRIVER_OBJECT, name: &'static Name<N>) -> Result<Self> {
        let mut name = name.string();
        let mut device = null_mut();
        // A device that ships has a security descriptor: IoCreateDeviceSecure, or the INF of its service.
        // SAFETY: the driver's own object; the name is copied.
        check(unsafe {
            IoCreateDevice(
                driver,
                size_of::<*mut ()>() as u32,
                &raw mut name,
                FILE_DEVICE_UNKNOWN,
                FILE_DEVICE_SECURE_OPEN,
                0,
                &raw mut device,
            )
        })?;
        NonNull::new(device).map(Self).ok_or(STATUS_INSUFFICIENT_RESOURCES)
    }

    /// Returns the device object as the kernel's functions take it.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<DEVICE_OBJECT> {
        self.0
    }
}

impl Drop for DeviceObject {
    fn drop(&mut self) {
        // SAFETY: created by `IoCreateDevice` and owned by this value, which is dropped once.
        unsafe { IoDeleteDevice(self.0.as_ptr()) };
    }
}

/// Gives a device its state, which usually owns the [`DeviceObject`]. From here on the device can be opened. `PASSIVE_LEVEL`.
///
/// # Safety
/// `device` is that of a [`DeviceObject`] that has no state yet.
pub unsafe fn open_with<T: Send + Sync>(device: NonNull<DEVICE_OBJECT>, state: Box<T>) {
    // SAFETY: a member of the driver's own device object, whose extension has room for a pointer.
    let extension = unsafe { (*device.as_ptr()).DeviceExtension }.cast::<*mut T>();
    // SAFETY: the extension has room for a pointer, and requests do not reach the device yet.
    unsafe { extension.write(Box::into_raw(state)) };
    // SAFETY: the device is the driver's own, and no other reference to it exists while it is initializing.
    let flags = unsafe { &mut (*device.as_ptr()).Flags };
    *flags &= !DO_DEVICE_INITIALIZING;
}

/// Returns the state behind a device object, or `None` if it has none yet.
///
/// # Safety
/// `object` is a device object of this driver, in a dispatch routine: the driver is not unloaded meanwhile. `T` is the type of
/// its state.
pub unsafe fn state_of<'a, T>(object: *mut DEVICE_OBJECT) -> Option<&'a T> {
    // SAFETY: this function's contract; the extension has a pointer, null until the device has its state.
    let state = unsafe { (*object).DeviceExtension.cast::<*const T>().read() };
    // SAFETY: the state lives until the driver is unloaded.
    unsafe { state.as_ref() }
}

/// Takes the state of the driver's only device, if there is one. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the driver's object, in its unload routine. `T` is the type of the device's state.
pub unsafe fn take_state<T>(driver: *mut DRIVER_OBJECT) -> Option<Box<T>> {
    // SAFETY: the caller passes the driver's own object, which is alive in `DriverUnload`.
    let object = NonNull::new(unsafe { (*driver).DeviceObject })?;
    // SAFETY: the driver's own device, whose extension has a pointer.
    let state = unsafe { (*object.as_ptr()).DeviceExtension.cast::<*mut T>().read() };
    // SAFETY: from `Box::into_raw`, and taken once.
    NonNull::new(state).map(|state| unsafe { Box::from_raw(state.as_ptr()) })
}
