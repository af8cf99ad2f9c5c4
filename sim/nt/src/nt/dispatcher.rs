// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events, waiting for dispatcher objects, and waiting for conditions of the kernel itself.

use std::{collections::HashMap, sync::Arc};

use ndk_abi::nt::{
    EVENT_TYPE, KEVENT, KWAIT_REASON, LARGE_INTEGER, STATUS_SUCCESS, STATUS_TIMEOUT, WAIT_TYPE,
};
use parking_lot::Mutex;

use super::{
    header::{self, kind, signal_state},
    time,
    waits::{Awaited, WAITS},
};
use crate::{
    Irql,
    guest::Guest,
    imports,
    services::Slot,
    thread::{Thread, ThreadShared, current},
    verifier::{BugCheck, Tolerance, broken, rules, undocumented_call, violation},
};

pub(super) static DISPATCHER: Slot<Dispatcher> = Slot::new();

/// The threads of a host that wait for a condition that is no dispatcher object, by the address of what it concerns.
#[derive(Default)]
pub struct Dispatcher {
    waiters: Mutex<HashMap<usize, Vec<Arc<ThreadShared>>>>,
}

impl Dispatcher {
    /// Changes objects under the dispatcher lock.
    pub(super) fn locked<T>(&self, change: impl FnOnce() -> T) -> T {
        let _lock = self.waiters.lock();
        change()
    }

    /// Changes an object under the dispatcher lock and wakes the threads that wait for it.
    pub(super) fn signal<T>(&self, me: &Thread, object: usize, change: impl FnOnce() -> T) -> T {
        let (result, waiters) = {
            let mut lock = self.waiters.lock();
            (change(), lock.remove(&object).unwrap_or_default())
        };
        for waiter in waiters {
            me.world().clock.unpark(&waiter);
        }
        result
    }

    /// Blocks until `taken`, called under the dispatcher lock, returns `true`: at once, or after a change of `object`.
    pub(super) fn wait(&self, me: &Thread, object: usize, mut taken: impl FnMut() -> bool) {
        loop {
            {
                let mut waiters = self.waiters.lock();
                if let Some(list) = waiters.get_mut(&object) {
                    list.retain(|waiter| waiter.id != me.shared().id);
                }
                if taken() {
                    return;
                }
                waiters.entry(object).or_default().push(me.shared().clone());
            }
            me.park(None);
        }
    }
}

/// Returns the deadline of a timeout: none, relative (negative) or absolute, in units of 100 ns.
fn deadline(me: &Thread, timeout: Guest<LARGE_INTEGER>) -> Option<u64> {
    (!timeout.is_null()).then(|| time::deadline(me, timeout.read().QuadPart))
}

/// Checks the IRQL of a wait: below `DISPATCH_LEVEL` unless the timeout is zero.
fn check_wait(me: &Thread, function: &str, timeout: Guest<LARGE_INTEGER>) {
    let zero = !timeout.is_null() && timeout.read().QuadPart == 0;
    if me.irql() >= Irql::DISPATCH_LEVEL && !zero {
        violation(
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            format!(
                "{function} was called at {} with a timeout that is not zero; waiting requires IRQL <= APC_LEVEL",
                me.irql()
            ),
        );
    }
}

/// Checks that no thread waits for an object that is initialized again.
pub(super) fn check_unawaited(me: &Thread, object: usize, function: &str) {
    if me.host().state(&WAITS).find(&(object..object + 1)).is_some() {
        undocumented_call(
            Tolerance::AwaitedObject,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            &format!("{function} of an object that a thread waits for"),
        );
    }
}

/// Checks the IRQL of a function that a wait follows.
pub(super) fn check_wait_follows(me: &Thread, function: &str, wait: u8) {
    if wait != 0 && me.irql() > Irql::APC_LEVEL {
        violation(
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            format!("{function} with Wait = TRUE was called at {}; allowed: <= APC_LEVEL", me.irql()),
        );
    }
}

/// Replaces the state of an object; returns the previous one.
fn replace(object: usize, state: i32) -> i32 {
    let old = signal_state(object).read();
    signal_state(object).write(state);
    old
}

/// Signals an event; returns the previous state.
pub(super) fn set(me: &Thread, event: usize) -> i32 {
    me.host().state(&WAITS).signal(me, event, || replace(event, 1))
}

