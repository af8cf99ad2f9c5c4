// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of the image.

use super::stack;
use crate::{
    thread::current::current,
    verifier::{codes::BugCheck, report::violation},
};

/// Calls a function of the image: `call("MiniportPause", || (pause)(context, parameters))`.
///
/// Checks that the function returns at the IRQL it was called at and with as many spin locks held.
pub fn call<T>(what: &str, callback: impl FnOnce() -> T) -> T {
    let me = current();
    let (irql, locks) = (me.irql(), me.locks.borrow().len());
    let result = stack::segment(callback);
    me.stop_if_dead();
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
        violation(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!(
                "{what} was called with {locks} spin locks held and returned with {left}; it must release what it acquires"
            ),
        );
    }
    result
}
