// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starts to load memory into the cache before it is used: a queue pair that has not been used for a while is in memory,
//! and its cache lines are loaded at the same time instead of one after the other.
#![allow(unsafe_code, reason = "the instruction takes a pointer")]

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// Starts to load a `T` at `place`. Nothing is read and nothing is changed: `place` may be in use by other threads.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction per cache line")]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..size_of::<T>().div_ceil(LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = place.cast::<i8>().wrapping_add(line.wrapping_mul(LINE));
        // SAFETY: the instruction is a hint, which every x86_64 processor has. It faults for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
