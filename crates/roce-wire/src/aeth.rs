// SPDX-License-Identifier: MIT OR Apache-2.0

//! ACK extended transport header (IBTA Vol 1 §9.3) and its syndromes (§9.7.5).

use core::fmt;

use crate::{
    layout::layout,
    place::{Be24, Byte},
    value::newtypes,
};

//= rocev2 §3
layout! {
    /// An ACK extended transport header (AETH).
    Aeth, AethRepr, 4 bytes {
        syndrome: Syndrome = Byte<0>;
        /// Message sequence number: messages that the responder has completed, modulo 2^24.
        msn: u32 = Be24<1>;
    }
}

newtypes! {
    Syndrome: u8, Syndrome, |syndrome: Syndrome| syndrome.0;
}

/// The syndrome of an AETH: bits 6-5 are its kind, bits 4-0 the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Syndrome(pub u8);

/// A [`Syndrome`], decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyndromeKind {
    /// An acknowledgement, with the credit code; 31 when credits are not used.
    Ack(u8),
    /// No receive was posted (receiver not ready), with the timer code, see [`crate::rnr_timer`].
    RnrNak(u8),
    /// The request was refused.
    Nak(NakCode),
    /// A value that the specification reserves.
    Reserved,
}

/// The reason of a NAK.
///
/// Source: rocev2 §8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NakCode(pub u8);

impl NakCode {
    pub const PSN_SEQUENCE: Self = Self(0);
    pub const INVALID_REQUEST: Self = Self(1);
    pub const REMOTE_ACCESS: Self = Self(2);
    pub const REMOTE_OPERATIONAL: Self = Self(3);
    pub const INVALID_RD_REQUEST: Self = Self(4);
}

impl fmt::Debug for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::PSN_SEQUENCE => "PSN sequence error",
            Self::INVALID_REQUEST => "invalid request",
            Self::REMOTE_ACCESS => "remote access error",
            Self::REMOTE_OPERATIONAL => "remote operational error",
            Self::INVALID_RD_REQUEST => "invalid RD request",
            Self(code) => return write!(f, "NAK code {code}"),
        })
    }
}

impl Syndrome {
    /// An acknowledgement without end-to-end credits.
    pub const ACK: Self = Self(0x1F);

    /// Returns an RNR NAK with the low 5 bits of `timer` as its timer code.
    #[must_use]
    #[inline]
    pub const fn rnr_nak(timer: u8) -> Self {
        Self(0x20 | timer & 0x1F)
    }

    /// Returns a NAK with this code.
    #[must_use]
    #[inline]
    pub const fn nak(code: NakCode) -> Self {
        Self(0x60 | code.0 & 0x1F)
    }

    /// Decodes the syndrome.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> SyndromeKind {
        //= rocev2 §8
        let value = self.0 & 0x1F;
        match self.0 >> 5 {
            0 => SyndromeKind::Ack(value),
            1 => SyndromeKind::RnrNak(value),
            3 => SyndromeKind::Nak(NakCode(value)),
            _ => SyndromeKind::Reserved,
        }
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            SyndromeKind::Ack(31) => f.write_str("ACK"),
            SyndromeKind::Ack(code) => write!(f, "ACK, credit code {code}"),
            SyndromeKind::RnrNak(code) => write!(f, "RNR NAK, timer {code}"),
            SyndromeKind::Nak(code) => write!(f, "NAK, {code:?}"),
            SyndromeKind::Reserved => write!(f, "syndrome {:#04x}", self.0),
        }
    }
}

/// Returns the number of messages that a credit code encodes; `None` for 31, which means that credits are not used.
///
/// Source: rocev2 §8.
#[must_use]
pub const fn credits(code: u8) -> Option<u32> {
    // 0, 1, 2, 3, then alternately times 3/2 and 4/3: 4, 6, 8, 12, 16, 24 ...
    match code & 0x1F {
        31 => None,
        code @ 0..=3 => Some(code as u32),
        code if code.is_multiple_of(2) => Some(1 << (code / 2)),
        code => Some(3 << (code / 2 - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §8
    #[test]
    fn syndromes_decode_by_their_upper_bits() {
        assert_eq!(Syndrome::ACK.kind(), SyndromeKind::Ack(31));
        assert_eq!(Syndrome(0x60).kind(), SyndromeKind::Nak(NakCode::PSN_SEQUENCE));
        assert_eq!(Syndrome::nak(NakCode::REMOTE_ACCESS), Syndrome(0x62));
        assert_eq!(Syndrome::rnr_nak(12).kind(), SyndromeKind::RnrNak(12));
        assert_eq!(Syndrome(0x40).kind(), SyndromeKind::Reserved);
        assert_eq!(Syndrome(0x9F).kind(), SyndromeKind::Reserved);
    }

    //= rocev2 §8
    #[test]
    fn credit_codes_alternate_between_powers_of_two_and_three_halves_of_them() {
        let expected = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, expected) in (0..).zip(expected) {
            assert_eq!(credits(code), Some(expected), "code {code}");
        }
        assert_eq!(credits(31), None);
    }
}
