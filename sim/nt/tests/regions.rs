// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locks that require or make regions without APCs: guarded mutexes, fast mutexes without a change of level, push locks.
//!
//! What Windows does is known from the documentation of the functions, and of bug check 0x20.

use std::ffi::c_void;

use crate::on_host::{Routine, correct, create_thread, memory, until_written, violates, wait};
use ndk_abi::nt::STATUS_SUCCESS;
use nt_sim::{
    BugCheck, Host, Irql, current,
    guest::Guest,
    nt::{
        critical_region::{
            KeAreApcsDisabled, KeEnterCriticalRegion, KeEnterGuardedRegion, KeLeaveCriticalRegion,
            KeLeaveGuardedRegion,
        },
        handles::ZwClose,
        mutex::{
            ExAcquireFastMutex, ExAcquireFastMutexUnsafe, ExReleaseFastMutex, ExReleaseFastMutexUnsafe,
            ExTryToAcquireFastMutex, KeAcquireGuardedMutex, KeInitializeGuardedMutex, KeReleaseGuardedMutex,
            KeTryToAcquireGuardedMutex,
        },
        push_lock::{
            ExAcquirePushLockExclusiveEx, ExAcquirePushLockSharedEx, ExInitializePushLock,
            ExReleasePushLockExclusiveEx, ExReleasePushLockSharedEx,
        },
        thread_objects::{ObReferenceObjectByHandle, ObfDereferenceObject},
        time,
    },
};

const MISUSE: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
const MILLISECOND: u64 = 1_000_000;

/// A fast mutex and a guarded one have the same layout.
fn mutex(host: &Host) -> Guest<u8> {
    let mutex = memory(host);
    KeInitializeGuardedMutex(mutex);
    mutex
}

/// Runs a thread of a driver beside `meanwhile`, and waits for its end.
fn beside(host: &Host, routine: Routine, context: usize, meanwhile: impl FnOnce()) {
    let handle = create_thread(host, routine, context);
    let object: Guest<usize> = memory(host);
    assert_eq!(ObReferenceObjectByHandle(handle, 0, 0, 0, object, 0), STATUS_SUCCESS);
    meanwhile();
    assert_eq!(wait(object.read(), None), STATUS_SUCCESS);
    ObfDereferenceObject(object.read());
    ZwClose(handle);
}

/// The number of threads that have held the lock.
fn held(lock: *mut c_void) -> Guest<u32> {
    Guest::<u8>::new(lock.cast()).add(1000).cast()
}

unsafe extern "efiapi" fn takes_the_guarded_mutex(mutex: *mut c_void) {
    let mutex: Guest<u8> = Guest::new(mutex.cast());
    assert_eq!(KeTryToAcquireGuardedMutex(mutex), 0);
    KeAcquireGuardedMutex(mutex);
    held(mutex.as_ptr().cast()).write(1);
    KeReleaseGuardedMutex(mutex);
}

#[test]
fn a_guarded_mutex_keeps_others_out_and_disables_apcs() {
    correct(|host| {
        let mutex = mutex(host);
        KeAcquireGuardedMutex(mutex);
        assert_eq!((KeAreApcsDisabled(), current().irql()), (1, Irql::PASSIVE_LEVEL));
        beside(host, takes_the_guarded_mutex, mutex.address(), || {
            time::sleep(3 * MILLISECOND);
            assert_eq!(held(mutex.as_ptr().cast()).read(), 0);
            KeReleaseGuardedMutex(mutex);
            assert_eq!(KeAreApcsDisabled(), 0);
        });
        assert_eq!(held(mutex.as_ptr().cast()).read(), 1);
        assert_eq!(KeTryToAcquireGuardedMutex(mutex), 1);
        assert_eq!(KeAreApcsDisabled(), 1);
        KeReleaseGuardedMutex(mutex);
    });
}

unsafe extern "efiapi" fn fails_to_take_the_fast_mutex(mutex: *mut c_void) {
    let mutex = Guest::new(mutex.cast());
    assert_eq!((ExTryToAcquireFastMutex(mutex), current().irql()), (0, Irql::PASSIVE_LEVEL));
}

