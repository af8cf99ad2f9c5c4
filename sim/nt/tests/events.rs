// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events, and waits for events and timers.
//!
//! "KeEvent" below is a kernel test of ReactOS that passes on Windows Server 2003; "driver.c" is Wine's test of
//! ntoskrnl.exe, which passes on Windows XP to 10.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::kernel::{
    MILLISECOND, at_dispatch_level, clocks, event, host, object, on_a_thread, options, relative, seeds,
    sleep, timeout, timer, violation_of,
};
use ndk_abi::nt::{
    EVENT_TYPE, KEVENT, KTIMER, KWAIT_REASON, STATUS_SUCCESS, STATUS_TIMEOUT, TIMER_TYPE, WAIT_TYPE,
};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::{
        dispatcher::{
            KeClearEvent, KeInitializeEvent, KePulseEvent, KeReadStateEvent, KeResetEvent, KeSetEvent,
            KeWaitForMultipleObjects, KeWaitForSingleObject,
        },
        pool,
        timer::{KeCancelTimer, KeSetTimer, KeSetTimerEx},
    },
};

const NOTIFICATION: EVENT_TYPE = EVENT_TYPE::NotificationEvent;
const SYNCHRONIZATION: EVENT_TYPE = EVENT_TYPE::SynchronizationEvent;

fn wait<T>(object: Guest<T>, time: Option<Duration>) -> i32 {
    KeWaitForSingleObject(object.address(), KWAIT_REASON::Executive, 0, 0, timeout(time))
}

fn wait_multiple(objects: &[usize], kind: WAIT_TYPE, time: Option<Duration>) -> i32 {
    let array = Guest::new(objects.as_ptr().cast_mut());
    KeWaitForMultipleObjects(
        u32::try_from(objects.len()).unwrap(),
        array,
        kind,
        KWAIT_REASON::Executive,
        0,
        0,
        timeout(time),
        1,
    )
}

fn set_state(event: Guest<KEVENT>, state: i32) {
    event.field::<i32>(4).write(state);
}

/// Starts threads that wait for an event one after the other; returns the numbers of those whose wait ended.
fn waiting_threads(event: Guest<KEVENT>, count: u32) -> Arc<Mutex<Vec<u32>>> {
    let ended = Arc::new(Mutex::new(Vec::new()));
    for number in 0..count {
        let of_thread = ended.clone();
        drop(host().spawn("waits", move || {
            assert_eq!(wait(event, None), STATUS_SUCCESS);
            of_thread.lock().unwrap().push(number);
        }));
        // Until it waits.
        sleep(10 * MILLISECOND);
    }
    ended
}

/// Set, reset and pulse return the previous state as it was stored, and store 1, 0 and 0 (KeEvent asserts it).
#[test]
fn previous_state_is_returned() {
    on_a_thread(clocks()[1].clone(), || {
        for kind in [NOTIFICATION, SYNCHRONIZATION] {
            let event = event(kind, true);
            assert_eq!(KeReadStateEvent(event), 1);
            set_state(event, 0x1234_5678);
            assert_eq!(KePulseEvent(event, 0, 0), 0x1234_5678);
            assert_eq!(KeReadStateEvent(event), 0);
            set_state(event, 0x1234_5678);
            KeClearEvent(event);
            assert_eq!(KeSetEvent(event, 0, 0), 0);
            assert_eq!(KeResetEvent(event), 1);
            set_state(event, 0x2345_6789);
            assert_eq!(KeSetEvent(event, 0, 0), 0x2345_6789);
            assert_eq!(KeReadStateEvent(event), 1);
            set_state(event, 0x3456_789a);
            assert_eq!(KeResetEvent(event), 0x3456_789a);
            assert_eq!(KeReadStateEvent(event), 0);
        }
    });
}

/// KeInitializeEvent writes type and size, and leaves the second and fourth byte of the header (KeEvent asserts it).
#[test]
fn initialization_leaves_the_bytes_of_the_lock() {
    on_a_thread(clocks()[1].clone(), || {
        let event = object::<KEVENT>();
        event.field::<u32>(0).write(0x5555_5555);
        KeInitializeEvent(event, SYNCHRONIZATION, 0);
        assert_eq!(event.field::<u32>(0).read(), 0x5506_5501);
    });
}

