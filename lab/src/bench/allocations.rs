// SPDX-License-Identifier: MIT OR Apache-2.0

//! An allocator that counts the allocations of each thread.
#![allow(unsafe_code, reason = "implements an unsafe trait, and forwards each call")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, which counts calls per thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has allocated minus bytes that it has freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Returns the number of allocations by the calling thread.
#[must_use]
pub fn count() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the bytes that the calling thread has allocated minus those that it has freed.
#[must_use]
pub fn held() -> i64 {
    HELD.get()
}

/// Counts `calls` allocations that change the allocated bytes by `bytes`.
fn note(calls: u64, bytes: i64) {
    // An ending thread may allocate after its counters are destroyed; those allocations are not counted.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + calls));
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: each method forwards its arguments to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size().cast_signed() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size().cast_signed() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size.cast_signed() as i64 - layout.size().cast_signed() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -(layout.size().cast_signed() as i64));
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(block, layout) }
    }
}
