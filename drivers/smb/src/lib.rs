// SPDX-License-Identifier: MIT OR Apache-2.0

//! smb-driver.sys: client and server of SMB Direct in a driver.
//!
//! The code of `smb-consumer`, which tests also link natively, compiled for the kernel. Its IOCTLs are those of
//! `smb_consumer::control`: each runs one side of a copy in the caller's thread.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`device`] | the device, its IOCTLs |
//! | [`kernel`] | the system services of a consumer, from the kernel |
//!
//! It is for tests: unlike that example, it ends the system when an allocation of a few bytes fails.
#![allow(unsafe_code, reason = "a driver: Windows calls it and is called with pointers")]
#![cfg(windows)]
#![no_std]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unsafe_op_in_unsafe_fn
)]

extern crate alloc;
extern crate wdk_panic;

mod device;
mod kernel;

use driver_support::status::status_of;
use ndk_abi::nt::{DRIVER_OBJECT, NTSTATUS, UNICODE_STRING};
use wdk_alloc::WdkAllocator;

/// Nonpaged pool.
#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;

/// The driver's entry point.
///
/// # Safety
/// Called once by the I/O manager, with pointers that are valid for the call. `PASSIVE_LEVEL`.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "efiapi" fn driver_entry(
    driver: *mut DRIVER_OBJECT,
    _path: *mut UNICODE_STRING,
) -> NTSTATUS {
    // SAFETY: the I/O manager calls `DriverEntry` once, at PASSIVE_LEVEL, with the driver's object.
    status_of(unsafe { device::create(driver) })
}
