// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's memory: nonpaged pool with the driver's own tag.
#![allow(unsafe_code, reason = "implements the allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;

use ndk_abi::nt::{ExAllocatePool2, ExFreePoolWithTag, POOL_FLAG_NON_PAGED};

/// Tag of all pool that the driver allocates. Tools show it as `viRD`.
pub const TAG: u32 = u32::from_le_bytes(*b"viRD");

/// Alignment of pool blocks in bytes. Larger blocks have more, on which nothing here relies.
const ALIGNMENT: usize = 16;

/// The global allocator. IRQL <= `DISPATCH_LEVEL`.
pub struct NonpagedPool;

// SAFETY: pool blocks are exclusive, at least as long as requested and aligned to 16 bytes; requests that need more are
// refused.
unsafe impl GlobalAlloc for NonpagedPool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGNMENT {
            return null_mut();
        }
        // SAFETY: the size is not zero by this function's contract; IRQL <= DISPATCH_LEVEL.
        unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, layout.size(), TAG) }.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // The function zeroes memory unless a flag says otherwise.
        // SAFETY: `alloc_zeroed` has the contract of `alloc`: the layout's size is not zero.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: allocated above with this tag, freed once.
        unsafe { ExFreePoolWithTag(block.cast(), TAG) };
    }
}
