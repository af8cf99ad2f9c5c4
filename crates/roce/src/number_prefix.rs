// SPDX-License-Identifier: MIT OR Apache-2.0

//! The upper bits of an engine's numbers, by which engines at one address are distinguished.

use roce_wire::Qpn;
use roce_wire::cm::CommId;

/// The upper bits of the queue pair numbers and the communication IDs of an engine.
///
/// Engines that share an address, as those of several processes do, get different prefixes of the same length. A frame is for
/// the engine whose prefix its destination queue pair number has; a message of connection management, for that whose prefix its
/// remote communication ID has. A message without one, a REQ above all, is for the engine that listens on its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NumberPrefix {
    value: u8,
    /// Even, so that a Feistel network permutes the other bits.
    bits: u8,
}

impl NumberPrefix {
    /// No prefix: the engine has its addresses for itself.
    pub const NONE: Self = Self { value: 0, bits: 0 };
    /// Maximum length in bits.
    pub const MAX_BITS: u8 = 8;

    /// Returns the prefix of `bits` bits, an even number up to [`NumberPrefix::MAX_BITS`], that hold `value`; `None` if they cannot.
    #[must_use]
    pub const fn new(value: u8, bits: u8) -> Option<Self> {
        let is_valid = bits <= Self::MAX_BITS && bits.is_multiple_of(2) && value as u32 >> bits == 0;
        if is_valid { Some(Self { value, bits }) } else { None }
    }

    /// Returns the length in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits as u32
    }

    /// Returns whether a queue pair number has this prefix.
    #[must_use]
    pub const fn is_of_qpn(self, qpn: Qpn) -> bool {
        qpn.value() >> (24 - self.bits()) == self.value as u32
    }

    /// Returns whether a communication ID has this prefix.
    #[must_use]
    pub const fn is_of_comm_id(self, id: CommId) -> bool {
        // In 64 bits: a shift by 32 is none in 32.
        id.0 as u64 >> (32 - self.bits()) == self.value as u64
    }

    /// Returns the number of `width` bits whose bits after the prefix are `rest`.
    pub(crate) const fn before(self, rest: u32, width: u32) -> u32 {
        let prefix = (self.value as u64) << width.saturating_sub(self.bits());
        prefix as u32 | rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_an_even_number_of_bits_that_hold_its_value() {
        for (value, bits, valid) in [
            (0, 0, true),
            (1, 0, false),
            (3, 2, true),
            (4, 2, false),
            (1, 3, false),
            (255, 8, true),
            (0, 10, false),
        ] {
            assert_eq!(NumberPrefix::new(value, bits).is_some(), valid, "{value} in {bits} bits");
        }
    }

    #[test]
    fn numbers_are_distinguished_by_their_upper_bits() {
        let prefix = NumberPrefix::new(0xA, 4).unwrap();
        assert_eq!(prefix.before(0x0_1234, 24), 0xA0_1234);
        assert_eq!(prefix.before(0x0123_4567, 32), 0xA123_4567);
        assert!(prefix.is_of_qpn(Qpn::new(0xAF_FFFF)) && !prefix.is_of_qpn(Qpn::new(0xB0_0000)));
        assert!(prefix.is_of_comm_id(CommId(0xA000_0000)) && !prefix.is_of_comm_id(CommId(0x9FFF_FFFF)));
        assert_eq!(NumberPrefix::NONE.before(u32::MAX, 32), u32::MAX);
        assert!(
            NumberPrefix::NONE.is_of_qpn(Qpn::new(0xFF_FFFF)) && NumberPrefix::NONE.is_of_comm_id(CommId(7))
        );
    }
}
