// SPDX-License-Identifier: MIT OR Apache-2.0

//! The split ring, with one descriptor per frame: descriptor `n` always describes buffer `n`. (virtio §5, §7, §8)
//!
//! [`Ring`] owns the three areas and the driver's indices. Its owner adds buffers to the available ring with
//! [`offer`](Ring::offer), publishes the index with [`publish`](Ring::publish) and takes returned buffers with
//! [`take_used`](Ring::take_used). The used ring is not trusted: each element is read once, then checked against the
//! outstanding buffers. After the first inconsistency `take_used` only returns that error.
//!
//! A ring has one user at a time (`&mut self`), at IRQL <= DISPATCH_LEVEL.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use fallible::vec;

use crate::error::{Error, RingFault};
use crate::hal::{DMA_ALIGNMENT, DeviceShared, Dma, Hal};
use crate::notify::{self, Suppression};

/// Flag of a descriptor: the device writes the buffer.
const WRITE: u16 = 2;

#[derive(Debug)]
#[repr(C)]
struct Descriptor {
    address: AtomicU64,
    len: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

// SAFETY: atomics only, 8 + 4 + 2 + 2 bytes without padding.
unsafe impl DeviceShared for Descriptor {}

#[derive(Debug)]
#[repr(C)]
struct UsedElement {
    id: AtomicU32,
    len: AtomicU32,
}

// SAFETY: atomics only, 4 + 4 bytes without padding.
unsafe impl DeviceShared for UsedElement {}

/// Direction of transfers between driver and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads (transmit).
    ToDevice,
    /// The device writes (receive).
    FromDevice,
}

/// Device addresses of the three areas of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueAddresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// A buffer that the device returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// The buffer: below the ring's size, and outstanding until now.
    pub(crate) id: u16,
    /// Number of bytes written according to the device; not checked here.
    pub(crate) len: u32,
}

/// Byte offsets of the three areas in one block.
#[derive(Debug, Clone, Copy)]
struct Areas {
    size: u16,
    available: usize,
    used: usize,
    len: usize,
}

impl Areas {
    /// Returns the areas of a queue; `None` unless `size` is a power of two. That of the specification is at most 32768.
    fn of(size: u16) -> Option<Self> {
        if !size.is_power_of_two() {
            return None;
        }
        let n = usize::from(size);
        let available = n.checked_mul(size_of::<Descriptor>())?;
        let used = n.checked_mul(2)?.checked_add(6)?.checked_add(available)?.next_multiple_of(4);
        let len = n.checked_mul(size_of::<UsedElement>())?.checked_add(6)?.checked_add(used)?;
        Some(Self { size, available, used, len })
    }
}

#[derive(Debug)]
pub(crate) struct Ring<H: Hal> {
    memory: Dma<H>,
    areas: Areas,
    suppression: Suppression,
    /// The buffers that the device has, by id.
    outstanding: Vec<bool>,
    outstanding_count: u16,
    /// Next free-running index of the available ring; entries before it are written.
    offered: u16,
    /// Available index as the device sees it: that of the last notification decision.
    published: u16,
    /// Next free-running index to take from the used ring.
    taken: u16,
    broken: Option<RingFault>,
}

impl<H: Hal> Ring<H> {
    /// Allocates a ring of `size` buffers, none described yet.
    pub(crate) fn new(hal: &H, size: u16, suppression: Suppression) -> Result<Self, Error> {
        const { assert!(size_of::<Descriptor>() == DMA_ALIGNMENT) };
        let areas = Areas::of(size).ok_or(Error::BadQueueSize(size))?;
        let outstanding = vec::filled(usize::from(size), false)?;
        let memory = Dma::new(hal, areas.len)?;
        Ok(Self {
            memory,
            areas,
            suppression,
            outstanding,
            outstanding_count: 0,
            offered: 0,
            published: 0,
            taken: 0,
            broken: None,
        })
    }

    /// Returns the ring to the state of a new one: no buffer is described, outstanding or returned. The device was reset, so
    /// that it does not use the ring.
    pub(crate) fn clear(&mut self) {
        // Each field with its own width, as in any other access.
        for descriptor in self.descriptors() {
            descriptor.address.store(0, Relaxed);
            descriptor.len.store(0, Relaxed);
            descriptor.flags.store(0, Relaxed);
            descriptor.next.store(0, Relaxed);
        }
        for element in self.used_elements() {
            element.id.store(0, Relaxed);
            element.len.store(0, Relaxed);
        }
        let words = self.available().iter().chain(self.used_words()).chain(self.avail_event());
        words.for_each(|word| word.store(0, Relaxed));
        self.outstanding.fill(false);
        self.outstanding_count = 0;
        self.offered = 0;
        self.published = 0;
        self.taken = 0;
        self.broken = None;
    }

    pub(crate) fn addresses(&self) -> QueueAddresses {
        QueueAddresses {
            descriptors: self.memory.device_address(0),
            available: self.memory.device_address(self.areas.available),
            used: self.memory.device_address(self.areas.used),
        }
    }

    pub(crate) fn size(&self) -> u16 {
        self.areas.size
    }

