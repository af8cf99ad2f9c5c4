//! Pool, and memory accesses that the compiler must not think about.

use core::{ffi::c_void, hint::black_box};

use ndk_abi::nt::{ExAllocatePool2, ExFreePool, ExFreePoolWithTag, POOL_FLAG_NON_PAGED};

pub const TAG: u32 = u32::from_le_bytes(*b"deed");

pub fn allocate(size: usize) -> *mut u8 {
    // SAFETY: callable at the IRQL of every deed that allocates.
    unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG) }.cast()
}

pub fn free(block: *mut u8) {
    // SAFETY: whether it may be freed is what the deed is about.
    unsafe { ExFreePool(block.cast::<c_void>()) };
    stay();
}

pub fn free_with_tag(block: *mut u8, tag: u32) {
    // SAFETY: whether it may be freed is what the deed is about.
    unsafe { ExFreePoolWithTag(block.cast::<c_void>(), tag) };
    stay();
}

/// Keeps the call before it from becoming a jump, so that the caller's frame is there to be reported.
#[inline]
pub fn stay() {
    black_box(0_u8);
}

pub fn write(address: *mut u8) {
    // SAFETY: whether it may be written is what the deed is about.
    unsafe { address.write_volatile(1) };
}

pub fn read(address: *const u8) -> u8 {
    // SAFETY: whether it may be read is what the deed is about.
    unsafe { address.read_volatile() }
}
