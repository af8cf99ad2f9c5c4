// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hash table from keys that peers choose to slots, with open addressing and linear probing.
//!
//! Entries hold the hash of the key, so that the table grows without the keys; the caller compares keys.
//! Only [`Index::reserve`] allocates. Hashes must come from a keyed function, so that peers cannot cause
//! collisions.
//!
//! Not `hashbrown::HashTable`: each of its insertions may grow the table, and so allocates infallibly; a removed entry can use up
//! capacity that was reserved.

use alloc::vec::Vec;

use fallible::{AllocError, vec};

/// Hash and slot of an entry; `None` if free.
type IndexEntry = Option<(u32, u32)>;

/// A hash table of slots.
#[derive(Default)]
pub(super) struct Index {
    /// Empty, or a power of two of entries, at most half of them occupied.
    entries: Vec<IndexEntry>,
    len: usize,
}

impl Index {
    /// Reserves capacity for `count` entries in total.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), AllocError> {
        let capacity = count.saturating_mul(2).next_power_of_two();
        if capacity <= self.entries.len() {
            return Ok(());
        }
        let old = core::mem::replace(&mut self.entries, vec::filled(capacity, None)?);
        self.len = 0;
        for (hash, slot) in old.into_iter().flatten() {
            self.insert(hash, slot);
        }
        Ok(())
    }

    /// Returns the slot with this hash for which `is_it` returns `true`.
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.probe(hash)
            .map_while(|at| self.at(at))
            .find_map(|(other, slot)| (other == hash && is_it(slot)).then_some(slot))
    }

    /// Adds an entry. Its capacity must be reserved.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        if let Some(free) = self.probe(hash).find(|&at| self.at(at).is_none()) {
            self.set(free, Some((hash, slot)));
            self.len = self.len.saturating_add(1);
        }
        debug_assert!(self.len <= self.entries.len() / 2, "capacity is not reserved");
    }

    /// Removes an entry, if it is there.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let entry = Some((hash, slot));
        let found = self.probe(hash).take_while(|&at| self.at(at).is_some()).find(|&at| self.at(at) == entry);
        let Some(mut hole) = found else { return };
        self.len = self.len.saturating_sub(1);
        // Backward shift: entries after the hole move up if their probe sequence includes it.
        let mask = self.mask();
        for at in self.probe(hole as u32).skip(1) {
            let Some((hash, slot)) = self.at(at) else { break };
            let distance = at.wrapping_sub(hash as usize) & mask;
            let to_fill = at.wrapping_sub(hole) & mask;
            if distance >= to_fill {
                self.set(hole, Some((hash, slot)));
                hole = at;
            }
        }
        self.set(hole, None);
    }

    /// Returns the probe sequence of a hash.
    fn probe(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask();
        (0..self.entries.len()).map(move |i| (hash as usize).wrapping_add(i) & mask)
    }

    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    fn at(&self, at: usize) -> IndexEntry {
        self.entries.get(at).copied().flatten()
    }

    fn set(&mut self, at: usize, entry: IndexEntry) {
        if let Some(place) = self.entries.get_mut(at) {
            *place = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Few distinct hashes, so that entries collide and wrap around.
        #[test]
        fn behaves_like_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..6, 0u32..20), 0..200)) {
            let mut index = Index::default();
            let mut model = HashSet::new();
            for (add, hash, slot) in steps {
                let hash = hash.wrapping_sub(3);
                if add && !model.contains(&(hash, slot)) {
                    index.reserve(model.len() + 1).unwrap();
                    index.insert(hash, slot);
                    model.insert((hash, slot));
                } else if !add {
                    index.remove(hash, slot);
                    model.remove(&(hash, slot));
                }
                for hash in 0..6u32 {
                    let hash = hash.wrapping_sub(3);
                    for slot in 0..20 {
                        let found = index.find(hash, |other| other == slot);
                        prop_assert_eq!(found.is_some(), model.contains(&(hash, slot)));
                    }
                }
            }
        }
    }
}
