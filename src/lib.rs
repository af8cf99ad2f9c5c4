// SPDX-License-Identifier: MIT OR Apache-2.0

//! viordma.sys: the NDIS miniport of a virtio-net device, and the Network Direct provider on it.
//!
//! This crate connects NDIS with the crates that do the work: [`virtio_net`] drives the device, [`ndk_provider`] is the NDK
//! provider over the RoCEv2 engine.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`miniport::register`] | `DriverEntry`'s registration with NDIS: the table of all handlers |
//! | [`miniport::initialize`], [`miniport::lifecycle`] | bring an adapter up; pause, restart, halt, shutdown |
//! | [`miniport::dpc`] | the DPCs: received frames, free transmit slots, configuration changes |
//! | [`miniport::send`], [`miniport::receive`] | the frames of the protocol stack |
//! | [`miniport::oid_table`], [`ndk::queries`] | OID requests |
//! | [`miniport::link`] | link state |
//! | [`ndk::open`], [`ndk::provider`] | registration as an NDK provider; the provider of an adapter |
//! | [`nic`] | queues, interrupts, DMA, registers |
//! | [`config`], [`events`], [`debug`] | registry keywords; event log; lines for a debugger |
//! | [`etw`], [`trace`], [`engine_trace`] | the trace: events to ETW, the last events of an adapter's engine |
//! | [`pool`] | memory |
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

mod config;
mod debug;
mod driver_object;
mod engine_trace;
mod etw;
mod events;
mod miniport;
mod nbl;
mod ndk;
mod nic;
mod pool;
mod query_answer;
mod trace;

use core::mem::{align_of, offset_of, size_of};

use ndk_abi::nt as abi;
use wdk_sys::{DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, UNICODE_STRING};

#[global_allocator]
static ALLOCATOR: pool::NonpagedPool = pool::NonpagedPool;

// The types of `wdk-sys` in the driver's entry point have the layouts of the ABI table.
const _: () = {
    assert!(size_of::<DRIVER_OBJECT>() == size_of::<abi::DRIVER_OBJECT>());
    assert!(align_of::<DRIVER_OBJECT>() == align_of::<abi::DRIVER_OBJECT>());
    assert!(size_of::<UNICODE_STRING>() == size_of::<abi::UNICODE_STRING>());
    assert!(offset_of!(UNICODE_STRING, Length) == offset_of!(abi::UNICODE_STRING, Length));
    assert!(offset_of!(UNICODE_STRING, MaximumLength) == offset_of!(abi::UNICODE_STRING, MaximumLength));
    assert!(offset_of!(UNICODE_STRING, Buffer) == offset_of!(abi::UNICODE_STRING, Buffer));
    assert!(size_of::<NTSTATUS>() == size_of::<abi::NTSTATUS>());
};

/// The driver's entry point.
///
/// # Safety
/// Called once by the I/O manager, with pointers that are valid for the call. `PASSIVE_LEVEL`.
#[allow(unsafe_code, reason = "the I/O manager calls it by its name, with pointers")]
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: *mut DRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: this function's contract; the two pointer types are the same (asserted above).
    unsafe { miniport::register::register(driver.cast(), path.cast_mut().cast()) }
}
