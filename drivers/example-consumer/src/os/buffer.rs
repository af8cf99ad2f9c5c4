// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nonpaged memory with an MDL.

use alloc::vec::Vec;
use core::ptr::{NonNull, null_mut};

use driver_support::status::{Result, no_memory};
use fallible::vec;
use ndk_abi::nt::{
    IoAllocateMdl, IoFreeMdl, MDL, MmBuildMdlForNonPagedPool, STATUS_BUFFER_TOO_SMALL,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
};

/// Nonpaged memory that the provider may read and write at any time, and the MDL that describes it.
pub struct Buffer {
    mdl: NonNull<MDL>,
    /// Accessed through raw pointers only, because the device accesses it, too.
    bytes: Vec<u8>,
}

// SAFETY: memory and MDL are accessed from any thread; the owners of ranges keep accesses apart.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives out raw copies only; the owners of ranges keep accesses apart.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `length` bytes, at least 1, zeroed. IRQL <= `DISPATCH_LEVEL`.
    pub fn new(length: usize) -> Result<Self> {
        let size = u32::try_from(length).map_err(|_| STATUS_INVALID_PARAMETER)?;
        let mut bytes = vec::filled(length, 0_u8).map_err(no_memory)?;
        // SAFETY: the range is that of the vector, which does not move until it is dropped.
        let mdl = unsafe { IoAllocateMdl(bytes.as_mut_ptr().cast(), size, 0, 0, null_mut()) };
        let mdl = NonNull::new(mdl).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        // SAFETY: the MDL describes nonpaged pool.
        unsafe { MmBuildMdlForNonPagedPool(mdl.as_ptr()) };
        Ok(Self { mdl, bytes })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn mdl(&self) -> NonNull<MDL> {
        self.mdl
    }

    /// Copies `from` to `offset`.
    pub fn store(&self, offset: usize, from: &[u8]) -> Result {
        let to = self.at(offset, from.len())?;
        // SAFETY: `at` checked the range; a raw copy, because the device may access the memory at any time.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Copies from `offset` to `into`.
    pub fn load(&self, offset: usize, into: &mut [u8]) -> Result {
        let from = self.at(offset, into.len())?;
        // SAFETY: `at` checked the range; a raw copy, because the device may access the memory at any time.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn at(&self, offset: usize, length: usize) -> Result<*mut u8> {
        let end = offset.checked_add(length).ok_or(STATUS_BUFFER_TOO_SMALL)?;
        if end > self.bytes.len() {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        Ok(self.bytes.as_ptr().cast_mut().wrapping_add(offset))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; the logical address mappings made of it are released.
        unsafe { IoFreeMdl(self.mdl.as_ptr()) };
    }
}
