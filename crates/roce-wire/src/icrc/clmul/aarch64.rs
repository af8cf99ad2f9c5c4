// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks of 128 bits in NEON registers, and the instruction PMULL. Its feature of the compiler is that of the AES instructions. The CRC is computed from them in
//! the parent module.

use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vcombine_u64, vcreate_u64, vdupq_n_u8, veorq_u8, vextq_u8, vgetq_lane_u32,
    vgetq_lane_u64, vld1q_u8, vmull_p64, vreinterpretq_u8_p128, vreinterpretq_u8_u64, vreinterpretq_u32_u8,
    vreinterpretq_u64_u8, vst1q_u8,
};

/// The name of the instruction.
pub(in super::super) const NAME: &str = "pmull";

pub(super) type Block = uint8x16_t;

/// Returns whether the processor has the instruction.
pub(in super::super) fn available() -> bool {
    // Programs of Windows cannot read the register. They have addresses in the lower half, drivers in the upper.
    #[cfg(windows)]
    if (available as fn() -> bool as usize) >> 63 == 0 {
        return false;
    }
    let features: u64;
    // SAFETY: the kernel may read the register; to programs, Linux emulates that.
    unsafe {
        core::arch::asm!("mrs {}, ID_AA64ISAR0_EL1", out(reg) features, options(pure, nomem, nostack, preserves_flags));
    }
    // 1: the AES instructions; 2: PMULL, too.
    features >> 4 & 15 >= 2
}

/// Returns the product of a half of `a` and a half of `b`: the high one of `a` if bit 0 of `HALVES` is set, of `b` if bit 4 is.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn multiply<const HALVES: i32>(a: Block, b: Block) -> Block {
    let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
    let a = if HALVES & 1 == 0 { vgetq_lane_u64::<0>(a) } else { vgetq_lane_u64::<1>(a) };
    let b = if HALVES & 16 == 0 { vgetq_lane_u64::<0>(b) } else { vgetq_lane_u64::<1>(b) };
    vreinterpretq_u8_p128(vmull_p64(a, b))
}

#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn xor(a: Block, b: Block) -> Block {
    veorq_u8(a, b)
}

#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn and(a: Block, b: Block) -> Block {
    vandq_u8(a, b)
}

/// Shifts right by bytes.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn shift_right<const BYTES: i32>(block: Block) -> Block {
    vextq_u8::<BYTES>(block, vdupq_n_u8(0))
}

/// Returns a block of two halves.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn halves(high: i64, low: i64) -> Block {
    vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low.cast_unsigned()), vcreate_u64(high.cast_unsigned())))
}

/// Returns a block with this word, and zeros above.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn from_word(word: u32) -> Block {
    halves(0, i64::from(word))
}

/// Returns the lowest word.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) fn low_word(block: Block) -> u32 {
    vgetq_lane_u32::<0>(vreinterpretq_u32_u8(block))
}

/// Loads a block, at any alignment.
///
/// # Safety
/// 16 bytes are readable at `src`.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn load(src: *const u8) -> Block {
    // SAFETY: readable by the contract of this function; bytes need no alignment.
    unsafe { vld1q_u8(src) }
}

/// Stores a block, at any alignment.
///
/// # Safety
/// 16 bytes are writable at `dst`.
#[inline]
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn store(dst: *mut u8, block: Block) {
    // SAFETY: writable by the contract of this function; bytes need no alignment.
    unsafe { vst1q_u8(dst, block) };
}
