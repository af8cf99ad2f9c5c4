// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of the image.

use super::{stack, switch};
use crate::{
    irql::Irql,
    thread::{current::current, delayed},
    verifier::{
        codes::BugCheck,
        report::violation,
        rules::{self, broken},
    },
};

/// Returns the function at an address that an image passed as its `what`.
///
/// Null is a bug check, as its call is on Windows: a page fault at the IRQL of the call. So is a function that its image does not list
/// for Control Flow Guard.
///
/// # Safety
/// `F` is a function pointer, and the type of the function at any other address that a correct image passes.
#[must_use]
pub unsafe fn function<F: Copy>(what: &str, address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>(), "a function pointer") };
    if address == 0 {
        let code = if current().irql() >= Irql::DISPATCH_LEVEL {
            BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL
        } else {
            BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED
        };
        violation(code, format!("call of {what}, which is a null pointer"));
    }
    if current().host().images().find(address).is_some_and(|image| !image.allows_call(address)) {
        violation(
            BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
            format!("call of {what} at {address:#x}, which its image does not list for Control Flow Guard"),
        );
    }
    // SAFETY: the sizes are equal; the caller's promise.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Calls a function of the image: `call("MiniportPause", || (pause)(context, parameters))`.
///
/// Checks that the function returns at the IRQL it was called at and with as many spin locks held.
pub fn call<T>(what: &str, callback: impl FnOnce() -> T) -> T {
    switch::once(callback, |callback| checked(what, callback))
}

fn checked(what: &str, callback: &mut dyn FnMut()) {
    let me = current();
    me.run_requested();
    delayed::at_call(&me, what);
    let (irql, locks) = (me.irql(), me.locks.borrow().len());
    stack::segment(callback);
    me.stop_if_dead();
    me.run_requested();
    if me.irql() != irql {
        violation(
            BugCheck::IRQL_UNEXPECTED_VALUE,
            format!(
                "{what} was called at {irql} and returned at {}; it must return at the same IRQL",
                me.irql()
            ),
        );
    }
    let left = me.locks.borrow().len();
    if left != locks {
        broken(
            rules::LOCKS_RELEASED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!(
                "{what} was called with {locks} spin locks held and returned with {left}; it must release what it acquires"
            ),
        );
    }
}

/// Calls a function of the image that may return at another level and with other locks held.
pub fn call_changing_level<T>(callback: impl FnOnce() -> T) -> T {
    let result = switch::once(callback, |callback| stack::segment(callback));
    current().stop_if_dead();
    result
}

/// Calls a function of the image that must lower the IRQL and release spin locks: it must return at the level and with
/// the number of locks held that `ending` has.
pub fn call_ending<T>(what: &str, ending: (Irql, usize), callback: impl FnOnce() -> T) -> T {
    let me = current();
    let result = switch::once(callback, |callback| stack::segment(callback));
    me.stop_if_dead();
    let (irql, locks) = (me.irql(), me.locks.borrow().len());
    if irql != ending.0 {
        violation(
            BugCheck::IRQL_UNEXPECTED_VALUE,
            format!("{what} returned at {irql}; it must return at {}", ending.0),
        );
    }
    if me.verifies() && locks != ending.1 {
        broken(
            rules::LOCKS_RELEASED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{what} returned with {locks} spin locks held; it must return with {}", ending.1),
        );
    }
    result
}
