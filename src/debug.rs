// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines for a kernel debugger, about the start of an adapter and about its events. They are visible with the mask `IHVNETWORK` of the
//! debugger's filter, those about errors always. IRQL <= `DISPATCH_LEVEL`.
//!
//! Each format is a constant, because formatting in Rust calls panic functions (`docs/decisions.md`).
#![allow(unsafe_code, reason = "a variadic function")]

use ndk_abi::ndis::NDIS_HANDLE;
use ndk_abi::nt::DbgPrintEx;
use viordma_inf::events::{Event, Severity};
use virtio_net::{Features, Vectors};

/// Component of network drivers. (`dpfilter.h`: `DPFLTR_IHVNETWORK_ID`)
const COMPONENT: u32 = 80;
/// Levels. (`dpfilter.h`: `DPFLTR_ERROR_LEVEL`, `DPFLTR_WARNING_LEVEL`, `DPFLTR_INFO_LEVEL`)
const ERROR: u32 = 0;
const WARNING: u32 = 1;
const INFO: u32 = 3;

/// Prints that an adapter has started, with the accepted features and the number of its queue pairs.
pub fn started(adapter: NDIS_HANDLE, features: Features, vectors: Vectors) {
    let format = c"viordma: adapter %p started, features %016I64x, queue pairs %u\n";
    // SAFETY: each conversion of the format has an argument of its type, and the format ends with a zero.
    unsafe {
        DbgPrintEx(COMPONENT, INFO, format.as_ptr(), adapter, features.bits(), u32::from(vectors.pairs))
    };
}

/// Prints an event that is written to the system log.
pub fn event(adapter: NDIS_HANDLE, event: Event, [first, second]: [u32; 2]) {
    let level = match event.severity() {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
        Severity::Information => INFO,
    };
    let format = c"viordma: adapter %p, event %u, data %u, %u\n";
    // SAFETY: each conversion of the format has an argument of its type, and the format ends with a zero.
    unsafe { DbgPrintEx(COMPONENT, level, format.as_ptr(), adapter, event.number(), first, second) };
}
