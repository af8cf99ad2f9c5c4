// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC-32 by tables, sixteen bytes per step ("slicing-by-16").
//!
//! `TABLES[k][b]` is the contribution of a byte `b` to the register when `k` more bytes follow it. The sixteen look-ups of
//! a step are therefore independent, except through the four bytes that are combined with the register.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "indices are bytes into tables of 256 and constants below 16; lengths are checked by the loops"
)]

/// The polynomial, least significant bit first, without its x^32.
pub(super) const POLYNOMIAL: u32 = 0xEDB8_8320;

const STEP: usize = 16;

static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut follow = 1;
    while follow < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[follow - 1][byte];
            tables[follow][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        follow += 1;
    }
    tables
}

/// Returns the contribution of `byte` to the register when `follow` bytes come after it.
pub(super) const fn contribution(byte: u8, follow: usize) -> u32 {
    let mut value = byte as u32;
    let mut shifts = 0;
    while shifts < (follow + 1) * 8 {
        value = (value >> 1) ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
        shifts += 1;
    }
    value
}

/// Returns the words of twelve bytes, least significant byte first.
#[inline]
pub(super) fn words(bytes: &[u8; 12]) -> [u32; 3] {
    [
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
    ]
}

/// Continues the register `crc` over twelve bytes, in three little-endian words.
#[inline]
pub(super) fn three_words(crc: u32, [a, b, c]: [u32; 3]) -> u32 {
    word(a ^ crc, 8) ^ word(b, 4) ^ word(c, 0)
}

/// Returns the contribution of the four bytes of `word`, lowest first, when `follow` bytes come after them.
#[inline]
fn word(word: u32, follow: usize) -> u32 {
    let [a, b, c, d] = word.to_le_bytes();
    TABLES[follow + 3][usize::from(a)]
        ^ TABLES[follow + 2][usize::from(b)]
        ^ TABLES[follow + 1][usize::from(c)]
        ^ TABLES[follow][usize::from(d)]
}

/// Continues the register `crc` over `len` bytes at `src`, and stores them at `dst` if `COPY`.
///
/// # Safety
/// `src` is readable for `len` bytes. If `COPY`, `dst` is writable for as many bytes and does not overlap `src`;
/// otherwise it is not used.
pub(super) unsafe fn run<const COPY: bool>(
    mut crc: u32,
    mut src: *const u8,
    mut dst: *mut u8,
    mut len: usize,
) -> u32 {
    while len >= STEP {
        // SAFETY: `len` bytes are readable at `src`, at least `STEP` of them.
        let block: [u32; 4] = unsafe { src.cast::<[u32; 4]>().read_unaligned() };
        if COPY {
            // SAFETY: `len` bytes are writable at `dst`, at least `STEP` of them.
            unsafe { dst.cast::<[u32; 4]>().write_unaligned(block) };
            dst = dst.wrapping_add(STEP);
        }
        let [a, b, c, d] = block.map(u32::from_le);
        crc = word(a ^ crc, 12) ^ word(b, 8) ^ word(c, 4) ^ word(d, 0);
        src = src.wrapping_add(STEP);
        len -= STEP;
    }
    while len >= 4 {
        // SAFETY: `len` bytes are readable at `src`, at least 4 of them.
        let block: u32 = unsafe { src.cast::<u32>().read_unaligned() };
        if COPY {
            // SAFETY: `len` bytes are writable at `dst`, at least 4 of them.
            unsafe { dst.cast::<u32>().write_unaligned(block) };
            dst = dst.wrapping_add(4);
        }
        crc = word(u32::from_le(block) ^ crc, 0);
        src = src.wrapping_add(4);
        len -= 4;
    }
    while len > 0 {
        // SAFETY: `len` bytes are readable at `src`, at least one.
        let byte: u8 = unsafe { src.read() };
        if COPY {
            // SAFETY: `len` bytes are writable at `dst`, at least one.
            unsafe { dst.write(byte) };
            dst = dst.wrapping_add(1);
        }
        crc = (crc >> 8) ^ TABLES[0][usize::from(byte ^ crc as u8)];
        src = src.wrapping_add(1);
        len -= 1;
    }
    crc
}
