// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that a driver waits for by their objects, and semaphores.

use std::ffi::c_void;

use crate::on_host::{Routine, correct, create_thread, memory, violates, wait};
use ndk_abi::nt::{
    KSEMAPHORE, STATUS_INVALID_HANDLE, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, STATUS_TIMEOUT,
};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::{
        handles::ZwClose,
        semaphore::{KeInitializeSemaphore, KeReadStateSemaphore, KeReleaseSemaphore},
        thread_objects::{
            KeQueryPriorityThread, KeSetPriorityThread, ObReferenceObjectByHandle, ObfDereferenceObject,
            ObfReferenceObject, PsTerminateSystemThread,
        },
        time,
    },
};

fn count(context: *mut c_void) {
    time::sleep(5_000_000);
    let count: Guest<u32> = Guest::new(context.cast());
    count.write(count.read() + 1);
}

unsafe extern "efiapi" fn returns(context: *mut c_void) {
    count(context);
}

unsafe extern "efiapi" fn terminates(context: *mut c_void) {
    count(context);
    PsTerminateSystemThread(0);
    unreachable!("it does not return");
}

/// WDK, `PsCreateSystemThread`: a driver waits for the end of its thread by the thread's object.
#[test]
fn driver_waits_for_the_end_of_its_thread() {
    correct(|host| {
        let counted: Guest<u32> = memory(host);
        let object: Guest<usize> = memory(host);
        for (number, routine) in [(1, returns as Routine), (2, terminates)] {
            let handle = create_thread(host, routine, counted.address());
            assert_eq!(ObReferenceObjectByHandle(handle, 0, 0, 0, object, 0), STATUS_SUCCESS);
            assert_eq!(ZwClose(handle), STATUS_SUCCESS);
            assert_eq!(wait(object.read(), Some(0)), STATUS_TIMEOUT);
            assert_eq!(wait(object.read(), None), STATUS_SUCCESS);
            assert_eq!(counted.read(), number);
            assert_eq!(wait(object.read(), None), STATUS_SUCCESS, "it stays signaled");
            assert_eq!(ObfReferenceObject(object.read()), 2);
            assert_eq!([0; 2].map(|_| ObfDereferenceObject(object.read())), [1, 0]);
        }
        let type_of_files = 0x00fd_0000_0000_3000;
        let handle = create_thread(host, returns, counted.address());
        let refused = ObReferenceObjectByHandle(handle, 0, type_of_files, 0, object, 0);
        assert_eq!(refused, STATUS_OBJECT_TYPE_MISMATCH);
        assert_eq!(ZwClose(handle), STATUS_SUCCESS);
        assert_eq!(ObReferenceObjectByHandle(handle, 0, 0, 0, object, 0), STATUS_INVALID_HANDLE);
        time::sleep(50_000_000);
    });
}

#[test]
fn object_without_a_reference_and_the_end_of_another_thread_are_reported() {
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    for function in [ObfReferenceObject, ObfDereferenceObject] {
        violates(code, "0x1000, to which the driver has no reference", move |_| _ = function(0x1000));
    }
    violates(code, "on a thread that PsCreateSystemThread has not started", |_| {
        _ = PsTerminateSystemThread(0);
    });
}

/// WDK, `KeSetPriorityThread`: it returns the old priority.
#[test]
fn thread_has_the_priority_that_was_set_last() {
    correct(|host| {
        let counted: Guest<u32> = memory(host);
        let objects = [(); 2].map(|()| {
            let object: Guest<usize> = memory(host);
            let handle = create_thread(host, returns, counted.address());
            assert_eq!(ObReferenceObjectByHandle(handle, 0, 0, 0, object, 0), STATUS_SUCCESS);
            assert_eq!(ZwClose(handle), STATUS_SUCCESS);
            object.read()
        });
        let [one, other] = objects;
        assert_eq!(KeQueryPriorityThread(one), 8);
        assert_eq!(KeSetPriorityThread(one, 16), 8);
        assert_eq!(KeSetPriorityThread(one, 1), 16);
        assert_eq!((KeQueryPriorityThread(one), KeQueryPriorityThread(other)), (1, 8));
        for object in objects {
            assert_eq!(wait(object, None), STATUS_SUCCESS);
            assert_eq!(ObfDereferenceObject(object), 0);
        }
    });
}

#[test]
fn priorities_that_are_the_systems_and_of_other_objects_are_reported() {
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    for priority in [0, 32] {
        violates(code, ": LOW_PRIORITY is the system's, and the highest is 31", move |_| {
            _ = KeSetPriorityThread(0x1000, priority);
        });
    }
    violates(code, "KeSetPriorityThread of 0x1000, which is no thread of PsCreateSystemThread", |_| {
        _ = KeSetPriorityThread(0x1000, 16);
    });
    violates(code, "KeQueryPriorityThread of 0x1000, which is no thread of PsCreateSystemThread", |_| {
        _ = KeQueryPriorityThread(0x1000);
    });
}

unsafe extern "efiapi" fn takes_one(semaphore: *mut c_void) {
    assert_eq!(wait(semaphore.expose_provenance(), None), STATUS_SUCCESS);
}

#[test]
fn semaphore_ends_as_many_waits_as_it_counts() {
    correct(|host| {
        let semaphore: Guest<KSEMAPHORE> = memory(host);
        KeInitializeSemaphore(semaphore, 1, 3);
        let object = semaphore.address();
        assert_eq!(wait(object, None), STATUS_SUCCESS);
        assert_eq!(wait(object, Some(0)), STATUS_TIMEOUT);
        let threads = [(); 3].map(|()| create_thread(host, takes_one, object));
        time::sleep(5_000_000);
        assert_eq!(KeReleaseSemaphore(semaphore, 0, 2, 0), 0);
        time::sleep(5_000_000);
        assert_eq!(KeReadStateSemaphore(semaphore), 0, "two of three have taken one");
        assert_eq!(KeReleaseSemaphore(semaphore, 0, 3, 0), 0);
        time::sleep(5_000_000);
        assert_eq!(KeReadStateSemaphore(semaphore), 2);
        for thread in threads {
            assert_eq!(ZwClose(thread), STATUS_SUCCESS);
        }
    });
}

#[test]
fn misuse_of_semaphores_is_reported() {
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    violates(code, "KeInitializeSemaphore with the count 2 and the limit 1", |host| {
        KeInitializeSemaphore(memory(host), 2, 1);
    });
    violates(
        code,
        "KeReadStateSemaphore on an object that is not an initialized event, timer, mutex, semaphore or thread",
        |host| {
            KeReadStateSemaphore(memory(host));
        },
    );
    violates(code, "KeReadStateSemaphore of an object that is no semaphore", |host| {
        let event = memory(host);
        nt_sim::nt::dispatcher::KeInitializeEvent(event, ndk_abi::nt::EVENT_TYPE::NotificationEvent, 0);
        KeReadStateSemaphore(event.cast());
    });
    violates(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "KeReleaseSemaphore adds 2 to the count 1", |host| {
        let semaphore = memory(host);
        KeInitializeSemaphore(semaphore, 1, 2);
        KeReleaseSemaphore(semaphore, 0, 2, 0);
    });
}
