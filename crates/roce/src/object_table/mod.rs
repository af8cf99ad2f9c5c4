// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables of shared objects with unpredictable 24-bit codes and lock-free lookup.
//!
//! Queue pairs, regions and logical ranges are identified by numbers that peers and consumers pass in.
//! [`ObjectTable`] finds the object of a code in constant time, with two atomic operations and no lock.
//! [`ObjectTable::remove`] guarantees that after its return no thread uses the object through the table: it waits
//! until the present [`Pinned`] references are dropped, each of which is held while a packet or a batch of packets is
//! processed.
//!
//! The wait spins, possibly at `DISPATCH_LEVEL`. So a thread must stay at `DISPATCH_LEVEL` from the lookup until
//! it drops the reference, as receive and transmit processing do, and code that holds a lock. Other code uses
//! [`ObjectTable::show`]. A thread must not remove an object while it has one pinned.
//!
//! A code consists of slot number and generation, encrypted by a keyed permutation of 24 bits, or of those after the prefix that
//! all codes of a table have. So codes do not reveal the order of allocation. Slots are reused oldest first, each time with a new code.
#![allow(unsafe_code, reason = "lock-free lookup needs unsafe cells and raw pointers")]

pub(crate) mod last_pinned;
mod replace;

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::error::CreateError;
use crate::number_prefix::NumberPrefix;
use crate::random::{Permutation, Random};
#[cfg(test)]
use crate::testing::visit;
use fallible::Arc;
use fallible::vec;

/// Slots are allocated in chunks of 2^8, which are freed with the table. Miri takes a second for one of these.
const CHUNK_BITS: u32 = if cfg!(miri) { 4 } else { 8 };
const CHUNK: usize = 1 << CHUNK_BITS;
/// Generations of a slot that are tried for a usable code.
const TRIES: u64 = 32;
/// Bits of a code.
const CODE_BITS: u32 = 24;
/// Bits of a code that are generation, at least.
const GENERATION_BITS: u32 = 6;

const LIVE: u64 = 1 << 63;
/// The generation is stored between the live bit and the number of users.
const GENERATION_AT: u32 = 32;
const USERS: u64 = (1 << GENERATION_AT) - 1;
/// The live bit in the upper half.
const LIVE_UPPER: u32 = (LIVE >> GENERATION_AT) as u32;

/// A table of `T`.
pub(crate) struct ObjectTable<T, R: RawMutex> {
    /// Chunks for the limit; null if not allocated yet.
    chunks: Vec<AtomicPtr<Slot<T>>>,
    codes: Codes,
    limit: u32,
    free: Mutex<R, Free>,
    relax: fn(),
}

struct Slot<T> {
    /// Live bit, generation, users. The upper half changes only while the free list is locked or the slot is
    /// reserved.
    state: AtomicU64,
    /// `Some` while the live bit is set. Written only by the owner of the slot while it is not
    /// live and has no users that saw it live.
    value: UnsafeCell<Option<Arc<T>>>,
}

/// Free slots, the oldest first, linked by number.
struct Free {
    /// `next[slot]`, while `slot` is in the list.
    next: Vec<u32>,
    head: u32,
    tail: u32,
    live: u32,
    random: Random,
}

const NIL: u32 = u32::MAX;

/// Translates between codes and slots.
struct Codes {
    /// Of the bits after the prefix.
    permutation: Permutation,
    prefix: NumberPrefix,
    index_bits: u8,
    /// That many bits.
    index_mask: u32,
}

impl Codes {
    fn code(&self, index: u32, generation: u32) -> u32 {
        self.prefix.before(self.permutation.apply(index | generation << self.index_bits), CODE_BITS)
    }

    /// Returns slot and generation of a code, if it has the prefix. Otherwise the generation is one that no slot has.
    #[inline]
    fn split(&self, code: u32) -> (u32, u32) {
        let plain =
            if self.permutation.is_of_all_bits() { self.permutation.undo(code) } else { self.undo(code) };
        (plain & self.index_mask, plain >> self.index_bits)
    }

