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

#[cfg(test)]
mod tests {
    use super::super::Created;
    use super::super::registry::tests::{Thing, registry, thing};
    use super::*;
    use fallible::Arc;
    use std::vec::Vec;

    impl Abort for Thing {
        fn abort(&self) {
            self.aborted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a registry with this many objects.
    fn objects(count: usize) -> (Arc<Registry>, Vec<Created<Thing>>) {
        let registry = registry();
        let created = (0..count).map(|_| thing(&registry)).collect();
        (registry, created)
    }

    fn aborted(objects: &[Created<Thing>]) -> Vec<usize> {
        objects.iter().map(|object| object.reference().aborted.load(Ordering::Relaxed)).collect()
    }

    //= R-IRQL-10
    #[test]
    fn each_round_aborts_the_next_objects_until_none_is_left() {
        let removal = Removal::new();
        let (registry, objects) = objects(2 * SLOTS + 1);
        assert!(!removal.is_active() && !removal.abort_some::<Thing>(&registry));
        for _ in 0..2 {
            let before = aborted(&objects).iter().sum::<usize>();
            removal.begin();
            assert!(removal.is_active());
            for round in 1..=2 {
                assert!(removal.abort_some::<Thing>(&registry), "objects are left after round {round}");
                assert_eq!(aborted(&objects).iter().sum::<usize>(), before + round * SLOTS);
            }
            assert!(!removal.abort_some::<Thing>(&registry), "no object is left");
            assert!(!removal.is_active());
            assert!(!removal.abort_some::<Thing>(&registry));
        }
        assert!(aborted(&objects).iter().all(|count| *count == 2), "each once per removal");
    }

    #[test]
    fn removal_that_begins_during_another_one_looks_at_all_objects_again() {
        let removal = Removal::new();
        let (registry, objects) = objects(SLOTS + 1);
        removal.begin();
        assert!(removal.abort_some::<Thing>(&registry));
        removal.begin();
        assert!(removal.abort_some::<Thing>(&registry));
        assert!(!removal.abort_some::<Thing>(&registry));
        assert_eq!(aborted(&objects)[..SLOTS], [2; SLOTS]);
    }
}
