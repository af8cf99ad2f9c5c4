// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes whose address may be shared.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;

/// An owned block of bytes whose address is held elsewhere, such as by an MDL.
///
/// A vector claims exclusive access whenever it is borrowed for writing, and forbids writing when it is shared. This type
/// gives no reference to its bytes: owner and holders of the address read and write through the pointer, and keep
/// order among themselves.
#[derive(Debug)]
pub struct AliasableBytes {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory without thread affinity; holders of the pointer answer for what they do with it.
unsafe impl Send for AliasableBytes {}
// SAFETY: shared use gives copies of the pointer and the length, which do not change.
unsafe impl Sync for AliasableBytes {}

impl AliasableBytes {
    /// Allocates `len` bytes of zeros, at least one, aligned to 16 bytes.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory, or `len` is 0.
    pub fn try_new(len: usize) -> Result<Self, AllocError> {
        let layout = Layout::from_size_align(len, MAX_ALIGNMENT).map_err(|_| AllocError)?;
        if len == 0 {
            return Err(AllocError);
        }
        // SAFETY: the layout's size is not zero.
        let first = unsafe { alloc_zeroed(layout) };
        Ok(Self { first: NonNull::new(first).ok_or(AllocError)?, layout })
    }

    /// Returns the address of the first byte. It stays the same and valid until this is dropped.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Returns the address of the first byte. The memory may be accessed as through [`AliasableBytes::as_ptr`].
    #[must_use]
    pub const fn as_non_null(&self) -> NonNull<u8> {
        self.first
    }

    /// Returns the number of bytes; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for AliasableBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `try_new` with this layout, freed once.
        unsafe { dealloc(self.first.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Miri reports this test if the bytes are ever kept in a vector or a box.
    #[test]
    fn address_stays_valid_for_writing_while_the_block_is_moved_and_shared() {
        let block = AliasableBytes::try_new(40).unwrap();
        let held_elsewhere = block.as_ptr();
        let blocks = [block];
        let shared = &blocks[0];
        let last = shared.as_ptr().wrapping_add(39);
        // SAFETY: inside the block, which is alive; one thread.
        unsafe { last.write(7) };
        // SAFETY: the first byte of the block, which is alive; one thread, and no reference to the bytes exists.
        unsafe { held_elsewhere.write(9) };
        // SAFETY: the first byte of the block, which is alive and initialized; one thread.
        let first = unsafe { shared.as_ptr().read() };
        // SAFETY: the last of 40 bytes of the block, which is alive and initialized; one thread.
        let last = unsafe { held_elsewhere.wrapping_add(39).read() };
        assert_eq!((first, last, shared.len()), (9, 7, 40));
    }

    #[test]
    fn no_block_is_empty_or_larger_than_memory() {
        assert_eq!(AliasableBytes::try_new(0).err(), Some(AllocError));
        assert_eq!(AliasableBytes::try_new(usize::MAX).err(), Some(AllocError));
    }
}
