// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutexes that are dispatcher objects, and remove locks.

use std::ffi::c_void;

use crate::on_host::{Routine, correct, create_thread, memory, until_written, violates, wait};
use ndk_abi::nt::{
    EVENT_TYPE, KMUTANT, KWAIT_REASON, LARGE_INTEGER, STATUS_DELETE_PENDING, STATUS_SUCCESS, STATUS_TIMEOUT,
    WAIT_TYPE,
};
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{
        dispatcher::{KeInitializeEvent, KeWaitForMultipleObjects},
        io::remove_lock::{
            IoAcquireRemoveLockEx, IoInitializeRemoveLockEx, IoReleaseRemoveLockAndWaitEx,
            IoReleaseRemoveLockEx,
        },
        mutant::{KeInitializeMutex, KeReadStateMutex, KeReleaseMutex},
        thread_objects::PsTerminateSystemThread,
        time,
    },
};

const MISUSE: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;

/// Looks whether an object can be taken.
fn poll(object: usize) -> i32 {
    wait(object, Some(0))
}

fn start(host: &Host, routine: Routine, context: usize) {
    create_thread(host, routine, context);
    time::sleep(5_000_000);
}

fn mutex(host: &Host) -> Guest<KMUTANT> {
    let mutex = memory(host);
    KeInitializeMutex(mutex, 0);
    mutex
}

/// Places behind a mutex, by which threads know of each other.
fn place(mutex: usize, number: usize) -> Guest<u32> {
    Guest::<u8>::from_address(mutex).add(1000).cast::<u32>().add(number)
}

unsafe extern "efiapi" fn does_not_get_it(mutex: *mut c_void) {
    let mutex = mutex.expose_provenance();
    assert_eq!(poll(mutex), STATUS_TIMEOUT);
    place(mutex, 0).write(1);
}

unsafe extern "efiapi" fn takes_and_releases(mutex: *mut c_void) {
    let object = mutex.expose_provenance();
    assert_eq!(wait(object, None), STATUS_SUCCESS);
    place(object, 1).write(1);
    until_written(place(object, 2));
    assert_eq!(KeReleaseMutex(Guest::new(mutex.cast()), 0), 0);
}

/// WDK, "Introduction to Mutex Objects": the thread that holds a mutex may wait for it again, and releases it as often.
#[test]
fn mutex_is_held_by_one_thread_as_often_as_it_waited() {
    correct(|host| {
        let mutex = mutex(host);
        let object = mutex.address();
        assert_eq!(KeReadStateMutex(mutex), 1);
        assert_eq!(wait(object, None), STATUS_SUCCESS);
        assert_eq!(poll(object), STATUS_SUCCESS, "again");
        start(host, does_not_get_it, object);
        until_written(place(object, 0));
        start(host, takes_and_releases, object);
        assert_ne!(KeReleaseMutex(mutex, 0), 0, "still held once");
        time::sleep(5_000_000);
        assert_eq!(poll(object), STATUS_SUCCESS, "the other thread still waits");
        assert_ne!(KeReleaseMutex(mutex, 0), 0);
        assert_eq!(KeReleaseMutex(mutex, 0), 0);
        until_written(place(object, 1));
        assert_eq!(poll(object), STATUS_TIMEOUT, "the thread that waited has it");
        place(object, 2).write(1);
        assert_eq!(wait(object, None), STATUS_SUCCESS);
        assert_eq!(KeReleaseMutex(mutex, 0), 0);
        assert_eq!(KeReadStateMutex(mutex), 1);
    });
}

#[test]
fn wait_for_all_takes_a_mutex_with_the_others() {
    correct(|host| {
        let mutex = mutex(host);
        let event = memory(host);
        KeInitializeEvent(event, EVENT_TYPE::NotificationEvent, 0);
        let objects: Guest<usize> = memory(host);
        objects.write(mutex.address());
        objects.add(1).write(event.address());
        let both = || {
            let mut time = LARGE_INTEGER { QuadPart: 0 };
            let now = Guest::new(&raw mut time);
            KeWaitForMultipleObjects(2, objects, WAIT_TYPE::WaitAll, KWAIT_REASON::Executive, 0, 0, now, 0)
        };
        assert_eq!(both(), STATUS_TIMEOUT);
        assert_eq!(KeReadStateMutex(mutex), 1, "not taken alone");
        KeInitializeEvent(event, EVENT_TYPE::NotificationEvent, 1);
        assert_eq!(both(), STATUS_SUCCESS);
        assert_eq!(KeReleaseMutex(mutex, 0), 0);
    });
}

