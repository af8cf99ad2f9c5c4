// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places: where a field lies in a fixed-size header.
//!
//! A place is a type. Its offset and its bits are const generics; that they lie inside the header is checked when the
//! [`layout!`](crate::layout) table is compiled. `get` and `put` therefore contain no check and cannot panic, and are
//! `const fn`. `put` leaves the other bits of the same bytes as they are. All integers are big-endian; the most
//! significant bit of a byte is bit 7, of two bytes bit 15, of three bytes bit 23.
//!
//! This is the only file of the crate that indexes into headers.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets are constants, checked against the header's length at compile time"
)]
#![allow(clippy::int_plus_one, reason = "one form for fields of any length")]
#![allow(dead_code, reason = "not every kind of place is used for a variant field")]

/// `LEN` bytes, uninterpreted.
pub(crate) struct Bytes<const AT: usize, const LEN: usize>;

impl<const AT: usize, const LEN: usize> Bytes<AT, LEN> {
    /// All bits of the field set.
    pub(crate) const ONES: [u8; LEN] = [0xFF; LEN];

    #[inline]
    pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> [u8; LEN] {
        const { assert!(AT + LEN <= N) };
        match b.split_at(AT).1.first_chunk() {
            Some(bytes) => *bytes,
            // Not reached, by the assertion. It saves a panic path.
            None => [0; LEN],
        }
    }

    #[inline]
    pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: [u8; LEN]) {
        const { assert!(AT + LEN <= N) };
        if let Some(bytes) = b.split_at_mut(AT).1.first_chunk_mut() {
            *bytes = raw;
        }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident, $raw:ty, $len:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<const AT: usize>;

        impl<const AT: usize> $name<AT> {
            #[inline]
            pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> $raw {
                <$raw>::from_be_bytes(Bytes::<AT, $len>::get(b))
            }

            #[inline]
            pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: $raw) {
                Bytes::<AT, $len>::put(b, raw.to_be_bytes());
            }
        }
    )*};
}

words! {
    /// A 32-bit integer.
    Be32, u32, 4;
    /// A 64-bit integer.
    Be64, u64, 8;
}

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident, $raw:ty, $len:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<const AT: usize, const HIGH: u32, const LOW: u32>;

        impl<const AT: usize, const HIGH: u32, const LOW: u32> $name<AT, HIGH, LOW> {
            /// All bits of the field set.
            pub(crate) const ONES: $raw = {
                assert!(HIGH < 8 * $len && LOW <= HIGH);
                (u32::MAX >> (31 - (HIGH - LOW))) as $raw
            };

            #[inline]
            pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> $raw {
                const { assert!(AT + $len <= N) };
                (read::<$len, N>(b, AT) >> LOW) as $raw & Self::ONES
            }

            #[inline]
            pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: $raw) {
                const { assert!(AT + $len <= N) };
                replace::<$len, N>(b, AT, (Self::ONES as u32) << LOW, (raw as u32) << LOW);
            }
        }
    )*};
}

bits! {
    /// Bits `HIGH` to `LOW` of a byte.
    Bits, u8, 1;
    /// Bits `HIGH` to `LOW` of two bytes.
    Bits16, u16, 2;
    /// Bits `HIGH` to `LOW` of three bytes.
    Bits24, u32, 3;
}

/// A whole byte.
pub(crate) type Byte<const AT: usize> = Bits<AT, 7, 0>;
/// A 16-bit integer.
pub(crate) type Be16<const AT: usize> = Bits16<AT, 15, 0>;
/// A 24-bit integer.
pub(crate) type Be24<const AT: usize> = Bits24<AT, 23, 0>;

/// One bit of a byte.
pub(crate) struct Flag<const AT: usize, const BIT: u32>;

impl<const AT: usize, const BIT: u32> Flag<AT, BIT> {
    /// All bits of the field set.
    pub(crate) const ONES: bool = true;

