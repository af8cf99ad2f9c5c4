// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interface to the platform: DMA memory, device registers, time.
//!
//! [`Hal`] allocates memory that the device can access; [`Dma`] owns one block of it and releases it when dropped.
//! [`Registers`] accesses registers. Only this file of the crate uses raw pointers; rings and queues use checked views.
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::error::Error;

/// Minimum alignment of DMA memory, in bytes: that of a descriptor table. (virtio §5)
pub const DMA_ALIGNMENT: usize = 16;

/// A block of memory that driver and device share.
#[derive(Debug, Clone, Copy)]
pub struct DmaBlock {
    /// Address for the driver.
    pub address: NonNull<u8>,
    /// Address for the device.
    pub device_address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// DMA memory of the platform, the device's access to it, and time.
///
/// A value of this type is a handle: cloning it is cheap, and all clones belong to one device.
///
/// # Safety
/// Implementations guarantee for every block that [`allocate`](Hal::allocate) returns:
/// * `address` is valid for reads and writes of `len` bytes, aligned to [`DMA_ALIGNMENT`], zeroed,
///   and overlaps no other object, until the block is passed to [`release`](Hal::release);
/// * `device_address` names the same bytes for the device, contiguously, coherently with the CPU;
/// * `len` is at least the requested length.
pub unsafe trait Hal: Clone {
    /// Allocates `len` bytes of zeroed DMA memory; `None` if there is not enough. Called at PASSIVE_LEVEL.
    fn allocate(&self, len: usize) -> Option<DmaBlock>;

    /// Frees a block. Called at PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `block` was allocated by this handle or a clone of it and not released since, no reference into it exists, and
    /// the device was reset, or [may not access memory](Hal::allow_dma), so that it no longer accesses the block.
    unsafe fn release(&self, block: DmaBlock);

    /// Whether an IOMMU translates the device address of a block that this handle or a clone of it allocated: it is not the physical
    /// address. IRQL <= DISPATCH_LEVEL.
    fn is_remapped(&self, block: &DmaBlock) -> bool;

    /// Allows the device to access memory, or forbids it, whatever it does: bus mastering in the PCI command register. It is forbidden
    /// before a [`Control`](crate::Control) is created, and once it was dropped. Called at PASSIVE_LEVEL.
    fn allow_dma(&self, is_allowed: bool);

    /// Has the thread sleep for at least `microseconds`: on Windows until a later clock tick. Called at PASSIVE_LEVEL.
    fn delay(&self, microseconds: u32);

    /// Stalls the processor for `microseconds`, at most 50. Called at PASSIVE_LEVEL.
    fn stall(&self, microseconds: u32);

    /// Returns a monotonic time in nanoseconds, from an arbitrary start. Called at PASSIVE_LEVEL.
    fn now(&self) -> u64;
}

/// Registers of the device, by BAR number and byte offset. Each access has exactly the width in the method's name.
///
/// As on PCI, a read that no device answers (no such BAR, outside of it, device removed) returns all ones, and such a
/// write has no effect.
pub trait Registers: Clone {
    fn read8(&self, bar: u8, offset: u64) -> u8;
    fn read16(&self, bar: u8, offset: u64) -> u16;
    fn read32(&self, bar: u8, offset: u64) -> u32;
    fn write8(&self, bar: u8, offset: u64, value: u8);
    fn write16(&self, bar: u8, offset: u64, value: u16);
    fn write32(&self, bar: u8, offset: u64, value: u32);
}

/// Types that may be placed in memory which the device reads and writes at any time.
///
/// # Safety
/// Implementing types consist of atomics only, are `repr(C)` without padding, and every bit pattern is a valid value.
pub(crate) unsafe trait DeviceShared {}

// SAFETY: one atomic integer: no padding, and every bit pattern is a value.
unsafe impl DeviceShared for AtomicU16 {}
// SAFETY: one atomic integer: no padding, and every bit pattern is a value.
unsafe impl DeviceShared for AtomicU32 {}
// SAFETY: one atomic integer: no padding, and every bit pattern is a value.
unsafe impl DeviceShared for AtomicU64 {}

/// One block of DMA memory, returned to its [`Hal`] when dropped.
///
/// The device must be reset before a `Dma` whose address it has is dropped; [`crate::Nic`] does so.
#[derive(Debug)]
pub(crate) struct Dma<H: Hal> {
    hal: H,
    block: DmaBlock,
}

// SAFETY: the block is plain memory that this value owns exclusively, without thread affinity.
unsafe impl<H: Hal + Send> Send for Dma<H> {}
// SAFETY: shared access is by atomics (`view`), by copying (`read`), or covered by the contract of `bytes_mut`.
unsafe impl<H: Hal + Sync> Sync for Dma<H> {}

impl<H: Hal> Dma<H> {
    pub(crate) fn new(hal: &H, len: usize) -> Result<Self, Error> {
        let block = hal.allocate(len).ok_or(Error::NoMemory)?;
        Ok(Self { hal: hal.clone(), block })
    }