    /// Returns what was permuted to the bits after the prefix; further bits unless the code has the prefix.
    #[cold]
    fn undo(&self, code: u32) -> u32 {
        let mask = (1 << self.permuted_bits()) - 1;
        // Generations have none of these bits.
        let foreign = (code ^ self.prefix.before(0, CODE_BITS)) & !mask;
        self.permutation.undo_fewer(code & mask) | foreign
    }

    /// Returns the number of bits after the prefix.
    const fn permuted_bits(&self) -> u32 {
        CODE_BITS - self.prefix.bits()
    }

    fn generations(&self) -> u32 {
        1 << (self.permuted_bits() - u32::from(self.index_bits))
    }
}

// SAFETY: values are shared between threads by reference and dropped on any of them.
unsafe impl<T: Send + Sync, R: RawMutex + Send> Send for ObjectTable<T, R> {}
// SAFETY: the cells are accessed only by the protocol of `state`, described at the fields.
unsafe impl<T: Send + Sync, R: RawMutex + Sync> Sync for ObjectTable<T, R> {}

/// A reserved slot: it has a code, but no value yet.
#[must_use]
pub(crate) struct Vacant<'a, T, R: RawMutex> {
    table: &'a ObjectTable<T, R>,
    index: u32,
    code: u32,
    salt: u8,
}

/// A pinned reference to an object of a table. Held while a packet or a batch of packets is processed.
pub(crate) struct Pinned<'a, T> {
    slot: &'a Slot<T>,
    value: &'a Arc<T>,
}

impl<T, R: RawMutex> ObjectTable<T, R> {
    /// Creates a table for up to `limit` objects, at most 2^18, or less by the length of the prefix that the codes have. A thread that
    /// waits for users of an object calls `relax` meanwhile.
    pub(crate) fn try_new(
        limit: u32,
        prefix: NumberPrefix,
        relax: fn(),
        random: &mut Random,
    ) -> Result<Self, CreateError> {
        let permuted_bits = CODE_BITS - prefix.bits();
        let limit = limit.clamp(1, 1 << (permuted_bits - GENERATION_BITS));
        let index_bits = limit.next_power_of_two().trailing_zeros().max(CHUNK_BITS);
        let free = Free { next: Vec::new(), head: NIL, tail: NIL, live: 0, random: random.fork() };
        let mut chunks = Vec::new();
        vec::grow_to(&mut chunks, limit.div_ceil(CHUNK as u32) as usize, AtomicPtr::default)?;
        Ok(Self {
            chunks,
            codes: Codes {
                permutation: Permutation::try_new(random, permuted_bits)?,
                prefix,
                index_bits: index_bits as u8,
                index_mask: (1 << index_bits) - 1,
            },
            limit,
            free: Mutex::new(free),
            relax,
        })
    }

    /// Returns what a thread calls while it waits for users of an object.
    pub(crate) const fn relax(&self) -> fn() {
        self.relax
    }

    /// Returns the number of objects in the table, including reserved slots.
    pub(crate) fn live(&self) -> u32 {
        self.free.lock().live
    }

