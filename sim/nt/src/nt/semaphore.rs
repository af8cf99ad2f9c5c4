// SPDX-License-Identifier: MIT OR Apache-2.0

//! Semaphores.

use ndk_abi::nt::KSEMAPHORE;

use super::{
    dispatcher::check_unawaited,
    header::{self, signal_state},
    waits::WAITS,
};
use crate::{
    guest::Guest,
    imports,
    thread::current,
    verifier::{BugCheck, broken, rules},
};

/// Offset of `KSEMAPHORE.Limit`.
const LIMIT: usize = 24;

fn address(semaphore: Guest<KSEMAPHORE>, function: &str) -> usize {
    header::address_of(semaphore, (header::SEMAPHORE, "semaphore"), function)
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a semaphore, for which no thread may wait.
    [<= DISPATCH_LEVEL]
    fn KeInitializeSemaphore(semaphore: Guest<KSEMAPHORE>, count: i32, limit: i32) {
        let me = current();
        if me.verifies() {
            check_unawaited(&me, semaphore.address(), "KeInitializeSemaphore");
        }
        if count < 0 || limit < 1 || count > limit {
            broken(rules::SEMAPHORE_COUNT, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("KeInitializeSemaphore with the count {count} and the limit {limit}"),
            );
        }
        header::initialize(semaphore.address(), header::SEMAPHORE, size_of::<KSEMAPHORE>(), false);
        signal_state(semaphore.address()).write(count);
        semaphore.field::<i32>(LIMIT).write(limit);
    }

    /// Adds to the count of a semaphore; returns the previous count. More than its limit is an exception, which is not simulated: a
    /// violation.
    [<= DISPATCH_LEVEL]
    fn KeReleaseSemaphore(semaphore: Guest<KSEMAPHORE>, increment: i32, adjustment: i32, wait: u8) -> i32 {
        let _ = (increment, wait);
        let me = current();
        let object = address(semaphore, "KeReleaseSemaphore");
        let limit = semaphore.field::<i32>(LIMIT).read();
        let add = || {
            let old = signal_state(object).read();
            let new = old.checked_add(adjustment).filter(|new| adjustment > 0 && *new <= limit);
            if let Some(new) = new {
                signal_state(object).write(new);
            }
            (old, new.is_some())
        };
        let (old, is_added) = me.host().state(&WAITS).signal(&me, object, add);
        if !is_added {
            broken(rules::SEMAPHORE_COUNT, BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
                format!("KeReleaseSemaphore adds {adjustment} to the count {old}, and its limit is {limit}"),
            );
        }
        old
    }

    /// Returns the count of a semaphore.
    [any]
    fn KeReadStateSemaphore(semaphore: Guest<KSEMAPHORE>) -> i32 {
        signal_state(address(semaphore, "KeReadStateSemaphore")).read()
    }
}
