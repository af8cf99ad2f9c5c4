// SPDX-License-Identifier: MIT OR Apache-2.0

//! A driver that commits one violation: the one its service is named after.
//!
//! `DriverEntry` commits the violation of [`violations::ALL`] that the last part of its registry path names. If it
//! returns, the verifier checks for leaks when the driver unloads. [`benches::ALL`] lists loops to be timed instead.
#![allow(unsafe_code, reason = "a driver: Windows calls it and is called with pointers")]
#![cfg(windows)]
#![no_std]

extern crate wdk_panic;
// For the libraries of the kit, and the handler of exceptions that unwind data name.
extern crate wdk_sys;

mod benches;
mod device;
mod formats;
mod memory;
mod paged;
mod processor;
mod request;
mod stack;
mod violations;
mod work;

use ndk_abi::nt::{DRIVER_OBJECT, NTSTATUS, STATUS_NOT_FOUND, STATUS_SUCCESS, UNICODE_STRING};

/// `DriverUnload` in a `DRIVER_OBJECT`.
const DRIVER_UNLOAD: usize = 0x68;

/// # Safety
/// Called once by the kernel with a driver object and a registry path.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "efiapi" fn driver_entry(
    driver: *mut DRIVER_OBJECT,
    path: *mut UNICODE_STRING,
) -> NTSTATUS {
    // SAFETY: the kernel passes a valid string.
    let path = unsafe { path.read() };
    // SAFETY: the string's own buffer and length.
    let path = unsafe { core::slice::from_raw_parts(path.Buffer, usize::from(path.Length) / 2) };
    let slot =
        driver.wrapping_byte_add(DRIVER_UNLOAD).cast::<unsafe extern "efiapi" fn(*mut DRIVER_OBJECT)>();
    // SAFETY: a member of the driver object, which the driver is to fill in.
    unsafe { slot.write(driver_unload) };
    let name = path.rsplit(|&character| character == u16::from(b'\\')).next().unwrap_or_default();
    let named = |known: &str| known.bytes().map(u16::from).eq(name.iter().copied());
    if let Some((_, start)) = device::ALL.iter().find(|(known, _)| named(known)) {
        return start(driver);
    }
    let mut all =
        violations::ALL.iter().chain(benches::ALL).chain(paged::ALL).chain(formats::ALL).chain(work::ALL);
    match all.find(|(known, _)| named(known)) {
        Some((_, violation)) => {
            violation();
            STATUS_SUCCESS
        }
        None => STATUS_NOT_FOUND,
    }
}

unsafe extern "efiapi" fn driver_unload(_driver: *mut DRIVER_OBJECT) {
    device::unload();
    violations::unload();
}
