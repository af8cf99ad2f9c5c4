// SPDX-License-Identifier: MIT OR Apache-2.0

//! The split ring's format: descriptor table, available ring and used ring. Descriptor `n` always describes buffer `n`.
//! (virtio §5)
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::error::RingFault;
use crate::hal::{DMA_ALIGNMENT, DeviceShared, Dma, Hal};
use crate::notify::{self, Suppression};

/// Flags of a descriptor: the buffer continues in the descriptor `next`; the device writes it; it is a table of the buffer's parts.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    address: AtomicU64,
    len: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

// SAFETY: atomics only, 8 + 4 + 2 + 2 bytes without padding.
unsafe impl DeviceShared for Descriptor {}

impl Descriptor {
    fn write(&self, address: u64, len: u32, flags: u16) {
        self.address.store(address.to_le(), Relaxed);
        self.len.store(len.to_le(), Relaxed);
        self.flags.store(flags.to_le(), Relaxed);
    }
}

/// Describes part `at` of a table; after the last one the buffer ends.
pub(super) fn describe_part(
    table: &[Descriptor],
    at: usize,
    address: u64,
    len: u32,
    writable: bool,
    is_last: bool,
) {
    let Some(descriptor) = table.get(at) else { return };
    let flags = if writable { WRITE } else { 0 } | if is_last { 0 } else { NEXT };
    descriptor.write(address, len, flags);
    let next = if is_last { 0 } else { at.wrapping_add(1) as u16 };
    descriptor.next.store(next.to_le(), Relaxed);
}

#[derive(Debug)]
#[repr(C)]
struct UsedElement {
    id: AtomicU32,
    len: AtomicU32,
}

// SAFETY: atomics only, 4 + 4 bytes without padding.
unsafe impl DeviceShared for UsedElement {}

/// Offset and end of the used ring in the ring's memory, and the driver's indices.
#[derive(Debug)]
pub(super) struct SplitRing {
    size: u16,
    used: usize,
    len: usize,
    /// Next free-running index of the available ring; entries before it are written.
    offered: u16,
    /// Available index as the device sees it: that of the last notification decision.
    published: u16,
    /// Next free-running index to take from the used ring.
    taken: u16,
    /// Used index as it was last read: elements before it are the driver's.
    returned: u16,
}

impl SplitRing {
    /// Returns a ring of `size` descriptors; `None` unless `size` is a power of two. The specification allows at most 32768. Not inlined: the
    /// stack frame of those who create queues is large.
    #[inline(never)]
    pub(super) fn new(size: u16) -> Option<Self> {
        const { assert!(size_of::<Descriptor>() == DMA_ALIGNMENT) };
        if !size.is_power_of_two() {
            return None;
        }
        let n = usize::from(size);
        let available = n.checked_mul(size_of::<Descriptor>())?;
        let used = n.checked_mul(2)?.checked_add(6)?.checked_add(available)?.next_multiple_of(4);
        let len = n.checked_mul(size_of::<UsedElement>())?.checked_add(6)?.checked_add(used)?;
        Some(Self { size, used, len, offered: 0, published: 0, taken: 0, returned: 0 })
    }

    /// Returns the length of the ring's memory in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of descriptors.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Returns the byte offsets of descriptor table, available ring and used ring.
    pub(super) fn areas(&self) -> [usize; 3] {
        [0, self.available_offset(), self.used]
    }

    /// Zeroes the memory and the indices.
    pub(super) fn clear<H: Hal>(&mut self, memory: &Dma<H>) {
        // Each field is written with its own width, as in all other accesses.
        for descriptor in self.descriptors(memory) {
            descriptor.address.store(0, Relaxed);
            descriptor.len.store(0, Relaxed);
            descriptor.flags.store(0, Relaxed);
            descriptor.next.store(0, Relaxed);
        }
        for element in self.used_elements(memory) {
            element.id.store(0, Relaxed);
            element.len.store(0, Relaxed);
        }
        let words =
            self.available(memory).iter().chain(self.used_words(memory)).chain(self.avail_event(memory));
        words.for_each(|word| word.store(0, Relaxed));
        self.offered = 0;
        self.published = 0;
        self.taken = 0;
        self.returned = 0;
    }

    /// Writes the descriptor of buffer `id`.
    pub(super) fn describe<H: Hal>(&self, memory: &Dma<H>, id: u16, address: u64, len: u32, writable: bool) {
        if let Some(descriptor) = self.descriptor(memory, id) {
            descriptor.write(address, len, if writable { WRITE } else { 0 });
        }
    }

    /// Writes the descriptor of buffer `id`, whose parts a table at `address` describes.
    pub(super) fn describe_table<H: Hal>(&self, memory: &Dma<H>, id: u16, address: u64, len: u32) {
        if let Some(descriptor) = self.descriptor(memory, id) {
            descriptor.write(address, len, INDIRECT);
        }
    }

    /// Continues buffer `id` in buffer `id + 1`.
    pub(super) fn link<H: Hal>(&self, memory: &Dma<H>, id: u16) {
        if let Some(descriptor) = self.descriptor(memory, id) {
            descriptor.next.store(id.wrapping_add(1).to_le(), Relaxed);
            descriptor.flags.fetch_or(NEXT.to_le(), Relaxed);
        }
    }

