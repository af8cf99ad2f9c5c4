// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slab of connections.
//!
//! Allocated in chunks that never move and are kept: the configuration bounds the number of connections, and
//! slots are reused. Values are reset in place: they are too large to be moved through a kernel stack.

use alloc::vec::Vec;

use fallible::{AllocError, vec};

const CHUNK: usize = 16;

/// A value with an idle state.
pub(super) trait Idle {
    const IDLE: Self;
}

struct Slot<T> {
    /// Incremented at each use of the slot, so that stale handles do not match.
    generation: u32,
    used: bool,
    value: T,
}

pub(super) struct Table<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// Free slots, used last first. Has capacity for all slots.
    free: Vec<u32>,
}

impl<T: Idle> Table<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of slots, including free ones.
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len().saturating_mul(CHUNK)
    }

    /// Returns the number of slots in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.capacity().saturating_sub(self.free.len())
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the capacity after the next [`Table::grow`].
    pub(super) fn next_capacity(&self) -> usize {
        self.capacity().saturating_add(CHUNK)
    }

    /// Allocates a chunk of free slots.
    pub(super) fn grow(&mut self) -> Result<(), AllocError> {
        let first = self.capacity() as u32;
        let mut chunk = Vec::new();
        vec::grow_to(&mut chunk, CHUNK, || Slot { generation: 0, used: false, value: T::IDLE })?;
        let capacity = self.next_capacity();
        vec::reserve(&mut self.free, capacity)?;
        vec::push(&mut self.chunks, chunk)?;
        for slot in (first..self.capacity() as u32).rev() {
            vec::push_within_capacity(&mut self.free, slot)?;
        }
        Ok(())
    }

    /// Takes a free slot and resets its value. Returns slot and generation; `None` if no slot is free.
    pub(super) fn claim(&mut self) -> Option<(u32, u32)> {
        let index = self.free.pop()?;
        let slot = self.slot_mut(index)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.used = true;
        slot.value = T::IDLE;
        Some((index, slot.generation))
    }

    /// Frees a slot.
    pub(super) fn free(&mut self, index: u32) {
        if self.slot_mut(index).is_some_and(|slot| core::mem::replace(&mut slot.used, false)) {
            // Capacity is reserved for all slots, and each is free once.
            let _ = vec::push_within_capacity(&mut self.free, index);
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.slot(index).filter(|slot| slot.used).map(|slot| &slot.value)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index).filter(|slot| slot.used).map(|slot| &mut slot.value)
    }

    /// Returns the value of a slot if its generation matches.
    pub(super) fn get_generation(&self, index: u32, generation: u32) -> Option<&T> {
        self.slot(index).filter(|slot| slot.used && slot.generation == generation).map(|slot| &slot.value)
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Idle for char {
        const IDLE: Self = '-';
    }

    #[test]
    fn stale_handle_does_not_resolve_after_reuse() {
        let mut table = Table::<char>::new();
        assert!(table.claim().is_none());
        table.grow().unwrap();
        let (slot, old) = table.claim().unwrap();
        *table.get_mut(slot).unwrap() = 'a';
        table.free(slot);
        table.free(slot);
        assert_eq!(table.get(slot), None);
        let (same, new) = table.claim().unwrap();
        assert_eq!(slot, same);
        assert_eq!(table.get_generation(slot, old), None);
        assert_eq!(table.get_generation(slot, new), Some(&'-'), "the value is reset");
    }

    #[test]
    fn each_slot_is_claimed_once() {
        let mut table = Table::<char>::new();
        table.grow().unwrap();
        table.grow().unwrap();
        let mut slots: Vec<_> = core::iter::from_fn(|| table.claim()).map(|(slot, _)| slot).collect();
        assert_eq!(table.len(), table.capacity());
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..table.capacity() as u32));
    }
}
