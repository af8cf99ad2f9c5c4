// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contiguous memory for values of one type that are used in turn, so that few entries of page tables map all of them.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::arc::{Arc, Shared};
use crate::chunk::{self, Chunk, ChunkList, ChunkRef, LINE};
use crate::error::AllocError;
use crate::free_slots::MOST_SLOTS;

/// Bytes of a large page, and of the largest chunk.
const LARGE_PAGE: usize = 2 << 20;
/// Most slots of a chunk where large pages are not requested: enough to share entries of page tables.
const MOST_WITHOUT: usize = 64;
/// Chunks without a free slot that are looked at for each reservation. Memory is allocated although as many slots are free as
/// are reserved until each chunk was looked at.
const LOOKED_AT: usize = 8;

/// Requests large pages for memory that has their size and alignment and was not used yet.
pub type RequestLargePages = fn(NonNull<u8>, usize);

/// Memory for values of an [`Arc`] each, in chunks of slots.
///
/// A new chunk has room for half as many values as all before it, but for [`MOST_WITHOUT`] or a large page of them at most. It is freed once it is empty: by
/// [`Slab::trim`], or with the last of its values if the slab was dropped before. Values do not move, and may be dropped by any thread.
pub struct Slab<T> {
    /// Chunks that have a free slot, but for the first one, which has when it was looked at last.
    available: ChunkList,
    /// Chunks that had no free slot when they were looked at, those of the longest time ago first.
    full: ChunkList,
    /// Number of slots.
    slots: usize,
    large_pages: Option<RequestLargePages>,
    values: PhantomData<fn() -> Reserved<T>>,
}

// SAFETY: the slab owns uses of chunks, of which it uses atomic words, and no value.
unsafe impl<T> Send for Slab<T> {}
// SAFETY: there is no access through a shared reference.
unsafe impl<T> Sync for Slab<T> {}

/// Memory for a value, from [`Slab::reserve`].
pub struct Reserved<T> {
    slot: NonNull<Shared<T>>,
    chunk: NonNull<Chunk>,
}

impl<T> Slab<T> {
    const STRIDE: usize = size_of::<Shared<T>>().next_multiple_of(LINE);
    /// Slots of the largest chunk: at least one.
    const MOST: usize = {
        let most = (LARGE_PAGE - chunk::EMPTY) / Self::STRIDE;
        if most > MOST_SLOTS { MOST_SLOTS } else { most }
    };

    /// Returns a slab without chunks.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(align_of::<Shared<T>>() <= LINE && Self::MOST > 0) };
        Self {
            available: ChunkList::EMPTY,
            full: ChunkList::EMPTY,
            slots: 0,
            large_pages: None,
            values: PhantomData,
        }
    }

    /// Has `request` called for each new chunk, from now on up to a large page, that has the size of one.
    pub const fn use_large_pages(&mut self, request: RequestLargePages) {
        self.large_pages = Some(request);
    }

    /// Reserves memory for a value. If there is no memory for a chunk, then for this value alone. Takes the same time however
    /// many chunks there are.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory.
    pub fn reserve(&mut self) -> Result<Reserved<T>, AllocError> {
        self.look_for_free_slots();
        if let Some(reserved) = self.take() {
            return Ok(reserved);
        }
        let most = if self.large_pages.is_some() { Self::MOST } else { Self::MOST.min(MOST_WITHOUT) };
        let wanted = (self.slots / 2).clamp(1, most);
        let chunk = self
            .large_page(wanted)
            .or_else(|| ChunkRef::allocate(wanted, Self::STRIDE))
            .or_else(|| ChunkRef::allocate(1, Self::STRIDE));
        let chunk = chunk.ok_or(AllocError)?;
        self.slots = self.slots.saturating_add(chunk.capacity());
        self.available.push(chunk);
        self.take().ok_or(AllocError)
    }

    /// Frees the chunks that have no value.
    pub fn trim(&mut self) {
        for list in [&mut self.available, &mut self.full] {
            let mut kept = ChunkList::EMPTY;
            while let Some(chunk) = list.pop() {
                // The slab reserves no slot during this call.
                if chunk.is_unused() {
                    self.slots = self.slots.saturating_sub(chunk.capacity());
                } else {
                    kept.push(chunk);
                }
            }
            *list = kept;
        }
    }

    /// Looks at a few chunks that had no free slot.
    fn look_for_free_slots(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some(chunk) = self.full.pop() else { break };
            let list = if chunk.has_free() { &mut self.available } else { &mut self.full };
            list.push(chunk);
        }
    }

    /// Takes a free slot.
    fn take(&mut self) -> Option<Reserved<T>> {
        // All but the first have one.
        while let Some(first) = self.available.first() {
            if let Some(slot) = first.take() {
                return Some(Reserved { slot: slot.cast(), chunk: first.as_raw() });
            }
            let chunk = self.available.pop()?;
            self.full.push(chunk);
        }
        None
    }

    /// Allocates a chunk in a large page, if a platform has them and the chunk has their size.
    fn large_page(&self, slots: usize) -> Option<ChunkRef> {
        let request = self.large_pages.filter(|_| slots == Self::MOST)?;
        let layout = Layout::from_size_align(LARGE_PAGE, LARGE_PAGE).ok()?;
        ChunkRef::allocate_as(layout, slots, Self::STRIDE, |memory| request(memory, LARGE_PAGE))
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl<T> Reserved<T> {
    /// Stores the value of `make` there, in place as [`Arc::try_new_with`] does.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call of its own would copy a large value once more")]
    pub fn store(self, make: impl FnOnce() -> T) -> Arc<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the slot was taken from this chunk for this reservation, which does not free it; it has the size and alignment of a `Shared`.
        unsafe { Arc::store(this.slot, Some(this.chunk), make) }
    }
}

impl<T> fmt::Debug for Reserved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<T> Drop for Reserved<T> {
    fn drop(&mut self) {
        // SAFETY: the slot was taken from this chunk, has no value and is not used again.
        unsafe { chunk::free_slot(self.chunk, self.slot.cast()) };
    }
}

#[cfg(test)]
mod tests;
