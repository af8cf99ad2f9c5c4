// SPDX-License-Identifier: MIT OR Apache-2.0

//! Remove locks: how many operations use a device, which its removal waits for.
//!
//! Windows compares tags in its checked builds alone. Here each release needs a tag with which the lock is held.

use std::collections::HashMap;

use ndk_abi::nt::{EVENT_TYPE, KEVENT, STATUS_DELETE_PENDING, STATUS_SUCCESS};
use parking_lot::Mutex;

use crate::{
    guest::Guest,
    imports,
    nt::{
        header::{self, signal_state},
        waits::{Awaited, WAITS},
    },
    services::Slot,
    thread::{Thread, current},
    verifier::{BugCheck, Rule, broken, rules},
};

pub(in crate::nt) static HOLDERS: Slot<Holders> = Slot::new();

/// The tags with which the locks of a host are held, by lock.
#[derive(Default)]
pub struct Holders(Mutex<HashMap<usize, Vec<usize>>>);

/// Offsets in `IO_REMOVE_LOCK`: whether removal has begun, the count, and the event that ends the wait for it.
const REMOVED: usize = 0;
const COUNT: usize = 4;
const EVENT: usize = 8;

fn removed(lock: Guest<u8>) -> Guest<u8> {
    lock.field(REMOVED)
}

/// The number of operations, and one until removal begins.
fn count(lock: Guest<u8>) -> Guest<i32> {
    lock.field(COUNT)
}

fn event(lock: Guest<u8>) -> usize {
    lock.address() + EVENT
}

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

fn check_initialized(lock: Guest<u8>, function: &str) {
    if header::kind(event(lock), function) != header::SYNCHRONIZATION_EVENT {
        misuse(rules::REMOVE_LOCK, format!("{function} of a remove lock that is not initialized"));
    }
}

/// Removes a holder of a lock, which must have this tag.
fn end_hold(me: &Thread, lock: Guest<u8>, tag: usize, function: &str) {
    check_initialized(lock, function);
    let is_found = {
        let mut holders = me.host().state(&HOLDERS).0.lock();
        let tags = holders.entry(lock.address()).or_default();
        let index = tags.iter().position(|&other| other == tag);
        index.map(|index| tags.swap_remove(index)).is_some()
    };
    if !is_found {
        misuse(
            rules::REMOVE_LOCK,
            format!("{function} with the tag {tag:#x}, with which the remove lock is not held"),
        );
    }
}

/// Subtracts from the count, and signals the event if nothing is left. Returns what is left.
fn subtract(me: &Thread, lock: Guest<u8>, number: i32) -> i32 {
    me.host().state(&WAITS).signal(me, event(lock), || {
        let left = count(lock).read() - number;
        count(lock).write(left);
        if left == 0 {
            signal_state(event(lock)).write(1);
        }
        left
    })
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a remove lock, which must not be one whose device was removed.
    [== PASSIVE_LEVEL]
    fn IoInitializeRemoveLockEx(lock: Guest<u8>, tag: u32, minutes: u32, high_water: u32, size: u32) {
        let _ = (tag, minutes, high_water, size);
        let me = current();
        let event_kind = Guest::<u8>::from_address(event(lock)).read();
        if (removed(lock).read(), count(lock).read(), event_kind) == (1, 0, header::SYNCHRONIZATION_EVENT) {
            misuse(rules::REMOVE_LOCK, "IoInitializeRemoveLockEx of a remove lock whose device was removed");
        }
        me.host().state(&HOLDERS).0.lock().remove(&lock.address());
        removed(lock).write(0);
        count(lock).write(1);
        let kind = u8::try_from(EVENT_TYPE::SynchronizationEvent.0).unwrap_or(0);
        header::initialize(event(lock), kind, size_of::<KEVENT>(), false);
    }

    /// Acquires a remove lock; fails once removal has begun.
    [<= DISPATCH_LEVEL]
    fn IoAcquireRemoveLockEx(lock: Guest<u8>, tag: usize, file: usize, line: u32, size: u32) -> i32 {
        let _ = (file, line, size);
        let me = current();
        check_initialized(lock, "IoAcquireRemoveLockEx");
        let is_held = me.host().state(&WAITS).locked(|| {
            let is_open = removed(lock).read() == 0;
            if is_open {
                count(lock).write(count(lock).read() + 1);
            }
            is_open
        });
        if !is_held {
            return STATUS_DELETE_PENDING;
        }
        me.host().state(&HOLDERS).0.lock().entry(lock.address()).or_default().push(tag);
        STATUS_SUCCESS
    }

    /// Releases a remove lock.
    [<= DISPATCH_LEVEL]
    fn IoReleaseRemoveLockEx(lock: Guest<u8>, tag: usize, size: u32) {
        let _ = size;
        let me = current();
        end_hold(&me, lock, tag, "IoReleaseRemoveLockEx");
        subtract(&me, lock, 1);
    }

    /// Begins removal, and waits until no other operation holds the lock.
    [== PASSIVE_LEVEL]
    fn IoReleaseRemoveLockAndWaitEx(lock: Guest<u8>, tag: usize, size: u32) {
        let _ = size;
        let me = current();
        end_hold(&me, lock, tag, "IoReleaseRemoveLockAndWaitEx");
        removed(lock).write(1);
        // The caller's, and the one of a device that is not removed.
        if subtract(&me, lock, 2) > 0 {
            let awaited = Awaited { address: event(lock), kind: header::SYNCHRONIZATION_EVENT };
            let _ = me.host().state(&WAITS).wait(&me, vec![awaited], false, None);
        }
    }
}
