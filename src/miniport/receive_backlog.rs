// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive work of a queue pair that its DPC has left.

use core::sync::atomic::AtomicBool;

use nt::{Streak, Turn};

use super::interrupt_moderation::Moderation;
use crate::nic::drain::Drain;

/// State of a queue pair's receive processing, shared by the DPC of its message and its deferred routine.
#[derive(Default)]
pub struct Backlog {
    /// One processor at a time polls the receive queue and indicates the frames.
    pub turn: Turn,
    /// The deferred routine must poll the receive queue.
    pub receive: AtomicBool,
    /// Whether a poll has found the receive queue empty since a request.
    pub drain: Drain,
    pub streak: Streak,
    pub moderation: Moderation,
    /// The receive queue was reset alone, and has lost the parameters of its interrupts since the device was last programmed with them.
    pub has_lost_coalescing: AtomicBool,
}
