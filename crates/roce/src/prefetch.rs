// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starts to load memory into the cache before it is used: a queue pair that has not been used for a while is in memory,
//! and its cache lines are loaded at the same time instead of one after the other.
#![allow(unsafe_code, reason = "the instruction takes a pointer")]

use core::ops::Range;

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// Starts to load the bytes at these offsets from `base`. Nothing is read and nothing is changed: the memory may be in use by
/// other threads, or none.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction per cache line")]
pub(crate) fn prefetch_bytes(base: *const u8, bytes: Range<usize>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // The first byte of each line but the last, wherever lines begin; and the last byte.
        let last = bytes.end.saturating_sub(1);
        let mut at = bytes.start;
        while at < last {
            // SAFETY: the instruction is a hint, which every x86_64 processor has. It faults for no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(base.wrapping_add(at).cast()) };
            at = at.wrapping_add(LINE);
        }
        // SAFETY: a prefetch has no effect on memory and does not fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(base.wrapping_add(last).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (base, bytes);
}