#[test]
fn a_fast_mutex_is_acquired_if_it_is_free() {
    correct(|host| {
        let mutex = mutex(host);
        assert_eq!((ExTryToAcquireFastMutex(mutex), current().irql()), (1, Irql::APC_LEVEL));
        ExReleaseFastMutex(mutex);
        assert_eq!(current().irql(), Irql::PASSIVE_LEVEL);
        KeEnterGuardedRegion();
        ExAcquireFastMutexUnsafe(mutex);
        assert_eq!(current().irql(), Irql::PASSIVE_LEVEL);
        beside(host, fails_to_take_the_fast_mutex, mutex.address(), || ());
        ExReleaseFastMutexUnsafe(mutex);
        KeLeaveGuardedRegion();
        ExAcquireFastMutex(mutex);
        ExReleaseFastMutex(mutex);
    });
}

unsafe extern "efiapi" fn shares_then_owns(lock: *mut c_void) {
    let word: Guest<usize> = Guest::new(lock.cast());
    KeEnterCriticalRegion();
    ExAcquirePushLockSharedEx(word, 0);
    held(lock).write(1);
    ExReleasePushLockSharedEx(word, 0);
    ExAcquirePushLockExclusiveEx(word, 0);
    held(lock).write(2);
    ExReleasePushLockExclusiveEx(word, 0);
    KeLeaveCriticalRegion();
}

#[test]
fn a_push_lock_is_shared_or_held_alone() {
    correct(|host| {
        let lock: Guest<usize> = memory(host);
        ExInitializePushLock(lock);
        KeEnterCriticalRegion();
        ExAcquirePushLockSharedEx(lock, 0);
        beside(host, shares_then_owns, lock.address(), || {
            until_written(held(lock.as_ptr().cast()));
            time::sleep(3 * MILLISECOND);
            assert_eq!(held(lock.as_ptr().cast()).read(), 1, "shared, but not alone");
            ExReleasePushLockSharedEx(lock, 0);
        });
        assert_eq!((held(lock.as_ptr().cast()).read(), lock.read()), (2, 0));
        ExAcquirePushLockExclusiveEx(lock, 0);
        ExReleasePushLockExclusiveEx(lock, 0);
        KeLeaveCriticalRegion();
    });
}

#[test]
fn misuse_of_guarded_and_fast_mutexes_is_reported() {
    violates(MISUSE, "a guarded mutex was acquired by the thread that holds it already: deadlock", |host| {
        let mutex = mutex(host);
        KeAcquireGuardedMutex(mutex);
        KeAcquireGuardedMutex(mutex);
    });
    violates(MISUSE, "a guarded mutex was released by a thread that does not hold it", |host| {
        KeReleaseGuardedMutex(mutex(host));
    });
    violates(MISUSE, "ExAcquireFastMutexUnsafe outside of a critical region, below APC_LEVEL", |host| {
        ExAcquireFastMutexUnsafe(mutex(host));
    });
    violates(MISUSE, "ExReleaseFastMutexUnsafe outside of a critical region, below APC_LEVEL", |host| {
        let mutex = mutex(host);
        KeEnterCriticalRegion();
        ExAcquireFastMutexUnsafe(mutex);
        KeLeaveCriticalRegion();
        ExReleaseFastMutexUnsafe(mutex);
    });
    violates(MISUSE, "KeLeaveGuardedRegion by a thread that is in no critical region", |_| {
        KeLeaveGuardedRegion();
    });
}

#[test]
fn misuse_of_push_locks_is_reported() {
    let lock = |host: &Host| {
        let lock: Guest<usize> = memory(host);
        ExInitializePushLock(lock);
        lock
    };
    violates(MISUSE, "ExAcquirePushLockShared outside of a critical region", move |host| {
        ExAcquirePushLockSharedEx(lock(host), 0);
    });
    violates(MISUSE, "by a thread that holds the push lock already: deadlock", move |host| {
        let lock = lock(host);
        KeEnterCriticalRegion();
        ExAcquirePushLockSharedEx(lock, 0);
        ExAcquirePushLockExclusiveEx(lock, 0);
    });
    violates(
        MISUSE,
        "ExReleasePushLockExclusive of a push lock that the thread does not hold so",
        move |host| {
            let lock = lock(host);
            KeEnterCriticalRegion();
            ExAcquirePushLockSharedEx(lock, 0);
            ExReleasePushLockExclusiveEx(lock, 0);
        },
    );
}

unsafe extern "efiapi" fn ends_in_a_region(_: *mut c_void) {
    KeEnterCriticalRegion();
}

#[test]
fn thread_that_ends_in_a_region_is_reported() {
    let code = BugCheck::KERNEL_APC_PENDING_DURING_EXIT;
    violates(code, "a thread ended in 1 critical or guarded region(s)", |host| {
        beside(host, ends_in_a_region, 0, || ());
    });
}
