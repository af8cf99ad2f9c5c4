// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC-32 by folding with carry-less multiplication: PCLMULQDQ on x64, PMULL on arm64.
//!
//! The method is that of V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
//! (Intel, 2009). The message is a polynomial over GF(2), and its CRC is the remainder modulo P. Folding replaces a block
//! of 128 bits by the products of its two halves with constants modulo P, added to a later block, which keeps the
//! remainder. Four blocks are folded in parallel, 64 bytes onto the next 64, to hide the latency of the multiplication.
//! Then the four are folded onto one, and that onto the following blocks of 16 bytes. The last 128 bits are reduced by
//! Barrett's method. The remaining bytes, fewer than 16, go through the tables.
//!
//! Bits are reflected, as in the CRC: the lowest bit of a register is the highest power. Products of two reflected halves
//! are therefore one bit short; the constants are shifted by one to compensate.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use super::masks::{LEAD, Masks, V4};
use super::table::{self, POLYNOMIAL};

#[cfg(target_arch = "aarch64")]
use self::aarch64 as vector;
use self::vector::{Block, and, from_word, halves, low_word, multiply, shift_right, xor};
pub(super) use self::vector::{NAME, available};
#[cfg(target_arch = "x86_64")]
use self::x86_64 as vector;

/// Returns x^`power` mod P, reflected, shifted left by one for use as a factor.
const fn factor(power: u32) -> i64 {
    let mut value = 0x8000_0000u32;
    let mut i = 0;
    while i < power {
        value = (value >> 1) ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
        i += 1;
    }
    (value as i64) << 1
}

/// Returns Barrett's constant: the quotient x^64 / P, 33 bits, reflected.
const fn quotient() -> i64 {
    // Long division, highest power first; bit i of the remainder is reflected too.
    let (mut remainder, mut quotient, mut i) = (1u64, 0i64, 0);
    let divisor = (POLYNOMIAL as u64) << 1 | 1;
    // Bit 0 of `remainder` is the power 64 - i.
    while i <= 32 {
        if remainder & 1 != 0 {
            remainder ^= divisor;
            quotient |= 1 << i;
        }
        remainder >>= 1;
        i += 1;
    }
    quotient
}

/// Returns the factors of the low and the high half of a block that is folded over a distance of `bits`.
const fn fold_factors(bits: u32) -> (i64, i64) {
    (factor(bits + 32), factor(bits - 32))
}

const BY_4: (i64, i64) = fold_factors(4 * 128);
const BY_1: (i64, i64) = fold_factors(128);
const TO_64: i64 = factor(64);
const BARRETT: (i64, i64) = ((POLYNOMIAL as i64) << 1 | 1, quotient());

/// Folds `block` onto `next`, which is as far away as `factors` say.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
fn fold(block: Block, factors: Block, next: Block) -> Block {
    let low = multiply::<0x00>(block, factors);
    let high = multiply::<0x11>(block, factors);
    xor(xor(low, high), next)
}

/// Reduces the last block of a message to the CRC register.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
fn reduce(block: Block) -> u32 {
    let mask = halves(0, 0xFFFF_FFFF);
    // 128 to 96 bits: the low half (the earlier 64 bits) onto the high half.
    let by_1 = halves(BY_1.1, BY_1.0);
    let folded = xor(multiply::<0x10>(block, by_1), shift_right::<8>(block));
    // 96 to 64 bits.
    let to_64 = halves(0, TO_64);
    let folded = xor(multiply::<0x00>(and(folded, mask), to_64), shift_right::<4>(folded));
    // 64 to 32 bits: subtract quotient times P.
    let barrett = halves(BARRETT.1, BARRETT.0);
    let quotient = multiply::<0x10>(and(folded, mask), barrett);
    let product = multiply::<0x00>(and(quotient, mask), barrett);
    low_word(shift_right::<4>(xor(folded, product)))
}

/// The remaining input, and where to store it when copying.
struct Rest {
    src: *const u8,
    dst: *mut u8,
    len: usize,
}