    /// Sets the length of buffer `id`.
    pub(super) fn set_len<H: Hal>(&self, memory: &Dma<H>, id: u16, len: u32) {
        if let Some(descriptor) = self.descriptor(memory, id) {
            descriptor.len.store(len.to_le(), Relaxed);
        }
    }

    /// Adds buffer `id` to the available ring.
    pub(super) fn offer<H: Hal>(&mut self, memory: &Dma<H>, id: u16) {
        // Behind `flags` and `idx`.
        let word = 2_usize.wrapping_add(self.slot(self.offered));
        let entry = self.available_offset().wrapping_add(word.wrapping_mul(size_of::<AtomicU16>()));
        if let Some(entry) = memory.item::<AtomicU16>(entry) {
            entry.store(id.to_le(), Relaxed);
        }
        self.offered = self.offered.wrapping_add(1);
    }

    /// Publishes the available index. Returns `true` if the device must be notified.
    pub(super) fn publish<H: Hal>(&mut self, memory: &Dma<H>, suppression: Suppression) -> bool {
        if self.offered == self.published {
            return false;
        }
        let old = core::mem::replace(&mut self.published, self.offered);
        let ([_, index, ..], Some(event), Some(flags)) =
            (self.available(memory), self.avail_event(memory), self.used_words(memory).first())
        else {
            return false;
        };
        notify::publish(suppression, index, flags, event, old, self.published)
    }

    /// Reads the next element of the used ring, id and length; `None` if there is none.
    ///
    /// # Errors
    /// [`RingFault::IndexJump`].
    pub(super) fn used<H: Hal>(&mut self, memory: &Dma<H>) -> Result<Option<(u32, u32)>, RingFault> {
        if self.returned == self.taken {
            let index = self.used_index(memory);
            if index == self.taken {
                return Ok(None);
            }
            if index.wrapping_sub(self.taken) > self.published.wrapping_sub(self.taken) {
                return Err(RingFault::IndexJump);
            }
            self.returned = index;
        }
        let slot = self.slot(self.taken).wrapping_mul(size_of::<UsedElement>());
        let Some(element) = memory.item::<UsedElement>(self.used.wrapping_add(4).wrapping_add(slot)) else {
            return Ok(None);
        };
        // Read once: the device may change the element at any time.
        Ok(Some((u32::from_le(element.id.load(Relaxed)), u32::from_le(element.len.load(Relaxed)))))
    }

    /// Advances past the element that [`used`](Self::used) read.
    pub(super) fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    pub(super) fn suppress<H: Hal>(&self, memory: &Dma<H>, suppression: Suppression) {
        if let ([flags, ..], Some(event)) = (self.available(memory), self.used_event(memory)) {
            notify::suppress(suppression, flags, event, self.taken);
        }
    }

    pub(super) fn request<H: Hal>(&self, memory: &Dma<H>, suppression: Suppression, after: u16) -> bool {
        let ([flags, ..], [_, used_index, ..], Some(event)) =
            (self.available(memory), self.used_words(memory), self.used_event(memory))
        else {
            return false;
        };
        notify::request(suppression, flags, event, used_index, self.taken, after)
    }

    /// Returns the offset of the available ring, behind the descriptors.
    fn available_offset(&self) -> usize {
        usize::from(self.size).wrapping_mul(size_of::<Descriptor>())
    }

    /// Returns the slot of a free-running index.
    fn slot(&self, index: u16) -> usize {
        usize::from(index & self.size.wrapping_sub(1))
    }

    fn descriptors<'a, H: Hal>(&self, memory: &'a Dma<H>) -> &'a [Descriptor] {
        memory.view(0, usize::from(self.size))
    }

    fn descriptor<'a, H: Hal>(&self, memory: &'a Dma<H>, id: u16) -> Option<&'a Descriptor> {
        if id >= self.size {
            return None;
        }
        memory.item(usize::from(id).wrapping_mul(size_of::<Descriptor>()))
    }

    /// The available ring: `flags`, `idx`, `ring[size]`, `used_event`.
    fn available<'a, H: Hal>(&self, memory: &'a Dma<H>) -> &'a [AtomicU16] {
        memory.view(self.available_offset(), usize::from(self.size).wrapping_add(3))
    }

    /// The used ring's `flags` and `idx`.
    fn used_words<'a, H: Hal>(&self, memory: &'a Dma<H>) -> &'a [AtomicU16] {
        memory.view(self.used, 2)
    }

    fn used_elements<'a, H: Hal>(&self, memory: &'a Dma<H>) -> &'a [UsedElement] {
        memory.view(self.used.wrapping_add(4), usize::from(self.size))
    }

    fn used_index<H: Hal>(&self, memory: &Dma<H>) -> u16 {
        let index = memory.item::<AtomicU16>(self.used.wrapping_add(2));
        index.map_or(self.taken, |index| u16::from_le(index.load(Acquire)))
    }

    /// The last word of the available ring, which the driver writes.
    fn used_event<'a, H: Hal>(&self, memory: &'a Dma<H>) -> Option<&'a AtomicU16> {
        self.available(memory).last()
    }

    /// The last word of the used ring, which the device writes.
    fn avail_event<'a, H: Hal>(&self, memory: &'a Dma<H>) -> Option<&'a AtomicU16> {
        let elements = usize::from(self.size).wrapping_mul(size_of::<UsedElement>());
        memory.view(self.used.wrapping_add(4).wrapping_add(elements), 1).first()
    }
}
