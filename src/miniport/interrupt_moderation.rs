// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moderation of receive interrupts: while frames follow each other closely, the DPC polls the queue again after a microsecond. When such a
//! poll finds nothing, the DPC requests the interrupt.
//!
//! An interrupt in a virtual machine takes several microseconds, an empty poll takes one. The DPC does not poll for frames that are farther
//! apart, because a processor that waits for them runs nothing else.

use core::sync::atomic::{AtomicU64, Ordering};

use nt::time;

/// Time between two polls, in microseconds.
pub const INTERVAL: u32 = 1;
/// Most polls of one DPC. Then other DPCs run, and NDIS or the driver calls it again.
pub const POLLS: u32 = 32;

/// Frames follow others closely if less than this time passed between them, in nanoseconds.
const CLOSE: u64 = 5_000;

/// Whether the frames of a receive queue follow each other closely. One thread at a time polls the queue.
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
