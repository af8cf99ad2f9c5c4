// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moderation of receive interrupts: while frames follow each other closely, the queue is polled for a short time after the last one
//! before its interrupt is requested.
//!
//! An interrupt of a virtual machine takes some microseconds. Polling for as long costs at most as much again, and saves the
//! interrupt if a frame arrives meanwhile. Frames that are farther apart than that are not polled for.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt::time;

/// Time after a frame in which the next one is polled for, in nanoseconds.
const HOLD: u64 = 5_000;

/// How the frames of a receive queue follow each other. One poll at a time.
#[derive(Default)]
pub struct Moderation {
    /// When frames were found last.
    last: AtomicU64,
    /// The last frames found came soon after those before them.
    is_busy: AtomicBool,
}

impl Moderation {
    /// Records a poll, which has found frames or none. Returns whether another one is to follow, instead of an interrupt. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn polls_again(&self, found: bool) -> bool {
        if !found && !self.is_busy.load(Ordering::Relaxed) {
            return false;
        }
        let now = time::now();
        let is_soon = now.saturating_sub(self.last.load(Ordering::Relaxed)) < HOLD;
        if found {
            self.last.store(now, Ordering::Relaxed);
        }
        self.is_busy.store(is_soon, Ordering::Relaxed);
        is_soon
    }
}
