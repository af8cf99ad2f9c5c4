// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contiguous memory for values of one type that are used in turn, so that few entries of page tables map all of them.
//!
//! Import circle: `arc.rs`, `slab/mod.rs` (a reference returns its memory to its chunk).
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::arc::Shared;
use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;
use crate::ref_count::RefCount;
use crate::word::Word;

/// Bytes of a large page, and of the largest chunk.
const LARGE_PAGE: usize = 2 << 20;
/// Most slots of a chunk where large pages are not requested: enough to share entries of page tables.
const MOST_WITHOUT: usize = 64;
/// Bytes of a cache line. Each slot begins with one.
const LINE: usize = 64;
/// Most slots of a chunk.
const MOST_SLOTS: usize = WORDS * WORD_BITS;
const WORDS: usize = 16;
const WORD_BITS: usize = usize::BITS as usize;

/// Requests large pages for memory that has their size and alignment and was not used yet.
pub type RequestLargePages = fn(NonNull<u8>, usize);

/// Memory for values of an [`Arc`](crate::Arc) each, in chunks of slots.
///
/// A new chunk has room for half as many values as all before it, but for [`MOST_WITHOUT`] or a large page of them at most. It is freed once it is empty: by
/// [`Slab::trim`], or with the last of its values if the slab was dropped before. Values do not move, and may be dropped by any thread.
pub struct Slab<T> {
    /// The newest chunk, or null.
    chunks: *mut Chunk,
    /// Number of slots.
    slots: usize,
    large_pages: Option<RequestLargePages>,
    values: PhantomData<fn() -> Reserved<T>>,
}

// SAFETY: the slab owns chunks, of which it uses atomic words, and no value.
unsafe impl<T> Send for Slab<T> {}
// SAFETY: there is no access through a shared reference.
unsafe impl<T> Sync for Slab<T> {}

/// The start of a chunk; the slots follow.
pub(crate) struct Chunk {
    /// The slab's next chunk, or null.
    next: AtomicPtr<Self>,
    /// The slab, unless it was dropped, and each slot in use.
    users: RefCount,
    free: FreeSlots,
    /// The first slot.
    first: *mut u8,
    /// Number of slots.
    capacity: usize,
    /// Bytes from one slot to the next.
    stride: usize,
    layout: Layout,
}

/// Memory for a value, from [`Slab::reserve`].
pub struct Reserved<T> {
    slot: NonNull<Shared<T>>,
    chunk: NonNull<Chunk>,
}

/// A set of free slots. Any thread frees slots; one at a time takes them.
struct FreeSlots<W = AtomicUsize>([W; WORDS]);

impl<W: Word> FreeSlots<W> {
    /// Returns a set of the first `count` slots.
    fn first(count: usize) -> Self {
        Self(core::array::from_fn(|word| {
            let bits = count.saturating_sub(word.saturating_mul(WORD_BITS)).min(WORD_BITS) as u32;
            W::new(1usize.checked_shl(bits).unwrap_or(0).wrapping_sub(1))
        }))
    }

    /// Takes a slot. What the thread did that freed it happens before.
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
            word.fetch_or(1 << (slot % WORD_BITS), Ordering::Release);
        }
    }
}

impl<T> Slab<T> {
    const STRIDE: usize = size_of::<Shared<T>>().next_multiple_of(LINE);
    /// Bytes of a chunk without slots, wherever lines begin.
    const EMPTY: usize = size_of::<Chunk>() + LINE;
    /// Slots of the largest chunk: at least one.
    const MOST: usize = {
        let most = (LARGE_PAGE - Self::EMPTY) / Self::STRIDE;
        if most > MOST_SLOTS { MOST_SLOTS } else { most }
    };

