// SPDX-License-Identifier: MIT OR Apache-2.0

//! Push locks: a pointer that threads share, or that one has alone. They are not recursive.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{critical_region, dispatcher::DISPATCHER};
use crate::{
    guest::Guest,
    imports,
    services::Slot,
    thread::{Thread, ThreadId, current},
    verifier::{BugCheck, Rule, broken, rules},
};

pub(super) static PUSH_LOCKS: Slot<PushLocks> = Slot::new();

/// The holders of the push locks of a host, by lock.
#[derive(Default)]
pub struct PushLocks(Mutex<HashMap<usize, Vec<ThreadId>>>);

/// Value of a lock that a thread has alone; otherwise twice the number of those that share it.
const EXCLUSIVE: usize = 1;

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

fn acquire(lock: Guest<usize>, is_exclusive: bool, function: &str) {
    let me = current();
    let holders = &me.host().state(&PUSH_LOCKS).0;
    if me.verifies() {
        if !critical_region::is_inside(&me) {
            misuse(rules::PUSH_LOCK, format!("{function} outside of a critical region"));
        }
        let holds = holders.lock().get(&lock.address()).is_some_and(|threads| threads.contains(&me.id()));
        if holds {
            misuse(
                rules::PUSH_LOCK,
                format!("{function} by a thread that holds the push lock already: deadlock"),
            );
        }
    }
    me.host().state(&DISPATCHER).wait(&me, lock.address(), || {
        let value = lock.read();
        let is_taken = if is_exclusive { value == 0 } else { value != EXCLUSIVE };
        if is_taken {
            lock.write(if is_exclusive { EXCLUSIVE } else { value + 2 });
        }
        is_taken
    });
    holders.lock().entry(lock.address()).or_default().push(me.id());
}

fn end_hold(me: &Thread, lock: usize) -> bool {
    let mut holders = me.host().state(&PUSH_LOCKS).0.lock();
    let Some(threads) = holders.get_mut(&lock) else { return false };
    let index = threads.iter().position(|&thread| thread == me.id());
    if let Some(index) = index {
        threads.swap_remove(index);
    }
    if threads.is_empty() {
        holders.remove(&lock);
    }
    index.is_some()
}

fn release(lock: Guest<usize>, is_exclusive: bool, function: &str) {
    let me = current();
    let is_held = (lock.read() == EXCLUSIVE) == is_exclusive && end_hold(&me, lock.address());
    if !is_held {
        misuse(rules::PUSH_LOCK, format!("{function} of a push lock that the thread does not hold so"));
    }
    me.host().state(&DISPATCHER).signal(&me, lock.address(), || {
        lock.write(if is_exclusive { 0 } else { lock.read() - 2 });
    });
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a push lock.
    [any]
    fn ExInitializePushLock(lock: Guest<usize>) {
        lock.write(0);
    }

    /// Acquires a push lock alone, in a critical region.
    [<= APC_LEVEL]
    fn ExAcquirePushLockExclusiveEx(lock: Guest<usize>, flags: u32) {
        let _ = flags;
        acquire(lock, true, "ExAcquirePushLockExclusive");
    }

    /// Acquires a push lock with others, in a critical region.
    [<= APC_LEVEL]
    fn ExAcquirePushLockSharedEx(lock: Guest<usize>, flags: u32) {
        let _ = flags;
        acquire(lock, false, "ExAcquirePushLockShared");
    }

    /// Releases a push lock that the thread has alone.
    [<= APC_LEVEL]
    fn ExReleasePushLockExclusiveEx(lock: Guest<usize>, flags: u32) {
        let _ = flags;
        release(lock, true, "ExReleasePushLockExclusive");
    }

    /// Releases a push lock that the thread shares.
    [<= APC_LEVEL]
    fn ExReleasePushLockSharedEx(lock: Guest<usize>, flags: u32) {
        let _ = flags;
        release(lock, false, "ExReleasePushLockShared");
    }
}
