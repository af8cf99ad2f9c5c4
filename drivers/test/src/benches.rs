// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loops that `cargo xtask bench` times: what an import call and a DPC cost in the simulated kernel.

#![allow(clippy::cast_ptr_alignment, reason = "pool blocks are aligned for the structures in them")]

use core::{
    arch::asm,
    ffi::c_void,
    hint::black_box,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use ndk_abi::nt::{
    EVENT_TYPE, KDPC, KEVENT, KSPIN_LOCK, KWAIT_REASON, KeAcquireSpinLockRaiseToDpc, KeGetCurrentIrql,
    KeInitializeDpc, KeInitializeEvent, KeInsertQueueDpc, KeReleaseSpinLock, KeSetEvent,
    KeWaitForSingleObject,
};

use crate::memory::{allocate, free};

/// Operations of each loop, which `cargo xtask bench` divides by.
const OPERATIONS: u32 = 100_000;

/// All loops by name.
pub const ALL: &[(&str, fn())] = &[
    ("bench import calls", import_calls),
    ("bench spin locks", spin_locks),
    ("bench IRQL in cr8", irql_in_cr8),
    ("bench requeued DPCs", requeued_dpcs),
    ("bench awaited DPCs", awaited_dpcs),
];

fn import_calls() {
    for _ in 0..OPERATIONS {
        // SAFETY: `KeGetCurrentIrql` takes nothing and is callable at any IRQL.
        black_box(unsafe { KeGetCurrentIrql() });
    }
}

fn spin_locks() {
    let lock = allocate(size_of::<KSPIN_LOCK>()).cast::<KSPIN_LOCK>();
    for _ in 0..OPERATIONS {
        // SAFETY: an initialized lock (zero), at PASSIVE_LEVEL.
        let level = unsafe { KeAcquireSpinLockRaiseToDpc(lock) };
        // SAFETY: this thread acquired the lock above, at the level that is passed.
        unsafe { KeReleaseSpinLock(lock, level) };
    }
    free(lock.cast());
}

/// Raises and lowers the IRQL as the kernel's inlined functions do.
fn irql_in_cr8() {
    for _ in 0..OPERATIONS / 2 {
        // SAFETY: from PASSIVE_LEVEL to DISPATCH_LEVEL, and back; nothing happens in between.
        unsafe { asm!("mov cr8, {}", "mov cr8, {}", in(reg) 2_u64, in(reg) 0_u64) };
    }
}

/// A DPC, the event it sets after its last run, and the number of runs left.
struct Bench {
    dpc: *mut KDPC,
    event: *mut KEVENT,
}

static LEFT: AtomicU32 = AtomicU32::new(0);

impl Bench {
    fn new() -> Self {
        let (dpc, event) = (allocate(size_of::<KDPC>()), allocate(size_of::<KEVENT>()));
        let this = Self { dpc: dpc.cast(), event: event.cast() };
        // SAFETY: memory of an event's size.
        unsafe { KeInitializeEvent(this.event, EVENT_TYPE::SynchronizationEvent, 0) };
        // SAFETY: memory of a DPC's size.
        unsafe { KeInitializeDpc(this.dpc, Some(run), this.event.cast()) };
        this
    }

    /// Queues the DPC, which runs `times` in a row, and waits for the last run.
    fn run(&self, times: u32) {
        LEFT.store(times, SeqCst);
        // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
        unsafe { KeInsertQueueDpc(self.dpc, null_mut(), null_mut()) };
        // SAFETY: an initialized event, no timeout, at PASSIVE_LEVEL.
        unsafe { KeWaitForSingleObject(self.event.cast(), KWAIT_REASON::Executive, 0, 0, null_mut()) };
    }

    fn free(self) {
        free(self.dpc.cast());
        free(self.event.cast());
    }
}

unsafe extern "efiapi" fn run(dpc: *mut KDPC, event: *mut c_void, _: *mut c_void, _: *mut c_void) {
    if LEFT.fetch_sub(1, SeqCst) > 1 {
        // SAFETY: initialized, and not queued while it runs.
        unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    } else {
        // SAFETY: the event of the waiting thread.
        unsafe { KeSetEvent(event.cast(), 0, 0) };
    }
}

fn requeued_dpcs() {
    let bench = Bench::new();
    bench.run(OPERATIONS);
    bench.free();
}

fn awaited_dpcs() {
    let bench = Bench::new();
    for _ in 0..OPERATIONS {
        bench.run(1);
    }
    bench.free();
}
