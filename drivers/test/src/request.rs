// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that the driver holds.

use ndk_abi::nt::{IO_STACK_LOCATION, IRP};

/// Returns the driver's stack location of a request that it holds.
pub fn location(irp: *mut IRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: a request that the driver holds.
    let request = unsafe { &*irp };
    // SAFETY: the alternative of a request that runs.
    unsafe { request.Tail.Overlay.CurrentStackLocation }
}
