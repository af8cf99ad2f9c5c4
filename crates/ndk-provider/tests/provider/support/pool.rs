// SPDX-License-Identifier: MIT OR Apache-2.0

//! The allocator of the tests, which a test can exhaust for its own thread.

use core::cell::Cell;
use core::ptr::null_mut;
use std::alloc::{GlobalAlloc, Layout, System};

thread_local! {
    /// Whether only the first allocation that fails for `LEFT` does.
    pub static FAILS_ONCE: Cell<bool> = const { Cell::new(false) };
    /// Number of allocations of this thread that still succeed; all do if negative.
    pub static LEFT: Cell<i64> = const { Cell::new(-1) };
    /// Bytes that this thread has allocated, less those that it has freed.
    pub static BYTES: Cell<i64> = const { Cell::new(0) };
    /// Number of live allocations of this thread.
    pub static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Pool;

// SAFETY: forwards to the system's allocator, or fails.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match LEFT.get() {
            0 => {
                if FAILS_ONCE.get() {
                    LEFT.set(-1);
                }
                return null_mut();
            }
            left => LEFT.set(left - i64::from(left > 0)),
        }
        LIVE.set(LIVE.get() + 1);
        BYTES.set(BYTES.get().wrapping_add_unsigned(layout.size() as u64));
        // SAFETY: the layout is the caller's, whose size must not be zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        BYTES.set(BYTES.get().wrapping_sub_unsigned(layout.size() as u64));
        // SAFETY: the pointer is from `alloc` with the same layout, which got it from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static POOL: Pool = Pool;
