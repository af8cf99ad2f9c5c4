// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interrupt status of a device without MSI-X: why it asserts its line. (virtio 1.2, 4.1.4.5)

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};

/// The causes of the line's interrupt.
#[derive(Default)]
pub(super) struct Line {
    causes: AtomicU8,
    acknowledgments: AtomicU64,
}

impl Line {
    /// Adds a cause; returns whether it is the first.
    pub fn add(&self, cause: u8) -> bool {
        self.causes.fetch_or(cause, SeqCst) == 0
    }

    /// Returns the causes and clears them, as a read of the register does.
    pub fn take(&self) -> u8 {
        let causes = self.causes.swap(0, SeqCst);
        self.acknowledgments.fetch_add(u64::from(causes != 0), SeqCst);
        causes
    }

    /// Clears the causes, as a reset does.
    pub fn clear(&self) {
        self.causes.store(0, SeqCst);
    }

    pub fn has_cause(&self) -> bool {
        self.causes.load(SeqCst) != 0
    }

    /// Returns how often a read has found a cause.
    pub fn acknowledgments(&self) -> u64 {
        self.acknowledgments.load(SeqCst)
    }
}