    /// Reserves a slot with a code for which `usable` returns `true`.
    pub(crate) fn reserve(&self, usable: impl Fn(u32) -> bool) -> Result<Vacant<'_, T, R>, CreateError> {
        let mut free = self.free.lock();
        if free.live == self.limit {
            return Err(CreateError::TooMany);
        }
        if free.head == NIL {
            self.grow(&mut free)?;
        }
        let index = free.head;
        let slot = self.slot(index).ok_or(CreateError::TooMany)?;
        let next = free.next.get(index as usize).copied().unwrap_or(NIL);
        free.head = next;
        if next == NIL {
            free.tail = NIL;
        }
        free.live += 1;
        // The next generation with a usable code. Codes are pseudo-random and few are unusable, so the first
        // attempt usually succeeds; the loop is bounded in any case.
        let last = (slot.state.load(Ordering::Relaxed) & !LIVE) >> GENERATION_AT;
        let wanted = (1..=TRIES).find_map(|more| {
            let generation = (last + more) & u64::from(self.codes.generations() - 1);
            let code = self.codes.code(index, generation as u32);
            usable(code).then_some((generation, code))
        });
        let Some((generation, code)) = wanted else {
            drop(free);
            self.put_back(index);
            return Err(CreateError::TooMany);
        };
        slot.set_upper(generation << GENERATION_AT);
        let salt = free.random.next_u32() as u8;
        Ok(Vacant { table: self, index, code, salt })
    }

    /// Pins and returns the object of `code`. IRQL == `DISPATCH_LEVEL` until it is dropped.
    #[inline]
    pub(crate) fn get(&self, code: u32) -> Option<Pinned<'_, T>> {
        let (index, generation) = self.codes.split(code);
        self.slot(index)?.pin(generation)
    }

    /// Pins and returns the object in slot `index` of any generation. IRQL == `DISPATCH_LEVEL` until it is dropped.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<Pinned<'_, T>> {
        self.slot(index)?.pin_any()
    }

    /// Calls `look` with the object of `code` while the free list is locked, so that the caller is not preempted
    /// with the object pinned. IRQL <= `DISPATCH_LEVEL`.
    pub(crate) fn show<U>(&self, code: u32, look: impl FnOnce(&T) -> U) -> Option<U> {
        let _free = self.free.lock();
        self.get(code).map(|pinned| look(&pinned))
    }

    /// Removes the object of `code` and waits until no thread uses it through the table. The caller must not have
    /// it pinned. Returns `None` if it is not in the table, or no longer. IRQL <= `DISPATCH_LEVEL`: no other
    /// thread waits for the caller, so it may be preempted.
    pub(crate) fn remove(&self, code: u32) -> Option<Arc<T>> {
        let (index, slot) = self.claim(code)?;
        // SAFETY: `claim` returned the slot, so this thread owns it: no other thread accesses the cell.
        let value = unsafe { &mut *slot.value.get() }.take();
        self.put_back(index);
        value
    }

    /// Takes the object of `code` out of use, and waits until no thread uses it through the table. Returns its slot, which the caller owns
    /// until it is put back or live again.
    fn claim(&self, code: u32) -> Option<(u32, &Slot<T>)> {
        let (index, generation) = self.codes.split(code);
        let slot = self.slot(index)?;
        let upper = LIVE | u64::from(generation) << GENERATION_AT;
        {
            let _free = self.free.lock();
            if slot.state.load(Ordering::Relaxed) & !USERS != upper {
                return None;
            }
            slot.state.fetch_and(!LIVE, Ordering::AcqRel);
        }
        // Pins are held for a packet or a batch, at an IRQL at which their holders are not preempted. A failing lookup of
        // this slot also counts as a user for a moment. Then the slot is not live and not in the free list, and all users that saw it
        // live have dropped their pins.
        while slot.state.load(Ordering::Acquire) & USERS != 0 {
            (self.relax)();
        }
        Some((index, slot))
    }

    /// Calls `each` for every object, in the order of slots. IRQL == `DISPATCH_LEVEL`, as for [`ObjectTable::at`].
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Arc<T>)) {
        let grown = self.free.lock().next.len() as u32;
        for index in 0..grown {
            if let Some(pinned) = self.at(index) {
                each(pinned.value);
            }
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        let within = index as usize & (CHUNK - 1);
        // SAFETY: a chunk has `CHUNK` slots, and `within` is less.
        let slot = unsafe { chunk.add(within) };
        // SAFETY: chunks are published after initialization, and freed only with the table.
        Some(unsafe { &*slot })
    }

    /// Allocates a chunk of free slots.
    fn grow(&self, free: &mut Free) -> Result<(), CreateError> {
        let first = free.next.len();
        let place = self.chunks.get(first >> CHUNK_BITS).ok_or(CreateError::TooMany)?;
        vec::reserve_exact(&mut free.next, first + CHUNK)?;
        let mut chunk: Vec<Slot<T>> = vec::with_capacity(CHUNK)?;
        for _ in 0..CHUNK {
            // Generations start at a random value.
            let generation = free.random.below(self.codes.generations());
            let state = AtomicU64::new(u64::from(generation) << GENERATION_AT);
            vec::push_within_capacity(&mut chunk, Slot { state, value: UnsafeCell::new(None) })?;
        }
        for i in 0..CHUNK {
            let index = (first + i) as u32;
            vec::push_within_capacity(&mut free.next, if i + 1 == CHUNK { NIL } else { index + 1 })?;
        }
        free.head = first as u32;
        free.tail = (first + CHUNK - 1) as u32;
        // Freed by `drop` of the table.
        place.store(ManuallyDrop::new(chunk).as_mut_ptr(), Ordering::Release);
        Ok(())
    }

    /// Appends a slot without value to the free list.
    fn put_back(&self, index: u32) {
        let mut free = self.free.lock();
        let tail = free.tail;
        if let Some(next) = free.next.get_mut(index as usize) {
            *next = NIL;
        }
        match free.next.get_mut(tail as usize) {
            Some(next) if tail != NIL => *next = index,
            _ => free.head = index,
        }
        free.tail = index;
        free.live -= 1;
    }
}