    /// Returns a slab without chunks.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(
                align_of::<Shared<T>>() <= LINE && align_of::<Chunk>() <= MAX_ALIGNMENT && Self::MOST > 0
            );
        };
        Self { chunks: null_mut(), slots: 0, large_pages: None, values: PhantomData }
    }

    /// Has `request` called for each new chunk, from now on up to a large page, that has the size of one.
    pub const fn use_large_pages(&mut self, request: RequestLargePages) {
        self.large_pages = Some(request);
    }

    /// Reserves memory for a value, for [`Arc::new_at`](crate::Arc::new_at). If there is no memory for a chunk, then for this value alone.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory.
    pub fn reserve(&mut self) -> Result<Reserved<T>, AllocError> {
        if let Some(reserved) = self.take() {
            return Ok(reserved);
        }
        let most = if self.large_pages.is_some() { Self::MOST } else { Self::MOST.min(MOST_WITHOUT) };
        let wanted = (self.slots / 2).clamp(1, most);
        let grown = self.grow_by_large_page(wanted).or_else(|| self.grow(wanted)).or_else(|| self.grow(1));
        grown.and_then(|()| self.take()).ok_or(AllocError)
    }

    /// Frees the chunks that have no value.
    pub fn trim(&mut self) {
        let mut next = core::mem::replace(&mut self.chunks, null_mut());
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: the slab is counted as a user of each chunk in its list, so that the chunk exists; it is shared by reference only.
            let header = unsafe { chunk.as_ref() };
            next = header.next.load(Ordering::Relaxed);
            if header.users.is_one() {
                self.slots = self.slots.saturating_sub(header.capacity);
                // SAFETY: the slab is the only user and reserves no slot during this call; the chunk is no longer in its list.
                unsafe { free(chunk) };
            } else {
                header.next.store(self.chunks, Ordering::Relaxed);
                self.chunks = chunk.as_ptr();
            }
        }
    }

    /// Takes a free slot.
    fn take(&mut self) -> Option<Reserved<T>> {
        let mut next = self.chunks;
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: the slab is counted as a user of each chunk in its list, so that the chunk exists; it is shared by reference only.
            let header = unsafe { chunk.as_ref() };
            if let Some(slot) = header.free.take() {
                header.users.acquire();
                let slot = header.first.wrapping_add(slot.wrapping_mul(Self::STRIDE)).cast();
                return NonNull::new(slot).map(|slot| Reserved { slot, chunk });
            }
            next = header.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Adds a chunk in a large page, if a platform has them and the chunk has their size.
    fn grow_by_large_page(&mut self, slots: usize) -> Option<()> {
        let request = self.large_pages.filter(|_| slots == Self::MOST)?;
        let layout = Layout::from_size_align(LARGE_PAGE, LARGE_PAGE).ok()?;
        // SAFETY: the layout is not of size zero.
        let memory = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
        request(memory, LARGE_PAGE);
        self.add(memory, layout, slots);
        Some(())
    }

    /// Adds a chunk.
    fn grow(&mut self, slots: usize) -> Option<()> {
        let size = Self::STRIDE.checked_mul(slots)?.checked_add(Self::EMPTY)?;
        let layout = Layout::from_size_align(size, MAX_ALIGNMENT).ok()?;
        // SAFETY: the layout is not of size zero.
        let memory = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
        self.add(memory, layout, slots);
        Some(())
    }

    /// Adds the chunk in `memory`, which has this layout and room for the slots.
    #[allow(clippy::cast_ptr_alignment, reason = "the layout has the alignment of a chunk")]
    fn add(&mut self, memory: NonNull<u8>, layout: Layout, slots: usize) {
        // In the room for a line that `EMPTY` includes.
        let behind = memory.as_ptr().wrapping_add(size_of::<Chunk>());
        let first = behind.wrapping_add(behind.addr().wrapping_neg() % LINE);
        let chunk = memory.cast::<Chunk>();
        let header = Chunk {
            next: AtomicPtr::new(self.chunks),
            users: RefCount::one(),
            free: FreeSlots::first(slots),
            first,
            stride: Self::STRIDE,
            capacity: slots,
            layout,
        };
        // SAFETY: the memory is a fresh allocation, longer than a chunk without slots and aligned for it.
        unsafe { chunk.write(header) };
        self.chunks = chunk.as_ptr();
        self.slots = self.slots.saturating_add(slots);
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

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        let mut next = self.chunks;
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: the slab is counted as a user of each chunk in its list, so that the chunk exists; it is shared by reference only.
            next = unsafe { chunk.as_ref() }.next.load(Ordering::Relaxed);
            // SAFETY: the slab is counted as a user, once, and does not use the chunk again.
            unsafe { leave(chunk) };
        }
    }
}

impl<T> Reserved<T> {
    /// Returns slot and chunk. The caller is a user of the chunk, until it frees the slot by [`free_memory`].
    pub(crate) fn into_parts(self) -> (NonNull<Shared<T>>, NonNull<Chunk>) {
        let this = core::mem::ManuallyDrop::new(self);
        (this.slot, this.chunk)
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
        unsafe { put_back(self.chunk, self.slot.cast()) };
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
        Some(chunk) => unsafe { put_back(chunk, memory) },
        // SAFETY: by the caller, the memory was allocated with this layout and is not used again.
        None => unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout) },
    }
}

/// Returns a slot to its chunk.
///
/// # Safety
/// The slot was taken from this chunk, has no value and is not used again.
unsafe fn put_back(chunk: NonNull<Chunk>, slot: NonNull<u8>) {
    // SAFETY: the slot is counted as a user of its chunk, so that the chunk exists; it is shared by reference only.
    let header = unsafe { chunk.as_ref() };
    let offset = slot.as_ptr().addr().wrapping_sub(header.first.addr());
    // Free first: the chunk exists for as long as the slot counts as a user.
    header.free.put_back(offset.checked_div(header.stride).unwrap_or(usize::MAX));
    // SAFETY: the slot was counted as a user, once, and the chunk is not used again for it.
    unsafe { leave(chunk) };
}

/// Ends a use of a chunk, and frees it if it was the last.
///
/// # Safety
/// The caller is counted as a user of the chunk, once, and does not use it again.
unsafe fn leave(chunk: NonNull<Chunk>) {
    // SAFETY: the caller is counted as a user, so that the chunk exists; it is shared by reference only.
    if unsafe { chunk.as_ref() }.users.release() {
        // SAFETY: no user is left, and the slab, which makes new ones, was the first to be counted.
        unsafe { free(chunk) };
    }
}

/// Frees a chunk.
///
/// # Safety
/// No other thread uses the chunk, and none will.
unsafe fn free(chunk: NonNull<Chunk>) {
    // SAFETY: the chunk exists until the end of this function.
    let layout = unsafe { chunk.as_ref() }.layout;
    // SAFETY: allocated by `grow` or `grow_by_large_page` with this layout; not used afterwards. A chunk has nothing to drop.
    unsafe { alloc::alloc::dealloc(chunk.as_ptr().cast(), layout) };
}

#[cfg(test)]
mod tests;
