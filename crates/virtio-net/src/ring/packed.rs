// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packed ring's format: one ring of descriptors that driver and device write in turn, and an event suppression
//! structure of each. A buffer takes one descriptor, a chain one for each of its buffers. (virtio §6)
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use fallible::{AllocError, vec};

use crate::error::RingFault;
use crate::hal::{DMA_ALIGNMENT, DeviceShared, Dma, Hal};
use crate::notify::{self, Position, Suppression};

/// Largest queue size. (virtio §6)
const MAX_SIZE: u16 = 1 << 15;

/// Flags of a descriptor: the buffer continues in the next descriptor; the device writes it; it is a table of the buffer's parts;
/// the descriptor is available, or used, in laps of the same parity.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    address: AtomicU64,
    len: AtomicU32,
    id: AtomicU16,
    flags: AtomicU16,
}

// SAFETY: atomics only, 8 + 4 + 2 + 2 bytes without padding.
unsafe impl DeviceShared for Descriptor {}

/// Describes part `at` of a table, in whose flags only the direction has a meaning.
pub(super) fn describe_part(table: &[Descriptor], at: usize, address: u64, len: u32, writable: bool) {
    let Some(descriptor) = table.get(at) else { return };
    descriptor.address.store(address.to_le(), Relaxed);
    descriptor.len.store(len.to_le(), Relaxed);
    descriptor.id.store(0, Relaxed);
    descriptor.flags.store(if writable { WRITE } else { 0 }.to_le(), Relaxed);
}

/// A buffer of the queue. The device overwrites descriptors, so they are written from here each time.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    address: u64,
    len: u32,
    flags: u16,
}

/// The first descriptor of the batch that is not published: it is written except for its flags.
#[derive(Debug, Clone, Copy)]
struct Batch {
    first: Position,
    flags: u16,
}

/// The driver's positions, and its record of the buffers.
#[derive(Debug)]
pub(super) struct PackedRing {
    size: u16,
    buffers: Vec<Buffer>,
    /// Position at which the driver makes the next descriptor available.
    next: Position,
    batch: Option<Batch>,
    /// Position at which the device uses the next descriptor.
    taken: Position,
}

impl PackedRing {
    /// Returns a ring of `size` descriptors; `None` unless `size` is 1 to 32768.
    pub(super) fn new(size: u16) -> Result<Option<Self>, AllocError> {
        const { assert!(size_of::<Descriptor>() == DMA_ALIGNMENT) };
        if !(1..=MAX_SIZE).contains(&size) {
            return Ok(None);
        }
        let buffers = vec::filled(usize::from(size), Buffer { address: 0, len: 0, flags: 0 })?;
        Ok(Some(Self { size, buffers, next: Position::START, batch: None, taken: Position::START }))
    }

    /// Returns the length of the ring's memory in bytes.
    pub(super) fn len(&self) -> usize {
        let [_, _, device_event] = self.areas();
        device_event.wrapping_add(size_of::<AtomicU32>())
    }

    /// Returns the number of descriptors.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Returns the byte offsets of the descriptor ring, and of the event suppression structures of driver and device.
    pub(super) fn areas(&self) -> [usize; 3] {
        let end = usize::from(self.size).wrapping_mul(size_of::<Descriptor>());
        [0, end, end.wrapping_add(size_of::<AtomicU32>())]
    }

    /// Zeroes the memory and the positions.
    pub(super) fn clear<H: Hal>(&mut self, memory: &Dma<H>) {
        // Each field is written with its own width, as in all other accesses.
        for descriptor in self.descriptors(memory) {
            descriptor.address.store(0, Relaxed);
            descriptor.len.store(0, Relaxed);
            descriptor.id.store(0, Relaxed);
            descriptor.flags.store(0, Relaxed);
        }
        let events = self.driver_event(memory).into_iter().chain(self.device_event(memory));
        events.for_each(|event| event.store(0, Relaxed));
        self.next = Position::START;
        self.batch = None;
        self.taken = Position::START;
    }

