// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks of memory with slots of one size, which are freed by the last of their users.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::free_slots::Occupancy;
use crate::limits::MAX_ALIGNMENT;

/// Bytes of a cache line. Each slot begins with one.
pub(crate) const LINE: usize = 64;

/// Bytes of a chunk without slots, wherever lines begin.
pub(crate) const EMPTY: usize = size_of::<Chunk>() + LINE;

/// Each byte of a free slot. A pointer of these is to no memory of a process or kernel.
pub(crate) const FREE: u8 = 0xDD;

/// The start of a chunk; the slots follow.
pub(crate) struct Chunk {
    occupancy: Occupancy,
    /// The next chunk of a [`ChunkList`], or null. Only the list uses it.
    next: AtomicPtr<Self>,
    /// The first slot.
    first: *mut u8,
    /// Number of slots.
    capacity: usize,
    /// Bytes from one slot to the next.
    stride: usize,
    layout: Layout,
}

impl Chunk {
    /// Returns whether a slot is free, unless one is being freed.
    pub(crate) fn has_free(&self) -> bool {
        self.occupancy.has_free()
    }

    /// Returns whether the slab is the only user.
    pub(crate) fn is_unused(&self) -> bool {
        self.occupancy.is_unused()
    }

    /// Returns the number of slots.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes a free slot, which is a user of the chunk until [`free_slot`] frees it. One thread at a time does.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        let slot = self.occupancy.take()?;
        NonNull::new(self.first.wrapping_add(slot.wrapping_mul(self.stride)))
    }
}

/// The use of a chunk by its slab.
pub(crate) struct ChunkRef(NonNull<Chunk>);

impl ChunkRef {
    /// Returns a chunk with as many slots of `stride` bytes, which is a multiple of [`LINE`]. Returns `None` if there is no memory.
    pub(crate) fn allocate(slots: usize, stride: usize) -> Option<Self> {
        let size = stride.checked_mul(slots)?.checked_add(EMPTY)?;
        Self::allocate_as(Layout::from_size_align(size, MAX_ALIGNMENT).ok()?, slots, stride, |_| {})
    }

    /// Returns a chunk in memory of this layout, as [`ChunkRef::allocate`] does. `prepare` is called with the memory before it is used.
    ///
    /// The layout has room for the slots and [`EMPTY`] bytes.
    #[allow(clippy::cast_ptr_alignment, reason = "the layout has the alignment of a chunk")]
    pub(crate) fn allocate_as(
        layout: Layout,
        slots: usize,
        stride: usize,
        prepare: impl FnOnce(NonNull<u8>),
    ) -> Option<Self> {
        const { assert!(align_of::<Chunk>() <= MAX_ALIGNMENT) };
        let needed = stride.checked_mul(slots)?.checked_add(EMPTY)?;
        if layout.size() < needed || layout.align() < align_of::<Chunk>() {
            return None;
        }
        // SAFETY: the layout is not of size zero.
        let memory = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
        prepare(memory);
        // In the room for a line that `EMPTY` includes.
        let behind = memory.as_ptr().wrapping_add(size_of::<Chunk>());
        let first = behind.wrapping_add(behind.addr().wrapping_neg() % LINE);
        let chunk = memory.cast::<Chunk>();
        let occupancy = Occupancy::of_slab(slots);
        let header = Chunk { occupancy, next: AtomicPtr::default(), first, stride, capacity: slots, layout };
        // SAFETY: the memory is a fresh allocation, longer than a chunk without slots and aligned for it.
        unsafe { chunk.write(header) };
        Some(Self(chunk))
    }

    /// Returns the chunk, for [`free_slot`]. The use stays counted.
    pub(crate) const fn as_raw(&self) -> NonNull<Chunk> {
        self.0
    }

