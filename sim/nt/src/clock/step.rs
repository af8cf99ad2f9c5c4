// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps that take virtual time.

/// A step of the running thread, in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Time after the step.
    pub now: u64,
    /// The thread's turn is over: it should let others run.
    pub ends_turn: bool,
}

/// Work of the kernel that takes virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Taking a DPC from its queue and calling it.
    Dpc,
}
