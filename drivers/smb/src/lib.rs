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

mod device;
mod kernel;

driver_support::driver!(device::create);