impl Rest {
    /// Takes the next 16 bytes.
    ///
    /// # Safety
    /// At least 16 bytes remain. They are readable, and writable at `dst` if `COPY`.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
    unsafe fn take<const COPY: bool>(&mut self) -> Block {
        // SAFETY: valid by the contract of this function.
        let block = unsafe { vector::load(self.src) };
        if COPY {
            // SAFETY: valid by the contract of this function.
            unsafe { vector::store(self.dst, block) };
            self.dst = self.dst.wrapping_add(16);
        }
        self.src = self.src.wrapping_add(16);
        self.len = self.len.wrapping_sub(16);
        block
    }

    /// Folds four lanes over the remaining input; returns the register at its end.
    ///
    /// # Safety
    /// The remaining input is readable, and writable at `dst` if `COPY`.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
    unsafe fn fold_lanes<const COPY: bool>(mut self, mut lanes: [Block; 4]) -> u32 {
        let by_4 = halves(BY_4.1, BY_4.0);
        while self.len >= 64 {
            for lane in &mut lanes {
                // SAFETY: at least 64 bytes remained, and each of the four lanes takes 16 of them.
                let taken = unsafe { self.take::<COPY>() };
                *lane = fold(*lane, by_4, taken);
            }
        }
        let by_1 = halves(BY_1.1, BY_1.0);
        let [a, b, c, d] = lanes;
        let block = fold(fold(fold(a, by_1, b), by_1, c), by_1, d);
        // SAFETY: the contract of this function is the same.
        unsafe { self.fold_block::<COPY>(block) }
    }

    /// Folds one block over the remaining input; returns the register at its end.
    ///
    /// # Safety
    /// The remaining input is readable, and writable at `dst` if `COPY`.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
    unsafe fn fold_block<const COPY: bool>(mut self, mut block: Block) -> u32 {
        let by_1 = halves(BY_1.1, BY_1.0);
        while self.len >= 16 {
            // SAFETY: at least 16 bytes remain.
            let taken = unsafe { self.take::<COPY>() };
            block = fold(block, by_1, taken);
        }
        let crc = reduce(block);
        if self.len == 0 {
            return crc;
        }
        // SAFETY: the contract of this function covers the remaining input.
        unsafe { table::run::<COPY>(crc, self.src, self.dst, self.len) }
    }
}

/// Continues the register `crc` over `len` bytes at `src`, and stores them at `dst` if `COPY`.
///
/// # Safety
/// `src` is readable for `len` bytes. If `COPY`, `dst` is writable for as many bytes and does not overlap `src`;
/// otherwise it is not used. The processor has the instruction.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
pub(super) unsafe fn run<const COPY: bool>(crc: u32, src: *const u8, dst: *mut u8, len: usize) -> u32 {
    if len < 16 {
        // SAFETY: the contract of this function is the same.
        return unsafe { table::run::<COPY>(crc, src, dst, len) };
    }
    let mut rest = Rest { src, dst, len };
    let crc = from_word(crc);
    if len < 64 {
        // SAFETY: at least 16 bytes remain.
        let taken = unsafe { rest.take::<COPY>() };
        let first = xor(taken, crc);
        // SAFETY: the contract of this function covers the remaining input.
        return unsafe { rest.fold_block::<COPY>(first) };
    }
    let mut lanes = [crc; 4];
    for lane in &mut lanes {
        // SAFETY: at least 64 bytes remained, and each of the four lanes takes 16 of them.
        *lane = unsafe { rest.take::<COPY>() };
    }
    lanes[0] = xor(lanes[0], crc);
    // SAFETY: the contract of this function covers the remaining input.
    unsafe { rest.fold_lanes::<COPY>(lanes) }
}

/// Returns the register after `block`, before which it is zero.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
pub(super) fn end(block: u128) -> u32 {
    reduce(halves((block >> 64) as i64, block as i64))
}