    /// Turns the use into a pointer. It counts until [`ChunkRef::from_raw`] takes it back.
    fn into_raw(self) -> *mut Chunk {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Takes back a use from [`ChunkRef::into_raw`]. Returns `None` for null.
    ///
    /// # Safety
    /// `chunk` is null or from [`ChunkRef::into_raw`], and each such pointer is taken back at most once.
    unsafe fn from_raw(chunk: *mut Chunk) -> Option<Self> {
        NonNull::new(chunk).map(Self)
    }
}

impl Deref for ChunkRef {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        // SAFETY: the chunk exists while this use is counted, and is shared by reference only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ChunkRef {
    fn drop(&mut self) {
        if self.occupancy.leave() {
            // SAFETY: no user is left, and the slab, which makes new ones, was the first to be counted.
            unsafe { free(self.0) };
        }
    }
}

/// Returns a slot to its chunk.
///
/// # Safety
/// The slot was taken from this chunk, has no value and is not used again.
pub(crate) unsafe fn free_slot(chunk: NonNull<Chunk>, slot: NonNull<u8>) {
    // SAFETY: the slot is counted as a user of its chunk, so that the chunk exists; it is shared by reference only.
    let header = unsafe { chunk.as_ref() };
    // SAFETY: the slot is in the chunk, which has as many bytes from there on; by the caller, it has no other user.
    unsafe { slot.write_bytes(FREE, header.stride) };
    let offset = slot.as_ptr().addr().wrapping_sub(header.first.addr());
    if header.occupancy.put_back(offset.checked_div(header.stride).unwrap_or(usize::MAX)) {
        // SAFETY: no user is left, and the slab, which makes new ones, was the first to be counted.
        unsafe { free(chunk) };
    }
}

/// Frees memory of a chunk, or of its own. Out of line: references that are dropped for a packet are not the last.
///
/// # Safety
/// The memory is a slot of this chunk or, without one, was allocated with this layout. It has no value and is not used again.
#[cold]
#[inline(never)]
pub(crate) unsafe fn free_memory(memory: NonNull<u8>, chunk: Option<NonNull<Chunk>>, layout: Layout) {
    match chunk {
        // SAFETY: by the caller, the memory is a slot of this chunk, without a value and not used again.
        Some(chunk) => unsafe { free_slot(chunk, memory) },
        // SAFETY: by the caller, the memory was allocated with this layout and is not used again.
        None => unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout) },
    }
}

/// Frees a chunk.
///
/// # Safety
/// No other thread uses the chunk, and none will.
unsafe fn free(chunk: NonNull<Chunk>) {
    // SAFETY: the chunk exists until the end of this function.
    let layout = unsafe { chunk.as_ref() }.layout;
    // SAFETY: allocated by `allocate_as` with this layout; not used afterwards. A chunk has nothing to drop.
    unsafe { alloc::alloc::dealloc(chunk.as_ptr().cast(), layout) };
}

/// A queue of chunks of a slab.
pub(crate) struct ChunkList {
    /// The chunk that was added first.
    first: Option<ChunkRef>,
    /// The chunk that was added last, or null.
    last: *mut Chunk,
}

impl ChunkList {
    pub(crate) const EMPTY: Self = Self { first: None, last: null_mut() };

    /// Adds a chunk as the last one.
    pub(crate) fn push(&mut self, chunk: ChunkRef) {
        let last = core::mem::replace(&mut self.last, chunk.as_raw().as_ptr());
        // SAFETY: a use of each chunk of the list is counted, so that the chunk exists; it is shared by reference only.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.store(chunk.into_raw(), Ordering::Relaxed),
            None => self.first = Some(chunk),
        }
    }

    /// Removes the first chunk.
    pub(crate) fn pop(&mut self) -> Option<ChunkRef> {
        let chunk = self.first.take()?;
        let next = chunk.next.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: from `push`, and no longer the next one of a chunk.
        self.first = unsafe { ChunkRef::from_raw(next) };
        if next.is_null() {
            self.last = null_mut();
        }
        Some(chunk)
    }

    /// Returns the first chunk.
    pub(crate) const fn first(&self) -> Option<&ChunkRef> {
        self.first.as_ref()
    }
}

impl Drop for ChunkList {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_has_room_for_the_slots_and_the_alignment_of_a_chunk() {
        const { assert!(align_of::<Chunk>() > 1) };
        let has_memory = |size, align| {
            let layout = Layout::from_size_align(size, align).unwrap();
            ChunkRef::allocate_as(layout, 3, LINE, |_| {}).is_some()
        };
        let needed = 3 * LINE + EMPTY;
        assert!(has_memory(needed, align_of::<Chunk>()));
        assert!(has_memory(needed + 1, MAX_ALIGNMENT));
        assert!(!has_memory(needed - 1, align_of::<Chunk>()), "a byte is missing");
        assert!(!has_memory(needed + 1, align_of::<Chunk>() / 2), "not aligned");
        assert!(ChunkRef::allocate(usize::MAX, LINE).is_none(), "no layout has that size");
    }
}