/// Each set of a synchronization event ends the wait of one thread, the first that waits, and leaves the event reset
/// (KeEvent asserts the order).
#[test]
fn synchronization_event_goes_to_the_threads_in_order() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let event = event(SYNCHRONIZATION, false);
            let ended = waiting_threads(event, 5);
            for count in 1..=5 {
                assert_eq!(KeSetEvent(event, 0, 0), 0);
                assert_eq!(KeReadStateEvent(event), 0, "a thread has taken it");
                sleep(10 * MILLISECOND);
                assert_eq!(*ended.lock().unwrap(), (0..count).collect::<Vec<u32>>());
            }
        });
    }
}

/// The wait is satisfied when the event is set: neither a thread that comes before the waiting one runs, nor a clear
/// takes it away.
#[test]
fn satisfied_wait_cannot_be_taken_away() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let event = event(SYNCHRONIZATION, false);
            let ended = waiting_threads(event, 1);
            at_dispatch_level(|| {
                KeSetEvent(event, 0, 0);
                let zero = timeout(Some(Duration::ZERO));
                let status = KeWaitForSingleObject(event.address(), KWAIT_REASON::Executive, 0, 0, zero);
                assert_eq!(status, STATUS_TIMEOUT);
                KeClearEvent(event);
            });
            sleep(MILLISECOND);
            assert_eq!(ended.lock().unwrap().len(), 1);
        });
    }
}

/// A notification event that is set and cleared at once, or pulsed, ends all waits (KeEvent asserts the pulse).
#[test]
fn notification_event_that_is_cleared_at_once_ends_all_waits() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let event = event(NOTIFICATION, false);
            for pulses in [false, true] {
                let ended = waiting_threads(event, 3);
                if pulses {
                    KePulseEvent(event, 0, 0);
                } else {
                    KeSetEvent(event, 0, 0);
                    KeClearEvent(event);
                }
                assert_eq!(KeReadStateEvent(event), 0);
                sleep(10 * MILLISECOND);
                assert_eq!(ended.lock().unwrap().len(), 3);
            }
        });
    }
}

/// Results of waits for one of two events and for both, with a timeout of zero (driver.c asserts them).
#[test]
fn wait_for_several_objects_takes_those_that_satisfy_it() {
    on_a_thread(clocks()[1].clone(), || {
        let (manual, auto) = (event(NOTIFICATION, false), event(SYNCHRONIZATION, false));
        let objects = [manual.address(), auto.address()];
        let any = || wait_multiple(&objects, WAIT_TYPE::WaitAny, Some(Duration::ZERO));
        let all = || wait_multiple(&objects, WAIT_TYPE::WaitAll, Some(Duration::ZERO));
        assert_eq!(any(), STATUS_TIMEOUT);
        KeSetEvent(manual, 0, 0);
        KeSetEvent(auto, 0, 0);
        assert_eq!(any(), 0);
        assert_eq!(KeReadStateEvent(auto), 1, "only the first is taken");
        KeResetEvent(manual);
        assert_eq!((any(), any()), (1, STATUS_TIMEOUT));
        KeSetEvent(manual, 0, 0);
        KeSetEvent(auto, 0, 0);
        assert_eq!((all(), all()), (0, STATUS_TIMEOUT));
        KeResetEvent(manual);
        KeSetEvent(auto, 0, 0);
        assert_eq!(all(), STATUS_TIMEOUT);
        assert_eq!(KeReadStateEvent(auto), 1, "nothing is taken");
    });
}

/// A wait for all takes nothing before all objects are signaled, so that another thread can take one of them.
#[test]
fn wait_for_all_objects_leaves_them_until_all_are_signaled() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let events = [event(SYNCHRONIZATION, false), event(SYNCHRONIZATION, false)];
            let objects = events.map(Guest::address);
            let waiting = host()
                .spawn("waits", move || wait_multiple(&objects, WAIT_TYPE::WaitAll, Some(50 * MILLISECOND)));
            sleep(10 * MILLISECOND);
            KeSetEvent(events[0], 0, 0);
            assert_eq!(wait(events[0], Some(Duration::ZERO)), STATUS_SUCCESS);
            KeSetEvent(events[1], 0, 0);
            KeSetEvent(events[0], 0, 0);
            assert_eq!(waiting.join(), Ok(0));
            assert_eq!(events.map(|event| KeReadStateEvent(event)), [0, 0]);
        });
    }
}

