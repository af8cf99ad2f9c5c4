// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects the image holds: it must release them before it unloads.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::image::frame::{Capture, DEPTH, Walk};

/// Objects the image holds, by kind and address.
///
/// Leaks are listed in the order of creation, so that a report does not depend on addresses.
pub struct Objects {
    capture: Capture,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    sequence: u64,
    objects: BTreeMap<(&'static str, usize), Object>,
}

/// An object that the image holds.
#[derive(Clone, Debug)]
pub struct Object {
    /// The function that allocated it, e.g. `"IoAllocateMdl"`.
    pub kind: &'static str,
    pub address: usize,
    /// Position in the order of creation.
    pub sequence: u64,
    /// Stack of the allocation.
    pub stack: Walk,
}

impl Objects {
    pub(crate) fn new(capture: Capture) -> Self {
        Self { capture, held: Mutex::default() }
    }

    /// Records that the image holds an object.
    pub fn add(&self, kind: &'static str, address: usize) {
        let stack = (self.capture)(DEPTH);
        let mut held = self.held.lock();
        held.sequence += 1;
        let sequence = held.sequence;
        held.objects.insert((kind, address), Object { kind, address, sequence, stack });
    }

    /// Records that the image released an object; returns `false` when it did not hold it.
    #[must_use]
    pub fn remove(&self, kind: &'static str, address: usize) -> bool {
        self.held.lock().objects.remove(&(kind, address)).is_some()
    }

    #[must_use]
    pub fn contains(&self, kind: &'static str, address: usize) -> bool {
        self.held.lock().objects.contains_key(&(kind, address))
    }

    /// Returns all objects held, in the order of creation.
    #[must_use]
    pub fn list(&self) -> Vec<Object> {
        let mut objects: Vec<_> = self.held.lock().objects.values().cloned().collect();
        objects.sort_by_key(|object| object.sequence);
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_in_the_order_of_their_creation() {
        let objects = Objects::new(|_| Walk::default());
        objects.add("MDL", 9);
        objects.add("MDL", 5);
        let list: Vec<_> = objects.list().iter().map(|object| (object.sequence, object.address)).collect();
        assert_eq!(list, [(1, 9), (2, 5)]);
        assert!(objects.contains("MDL", 9) && !objects.contains("timer", 9));
        assert!(objects.remove("MDL", 9) && !objects.remove("MDL", 9));
        assert!(!objects.contains("MDL", 9));
    }
}