    /// Records the address, length and direction of buffer `id`.
    pub(super) fn describe(&mut self, id: u16, address: u64, len: u32, writable: bool) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(id)) {
            *buffer = Buffer { address, len, flags: if writable { WRITE } else { 0 } };
        }
    }

    /// Records that a table at `address` describes the parts of buffer `id`.
    pub(super) fn describe_table(&mut self, id: u16, address: u64, len: u32) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(id)) {
            *buffer = Buffer { address, len, flags: INDIRECT };
        }
    }

    /// Continues buffer `id` in buffer `id + 1`.
    pub(super) fn link(&mut self, id: u16) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(id)) {
            buffer.flags |= NEXT;
        }
    }

    /// Sets the length of buffer `id`.
    pub(super) fn set_len(&mut self, id: u16, len: u32) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(id)) {
            buffer.len = len;
        }
    }

    /// Writes the next descriptors, one for each buffer of the chain. The device does not see them before the first one of
    /// their batch is published.
    pub(super) fn offer<H: Hal>(&mut self, memory: &Dma<H>, id: u16) {
        let mut part = id;
        while self.write(memory, id, part) {
            part = part.wrapping_add(1);
        }
    }

    /// Writes the next descriptor: of buffer `part` of the chain `id`. Returns whether the chain continues.
    fn write<H: Hal>(&mut self, memory: &Dma<H>, id: u16, part: u16) -> bool {
        let (Some(descriptor), Some(buffer)) = (
            self.descriptors(memory).get(usize::from(self.next.slot)),
            self.buffers.get(usize::from(part)).copied(),
        ) else {
            return false;
        };
        descriptor.address.store(buffer.address.to_le(), Relaxed);
        descriptor.len.store(buffer.len.to_le(), Relaxed);
        descriptor.id.store(id.to_le(), Relaxed);
        let flags = buffer.flags | if self.next.wrap { AVAIL } else { USED };
        match self.batch {
            Some(_) => descriptor.flags.store(flags.to_le(), Relaxed),
            None => self.batch = Some(Batch { first: self.next, flags }),
        }
        self.next = self.next.advanced(1, self.size);
        buffer.flags & NEXT != 0
    }

    /// Publishes the batch. Returns `true` if the device must be notified.
    pub(super) fn publish<H: Hal>(&mut self, memory: &Dma<H>) -> bool {
        let Some(batch) = self.batch.take() else { return false };
        let (Some(descriptor), Some(event)) =
            (self.descriptors(memory).get(usize::from(batch.first.slot)), self.device_event(memory))
        else {
            return false;
        };
        notify::packed_publish(&descriptor.flags, batch.flags, event)
    }

    /// Reads the next used descriptor, id and length; `None` if there is none.
    ///
    /// # Errors
    /// [`RingFault::IndexJump`].
    pub(super) fn used<H: Hal>(&self, memory: &Dma<H>) -> Result<Option<(u32, u32)>, RingFault> {
        let Some(descriptor) = self.used_at(memory, self.taken) else { return Ok(None) };
        if self.taken == self.batch.map_or(self.next, |batch| batch.first) {
            return Err(RingFault::IndexJump);
        }
        // Read once: the device may change the descriptor at any time.
        let (id, len) =
            (u16::from_le(descriptor.id.load(Relaxed)), u32::from_le(descriptor.len.load(Relaxed)));
        Ok(Some((id.into(), len)))
    }

    /// Advances past the chain `id`, whose descriptor [`used`](Self::used) read.
    pub(super) fn take(&mut self, id: u16) {
        let parts = self.buffers.get(usize::from(id)..).unwrap_or_default();
        for part in parts {
            self.taken = self.taken.advanced(1, self.size);
            if part.flags & NEXT == 0 {
                break;
            }
        }
    }

    pub(super) fn suppress<H: Hal>(&self, memory: &Dma<H>) {
        if let Some(event) = self.driver_event(memory) {
            notify::packed_suppress(event);
        }
    }

    pub(super) fn request<H: Hal>(&self, memory: &Dma<H>, suppression: Suppression, after: u16) -> bool {
        let Some(event) = self.driver_event(memory) else { return false };
        // Without event indices every completion interrupts.
        let after = if suppression == Suppression::Flags { 1 } else { after.min(self.size).max(1) };
        // A buffer takes one descriptor, except in the control queue, which requests no interrupts; and the device uses
        // descriptors in the order of the ring.
        let last = self.taken.advanced(after.wrapping_sub(1), self.size);
        notify::packed_request(suppression, event, last);
        self.used_at(memory, last).is_some()
    }

    /// Returns the descriptor at `position` if the device has used it.
    fn used_at<'a, H: Hal>(&self, memory: &'a Dma<H>, position: Position) -> Option<&'a Descriptor> {
        let descriptor = self.descriptors(memory).get(usize::from(position.slot))?;
        let flags = u16::from_le(descriptor.flags.load(Acquire));
        let expected = if position.wrap { AVAIL | USED } else { 0 };
        (flags & (AVAIL | USED) == expected).then_some(descriptor)
    }

    fn descriptors<'a, H: Hal>(&self, memory: &'a Dma<H>) -> &'a [Descriptor] {
        memory.view(0, usize::from(self.size))
    }

    /// The event suppression structure that the driver writes.
    fn driver_event<'a, H: Hal>(&self, memory: &'a Dma<H>) -> Option<&'a AtomicU32> {
        let [_, driver, _] = self.areas();
        memory.view(driver, 1).first()
    }

    /// The event suppression structure that the device writes.
    fn device_event<'a, H: Hal>(&self, memory: &'a Dma<H>) -> Option<&'a AtomicU32> {
        let [_, _, device] = self.areas();
        memory.view(device, 1).first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's limits are checked before, so that no device reaches the upper one.
    //= virtio §6
    #[test]
    fn a_ring_has_1_to_32768_descriptors() {
        let is_allowed = |size| matches!(PackedRing::new(size), Ok(Some(_)));
        assert!(is_allowed(1) && is_allowed(32768));
        assert!(!is_allowed(0) && !is_allowed(32769));
    }
}
