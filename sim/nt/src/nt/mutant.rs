// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutexes, which are dispatcher objects: a thread that waits for one holds it, any number of times.

use ndk_abi::nt::KMUTANT;

use super::{
    dispatcher::{check_unawaited, check_wait_follows},
    header::{self, signal_state},
    waits::WAITS,
};
use crate::{
    guest::Guest,
    imports,
    thread::{Thread, current},
    verifier::{BugCheck, broken, rules, violation},
};

fn address(mutex: Guest<KMUTANT>, function: &str) -> usize {
    header::address_of(mutex, (header::MUTANT, "mutex"), function)
}

/// Checks that a thread of a driver, which ends, holds no mutex.
pub(super) fn check_released(me: &Thread) {
    if let Some(mutex) = me.host().state(&WAITS).mutex_of(me.id()) {
        violation(
            BugCheck::THREAD_TERMINATE_HELD_MUTEX,
            format!("a thread of the driver ends and holds the mutex at {mutex:#x}"),
        );
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a mutex, which no thread holds then, and for which none may wait.
    [any]
    fn KeInitializeMutex(mutex: Guest<KMUTANT>, level: u32) {
        let _ = level;
        let me = current();
        let object = mutex.address();
        if me.verifies() {
            check_unawaited(&me, object, "KeInitializeMutex");
        }
        header::initialize(object, header::MUTANT, size_of::<KMUTANT>(), true);
        header::owner(object).write(0);
    }

    /// Releases a mutex once. Returns 0 if the thread holds it no longer. A thread that does not hold it gets an exception, which is not
    /// simulated: a violation.
    [<= DISPATCH_LEVEL]
    fn KeReleaseMutex(mutex: Guest<KMUTANT>, wait: u8) -> i32 {
        let me = current();
        check_wait_follows(&me, "KeReleaseMutex", wait);
        let object = address(mutex, "KeReleaseMutex");
        let release = || {
            let old = signal_state(object).read();
            let is_held = header::owner(object).read() == header::number_of(me.id());
            if is_held {
                signal_state(object).write(old + 1);
            }
            if is_held && old == 0 {
                header::owner(object).write(0);
            }
            is_held.then_some(old)
        };
        let Some(old) = me.host().state(&WAITS).signal(&me, object, release) else {
            broken(rules::MUTEX_OWNER, BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
                "KeReleaseMutex by a thread that does not hold the mutex",
            );
        };
        if old == 0 {
            me.host().state(&WAITS).forget_mutex(me.id(), object);
        }
        old
    }

    /// Returns the state of a mutex: 1 while no thread holds it.
    [<= DISPATCH_LEVEL]
    fn KeReadStateMutex(mutex: Guest<KMUTANT>) -> i32 {
        signal_state(address(mutex, "KeReadStateMutex")).read()
    }
}
