// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rundown protection: bit 0 of the count is set when rundown has begun; the rest is twice the number of owners.

use ndk_abi::nt::EX_RUNDOWN_REF;

use super::{dispatcher::DISPATCHER, pool};
use crate::{
    guest::Guest,
    imports,
    memory::pool::{Request, Tag},
    thread::current,
    verifier::{BugCheck, broken, rules},
};

const ACTIVE: usize = 1;
const ONE: usize = 2;

fn count(reference: Guest<EX_RUNDOWN_REF>) -> Guest<usize> {
    reference.field(0)
}

/// Tag of a cache-aware reference.
const TAG: Tag = Tag(u32::from_le_bytes(*b"ExRu"));

/// Adds `owners`; returns `FALSE` once rundown has begun.
fn acquire(reference: Guest<EX_RUNDOWN_REF>, owners: u32) -> u8 {
    let count = count(reference);
    current().host().state(&DISPATCHER).locked(|| {
        let value = count.read();
        if value & ACTIVE != 0 {
            return 0;
        }
        count.write(value + ONE * owners as usize);
        1
    })
}

/// Removes `owners`, and wakes the thread that waits for the last one.
fn release(function: &str, reference: Guest<EX_RUNDOWN_REF>, owners: u32) {
    let me = current();
    let count = count(reference);
    let held = me.host().state(&DISPATCHER).signal(&me, reference.address(), || {
        let value = count.read();
        let released = ONE * owners as usize;
        let held = value >= released;
        if held {
            count.write(value - released);
        }
        held
    });
    if !held {
        broken(
            rules::RUNDOWN,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{function} without a matching acquisition"),
        );
    }
}

fn wait(reference: Guest<EX_RUNDOWN_REF>) {
    let me = current();
    let count = count(reference);
    me.host().state(&DISPATCHER).wait(&me, reference.address(), || {
        count.write(count.read() | ACTIVE);
        count.read() == ACTIVE
    });
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a rundown reference.
    [<= APC_LEVEL]
    fn ExInitializeRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(0);
    }

    /// Reinitializes a reference that was run down.
    [<= APC_LEVEL]
    fn ExReInitializeRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(0);
    }

    /// Acquires protection; returns `FALSE` once rundown has begun.
    [<= DISPATCH_LEVEL]
    fn ExAcquireRundownProtection(reference: Guest<EX_RUNDOWN_REF>) -> u8 {
        acquire(reference, 1)
    }

    /// Acquires protection `owners` times, or not at all.
    [<= DISPATCH_LEVEL]
    fn ExAcquireRundownProtectionEx(reference: Guest<EX_RUNDOWN_REF>, owners: u32) -> u8 {
        acquire(reference, owners)
    }

    /// Releases protection.
    [<= DISPATCH_LEVEL]
    fn ExReleaseRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        release("ExReleaseRundownProtection", reference, 1);
    }

    /// Releases protection `owners` times.
    [<= DISPATCH_LEVEL]
    fn ExReleaseRundownProtectionEx(reference: Guest<EX_RUNDOWN_REF>, owners: u32) {
        release("ExReleaseRundownProtectionEx", reference, owners);
    }

    /// Begins rundown and waits until all protection is released.
    [<= APC_LEVEL]
    fn ExWaitForRundownProtectionRelease(reference: Guest<EX_RUNDOWN_REF>) {
        wait(reference);
    }

    /// Marks rundown as complete.
    [<= APC_LEVEL]
    fn ExRundownCompleted(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(ACTIVE);
    }

    /// Allocates a cache-aware reference, initialized; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn ExAllocateCacheAwareRundownProtection(kind: i32, tag: u32) -> Guest<EX_RUNDOWN_REF> {
        let _ = (kind, tag);
        let size = size_of::<EX_RUNDOWN_REF>();
        pool::allocate(&current(), Request { size, tag: TAG, zeroed: true, cache_aligned: true }).cast()
    }

    /// Frees a cache-aware reference.
    [<= DISPATCH_LEVEL]
    fn ExFreeCacheAwareRundownProtection(reference: Guest<EX_RUNDOWN_REF>) {
        pool::free(&current(), reference.cast(), Some(TAG));
    }

    /// Does what [`ExAcquireRundownProtection`] does for a cache-aware reference.
    [<= DISPATCH_LEVEL]
    fn ExAcquireRundownProtectionCacheAware(reference: Guest<EX_RUNDOWN_REF>) -> u8 {
        acquire(reference, 1)
    }

    /// Does what [`ExReleaseRundownProtection`] does for a cache-aware reference.
    [<= DISPATCH_LEVEL]
    fn ExReleaseRundownProtectionCacheAware(reference: Guest<EX_RUNDOWN_REF>) {
        release("ExReleaseRundownProtectionCacheAware", reference, 1);
    }

    /// Does what [`ExWaitForRundownProtectionRelease`] does for a cache-aware reference.
    [<= APC_LEVEL]
    fn ExWaitForRundownProtectionReleaseCacheAware(reference: Guest<EX_RUNDOWN_REF>) {
        wait(reference);
    }

    /// Does what [`ExReInitializeRundownProtection`] does for a cache-aware reference.
    [<= APC_LEVEL]
    fn ExReInitializeRundownProtectionCacheAware(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(0);
    }

    /// Does what [`ExRundownCompleted`] does for a cache-aware reference.
    [<= APC_LEVEL]
    fn ExRundownCompletedCacheAware(reference: Guest<EX_RUNDOWN_REF>) {
        count(reference).write(ACTIVE);
    }
}