/// Continues the register after `block`, before which it is zero, over `len` bytes at `src`, and stores them at `dst`.
///
/// # Safety
/// `src` is readable for `len` bytes, `dst` is writable for as many and does not overlap `src`. The processor has the instruction.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
pub(super) unsafe fn copy_after(block: u128, src: *const u8, dst: *mut u8, len: usize) -> u32 {
    let block = halves((block >> 64) as i64, block as i64);
    let mut rest = Rest { src, dst, len };
    if len < 64 {
        // SAFETY: the contract of this function covers the input.
        return unsafe { rest.fold_block::<true>(block) };
    }
    let mut lanes = [block; 4];
    for lane in &mut lanes {
        // SAFETY: at least 64 bytes remained, and each of the four lanes takes 16 of them.
        *lane = unsafe { rest.take::<true>() };
    }
    lanes[0] = fold(block, halves(BY_1.1, BY_1.0), lanes[0]);
    // SAFETY: the contract of this function covers the remaining input.
    unsafe { rest.fold_lanes::<true>(lanes) }
}

/// Returns block `number` of a packet, masked.
///
/// # Safety
/// 16 bytes are readable at `src`. `at` is at most [`MASKED`] - 16.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
unsafe fn masked(src: *const u8, masks: &Masks, at: usize) -> Block {
    // SAFETY: valid by the contract of this function.
    let block = unsafe { vector::load(src) };
    // SAFETY: 16 bytes follow in the array by the contract of this function.
    let keep = unsafe { vector::load(masks.keep.as_ptr().wrapping_add(at)) };
    // SAFETY: both arrays have the same length, so that 16 bytes follow here, too.
    let add = unsafe { vector::load(masks.add.as_ptr().wrapping_add(at)) };
    xor(and(block, keep), add)
}

/// Returns the ICRC state of a packet, see [`super::header::of_packet`]; `None` if it is not a multiple of 4 bytes long, or
/// shorter than the headers.
///
/// The processor has the instruction.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
pub(super) fn of_packet<const V6: bool>(led: &[u8], masks: &Masks) -> Option<u32> {
    // Blocks end with the packet: the first one begins with zeros, which leave a register of zero as it is.
    let (first, blocks) = (led.len() % 16, led.len() / 16);
    // The blocks with variant fields: at most the first three over IPv4, or five over IPv6.
    if first > LEAD || blocks < if V6 { 4 } else { 3 } {
        return None;
    }
    let src = led.as_ptr().wrapping_add(first);
    let block = |number: usize| {
        let at = number.wrapping_mul(16);
        // SAFETY: there are more blocks than `number`, which is at most 4: `first + at` is at most 76.
        unsafe { masked(src.wrapping_add(at), masks, first.wrapping_add(at)) }
    };
    let (a, b, c) = (block(0), block(1), block(2));
    if blocks == 3 {
        let by_1 = halves(BY_1.1, BY_1.0);
        return Some(reduce(fold(fold(a, by_1, b), by_1, c)));
    }
    let mut lanes = [a, b, c, block(3)];
    let mut taken = 64usize;
    if V6 && blocks > 4 {
        let by_4 = halves(BY_4.1, BY_4.0);
        lanes = [lanes[1], lanes[2], lanes[3], fold(lanes[0], by_4, block(4))];
        taken = 80;
    }
    let len = blocks.wrapping_mul(16).wrapping_sub(taken);
    let rest = Rest { src: src.wrapping_add(taken), dst: core::ptr::null_mut(), len };
    // SAFETY: `first + taken + len` is the length of the packet.
    Some(unsafe { rest.fold_lanes::<false>(lanes) })
}

/// [`of_packet`] over IPv4, of a length that the compiler knows.
///
/// The processor has the instruction.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "pclmulqdq"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,aes"))]
pub(super) fn of_v4<const LEN: usize>(led: &[u8; LEN]) -> Option<u32> {
    of_packet::<false>(led, &V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_equal_the_published_ones() {
        assert_eq!(BY_4, (0x1_5444_2BD4, 0x1_C6E4_1596));
        assert_eq!(BY_1, (0x1_7519_97D0, 0x0_CCAA_009E));
        assert_eq!(TO_64, 0x1_63CD_6124);
        assert_eq!(BARRETT, (0x1_DB71_0641, 0x1_F701_1641));
    }
}
