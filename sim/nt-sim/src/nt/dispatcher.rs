// SPDX-License-Identifier: MIT OR Apache-2.0

//! Dispatcher objects (events and timers), and waiting for them.
//!
//! The state of an object is in its `DISPATCHER_HEADER` in the image's memory; the waiting threads are recorded
//! here by the object's address.

use std::{collections::HashMap, sync::Arc};

use ndk_abi::nt::{
    EVENT_TYPE, KEVENT, KWAIT_REASON, LARGE_INTEGER, STATUS_SUCCESS, STATUS_TIMEOUT, WAIT_TYPE,
};
use parking_lot::Mutex;

use super::time;
use crate::{
    Irql,
    guest::Guest,
    imports,
    services::Slot,
    thread::{Thread, ThreadShared, current},
    verifier::{BugCheck, violation},
};

const TYPE: usize = 0;
const SIZE: usize = 2;
const SIGNAL_STATE: usize = 4;
const WAIT_LIST: usize = 8;

const SYNCHRONIZATION_EVENT: u8 = 1;
pub(super) const NOTIFICATION_TIMER: u8 = 8;
pub(super) const SYNCHRONIZATION_TIMER: u8 = 9;

pub(super) static DISPATCHER: Slot<Dispatcher> = Slot::new();

/// The waiting threads of a host, by object.
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

    /// Blocks until `taken`, called under the dispatcher lock, returns `true`; returns `false` when `deadline` has
    /// passed first. `objects` are those whose change may satisfy the wait.
    pub(super) fn wait(
        &self,
        me: &Thread,
        objects: &[usize],
        deadline: Option<u64>,
        mut taken: impl FnMut() -> bool,
    ) -> bool {
        loop {
            {
                let mut waiters = self.waiters.lock();
                for object in objects {
                    if let Some(list) = waiters.get_mut(object) {
                        list.retain(|waiter| waiter.id != me.shared().id);
                    }
                }
                if taken() {
                    return true;
                }
                if deadline.is_some_and(|deadline| deadline <= me.world().now()) {
                    return false;
                }
                for &object in objects {
                    waiters.entry(object).or_default().push(me.shared().clone());
                }
            }
            me.park(deadline);
        }
    }
}

/// Writes a `DISPATCHER_HEADER`. `size` is the object's in bytes.
pub(super) fn initialize(object: usize, kind: u8, size: usize, signaled: bool) {
    let header = Guest::<u8>::from_address(object);
    header.field::<u32>(TYPE).write(u32::from(kind));
    header.field::<u8>(SIZE).write(u8::try_from(size / 4).unwrap_or(0));
    header.field::<i32>(SIGNAL_STATE).write(signaled.into());
    let list = object + WAIT_LIST;
    header.field::<[usize; 2]>(WAIT_LIST).write([list, list]);
}

pub(super) fn signal_state(object: usize) -> Guest<i32> {
    Guest::<u8>::from_address(object).field(SIGNAL_STATE)
}

/// Returns the type of an object. An uninitialized object is a violation.
fn kind(object: usize, function: &str) -> u8 {
    let header = Guest::<u8>::from_address(object);
    let (kind, size) = (header.field::<u8>(TYPE).read(), header.field::<u8>(SIZE).read());
    let known = matches!((kind, size), (0 | 1, 6) | (NOTIFICATION_TIMER | SYNCHRONIZATION_TIMER, 16));
    if !known {
        violation(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!(
                "{function} on an object that is not an initialized event or timer (type {kind}, size {size})"
            ),
        );
    }
    kind
}

/// Satisfies a wait if the object is signaled; synchronization objects are reset.
fn take(object: usize, kind: u8) -> bool {
    let state = signal_state(object);
    let signaled = state.read() != 0;
    if signaled && matches!(kind, SYNCHRONIZATION_EVENT | SYNCHRONIZATION_TIMER) {
        state.write(0);
    }
    signaled
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

fn event_address(event: Guest<KEVENT>, function: &str) -> usize {
    let _ = kind(event.address(), function);
    event.address()
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes an event.
    [any]
    fn KeInitializeEvent(event: Guest<KEVENT>, kind: EVENT_TYPE, state: u8) {
        initialize(event.address(), u8::try_from(kind.0).unwrap_or(0), size_of::<KEVENT>(), state != 0);
    }

    /// Signals an event; returns the previous state. With `wait`, a wait must follow, so that the limit is
    /// APC_LEVEL then.
    [<= DISPATCH_LEVEL]
    fn KeSetEvent(event: Guest<KEVENT>, increment: i32, wait: u8) -> i32 {
        let _ = increment;
        let me = current();
        if wait != 0 && me.irql() > Irql::APC_LEVEL {
            violation(BugCheck::IRQL_NOT_LESS_OR_EQUAL, format!("KeSetEvent with Wait = TRUE was called at {}; allowed: <= APC_LEVEL", me.irql()));
        }
        let object = event_address(event, "KeSetEvent");
        me.host().state(&DISPATCHER).signal(&me, object, || {
            let state = signal_state(object);
            let old = state.read();
            state.write(1);
            old
        })
    }

    /// Resets an event.
    [<= DISPATCH_LEVEL]
    fn KeClearEvent(event: Guest<KEVENT>) {
        let object = event_address(event, "KeClearEvent");
        current().host().state(&DISPATCHER).locked(|| signal_state(object).write(0));
    }

    /// Resets an event; returns the previous state.
    [<= DISPATCH_LEVEL]
    fn KeResetEvent(event: Guest<KEVENT>) -> i32 {
        let object = event_address(event, "KeResetEvent");
        current().host().state(&DISPATCHER).locked(|| {
            let old = signal_state(object).read();
            signal_state(object).write(0);
            old
        })
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
        let kind = kind(object, "KeWaitForSingleObject");
        let deadline = deadline(&me, timeout);
        let taken = me.host().state(&DISPATCHER).wait(&me, &[object], deadline, || take(object, kind));
        if taken { STATUS_SUCCESS } else { STATUS_TIMEOUT }
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
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("KeWaitForMultipleObjects for {count} objects: more than 3 need a WaitBlockArray, more than 64 are not allowed"),
            );
        }
        let objects: Vec<usize> = (0..count as usize).map(|index| objects.add(index).read()).collect();
        let kinds: Vec<u8> = objects.iter().map(|&object| kind(object, "KeWaitForMultipleObjects")).collect();
        let deadline = deadline(&me, timeout);
        let mut first = 0;
        let taken = me.host().state(&DISPATCHER).wait(&me, &objects, deadline, || {
            if wait == WAIT_TYPE::WaitAll {
                let all = objects.iter().all(|&object| signal_state(object).read() != 0);
                if all {
                    for (&object, &kind) in objects.iter().zip(&kinds) {
                        take(object, kind);
                    }
                }
                return all;
            }
            match (0..objects.len()).find(|&index| take(objects[index], kinds[index])) {
                Some(index) => {
                    first = i32::try_from(index).unwrap_or(0);
                    true
                }
                None => false,
            }
        });
        if taken { first } else { STATUS_TIMEOUT }
    }

    /// Blocks the thread for an interval.
    [<= APC_LEVEL]
    fn KeDelayExecutionThread(mode: i8, alertable: u8, interval: Guest<LARGE_INTEGER>) -> i32 {
        let _ = (mode, alertable);
        let me = current();
        let deadline = deadline(&me, interval).unwrap_or(0);
        time::delay(&me, deadline);
        STATUS_SUCCESS
    }
}
