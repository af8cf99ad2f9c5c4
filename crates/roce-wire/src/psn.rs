// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packet sequence numbers: 24 bits, circular (IBTA Vol 1 §9.7).

use core::fmt;

use crate::value::newtypes;

/// A packet sequence number (PSN).
///
/// The numbers are circular: relative to a number, one half of the space is newer and the other half is older, see
/// [`Psn::distance_from`]. There is therefore no `Ord`.
///
/// Source: rocev2 §5.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00FF_FFFF;

    /// Returns the low 24 bits of `value`.
    #[must_use]
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns the number, below 2^24.
    #[must_use]
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the next number.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns the previous number.
    #[must_use]
    #[inline]
    pub const fn prev(self) -> Self {
        self.sub(1)
    }

    /// Returns the number `count` after this one, modulo 2^24.
    #[must_use]
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "adds a count, not a sequence number")]
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Returns the number `count` before this one, modulo 2^24.
    #[must_use]
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "subtracts a count, not a sequence number")]
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Returns how far this number is past `other`, in -2^23 .. 2^23; negative when it is older.
    #[must_use]
    #[inline]
    pub const fn distance_from(self, other: Self) -> i32 {
        //= rocev2 §5
        // Shifting the difference to the top of the word makes bit 23 the sign.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Returns whether this number is older than `other`.
    #[must_use]
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Returns whether this number is newer than `other`.
    #[must_use]
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

newtypes! {
    Psn: u32, Psn::new, Psn::value;
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §5
    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(0x00FF_FFFF).next(), Psn::new(0));
        assert_eq!(Psn::new(0).prev(), Psn::new(0x00FF_FFFF));
        assert_eq!(Psn::new(0x1234_5678), Psn::new(0x0034_5678));
    }

    //= rocev2 §5
    #[test]
    fn order_survives_the_wrap() {
        let (old, new) = (Psn::new(0x00FF_FFFC), Psn::new(3));
        assert_eq!(new.distance_from(old), 7);
        assert_eq!(old.distance_from(new), -7);
        assert!(old.is_before(new) && new.is_after(old));
        assert!(!old.is_before(old) && !old.is_after(old));
    }

    //= rocev2 §5
    #[test]
    fn half_of_the_space_is_new_and_half_is_old() {
        let zero = Psn::new(0);
        assert_eq!(Psn::new(0x007F_FFFF).distance_from(zero), 0x007F_FFFF);
        assert_eq!(Psn::new(0x0080_0000).distance_from(zero), -0x0080_0000);
    }

    proptest::proptest! {
        #[test]
        fn distance_undoes_add(start: u32, count in -0x0080_0000i32..0x0080_0000) {
            let start = Psn::new(start);
            proptest::prop_assert_eq!(start.add(count.cast_unsigned()).distance_from(start), count);
        }
    }
}
