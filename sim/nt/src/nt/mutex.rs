// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fast mutexes.

use std::mem::offset_of;

use super::{dispatcher::DISPATCHER, header};
use crate::{
    Irql,
    guest::Guest,
    imports,
    thread::{Thread, current},
    verifier::{BugCheck, violation},
};

/// `FAST_MUTEX`: the count is 1 while the mutex is free.
#[repr(C)]
struct FastMutex {
    count: i32,
    owner: usize,
    contention: u32,
    event: [u64; 3],
    old_irql: u32,
}

fn count(mutex: Guest<u8>) -> Guest<i32> {
    mutex.field(offset_of!(FastMutex, count))
}

fn owner(mutex: Guest<u8>) -> Guest<usize> {
    mutex.field(offset_of!(FastMutex, owner))
}

fn number(me: &Thread) -> usize {
    header::number_of(me.id())
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Acquires a fast mutex and raises the IRQL to `APC_LEVEL`.
    [<= APC_LEVEL]
    fn ExAcquireFastMutex(mutex: Guest<u8>) {
        let me = current();
        if owner(mutex).read() == number(&me) {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "a fast mutex was acquired by the thread that holds it already: deadlock",
            );
        }
        let old = me.raise(Irql::APC_LEVEL);
        me.host().state(&DISPATCHER).wait(&me, mutex.address(), || {
            let free = count(mutex).read() == 1;
            if free {
                count(mutex).write(0);
            }
            free
        });
        owner(mutex).write(number(&me));
        mutex.field::<u32>(offset_of!(FastMutex, old_irql)).write(old.0.into());
    }

    /// Releases a fast mutex and restores the IRQL.
    [== APC_LEVEL]
    fn ExReleaseFastMutex(mutex: Guest<u8>) {
        let me = current();
        if owner(mutex).read() != number(&me) {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "a fast mutex was released by a thread that does not hold it",
            );
        }
        let old = mutex.field::<u32>(offset_of!(FastMutex, old_irql)).read();
        owner(mutex).write(0);
        me.host().state(&DISPATCHER).signal(&me, mutex.address(), || count(mutex).write(1));
        me.lower(Irql(u8::try_from(old).unwrap_or(0)));
    }
}
