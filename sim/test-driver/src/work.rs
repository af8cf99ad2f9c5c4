// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work items.

use core::{ffi::c_void, ptr::null_mut};

use ndk_abi::nt::{
    IO_WORKITEM, IoAllocateWorkItem, IoFreeWorkItem, IoQueueWorkItemEx, KeDelayExecutionThread,
    LARGE_INTEGER, WORK_QUEUE_TYPE,
};

/// All services of this file.
pub const ALL: &[(&str, fn())] = &[("work item that runs at unload", runs_at_unload)];

/// Queues a work item that still runs when the driver has unloaded; the I/O manager keeps its code until it returns.
fn runs_at_unload() {
    // SAFETY: at PASSIVE_LEVEL; no device object is needed here.
    let item = unsafe { IoAllocateWorkItem(null_mut()) };
    // SAFETY: a live work item.
    unsafe { IoQueueWorkItemEx(item, Some(free_and_delay), WORK_QUEUE_TYPE::DelayedWorkQueue, null_mut()) };
}

unsafe extern "efiapi" fn free_and_delay(_: *mut c_void, _: *mut c_void, item: *mut IO_WORKITEM) {
    // SAFETY: the work item that runs may be freed.
    unsafe { IoFreeWorkItem(item) };
    let mut interval = LARGE_INTEGER { QuadPart: -200_000 };
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
    crate::memory::stay();
}
