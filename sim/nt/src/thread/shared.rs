// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of a thread that other threads may use: its identity, and the gate it is parked at.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Numbers threads in the order of their creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// The thread that built the simulation.
    pub const HARNESS: Self = Self(0);
}

/// The part of a thread that other threads may use.
pub struct ThreadShared {
    pub id: ThreadId,
    pub name: String,
    pub(crate) gate: Gate,
}

impl ThreadShared {
    pub(crate) fn new(id: ThreadId, name: &str) -> Self {
        Self { id, name: name.to_owned(), gate: Gate::default() }
    }
}

/// A binary semaphore: each [`open`](Gate::open) lets one wait pass.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_one();
    }

    pub fn wait(&self) {
        let mut open = self.open.lock();
        while !std::mem::take(&mut *open) {
            self.opened.wait(&mut open);
        }
    }

    pub fn wait_until(&self, deadline: Instant) {
        let mut open = self.open.lock();
        while !std::mem::take(&mut *open) {
            if self.opened.wait_until(&mut open, deadline).timed_out() {
                *open = false;
                return;
            }
        }
    }
}
