// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's memory: nonpaged pool. Large blocks have the driver's own tag, so that an administrator sees in a pool monitor how much
//! memory they take; small ones come from `wdk-alloc`, with its tag `rust`.
#![allow(unsafe_code, reason = "implements the allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;

use ndk_abi::nt::{ExAllocatePool2, ExFreePoolWithTag, POOL_FLAG_NON_PAGED};
use wdk_alloc::WdkAllocator;

/// Tag of large blocks, and of the pool of received frames. Tools show it as `viRD`.
pub const TAG: u32 = u32::from_le_bytes(*b"viRD");

/// Blocks of a page or more are large: tables, slots of frames, stored packets.
const LARGE: usize = 4096;

/// Alignment of pool blocks in bytes. Larger blocks have more, on which nothing here relies. `wdk-alloc` ignores alignment.
const ALIGNMENT: usize = 16;

/// The global allocator. IRQL <= `DISPATCH_LEVEL`.
pub struct NonpagedPool;

// SAFETY: pool blocks are exclusive, at least as long as requested and aligned to 16 bytes; requests that need more are
// refused. The size of a layout, which is the same for both calls, says where a block comes from.
unsafe impl GlobalAlloc for NonpagedPool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGNMENT {
            return null_mut();
        }
        if layout.size() < LARGE {
            // SAFETY: the size is not zero by this function's contract; IRQL <= DISPATCH_LEVEL.
            return unsafe { WdkAllocator.alloc(layout) };
        }
        // SAFETY: the size is at least a page; IRQL <= DISPATCH_LEVEL.
        unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, layout.size(), TAG) }.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGNMENT {
            return null_mut();
        }
        if layout.size() < LARGE {
            // SAFETY: `alloc_zeroed` has the contract of `alloc`: the layout's size is not zero; IRQL <= DISPATCH_LEVEL.
            return unsafe { WdkAllocator.alloc_zeroed(layout) };
        }
        // `ExAllocatePool2` zeroes memory unless a flag says otherwise.
        // SAFETY: the size is at least a page; IRQL <= DISPATCH_LEVEL.
        unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, layout.size(), TAG) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() < LARGE {
            // SAFETY: `alloc` took a block of this size from the same allocator; the caller frees it once.
            unsafe { WdkAllocator.dealloc(block, layout) };
        } else {
            // SAFETY: `alloc` gave a block of this size this tag; the caller frees it once.
            unsafe { ExFreePoolWithTag(block.cast(), TAG) };
        }
    }
}
