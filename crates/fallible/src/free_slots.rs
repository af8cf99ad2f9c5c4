// SPDX-License-Identifier: MIT OR Apache-2.0

//! The free slots of a chunk of memory, and the users that keep the chunk.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::ref_count::RefCount;
use crate::word::Word;

/// Most slots of a set.
pub(crate) const MOST_SLOTS: usize = WORDS * WORD_BITS;
const WORDS: usize = 16;
const WORD_BITS: usize = usize::BITS as usize;

/// A set of free slots, each by its number. Any thread frees slots; one at a time takes them.
struct FreeSlots<W>([W; WORDS]);

impl<W: Word> FreeSlots<W> {
    /// Returns a set of the first `count` slots.
    fn first(count: usize) -> Self {
        Self(core::array::from_fn(|word| {
            let bits = count.saturating_sub(word.saturating_mul(WORD_BITS)).min(WORD_BITS) as u32;
            W::new(1usize.checked_shl(bits).unwrap_or(0).wrapping_sub(1))
        }))
    }

    /// Returns whether no slot is free, unless one is being freed.
    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Takes a slot. All that the thread did that freed it happens before.
    fn take(&self) -> Option<usize> {
        self.0.iter().enumerate().find_map(|(number, word)| {
            // No other thread takes a slot meanwhile.
            let lowest = word.load(Ordering::Relaxed).trailing_zeros() as usize;
            if lowest == WORD_BITS {
                return None;
            }
            word.update(|bits| bits & !(1 << lowest));
            Some(number.wrapping_mul(WORD_BITS).wrapping_add(lowest))
        })
    }

    /// Frees a slot.
    fn put_back(&self, slot: usize) {
        if let Some(word) = self.0.get(slot / WORD_BITS) {
            word.fetch_or(1usize.wrapping_shl(slot as u32), Ordering::Release);
        }
    }
}

/// Which slots of a chunk are free, and how many users it has: its slab, and each slot that is taken.
pub(crate) struct Occupancy<W = AtomicUsize> {
    users: RefCount<W>,
    free: FreeSlots<W>,
}

impl<W: Word> Occupancy<W> {
    /// Returns that of a chunk with `slots` free slots, whose slab is its only user.
    pub(crate) fn of_slab(slots: usize) -> Self {
        Self { users: RefCount::one(), free: FreeSlots::first(slots) }
    }

    /// Returns whether a slot is free, unless one is being freed.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns whether the slab is the only user. All that users of slots did happens before.
    pub(crate) fn is_unused(&self) -> bool {
        self.users.is_one()
    }

    /// Takes a slot, which is a user then; one thread at a time does. All that its last user did happens before.
    pub(crate) fn take(&self) -> Option<usize> {
        let slot = self.free.take()?;
        self.users.acquire();
        Some(slot)
    }

    /// Frees a slot. Returns `true` if no user is left, so that the caller frees the chunk, and otherwise uses it no more.
    #[must_use]
    pub(crate) fn put_back(&self, slot: usize) -> bool {
        // Free first: the chunk exists for as long as the slot counts as a user.
        self.free.put_back(slot);
        self.leave()
    }