unsafe extern "efiapi" fn keeps_it(mutex: *mut c_void) {
    assert_eq!(wait(mutex.expose_provenance(), None), STATUS_SUCCESS);
}

unsafe extern "efiapi" fn keeps_it_and_terminates(mutex: *mut c_void) {
    assert_eq!(wait(mutex.expose_provenance(), None), STATUS_SUCCESS);
    PsTerminateSystemThread(0);
}

#[test]
fn misuse_of_mutexes_is_reported() {
    for routine in [keeps_it as Routine, keeps_it_and_terminates] {
        violates(
            BugCheck::THREAD_TERMINATE_HELD_MUTEX,
            "a thread of the driver ends and holds the mutex at ",
            move |host| start(host, routine, mutex(host).address()),
        );
    }
    violates(
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        "KeReleaseMutex by a thread that does not hold the mutex",
        |host| _ = KeReleaseMutex(mutex(host), 0),
    );
    violates(MISUSE, "KeReadStateMutex of an object that is no mutex", |host| {
        let event = memory(host);
        KeInitializeEvent(event, EVENT_TYPE::NotificationEvent, 0);
        KeReadStateMutex(event.cast());
    });
}

fn remove_lock(host: &Host) -> Guest<u8> {
    let lock = memory(host);
    IoInitializeRemoveLockEx(lock, 0, 0, 0, 32);
    lock
}

fn acquire(lock: Guest<u8>, tag: usize) -> i32 {
    IoAcquireRemoveLockEx(lock, tag, 0, 0, 32)
}

unsafe extern "efiapi" fn removes(lock: *mut c_void) {
    let lock = Guest::new(lock.cast());
    assert_eq!(acquire(lock, 7), STATUS_SUCCESS);
    IoReleaseRemoveLockAndWaitEx(lock, 7, 32);
    lock.add(1000).cast::<u32>().write(1);
}

/// WDK, "Using Remove Locks".
#[test]
fn removal_waits_for_all_that_hold_the_lock() {
    correct(|host| {
        let lock = remove_lock(host);
        for tag in [1, 2, 1] {
            assert_eq!(acquire(lock, tag), STATUS_SUCCESS);
        }
        start(host, removes, lock.address());
        while acquire(lock, 3) == STATUS_SUCCESS {
            IoReleaseRemoveLockEx(lock, 3, 32);
            time::sleep(1_000_000);
        }
        for tag in [1, 1, 2] {
            assert_eq!(lock.add(1000).read(), 0, "it still waits");
            IoReleaseRemoveLockEx(lock, tag, 32);
            time::sleep(5_000_000);
        }
        until_written(lock.add(1000).cast());
        assert_eq!(acquire(lock, 3), STATUS_DELETE_PENDING);
    });
}

#[test]
fn misuse_of_remove_locks_is_reported() {
    violates(
        MISUSE,
        "IoReleaseRemoveLockEx with the tag 0x2, with which the remove lock is not held",
        |host| {
            let lock = remove_lock(host);
            acquire(lock, 1);
            IoReleaseRemoveLockEx(lock, 2, 32);
        },
    );
    violates(MISUSE, "IoInitializeRemoveLockEx of a remove lock whose device was removed", |host| {
        let lock = remove_lock(host);
        acquire(lock, 1);
        IoReleaseRemoveLockAndWaitEx(lock, 1, 32);
        IoInitializeRemoveLockEx(lock, 0, 0, 0, 32);
    });
    violates(MISUSE, "IoAcquireRemoveLockEx of a remove lock that is not initialized", |host| {
        let lock: Guest<u8> = memory(host);
        let event = Guest::from_address(lock.address() + 8);
        KeInitializeEvent(event, EVENT_TYPE::NotificationEvent, 0);
        acquire(lock, 1);
    });
}
