// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects to abort because the device is removed: a few in each round of the deferred routine, since aborting one flushes
//! its queue pair.
//= R-IRQL-10

use super::registry::{Registered, Registry};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Slots of the registry that one round looks at. A queue pair has up to twice 4096 requests to flush.
const SLOTS: usize = 16;
/// No removal is in progress.
const NONE: usize = usize::MAX;

/// The progress of a removal through the registry.
pub struct Removal {
    /// Index of the next slot.
    next: AtomicUsize,
}

/// Objects that a removal aborts.
pub trait Abort: Registered {
    /// Aborts what the object does.
    fn abort(&self);
}

impl Removal {
    pub const fn new() -> Self {
        Self { next: AtomicUsize::new(NONE) }
    }

    /// Begins with the first object.
    pub fn begin(&self) {
        self.next.store(0, Ordering::Release);
    }

    /// Whether a removal is in progress.
    pub fn is_active(&self) -> bool {
        self.next.load(Ordering::Acquire) != NONE
    }

    /// Aborts the next objects, if a removal is in progress. Returns whether others are left.
    pub fn abort_some<T: Abort>(&self, registry: &Registry) -> bool {
        let advance = |next: usize| (next != NONE).then(|| next.saturating_add(SLOTS));
        let Ok(first) = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, advance) else {
            return false;
        };
        let last = first.saturating_add(SLOTS);
        let left = registry.for_each_in(first..last, T::abort);
        if !left {
            // Another removal may have begun.
            let _ = self.next.compare_exchange(last, NONE, Ordering::AcqRel, Ordering::Acquire);
        }
        self.is_active()
    }
}
