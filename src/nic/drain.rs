// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waits for work that arrives continuously: until a run of the routine that does the work has found none left.

use core::sync::atomic::{AtomicU8, Ordering};

const DONE: u8 = 0;
const REQUESTED: u8 = 1;
/// A run has begun since the request.
const RUNNING: u8 = 2;

/// Records whether a run of a routine has begun since a request and found nothing left to do. Runs do not overlap.
#[derive(Default)]
pub struct Drain(AtomicU8);

impl Drain {
    /// Starts a request. Runs that began before it do not count. One caller at a time.
    pub fn request(&self) {
        self.0.store(REQUESTED, Ordering::Release);
    }

    /// Called when a run begins. The run sees everything that happened before the request.
    pub fn begin(&self) {
        let _ = self.0.compare_exchange(REQUESTED, RUNNING, Ordering::Acquire, Ordering::Relaxed);
    }

    /// Called when the run ends.
    pub fn end(&self, nothing_is_left: bool) {
        if nothing_is_left {
            let _ = self.0.compare_exchange(RUNNING, DONE, Ordering::Release, Ordering::Relaxed);
        }
    }

    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }
}
