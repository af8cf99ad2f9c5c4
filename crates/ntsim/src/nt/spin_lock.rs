//! Spin locks.

use crate::{
    Irql,
    import::Import,
    thread::Thread,
    verifier::{BugCheck, violation},
};

/// A spin lock that a thread holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub address: usize,
    /// The IRQL to return to, unless the lock was taken at `DISPATCH_LEVEL`.
    pub old: Irql,
}

pub const IMPORTS: &[Import] = &[];

/// The thread is about to leave `DISPATCH_LEVEL`.
pub(crate) fn check_none_held(thread: &Thread, level: Irql) {
    let held = thread.locks.borrow().len();
    if held != 0 {
        violation(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{held} spin lock(s) held at {level}"),
        );
    }
}