fn event_address(event: Guest<KEVENT>, function: &str) -> usize {
    let _ = kind(event.address(), function);
    event.address()
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes an event, for which no thread may wait.
    [any]
    fn KeInitializeEvent(event: Guest<KEVENT>, kind: EVENT_TYPE, state: u8) {
        let me = current();
        if me.verifies() {
            check_unawaited(&me, event.address(), "KeInitializeEvent");
        }
        header::initialize(event.address(), u8::try_from(kind.0).unwrap_or(0), size_of::<KEVENT>(), state != 0);
    }

    /// Signals an event; returns the previous state. With `wait`, a wait must follow, so that the limit is
    /// APC_LEVEL then.
    [<= DISPATCH_LEVEL]
    fn KeSetEvent(event: Guest<KEVENT>, increment: i32, wait: u8) -> i32 {
        let _ = increment;
        let me = current();
        check_wait_follows(&me, "KeSetEvent", wait);
        set(&me, event_address(event, "KeSetEvent"))
    }

    /// Signals an event, and resets it after it has ended waits; returns the previous state.
    [<= DISPATCH_LEVEL]
    fn KePulseEvent(event: Guest<KEVENT>, increment: i32, wait: u8) -> i32 {
        let _ = increment;
        let me = current();
        check_wait_follows(&me, "KePulseEvent", wait);
        let object = event_address(event, "KePulseEvent");
        let reset = || signal_state(object).write(0);
        me.host().state(&WAITS).signal_and(&me, object, || replace(object, 1), reset)
    }

    /// Resets an event.
    [<= DISPATCH_LEVEL]
    fn KeClearEvent(event: Guest<KEVENT>) {
        let object = event_address(event, "KeClearEvent");
        current().host().state(&WAITS).locked(|| signal_state(object).write(0));
    }

    /// Resets an event; returns the previous state.
    [<= DISPATCH_LEVEL]
    fn KeResetEvent(event: Guest<KEVENT>) -> i32 {
        let object = event_address(event, "KeResetEvent");
        current().host().state(&WAITS).locked(|| replace(object, 0))
    }

    /// Returns the state of an event.
    [<= DISPATCH_LEVEL]
    fn KeReadStateEvent(event: Guest<KEVENT>) -> i32 {
        signal_state(event_address(event, "KeReadStateEvent")).read()
    }

    /// Waits for an object. The limit of the table depends on the timeout.
    [<= DISPATCH_LEVEL]
    fn KeWaitForSingleObject(
        object: usize,
        reason: KWAIT_REASON,
        mode: i8,
        alertable: u8,
        timeout: Guest<LARGE_INTEGER>,
    ) -> i32 {
        let _ = (reason, mode, alertable);
        let me = current();
        check_wait(&me, "KeWaitForSingleObject", timeout);
        let awaited = Awaited { address: object, kind: kind(object, "KeWaitForSingleObject") };
        let deadline = deadline(&me, timeout);
        let satisfied = me.host().state(&WAITS).wait(&me, vec![awaited], false, deadline);
        if satisfied.is_some() { STATUS_SUCCESS } else { STATUS_TIMEOUT }
    }

    /// Waits for one or all of several objects. The limit of the table depends on the timeout.
    [<= DISPATCH_LEVEL]
    fn KeWaitForMultipleObjects(
        count: u32,
        objects: Guest<usize>,
        wait: WAIT_TYPE,
        reason: KWAIT_REASON,
        mode: i8,
        alertable: u8,
        timeout: Guest<LARGE_INTEGER>,
        blocks: usize,
    ) -> i32 {
        /// `THREAD_WAIT_OBJECTS`: more need an array of wait blocks.
        const THREAD_WAIT_OBJECTS: u32 = 3;
        const MAXIMUM_WAIT_OBJECTS: u32 = 64;
        let _ = (reason, mode, alertable);
        let me = current();
        check_wait(&me, "KeWaitForMultipleObjects", timeout);
        if count > MAXIMUM_WAIT_OBJECTS || (count > THREAD_WAIT_OBJECTS && blocks == 0) {
            broken(rules::WAIT_BLOCKS, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("KeWaitForMultipleObjects for {count} objects: more than 3 need a WaitBlockArray, more than 64 are not allowed"),
            );
        }
        let awaited = (0..count as usize).map(|index| {
            let address = objects.add(index).read();
            Awaited { address, kind: kind(address, "KeWaitForMultipleObjects") }
        });
        let awaited: Vec<Awaited> = awaited.collect();
        let deadline = deadline(&me, timeout);
        let all = wait == WAIT_TYPE::WaitAll;
        let satisfied = me.host().state(&WAITS).wait(&me, awaited, all, deadline);
        satisfied.map_or(STATUS_TIMEOUT, |index| i32::try_from(index).unwrap_or(0))
    }

    /// Blocks the thread for an interval.
    [<= APC_LEVEL]
    fn KeDelayExecutionThread(mode: i8, alertable: u8, interval: Guest<LARGE_INTEGER>) -> i32 {
        let _ = (mode, alertable);
        let me = current();
        time::delay(&me, time::delay_deadline(&me, interval.read().QuadPart));
        STATUS_SUCCESS
    }
}