impl<T> Slot<T> {
    /// Pins the value if the slot is live and has this generation.
    #[inline]
    fn pin(&self, generation: u32) -> Option<Pinned<'_, T>> {
        self.pin_if(|upper| upper == LIVE_UPPER | generation)
    }

    /// Pins the value if the slot is live.
    #[inline]
    fn pin_any(&self) -> Option<Pinned<'_, T>> {
        self.pin_if(|upper| upper & LIVE_UPPER != 0)
    }

    /// Pins the value if the upper half of the state satisfies `right`, which needs the live bit.
    #[inline]
    fn pin_if(&self, right: impl FnOnce(u32) -> bool) -> Option<Pinned<'_, T>> {
        #[cfg(test)]
        visit();
        let state = self.state.fetch_add(1, Ordering::Acquire);
        if right((state >> GENERATION_AT) as u32) {
            // SAFETY: the slot was live when this user was counted, so the cell has a value, and `remove` waits
            // for the count to become zero before it takes the value.
            if let Some(value) = unsafe { &*self.value.get() } {
                return Some(Pinned { slot: self, value });
            }
        }
        self.unpin();
        None
    }

    /// Drops a pin.
    #[inline]
    fn unpin(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Replaces live bit and generation while the free list is locked or the slot is reserved.
    fn set_upper(&self, upper: u64) {
        let old = self.state.load(Ordering::Relaxed) & !USERS;
        // Other threads change the user count in the lower half concurrently.
        self.state.fetch_xor(old ^ upper, Ordering::AcqRel);
    }
}

impl<T, R: RawMutex> Vacant<'_, T, R> {
    /// Returns the code of the slot.
    pub(crate) fn code(&self) -> u32 {
        self.code
    }

    /// Returns eight unpredictable bits, for keys that are longer than codes.
    pub(crate) fn salt(&self) -> u8 {
        self.salt
    }

    /// Returns the number of the slot.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Puts the value into the table.
    pub(crate) fn fill(self, value: Arc<T>) {
        let this = ManuallyDrop::new(self);
        let Some(slot) = this.table.slot(this.index) else { return };
        // SAFETY: the slot is reserved by this value and not live: no other thread accesses the cell.
        unsafe { *slot.value.get() = Some(value) };
        // Release: publishes the value.
        slot.state.fetch_or(LIVE, Ordering::AcqRel);
    }
}

impl<T, R: RawMutex> Drop for Vacant<'_, T, R> {
    fn drop(&mut self) {
        self.table.put_back(self.index);
    }
}

impl<T> Pinned<'_, T> {
    /// Returns a reference that outlives the pin.
    #[inline]
    pub(crate) fn to_arc(&self) -> Arc<T> {
        self.value.clone()
    }
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Pinned<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin();
    }
}

