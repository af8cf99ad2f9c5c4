// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks of 128 bits in XMM registers, and the instruction PCLMULQDQ. The CRC is computed from them in
//! the parent module.

use core::arch::x86_64::{
    __cpuid, __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_set_epi64x, _mm_srli_si128, _mm_storeu_si128, _mm_xor_si128,
};

/// The name of the instruction.
pub(in super::super) const NAME: &str = "pclmulqdq";

pub(super) type Block = __m128i;

/// Returns whether the processor has the instruction.
pub(in super::super) fn available() -> bool {
    const PCLMULQDQ: u32 = 1 << 1;
    __cpuid(1).ecx & PCLMULQDQ != 0
}

/// Returns the product of a half of `a` and a half of `b`: the high one of `a` if bit 0 of `HALVES` is set, of `b` if bit 4 is.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn multiply<const HALVES: i32>(a: Block, b: Block) -> Block {
    _mm_clmulepi64_si128::<HALVES>(a, b)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn xor(a: Block, b: Block) -> Block {
    _mm_xor_si128(a, b)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn and(a: Block, b: Block) -> Block {
    _mm_and_si128(a, b)
}

/// Shifts right by bytes.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn shift_right<const BYTES: i32>(block: Block) -> Block {
    _mm_srli_si128::<BYTES>(block)
}

/// Returns a block of two halves.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn halves(high: i64, low: i64) -> Block {
    _mm_set_epi64x(high, low)
}

/// Returns a block with this word, and zeros above.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn from_word(word: u32) -> Block {
    _mm_cvtsi32_si128(word.cast_signed())
}

/// Returns the lowest word.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn low_word(block: Block) -> u32 {
    _mm_cvtsi128_si32(block).cast_unsigned()
}

/// Loads a block, at any alignment.
///
/// # Safety
/// 16 bytes are readable at `src`.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) unsafe fn load(src: *const u8) -> Block {
    // SAFETY: readable by the contract of this function; the instruction needs no alignment.
    unsafe { _mm_loadu_si128(src.cast()) }
}

/// Stores a block, at any alignment.
///
/// # Safety
/// 16 bytes are writable at `dst`.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) unsafe fn store(dst: *mut u8, block: Block) {
    // SAFETY: writable by the contract of this function; the instruction needs no alignment.
    unsafe { _mm_storeu_si128(dst.cast(), block) };
}