    /// Ends a use. Returns as [`Occupancy::put_back`] does.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        self.users.release()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_free_slots_has_each_slot_once() {
        for count in [0, 1, 63, 64, 65, if cfg!(miri) { 130 } else { MOST_SLOTS }] {
            let free = FreeSlots::<AtomicUsize>::first(count);
            assert_eq!(free.is_empty(), count == 0);
            let taken: Vec<_> = core::iter::from_fn(|| free.take()).collect();
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
            assert!(free.is_empty());
            for slot in 0..count {
                free.put_back(slot);
                assert!(!free.is_empty());
                assert_eq!((free.take(), free.take()), (Some(slot), None));
            }
        }
    }

    #[test]
    fn the_last_user_is_the_slab_or_a_slot() {
        let chunk = <Occupancy>::of_slab(2);
        assert_eq!((chunk.is_unused(), chunk.take(), chunk.is_unused()), (true, Some(0), false));
        assert_eq!((chunk.take(), chunk.has_free(), chunk.take()), (Some(1), false, None));
        assert_eq!((chunk.put_back(1), chunk.has_free(), chunk.is_unused()), (false, true, false));
        assert_eq!((chunk.put_back(0), chunk.is_unused(), chunk.take()), (false, true, Some(0)));
        assert_eq!((chunk.leave(), chunk.put_back(0)), (false, true));
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "loom checks the accesses of the models")]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Counter;
    use loom::thread;

    ::models::loom_word!(LoomWord: crate::word::Word);

    /// A chunk of two slots, whose last user frees it.
    struct Chunk {
        occupancy: Occupancy<LoomWord>,
        slots: [UnsafeCell<usize>; 2],
        freed: Counter,
    }

    // SAFETY: loom checks accesses to the cells.
    unsafe impl Sync for Chunk {}

    impl Chunk {
        fn new() -> Arc<Self> {
            let slots = [(); 2].map(|()| UnsafeCell::new(0));
            Arc::new(Self { occupancy: Occupancy::of_slab(2), slots, freed: Counter::new(0) })
        }

        /// Stores a value in a free slot.
        fn store(&self, value: usize) -> Option<usize> {
            let slot = self.occupancy.take()?;
            // SAFETY: loom reports a concurrent access.
            self.slots[slot].with_mut(|place| unsafe { *place = value });
            Some(slot)
        }

        /// Drops the value of a slot, which is this one.
        fn remove(&self, slot: usize, value: usize) {
            // SAFETY: loom reports a concurrent access.
            self.slots[slot].with_mut(|place| unsafe { assert_eq!(core::mem::take(&mut *place), value) });
            let last = self.occupancy.put_back(slot);
            self.free_if(last);
        }

        fn free_if(&self, last: bool) {
            if last {
                for slot in &self.slots {
                    slot.with_mut(|_| ());
                }
                for word in &self.occupancy.free.0 {
                    // SAFETY: loom reports a concurrent or later store.
                    let _ = unsafe { word.0.unsync_load() };
                }
                self.freed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Two threads free slots of one word while the slab takes what is free.
    #[test]
    fn model_a_slot_is_taken_by_one_user_after_the_last_one_has_left() {
        loom::model(|| {
            let chunk = Chunk::new();
            let slots = [1, 2].map(|value| (chunk.store(value).unwrap(), value));
            assert_eq!(chunk.store(3), None);
            let threads = slots.map(|(slot, value)| {
                let chunk = chunk.clone();
                thread::spawn(move || chunk.remove(slot, value))
            });
            if let Some(slot) = chunk.store(3) {
                chunk.remove(slot, 3);
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(chunk.occupancy.is_unused());
            // Neither is lost.
            assert_eq!([4, 5, 6].map(|value| chunk.store(value)), [Some(0), Some(1), None]);
        });
    }

    /// The slab is dropped while threads free slots.
    #[test]
    fn model_the_last_user_frees_the_chunk_once_after_all_others() {
        loom::model(|| {
            let chunk = Chunk::new();
            let threads = [1, 2].map(|value| {
                let (chunk, slot) = (chunk.clone(), chunk.store(value).unwrap());
                thread::spawn(move || chunk.remove(slot, value))
            });
            let last = chunk.occupancy.leave();
            chunk.free_if(last);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(chunk.freed.load(Ordering::SeqCst), 1);
        });
    }

    /// The slab frees a chunk that it sees unused, and takes a slot of another one.
    #[test]
    fn model_a_chunk_without_other_users_is_freed_after_all_their_uses() {
        loom::model(|| {
            let chunk = Chunk::new();
            let slot = chunk.store(1).unwrap();
            let other = {
                let chunk = chunk.clone();
                thread::spawn(move || chunk.remove(slot, 1))
            };
            if chunk.occupancy.is_unused() {
                let last = chunk.occupancy.leave();
                assert!(last);
                chunk.free_if(last);
            }
            other.join().unwrap();
        });
    }
}
