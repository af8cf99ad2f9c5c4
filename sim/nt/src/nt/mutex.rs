// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fast mutexes, and guarded ones, which have the same layout.

use std::mem::offset_of;

use super::{critical_region, dispatcher::DISPATCHER, header};
use crate::{
    Irql,
    guest::Guest,
    imports,
    thread::{Thread, current},
    verifier::{BugCheck, broken, rules},
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

/// A kind of mutex: its name in reports.
#[derive(Clone, Copy)]
struct Kind(&'static str);

const FAST: Kind = Kind("a fast mutex");
const GUARDED: Kind = Kind("a guarded mutex");

impl Kind {
    fn take(mutex: Guest<u8>) -> bool {
        let is_free = count(mutex).read() == 1;
        if is_free {
            count(mutex).write(0);
        }
        is_free
    }

    fn acquire(self, me: &Thread, mutex: Guest<u8>) {
        if owner(mutex).read() == number(me) {
            broken(
                rules::FAST_MUTEX,
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("{} was acquired by the thread that holds it already: deadlock", self.0),
            );
        }
        me.host().state(&DISPATCHER).wait(me, mutex.address(), || Self::take(mutex));
        owner(mutex).write(number(me));
    }

    /// Acquires a mutex that is free; returns whether it was.
    fn try_acquire(me: &Thread, mutex: Guest<u8>) -> bool {
        let is_free = me.host().state(&DISPATCHER).locked(|| Self::take(mutex));
        if is_free {
            owner(mutex).write(number(me));
        }
        is_free
    }

    fn release(self, me: &Thread, mutex: Guest<u8>) {
        if owner(mutex).read() != number(me) {
            broken(
                rules::FAST_MUTEX,
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("{} was released by a thread that does not hold it", self.0),
            );
        }
        owner(mutex).write(0);
        me.host().state(&DISPATCHER).signal(me, mutex.address(), || count(mutex).write(1));
    }
}

fn old_irql(mutex: Guest<u8>) -> Guest<u32> {
    mutex.field(offset_of!(FastMutex, old_irql))
}

/// Reports a call that requires that the thread gets no normal kernel APCs.
fn check_region(me: &Thread, function: &str) {
    if me.verifies() && !critical_region::is_inside(me) {
        broken(
            rules::FAST_MUTEX_UNSAFE,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{function} outside of a critical region, below APC_LEVEL"),
        );
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Acquires a fast mutex and raises the IRQL to `APC_LEVEL`.
    [<= APC_LEVEL]
    fn ExAcquireFastMutex(mutex: Guest<u8>) {
        let me = current();
        let old = me.raise(Irql::APC_LEVEL);
        FAST.acquire(&me, mutex);
        old_irql(mutex).write(old.0.into());
    }

    /// Acquires a fast mutex as [`ExAcquireFastMutex`] does if it is free; returns whether it was.
    [<= APC_LEVEL]
    fn ExTryToAcquireFastMutex(mutex: Guest<u8>) -> u8 {
        let me = current();
        let is_acquired = Kind::try_acquire(&me, mutex);
        if is_acquired {
            old_irql(mutex).write(me.raise(Irql::APC_LEVEL).0.into());
        }
        is_acquired.into()
    }

    /// Releases a fast mutex and restores the IRQL.
    [== APC_LEVEL]
    fn ExReleaseFastMutex(mutex: Guest<u8>) {
        let me = current();
        let old = old_irql(mutex).read();
        FAST.release(&me, mutex);
        me.lower(Irql(u8::try_from(old).unwrap_or(0)));
    }

    /// Acquires a fast mutex in a critical region or at `APC_LEVEL`.
    [<= APC_LEVEL]
    fn ExAcquireFastMutexUnsafe(mutex: Guest<u8>) {
        let me = current();
        check_region(&me, "ExAcquireFastMutexUnsafe");
        FAST.acquire(&me, mutex);
    }

    /// Releases a mutex of [`ExAcquireFastMutexUnsafe`].
    [<= APC_LEVEL]
    fn ExReleaseFastMutexUnsafe(mutex: Guest<u8>) {
        let me = current();
        check_region(&me, "ExReleaseFastMutexUnsafe");
        FAST.release(&me, mutex);
    }

    /// Initializes a guarded mutex.
    [<= APC_LEVEL]
    fn KeInitializeGuardedMutex(mutex: Guest<u8>) {
        mutex.fill(0, size_of::<FastMutex>());
        count(mutex).write(1);
    }

    /// Enters a guarded region, and acquires a guarded mutex.
    [<= APC_LEVEL]
    fn KeAcquireGuardedMutex(mutex: Guest<u8>) {
        let me = current();
        GUARDED.acquire(&me, mutex);
        critical_region::enter(&me);
    }

    /// Acquires a guarded mutex as [`KeAcquireGuardedMutex`] does if it is free; returns whether it was.
    [<= APC_LEVEL]
    fn KeTryToAcquireGuardedMutex(mutex: Guest<u8>) -> u8 {
        let me = current();
        let is_acquired = Kind::try_acquire(&me, mutex);
        if is_acquired {
            critical_region::enter(&me);
        }
        is_acquired.into()
    }

    /// Releases a guarded mutex, and leaves the guarded region.
    [<= APC_LEVEL]
    fn KeReleaseGuardedMutex(mutex: Guest<u8>) {
        let me = current();
        GUARDED.release(&me, mutex);
        critical_region::leave(&me, "KeReleaseGuardedMutex");
    }
}