    #[inline]
    pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> bool {
        Bits::<AT, BIT, BIT>::get(b) != 0
    }

    #[inline]
    pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: bool) {
        Bits::<AT, BIT, BIT>::put(b, raw as u8);
    }
}

/// Eight bits across two bytes: the low half of the first and the high half of the second.
pub(crate) struct Straddling8<const AT: usize>;

impl<const AT: usize> Straddling8<AT> {
    /// All bits of the field set.
    pub(crate) const ONES: u8 = u8::MAX;

    #[inline]
    pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> u8 {
        Bits16::<AT, 11, 4>::get(b) as u8
    }

    #[inline]
    pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: u8) {
        Bits16::<AT, 11, 4>::put(b, raw as u16);
    }
}

/// A 24-bit integer in three separate bytes, the most significant first.
pub(crate) struct Split24<const HIGH: usize, const MIDDLE: usize, const LOW: usize>;

impl<const HIGH: usize, const MIDDLE: usize, const LOW: usize> Split24<HIGH, MIDDLE, LOW> {
    #[inline]
    pub(crate) const fn get<const N: usize>(b: &[u8; N]) -> u32 {
        u32::from_be_bytes([0, Byte::<HIGH>::get(b), Byte::<MIDDLE>::get(b), Byte::<LOW>::get(b)])
    }

    #[inline]
    pub(crate) const fn put<const N: usize>(b: &mut [u8; N], raw: u32) {
        let [_, high, middle, low] = raw.to_be_bytes();
        Byte::<HIGH>::put(b, high);
        Byte::<MIDDLE>::put(b, middle);
        Byte::<LOW>::put(b, low);
    }
}

/// Returns the `LEN` bytes at `at`, 1 to 3, as an integer. The callers have checked that they exist.
///
/// Three bytes are read as one access to their 32-bit word.
#[inline]
const fn read<const LEN: usize, const N: usize>(b: &[u8; N], at: usize) -> u32 {
    let (word_at, offset) = (at & !3, at & 3);
    if LEN == 3
        && offset + LEN <= 4
        && word_at + 4 <= N
        && let Some(word) = b.split_at(word_at).1.first_chunk()
    {
        return u32::from_be_bytes(*word) >> (8 * (4 - LEN - offset)) & 0x00FF_FFFF;
    }
    u32::from_be_bytes(match LEN {
        1 => [0, 0, 0, b[at]],
        2 => [0, 0, b[at], b[at + 1]],
        _ => [0, b[at], b[at + 1], b[at + 2]],
    })
}

/// Replaces the bits `ones` of the `LEN` bytes at `at`, 1 to 3, by those of `value`. The callers have checked that the
/// bytes exist.
///
/// All fields of a 32-bit word are written as one access to that word: when a whole header is written, the compiler then
/// composes each word in a register and stores it once.
#[inline]
const fn replace<const LEN: usize, const N: usize>(b: &mut [u8; N], at: usize, ones: u32, value: u32) {
    let (word_at, offset) = (at & !3, at & 3);
    if offset + LEN <= 4 && word_at + 4 <= N {
        let shift = 8 * (4 - LEN - offset);
        if let Some(word) = b.split_at_mut(word_at).1.first_chunk_mut() {
            *word = merge(u32::from_be_bytes(*word), ones << shift, value << shift).to_be_bytes();
        }
        return;
    }
    let bytes = merge(read::<LEN, N>(b, at), ones, value).to_be_bytes();
    match LEN {
        1 => [_, _, _, b[at]] = bytes,
        2 => [_, _, b[at], b[at + 1]] = bytes,
        _ => [_, b[at], b[at + 1], b[at + 2]] = bytes,
    }
}

/// Returns `old` with the bits `ones` replaced by those of `value`.
#[inline]
const fn merge(old: u32, ones: u32, value: u32) -> u32 {
    old & !ones | value & ones
}
