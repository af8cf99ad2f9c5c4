// SPDX-License-Identifier: MIT OR Apache-2.0

//! `DISPATCHER_HEADER`: type and state of an object that threads wait for, in the image's memory.

use crate::{
    guest::Guest,
    thread::ThreadId,
    verifier::{BugCheck, broken, rules},
};

const TYPE: usize = 0;
const SIZE: usize = 2;
const TIMER_MISC_FLAGS: usize = 3;
const SIGNAL_STATE: usize = 4;
const WAIT_LIST: usize = 8;
/// `KMUTANT.OwnerThread`.
const OWNER_THREAD: usize = 40;

pub(super) const SYNCHRONIZATION_EVENT: u8 = 1;
pub(super) const MUTANT: u8 = 2;
pub(super) const SEMAPHORE: u8 = 5;
pub(super) const THREAD: u8 = 6;
pub(super) const NOTIFICATION_TIMER: u8 = 8;
pub(super) const SYNCHRONIZATION_TIMER: u8 = 9;

/// Writes a `DISPATCHER_HEADER`, of its first four bytes only type and size. `size` is the object's in bytes.
pub(super) fn initialize(object: usize, kind: u8, size: usize, signaled: bool) {
    let header = Guest::<u8>::from_address(object);
    header.field::<u8>(TYPE).write(kind);
    header.field::<u8>(SIZE).write(u8::try_from(size / 4).unwrap_or(0));
    header.field::<i32>(SIGNAL_STATE).write(signaled.into());
    let list = object + WAIT_LIST;
    header.field::<[usize; 2]>(WAIT_LIST).write([list, list]);
}

/// Clears the flags of a timer, which are in the fourth byte.
pub(super) fn clear_timer_flags(timer: usize) {
    Guest::<u8>::from_address(timer).field::<u8>(TIMER_MISC_FLAGS).write(0);
}

pub(super) fn signal_state(object: usize) -> Guest<i32> {
    Guest::<u8>::from_address(object).field(SIGNAL_STATE)
}

/// Returns the type of an object. An uninitialized object is a violation.
pub(super) fn kind(object: usize, function: &str) -> u8 {
    let header = Guest::<u8>::from_address(object);
    let (kind, size) = (header.field::<u8>(TYPE).read(), header.field::<u8>(SIZE).read());
    let known = matches!(
        (kind, size),
        (0 | 1 | THREAD, 6)
            | (MUTANT, 14)
            | (SEMAPHORE, 8)
            | (NOTIFICATION_TIMER | SYNCHRONIZATION_TIMER, 16)
    );
    if !known {
        broken(
            rules::INITIALIZED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!(
                "{function} on an object that is not an initialized event, timer, mutex, semaphore or thread (type {kind}, size {size})"
            ),
        );
    }
    kind
}

/// Returns the address of an object, which must be of a kind with this name.
pub(super) fn address_of<T>(object: Guest<T>, (expected, name): (u8, &str), function: &str) -> usize {
    if kind(object.address(), function) != expected {
        broken(
            rules::INITIALIZED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{function} of an object that is no {name}"),
        );
    }
    object.address()
}

/// Returns the number that stands for a thread in an object that it holds: not 0.
pub(super) fn number_of(thread: ThreadId) -> usize {
    thread.0 as usize + 1
}

/// Returns the number of the thread that holds a mutex, 0 for none.
pub(super) fn owner(mutex: usize) -> Guest<usize> {
    Guest::<u8>::from_address(mutex).field(OWNER_THREAD)
}

/// Returns whether an object satisfies a wait of `thread`. A mutex does so also while the thread holds it.
pub(super) fn satisfies(object: usize, kind: u8, thread: ThreadId) -> bool {
    signal_state(object).read() > 0 || kind == MUTANT && owner(object).read() == number_of(thread)
}

/// Takes an object for a wait of `thread`: a synchronization object is no longer signaled, a semaphore has one less, a mutex is held once
/// more.
pub(super) fn take(object: usize, kind: u8, thread: ThreadId) {
    if matches!(kind, SYNCHRONIZATION_EVENT | SYNCHRONIZATION_TIMER) {
        signal_state(object).write(0);
    }
    if kind == MUTANT {
        owner(object).write(number_of(thread));
    }
    if matches!(kind, MUTANT | SEMAPHORE) {
        let state = signal_state(object);
        state.write(state.read() - 1);
    }
}
