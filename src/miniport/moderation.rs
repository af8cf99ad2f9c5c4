// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moderation of receive interrupts: while frames follow each other closely, the queue is polled again a microsecond later, and its
//! interrupt is requested when such a poll finds nothing.
//!
//! An interrupt of a virtual machine takes some microseconds, an empty poll one. Frames that are farther apart are not polled for: a
//! processor that waits for them runs nothing else.

use core::sync::atomic::{AtomicU64, Ordering};

use nt::time;

/// Time between two polls, in microseconds.
pub const INTERVAL: u32 = 1;
/// Polls of a DPC. Then other DPCs run, and NDIS or the driver calls it again.
pub const POLLS: u32 = 32;

/// Frames that follow others in less than this time follow them closely, in nanoseconds.
const CLOSE: u64 = 5_000;

/// How the frames of a receive queue follow each other. One thread at a time polls it.
#[derive(Default)]
pub struct Moderation {
    /// When frames were found last, in nanoseconds.
    last: AtomicU64,
}

impl Moderation {
    /// Records that frames were found. Returns whether they followed others closely. Any IRQL.
    pub fn found(&self) -> bool {
        let now = time::now();
        now.saturating_sub(self.last.swap(now, Ordering::Relaxed)) < CLOSE
    }
}
