// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pool, and memory accesses that the compiler does not optimize.

use core::{ffi::c_void, hint::black_box};

use ndk_abi::nt::{ExAllocatePool2, ExFreePool, ExFreePoolWithTag, POOL_FLAG_NON_PAGED};

pub const TAG: u32 = u32::from_le_bytes(*b"tsdr");

pub fn allocate(size: usize) -> *mut u8 {
    // SAFETY: every violation allocates at an IRQL <= DISPATCH_LEVEL.
    unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG) }.cast()
}

pub fn free(block: *mut u8) {
    // SAFETY: in some violations it must not be freed, which the verifier reports.
    unsafe { ExFreePool(block.cast::<c_void>()) };
    stay();
}

pub fn free_with_tag(block: *mut u8, tag: u32) {
    // SAFETY: in some violations it must not be freed, which the verifier reports.
    unsafe { ExFreePoolWithTag(block.cast::<c_void>(), tag) };
    stay();
}

/// Prevents that the call before it becomes a tail call: the caller's frame must be in the reported stack.
#[inline]
pub fn stay() {
    black_box(0_u8);
}

pub fn write(address: *mut u8) {
    // SAFETY: in some violations it must not be written, which the verifier reports.
    unsafe { address.write_volatile(1) };
}

pub fn read(address: *const u8) -> u8 {
    // SAFETY: in some violations it must not be read, which the verifier reports.
    unsafe { address.read_volatile() }
}
