// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver object, which the I/O manager references as long as a thread of the driver runs.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use ndk_abi::nt::DRIVER_OBJECT;
use nt::DriverObject;

static OBJECT: AtomicPtr<DRIVER_OBJECT> = AtomicPtr::new(null_mut());

/// Called once, by `DriverEntry`.
pub fn set(object: *mut DRIVER_OBJECT) {
    OBJECT.store(object, Ordering::Release);
}

/// Returns the driver object. Any IRQL.
pub fn get() -> DriverObject {
    DriverObject::new(OBJECT.load(Ordering::Acquire).cast())
}