/// A notification timer stays signaled, a synchronization timer ends one wait; a timer that is cancelled or set again
/// does not expire at the earlier time; initializing a set timer again does not cancel it (driver.c asserts all).
#[test]
fn timers_end_waits_as_events_do() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let due = relative(20 * MILLISECOND);
            let none = Guest::null;
            let wait_40 = |timer: Guest<KTIMER>| wait(timer, Some(40 * MILLISECOND));
            let notification = timer(TIMER_TYPE::NotificationTimer);
            KeSetTimer(notification, due, none());
            assert_eq!(wait(notification, Some(Duration::ZERO)), STATUS_TIMEOUT);
            assert_eq!((wait_40(notification), wait_40(notification)), (STATUS_SUCCESS, STATUS_SUCCESS));
            let once = timer(TIMER_TYPE::SynchronizationTimer);
            KeSetTimer(once, due, none());
            assert_eq!((wait_40(once), wait_40(once)), (STATUS_SUCCESS, STATUS_TIMEOUT));
            KeSetTimerEx(once, due, 20, none());
            assert_eq!((wait_40(once), wait_40(once)), (STATUS_SUCCESS, STATUS_SUCCESS));
            assert_eq!(KeSetTimer(once, due, none()), 1);
            assert_eq!((wait_40(once), wait_40(once)), (STATUS_SUCCESS, STATUS_TIMEOUT));
            KeSetTimer(once, due, none());
            assert_eq!(KeCancelTimer(once), 1);
            assert_eq!(wait_40(once), STATUS_TIMEOUT);
            KeSetTimer(once, due, none());
            nt_sim::nt::timer::KeInitializeTimerEx(once, TIMER_TYPE::SynchronizationTimer);
            assert_eq!(wait_40(once), STATUS_SUCCESS);
        });
    }
}

/// The memory of an object must stay until no thread waits for it, and the object must not be initialized again.
#[test]
fn awaited_event_must_be_neither_freed_nor_initialized() {
    type Misuse = fn(Guest<KEVENT>);
    let cases: [(Misuse, &str); 2] = [
        (
            |event| pool::ExFreePool(event.cast()),
            "freed memory contains an event or timer that a thread waits for",
        ),
        (
            |event| KeInitializeEvent(event, NOTIFICATION, 0),
            "KeInitializeEvent of an object that a thread waits for",
        ),
    ];
    for (misuse, text) in cases {
        for sim in seeds() {
            let violation = violation_of(sim, options(), move || {
                let tag = u32::from_le_bytes(*b"test");
                let event =
                    pool::ExAllocatePool2(ndk_abi::nt::POOL_FLAG_NON_PAGED, size_of::<KEVENT>(), tag).cast();
                KeInitializeEvent(event, NOTIFICATION, 0);
                let _ended = waiting_threads(event, 1);
                misuse(event);
            });
            assert_eq!(violation.code, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION);
            assert!(violation.text.contains(text), "{violation}");
        }
    }
}

/// A thread that waits for more than is signaled does not keep others from it.
#[test]
fn an_unsatisfied_wait_for_all_objects_is_passed_over() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let [a, b] = [(); 2].map(|()| event(SYNCHRONIZATION, false));
            let all = host().spawn("waits for both", move || {
                wait_multiple(&[a.address(), b.address()], WAIT_TYPE::WaitAll, None)
            });
            sleep(10 * MILLISECOND);
            let one = host().spawn("waits for one", move || wait(a, None));
            sleep(10 * MILLISECOND);
            KeSetEvent(a, 0, 0);
            assert_eq!(one.join(), Ok(STATUS_SUCCESS));
            KeSetEvent(a, 0, 0);
            KeSetEvent(b, 0, 0);
            assert_eq!(all.join(), Ok(STATUS_SUCCESS));
        });
    }
}

/// The list of waits of a new object is empty: it leads to itself. With `Wait` an event may be set below `DISPATCH_LEVEL`.
#[test]
fn a_new_event_has_an_empty_list_and_may_be_set_before_a_wait() {
    on_a_thread(clocks()[1].clone(), || {
        let event = event(NOTIFICATION, false);
        let list = event.address() + 8;
        assert_eq!(event.field::<[usize; 2]>(8).read(), [list, list]);
        let old = crate::kernel::raise(nt_sim::Irql::APC_LEVEL);
        KeSetEvent(event, 0, 1);
        crate::kernel::lower(old);
        assert_eq!(wait(event, None), STATUS_SUCCESS);
    });
}
