// SPDX-License-Identifier: MIT OR Apache-2.0

//! The seam between this crate and the system it runs in: DMA memory, device registers, time.
//!
//! [`Hal`] hands out memory that the device can reach; [`Dma`] owns one block of it and gives it
//! back when dropped. [`Registers`] is how registers are reached. All knowledge of raw pointers in
//! this crate is in this file; rings and queues work on checked views.

use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::error::Error;

/// Least alignment of DMA memory, in bytes: what a descriptor table needs. (virtio §5)
pub const DMA_ALIGNMENT: usize = 16;

/// Memory that driver and device share.
#[derive(Debug, Clone, Copy)]
pub struct DmaBlock {
    /// Where the driver sees the block.
    pub address: NonNull<u8>,
    /// Where the device sees it.
    pub device_address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// DMA memory and time, as the platform provides them.
///
/// A value of this type is a handle: cloning it is cheap and all clones stand for one device.
///
/// # Safety
/// Implementers promise for every block that [`allocate`](Hal::allocate) returns:
/// * `address` is valid for reads and writes of `len` bytes, aligned to [`DMA_ALIGNMENT`], zeroed,
///   and overlaps no other object, until the block is passed to [`release`](Hal::release);
/// * `device_address` names the same bytes for the device, contiguously, coherently with the CPU;
/// * `len` is at least the length asked for.
pub unsafe trait Hal: Clone {
    /// Memory for the device, zeroed; `None` when there is none. Runs at PASSIVE_LEVEL.
    fn allocate(&self, len: usize) -> Option<DmaBlock>;

    /// Takes a block back. Runs at PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `block` came from [`allocate`](Hal::allocate) of this handle or a clone of it, was not released
    /// yet, nothing refers to it, and the device has been reset or is gone, so that it
    /// no longer reads or writes the block.
    unsafe fn release(&self, block: DmaBlock);

    /// Lets at least `microseconds` pass. Runs at PASSIVE_LEVEL.
    fn delay(&self, microseconds: u32);
}

/// Registers of the device, by BAR number and byte offset, each access of exactly the named width.
///
/// Like PCI itself, a read that reaches nothing (no such BAR, outside of it, device removed)
/// returns all ones and such a write has no effect.
pub trait Registers: Clone {
    /// Length in bytes of a memory BAR that can be accessed; `None` if `bar` is not there.
    fn bar_len(&self, bar: u8) -> Option<u64>;

    fn read8(&self, bar: u8, offset: u64) -> u8;
    fn read16(&self, bar: u8, offset: u64) -> u16;
    fn read32(&self, bar: u8, offset: u64) -> u32;
    fn write8(&self, bar: u8, offset: u64, value: u8);
    fn write16(&self, bar: u8, offset: u64, value: u16);
    fn write32(&self, bar: u8, offset: u64, value: u32);
}

/// Types that may lie in memory the device reads and writes at any moment.
///
/// # Safety
/// Implementers consist of atomics only, are `repr(C)` without padding, and any bytes are a valid value.
pub(crate) unsafe trait DeviceShared {}

// SAFETY: an atomic without padding.
unsafe impl DeviceShared for AtomicU16 {}
// SAFETY: an atomic without padding.
unsafe impl DeviceShared for AtomicU32 {}
// SAFETY: an atomic without padding.
unsafe impl DeviceShared for AtomicU64 {}

/// One block of DMA memory, returned to its [`Hal`] when dropped.
///
/// The owner of a `Dma` that a device knows of must reset the device before dropping it;
/// [`crate::Nic`] does.
#[derive(Debug)]
pub(crate) struct Dma<H: Hal> {
    hal: H,
    block: DmaBlock,
}

// SAFETY: the block is plain memory owned by this value alone; no thread affinity.
unsafe impl<H: Hal + Send> Send for Dma<H> {}
// SAFETY: shared access goes through atomics (`view`) or under the promise of `bytes`' caller.
unsafe impl<H: Hal + Sync> Sync for Dma<H> {}

impl<H: Hal> Dma<H> {
    pub(crate) fn new(hal: &H, len: usize) -> Result<Self, Error> {
        let block = hal.allocate(len).ok_or(Error::NoMemory)?;
        Ok(Self { hal: hal.clone(), block })
    }

    /// The device's address of byte `offset`.
    pub(crate) fn device_address(&self, offset: usize) -> u64 {
        self.block.device_address.wrapping_add(offset as u64)
    }

    /// `count` items of `T` from byte `offset` on; empty if they do not fit the block or are misaligned.
    pub(crate) fn view<T: DeviceShared>(&self, offset: usize, count: usize) -> &[T] {
        let Some(range) = self.range(offset, count.checked_mul(size_of::<T>())) else { return &[] };
        let first = range.cast::<T>();
        if !first.addr().get().is_multiple_of(align_of::<T>()) {
            return &[];
        }
        // SAFETY: `range` lies inside the block, alignment was just checked, every bit pattern is a value
        // and changes by the device are allowed under a shared reference (`DeviceShared`).
        unsafe { slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// The bytes at `offset..offset + len`; empty if that is outside the block.
    ///
    /// # Safety
    /// The device does not hold the buffer these bytes belong to: it was never made available, or was returned.
    /// (A device that still writes breaks its contract; what it can change is payload it controls anyway, and
    /// every length and index was read once and checked before.)
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let Some(first) = self.range(offset, Some(len)) else { return &[] };
        // SAFETY: inside the block; initialised (zeroed by `allocate`); not written meanwhile, by this function's contract.
        unsafe { slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// As [`bytes`](Self::bytes), for writing.
    ///
    /// # Safety
    /// As for [`bytes`](Self::bytes).
    pub(crate) unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let Some(first) = self.range(offset, Some(len)) else { return &mut [] };
        // SAFETY: inside the block; `&mut self` excludes other users, the contract excludes the device.
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
        // SAFETY: allocated in `new` from this handle, released only here; the owner reset the device before.
        unsafe { self.hal.release(self.block) }
    }
}
