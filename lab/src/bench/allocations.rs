// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts what the measuring thread allocates.
#![allow(unsafe_code, reason = "implements an unsafe trait, by handing every call on")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, which counts calls per thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has allocated and not given back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Allocations of the calling thread so far.
#[must_use]
pub fn count() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that the calling thread holds, less what other threads have freed of it.
#[must_use]
pub fn held() -> i64 {
    HELD.get()
}

/// Notes one call that changes the bytes held by `bytes`.
fn note(calls: u64, bytes: i64) {
    // A thread that ends may allocate after its counter is gone: nobody measures there.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + calls));
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every method does what the system's allocator does, with the arguments it was given.
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