    /// Whether an IOMMU translates the block's device address.
    pub(crate) fn is_remapped(&self) -> bool {
        self.hal.is_remapped(&self.block)
    }

    /// Returns the device's address of byte `offset`.
    pub(crate) fn device_address(&self, offset: usize) -> u64 {
        self.block.device_address.wrapping_add(offset as u64)
    }

    /// Returns `count` items of `T` from byte `offset`; empty if they do not fit in the block or are misaligned.
    pub(crate) fn view<T: DeviceShared>(&self, offset: usize, count: usize) -> &[T] {
        let Some(range) = self.range(offset, count.checked_mul(size_of::<T>())) else { return &[] };
        let first = range.cast::<T>();
        if !first.addr().get().is_multiple_of(align_of::<T>()) {
            return &[];
        }
        // SAFETY: `range` is inside the block, its alignment was just checked, every bit pattern is a value, and
        // `DeviceShared` types are atomics, which the device may change under a shared reference.
        unsafe { slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Returns the item of `T` at byte `offset`; `None` if it is not in the block or is misaligned.
    pub(crate) fn item<T: DeviceShared>(&self, offset: usize) -> Option<&T> {
        let item = self.range(offset, Some(size_of::<T>()))?.cast::<T>();
        if !item.addr().get().is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: inside the block, its alignment was just checked, every bit pattern is a value, and `DeviceShared` types are atomics, which
        // the device may change under a shared reference.
        Some(unsafe { item.as_ref() })
    }

    /// Copies bytes from `offset` to `to`; copies nothing if they are not in the block. If the device writes meanwhile, each copied byte
    /// has its old or its new value. No reference to the block is created, and `to` does not change afterwards.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        let Some(first) = self.range(offset, Some(to.len())) else { return };
        // SAFETY: inside the block; initialized (zeroed by `allocate`); `to` is exclusive, so it is elsewhere.
        unsafe { first.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes from `offset` to `head`, and bytes from `offset + start`, after the head, to `to`, as
    /// [`read`](Self::read) does.
    pub(crate) fn read_parts<const N: usize>(
        &self,
        offset: usize,
        head: &mut [u8; N],
        start: usize,
        to: &mut [u8],
    ) {
        let len = start.checked_add(to.len()).filter(|_| N <= start);
        let Some(first) = self.range(offset, len) else { return };
        // SAFETY: `range` has checked that the bytes are inside the block; the destination is a reference to other memory. The device may
        // write meanwhile, which tears the copy at worst.
        unsafe { first.as_ptr().copy_to_nonoverlapping(head.as_mut_ptr(), N) };
        // SAFETY: inside the block, whose part from `first` on has `start` bytes and more.
        let second = unsafe { first.add(start) };
        // SAFETY: `to.len()` bytes from `second` on are inside the range that was checked; the destination is a reference to other
        // memory.
        unsafe { second.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    /// Returns the bytes at `offset..offset + len`, for writing; empty if the range is outside the block.
    ///
    /// # Safety
    /// The buffer that contains these bytes is not outstanding: it was never made available, or the device returned it.
    /// (A device that writes to it nevertheless changes the data that it will send.)
    pub(crate) unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let Some(first) = self.range(offset, Some(len)) else { return &mut [] };
        // SAFETY: inside the block; `&mut self` excludes other references, the contract excludes the device.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), len) }
    }

    fn range(&self, offset: usize, len: Option<usize>) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len?)?;
        if end > self.block.len {
            return None;
        }
        // SAFETY: `offset <= end <= len` of the block, which is one object.
        Some(unsafe { self.block.address.add(offset) })
    }
}

impl<H: Hal> Drop for Dma<H> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` from this handle, released only here; the owner reset the device first.
        unsafe { self.hal.release(self.block) }
    }
}
