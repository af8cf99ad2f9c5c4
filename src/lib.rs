//! viordma.sys: the NDIS miniport of a virtio-net device and the Network Direct provider on it.
#![no_std]

extern crate wdk_panic;

use wdk_alloc::WdkAllocator;
use wdk_sys::{DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, STATUS_SUCCESS};

#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;

/// # Safety
///
/// Called once by the I/O manager, with pointers that are valid for the call. `PASSIVE_LEVEL`.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(_driver: *mut DRIVER_OBJECT, _path: PCUNICODE_STRING) -> NTSTATUS {
    STATUS_SUCCESS
}