impl<T, R: RawMutex> Drop for ObjectTable<T, R> {
    #[allow(clippy::same_length_and_capacity, reason = "chunks are reserved exactly and filled")]
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = *chunk.get_mut();
            if !chunk.is_null() {
                // SAFETY: `grow` made it from a vector of this length and capacity, and `&mut self` is exclusive.
                drop(unsafe { Vec::from_raw_parts(chunk, CHUNK, CHUNK) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;

    fn table(limit: u32) -> ObjectTable<u32, Lock> {
        ObjectTable::try_new(limit, NumberPrefix::NONE, core::hint::spin_loop, &mut Random::new([7; 32]))
            .unwrap()
    }

    fn insert(table: &ObjectTable<u32, Lock>, value: u32) -> u32 {
        let vacant = table.reserve(|_| true).unwrap();
        let code = vacant.code();
        vacant.fill(Arc::try_new(value).unwrap());
        code
    }

    #[test]
    fn object_is_found_until_removed() {
        let table = table(10);
        let code = insert(&table, 5);
        assert_eq!(table.get(code).map(|v| *v), Some(5));
        assert_eq!(table.remove(code).map(|v| *v), Some(5));
        assert!(table.get(code).is_none());
        assert!(table.remove(code).is_none());
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn limit_is_enforced_and_dropped_reservation_is_free_again() {
        let table = table(2);
        insert(&table, 1);
        drop(table.reserve(|_| true).unwrap());
        insert(&table, 2);
        assert!(matches!(table.reserve(|_| true), Err(CreateError::TooMany)));
    }

    #[test]
    fn codes_are_not_reused_soon_and_not_sequential() {
        let table = table(1000);
        let mut seen = HashSet::new();
        let mut last = 0;
        let mut rising = 0;
        for i in 0..4096 {
            let code = insert(&table, i);
            assert!(seen.insert(code), "code {code:#x} again after {i}");
            rising += u32::from(code > last);
            last = code;
            table.remove(code);
        }
        assert!((1500..2600).contains(&rising), "{rising} of 4096 rose");
    }

    #[test]
    fn unusable_codes_are_skipped() {
        let table = table(256);
        for i in 0..256 {
            let vacant = table.reserve(|code| code & 15 != 0).unwrap();
            assert_ne!(vacant.code() & 15, 0);
            vacant.fill(Arc::try_new(i).unwrap());
        }
    }

    #[test]
    fn codes_have_the_prefix_of_their_table_and_no_others_are_found() {
        let prefix = NumberPrefix::new(0x3A, 8).unwrap();
        let table = ObjectTable::<u32, Lock>::try_new(
            1 << 18,
            prefix,
            core::hint::spin_loop,
            &mut Random::new([7; 32]),
        )
        .unwrap();
        let codes: HashSet<u32> = (0..1 << 10).map(|value| insert(&table, value)).collect();
        assert_eq!(codes.len(), 1 << 10);
        assert!(matches!(table.reserve(|_| true), Err(CreateError::TooMany)), "six bits are generation");
        for &code in &codes {
            assert_eq!(code >> 16, 0x3A);
            assert!(table.get(code).is_some());
            for bit in 16..24 {
                assert!(table.get(code ^ 1 << bit).is_none(), "{code:x} without bit {bit}");
            }
        }
    }

    /// The user may have been preempted: the thread that waits for it gives it the processor.
    #[test]
    fn removal_relaxes_while_it_waits() {
        static RELAXED: AtomicBool = AtomicBool::new(false);
        fn relax() {
            RELAXED.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        let random = &mut Random::new([7; 32]);
        let table = ObjectTable::<u32, Lock>::try_new(4, NumberPrefix::NONE, relax, random).unwrap();
        let code = insert(&table, 7);
        let mut pinned = table.get(code);
        assert!(pinned.is_some());
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| table.remove(code).is_some());
            while !RELAXED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            pinned = None;
            assert!(removed.join().unwrap());
        });
        assert!(pinned.is_none());
    }

    #[test]
    fn removal_waits_for_users() {
        let table = table(4);
        for round in 0..if cfg!(miri) { 20 } else { 2000 } {
            let code = insert(&table, round);
            let gone = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while let Some(pinned) = table.get(code) {
                        assert!(!gone.load(Ordering::SeqCst), "used after removal");
                        assert_eq!(*pinned, round);
                    }
                });
                let value = table.remove(code).unwrap();
                gone.store(true, Ordering::SeqCst);
                assert_eq!(Arc::count(&value), 1);
            });
        }
    }
}