    /// Returns the inconsistency of the used ring, if one was found.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.broken.map(Error::BrokenRing)
    }

    /// Returns the number of buffers that the device has.
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding_count
    }

    /// Writes the descriptor of buffer `id`. Only its length changes later.
    pub(crate) fn describe(&mut self, id: u16, address: u64, len: u32, direction: Direction) {
        if let Some(descriptor) = self.descriptors().get(usize::from(id)) {
            descriptor.address.store(address.to_le(), Relaxed);
            descriptor.len.store(len.to_le(), Relaxed);
            let flags = if direction == Direction::FromDevice { WRITE } else { 0 };
            descriptor.flags.store(flags.to_le(), Relaxed);
        }
    }

    /// Sets the length of buffer `id`, which is not outstanding.
    pub(crate) fn set_len(&mut self, id: u16, len: u32) {
        if let Some(descriptor) = self.descriptors().get(usize::from(id)) {
            descriptor.len.store(len.to_le(), Relaxed);
        }
    }

    /// Adds buffer `id`, which is not outstanding, to the available ring, for the next [`publish`](Self::publish).
    pub(crate) fn offer(&mut self, id: u16) {
        let Some(outstanding) = self.outstanding.get_mut(usize::from(id)) else { return };
        if core::mem::replace(outstanding, true) {
            return;
        }
        self.outstanding_count = self.outstanding_count.wrapping_add(1);
        let slot = 2_usize.wrapping_add(self.slot(self.offered));
        if let Some(entry) = self.available().get(slot) {
            entry.store(id.to_le(), Relaxed);
        }
        self.offered = self.offered.wrapping_add(1);
    }

    /// Publishes the available index. Returns `true` if the device must be notified.
    pub(crate) fn publish(&mut self) -> bool {
        if self.offered == self.published {
            return false;
        }
        let old = core::mem::replace(&mut self.published, self.offered);
        let ([_, index, ..], Some(event), Some(flags)) =
            (self.available(), self.avail_event(), self.used_words().first())
        else {
            return false;
        };
        notify::publish(self.suppression, index, flags, event, old, self.published)
    }

    /// Takes the next buffer that the device returned; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::BrokenRing`], from the first inconsistency on.
    //= virtio §18
    pub(crate) fn take_used(&mut self) -> Result<Option<Used>, Error> {
        if let Some(error) = self.fault() {
            return Err(error);
        }
        let pending = self.used_index().wrapping_sub(self.taken);
        if pending == 0 {
            return Ok(None);
        }
        if pending > self.outstanding_count {
            return Err(self.give_up(RingFault::IndexJump));
        }
        let Some(element) = self.used_elements().get(self.slot(self.taken)) else { return Ok(None) };
        // Read once: the device may change the element at any time.
        let (id, len) = (u32::from_le(element.id.load(Relaxed)), u32::from_le(element.len.load(Relaxed)));
        let Some(id) = u16::try_from(id).ok().filter(|&id| self.is_outstanding(id)) else {
            return Err(self.give_up(RingFault::BadId));
        };
        if let Some(outstanding) = self.outstanding.get_mut(usize::from(id)) {
            *outstanding = false;
        }
        self.outstanding_count = self.outstanding_count.wrapping_sub(1);
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Used { id, len }))
    }

    /// Suppresses interrupts. A pending or spurious one may still occur.
    pub(crate) fn suppress_interrupts(&mut self) {
        if let ([flags, ..], Some(event)) = (self.available(), self.used_event()) {
            notify::suppress(self.suppression, flags, event, self.taken);
        }
    }

    /// Requests an interrupt at the `after`-th completion from now (at least 1). Returns `true` if the device has already
    /// completed that many: no interrupt may occur, and the caller must continue.
    //= virtio §7
    pub(crate) fn request_interrupt(&mut self, after: u16) -> bool {
        let ([flags, ..], [_, used_index, ..], Some(event)) =
            (self.available(), self.used_words(), self.used_event())
        else {
            return false;
        };
        notify::request(self.suppression, flags, event, used_index, self.taken, after)
    }

    fn give_up(&mut self, fault: RingFault) -> Error {
        self.broken = Some(fault);
        Error::BrokenRing(fault)
    }

    fn is_outstanding(&self, id: u16) -> bool {
        self.outstanding.get(usize::from(id)).copied().unwrap_or(false)
    }

    /// Returns the slot of a free-running index.
    fn slot(&self, index: u16) -> usize {
        usize::from(index & self.areas.size.wrapping_sub(1))
    }

    fn descriptors(&self) -> &[Descriptor] {
        self.memory.view(0, usize::from(self.areas.size))
    }

    /// The available ring: `flags`, `idx`, `ring[size]`, `used_event`.
    fn available(&self) -> &[AtomicU16] {
        self.memory.view(self.areas.available, usize::from(self.areas.size).wrapping_add(3))
    }

    /// The used ring's `flags` and `idx`.
    fn used_words(&self) -> &[AtomicU16] {
        self.memory.view(self.areas.used, 2)
    }

    fn used_elements(&self) -> &[UsedElement] {
        self.memory.view(self.areas.used.wrapping_add(4), usize::from(self.areas.size))
    }

    fn used_index(&self) -> u16 {
        self.used_words().get(1).map_or(self.taken, |index| u16::from_le(index.load(Acquire)))
    }

    /// The last word of the available ring, which the driver writes.
    fn used_event(&self) -> Option<&AtomicU16> {
        self.available().last()
    }

    /// The last word of the used ring, which the device writes.
    fn avail_event(&self) -> Option<&AtomicU16> {
        let elements = usize::from(self.areas.size).wrapping_mul(size_of::<UsedElement>());
        self.memory.view(self.areas.used.wrapping_add(4).wrapping_add(elements), 1).first()
    }
}
