// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work items.

#![allow(clippy::cast_ptr_alignment, reason = "pool blocks are aligned for the structures in them")]

use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use ndk_abi::nt::{
    DEVICE_OBJECT, ExQueueWorkItem, IO_WORKITEM, IoAllocateWorkItem, IoFreeWorkItem, IoQueueWorkItem,
    IoQueueWorkItemEx, KeDelayExecutionThread, LARGE_INTEGER, WORK_QUEUE_ITEM, WORK_QUEUE_TYPE,
};

use crate::memory::{allocate, free, stay};

/// All services of this file.
pub const ALL: &[(&str, fn())] = &[
    ("work item that runs at unload", runs_at_unload),
    ("queue work item twice", queue_work_item_twice),
    ("free queued work item", free_queued_work_item),
    ("queue executive work item twice", queue_executive_work_item_twice),
    ("spin for a work item", spin_for_a_work_item),
];

/// Queues a work item that still runs when the driver has unloaded; the I/O manager keeps its code until it returns.
fn runs_at_unload() {
    // SAFETY: at PASSIVE_LEVEL; no device object is needed here.
    let item = unsafe { IoAllocateWorkItem(null_mut()) };
    // SAFETY: the work item was allocated for the device of this driver and is neither freed nor queued.
    unsafe { IoQueueWorkItemEx(item, Some(free_and_delay), WORK_QUEUE_TYPE::DelayedWorkQueue, null_mut()) };
}

unsafe extern "efiapi" fn free_and_delay(_: *mut c_void, _: *mut c_void, item: *mut IO_WORKITEM) {
    // SAFETY: the work item that runs may be freed.
    unsafe { IoFreeWorkItem(item) };
    let mut interval = LARGE_INTEGER { QuadPart: -200_000 };
    // SAFETY: a work item runs at PASSIVE_LEVEL; the interval is a variable that outlives the call.
    unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
    stay();
}

unsafe extern "efiapi" fn executive_work(_: *mut c_void) {
    HAS_RUN.store(1, SeqCst);
}

/// Whether [`executive_work`] has run.
static HAS_RUN: AtomicU32 = AtomicU32::new(0);

/// Waits for a work item without a call of the kernel.
fn spin_for_a_work_item() {
    let item = queued_work_item();
    while HAS_RUN.load(SeqCst) == 0 {
        core::hint::spin_loop();
    }
    free(item.cast());
}

/// Queues an item, and does not wait until a worker runs it.
fn queued_work_item() -> *mut WORK_QUEUE_ITEM {
    let item = allocate(size_of::<WORK_QUEUE_ITEM>()).cast::<WORK_QUEUE_ITEM>();
    let mut filled = MaybeUninit::<WORK_QUEUE_ITEM>::zeroed();
    // SAFETY: zero is valid for all its members.
    let filled = unsafe { filled.assume_init_mut() };
    filled.WorkerRoutine = Some(executive_work);
    // SAFETY: memory of an item's size.
    unsafe { item.copy_from_nonoverlapping(filled, 1) };
    // SAFETY: an initialized item, in memory of its own.
    unsafe { ExQueueWorkItem(item, WORK_QUEUE_TYPE::DelayedWorkQueue) };
    item
}

/// Frees items until one is still queued: a worker can run some of them before.
fn free_queued_work_item() {
    for _ in 0..1000 {
        free(queued_work_item().cast());
    }
}

/// Queues an item many times: a worker can run some of them before the next one.
fn queue_executive_work_item_twice() {
    let item = queued_work_item();
    for _ in 0..1000 {
        // SAFETY: an initialized item; that it is queued is the violation.
        unsafe { ExQueueWorkItem(item, WORK_QUEUE_TYPE::DelayedWorkQueue) };
    }
}

static BLOCKED: AtomicU32 = AtomicU32::new(0);

unsafe extern "efiapi" fn nothing(_: *mut DEVICE_OBJECT, _: *mut c_void) {
    BLOCKED.fetch_add(1, SeqCst);
}

fn queue_work_item_twice() {
    // SAFETY: at PASSIVE_LEVEL; no device object is needed here.
    let item = unsafe { IoAllocateWorkItem(null_mut()) };
    // A worker takes an item at once; only some of many attempts find it queued.
    for _ in 0..10_000 {
        // SAFETY: a live work item; that it is queued already is the violation.
        unsafe { IoQueueWorkItem(item, Some(nothing), WORK_QUEUE_TYPE::DelayedWorkQueue, null_mut()) };
    }
}
