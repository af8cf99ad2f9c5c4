//! Slots of connections.
//!
//! Memory comes in chunks that never move, and is kept: the number of connections is bounded by the
//! configuration, and a slot used once will be used again.

use alloc::{collections::TryReserveError, vec::Vec};

const CHUNK: usize = 16;

struct Slot<T> {
    /// Counts the slot's users, so that an old handle does not fit a new one.
    generation: u32,
    value: Option<T>,
}

pub(super) struct Table<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// Free slots, of which the last is used next. Has room for all slots.
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    /// Slots there are, free ones included.
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len().saturating_mul(CHUNK)
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// How many slots there would be after [`Table::grow`].
    pub(super) fn next_capacity(&self) -> usize {
        self.capacity().saturating_add(CHUNK)
    }

    /// Adds free slots.
    pub(super) fn grow(&mut self) -> Result<(), TryReserveError> {
        let first = self.capacity();
        let mut chunk = Vec::new();
        chunk.try_reserve_exact(CHUNK)?;
        self.chunks.try_reserve(1)?;
        self.free.try_reserve(self.next_capacity().saturating_sub(self.free.len()))?;
        chunk.extend((0..CHUNK).map(|_| Slot { generation: 0, value: None }));
        self.chunks.push(chunk);
        self.free.extend((first..self.capacity()).rev().map(|slot| slot as u32));
        Ok(())
    }

    /// Takes a free slot for what `make` makes, which is told slot and generation. `None` when no slot is
    /// free.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32, u32) -> T) -> Option<(u32, u32)> {
        let index = self.free.pop()?;
        let slot = self.slot_mut(index)?;
        slot.generation = slot.generation.wrapping_add(1);
        let generation = slot.generation;
        slot.value = Some(make(index, generation));
        Some((index, generation))
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slot_mut(index)?.value.take()?;
        // Reserved for all slots.
        self.free.push(index);
        Some(value)
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// The value of a slot, unless it has another user than `generation` by now.
    pub(super) fn get_generation(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)?;
        slot.value.as_ref().filter(|_| slot.generation == generation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks.iter().flatten().zip(0..).filter_map(|(slot, index)| Some((index, slot.value.as_ref()?)))
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_handle_does_not_fit_a_new_user() {
        let mut table = Table::new();
        assert!(table.insert(|_, _| 'a').is_none());
        table.grow().unwrap();
        let (slot, old) = table.insert(|_, _| 'a').unwrap();
        assert_eq!(table.remove(slot), Some('a'));
        let (same, new) = table.insert(|_, _| 'b').unwrap();
        assert_eq!(slot, same);
        assert_eq!(table.get_generation(slot, old), None);
        assert_eq!(table.get_generation(slot, new), Some(&'b'));
    }

    #[test]
    fn slots_are_given_out_once() {
        let mut table = Table::new();
        table.grow().unwrap();
        table.grow().unwrap();
        let mut slots: Vec<_> =
            core::iter::from_fn(|| table.insert(|_, _| ())).map(|(slot, _)| slot).collect();
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..table.capacity() as u32));
    }
}
