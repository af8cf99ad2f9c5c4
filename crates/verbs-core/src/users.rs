// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of users and of events, for which the destruction of an object waits or fails.

use core::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// The number of objects that use another one.
#[derive(Debug, Default)]
pub struct Users(AtomicU32);

impl Users {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Error::Busy`] if there are users.
    pub fn check_none(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Error::Busy) }
    }
}

/// Events of an object that the application has taken and not acknowledged.
#[derive(Debug, Default)]
pub struct Unacknowledged {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Unacknowledged {
    /// Counts an event that the application takes.
    pub fn taken(&self) {
        *self.count.lock() += 1;
    }

    /// Counts events that it acknowledges.
    pub fn acknowledge(&self, events: u64) {
        let mut count = self.count.lock();
        *count = count.saturating_sub(events);
        self.changed.notify_all();
    }

    /// Waits until all are acknowledged.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.changed.wait(&mut count);
        }
    }
}
