// SPDX-License-Identifier: MIT OR Apache-2.0

//! example-consumer.sys: an example of an NDK consumer.
//!
//! A server keeps a store of bytes; clients write to it and read from it over RDMA, the way SMB Direct does it: requests
//! and answers are messages under credits, data moves by RDMA from and to memory that the client registers for each
//! request. Programs reach both by IOCTLs of `\Device\NdkExample`. `README.md` walks through it.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`device`] | the device, its IOCTLs, open files |
//! | [`client`], [`server`] | the two sides |
//! | [`connection`] | queues, credits, messages, the order of closing |
//! | [`ndk`] | NDK objects |
//! | [`os`] | buffers, work items |
//! | [`statistics`] | counters |
//! | crate `driver_support` | the device object, requests, how an adapter is opened; NTSTATUS as an error |
//!
//! Dependencies point down this list. IRQL is `PASSIVE_LEVEL` where a function says so, and <= `DISPATCH_LEVEL`
//! elsewhere.
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

mod client;
mod connection;
mod device;
mod ndk;
mod os;
mod server;
mod statistics;

driver_support::driver!(device::create);
