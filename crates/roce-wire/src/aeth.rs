//! ACK extended transport header.

use core::fmt;

use super::{Truncated, field};

mod at {
    pub const SYNDROME: usize = 0;
    pub const MSN: usize = 1;
}

/// How a responder answered.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct Aeth<'a>(&'a [u8; Aeth::LEN]);

impl<'a> Aeth<'a> {
    pub const LEN: usize = 4;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome(self.0[at::SYNDROME])
    }

    /// Messages that the responder has completed, modulo 2^24.
    #[inline]
    pub fn msn(&self) -> u32 {
        field::be24::<{ at::MSN }, _>(self.0)
    }
}

/// Summary of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AethRepr {
    pub syndrome: Syndrome,
    /// 24 bits.
    pub msn: u32,
}

impl AethRepr {
    #[inline]
    pub fn parse(view: &Aeth<'_>) -> Self {
        Self { syndrome: view.syndrome(), msn: view.msn() }
    }

    #[inline]
    pub fn emit(&self, header: &mut [u8; Aeth::LEN]) {
        header[at::SYNDROME] = self.syndrome.0;
        field::put24::<{ at::MSN }, _>(header, self.msn);
    }
}

/// The syndrome of an AETH: bits 6-5 are its kind, bits 4-0 the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Syndrome(pub u8);

/// What a [`Syndrome`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyndromeKind {
    /// Acknowledged. The credit code, 31 when credits are not used.
    Ack(u8),
    /// No receive was posted. The timer code, see [`super::rnr_timer`].
    RnrNak(u8),
    /// Refused.
    Nak(NakCode),
    /// A value that the specification reserves.
    Reserved,
}

/// Why a request was refused.
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

    /// An RNR NAK with this timer code (its low 5 bits).
    #[must_use]
    #[inline]
    pub const fn rnr_nak(timer: u8) -> Self {
        Self(0x20 | timer & 0x1F)
    }

    /// A NAK.
    #[must_use]
    #[inline]
    pub const fn nak(code: NakCode) -> Self {
        Self(0x60 | code.0 & 0x1F)
    }

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

/// Messages that a credit code stands for; `None` for 31, which means that credits are not used.
///
/// Source: rocev2 §8.
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
    fn syndromes_read_as_the_specification_has_them() {
        assert_eq!(Syndrome::ACK.kind(), SyndromeKind::Ack(31));
        assert_eq!(Syndrome(0x60).kind(), SyndromeKind::Nak(NakCode::PSN_SEQUENCE));
        assert_eq!(Syndrome::nak(NakCode::REMOTE_ACCESS), Syndrome(0x62));
        assert_eq!(Syndrome::rnr_nak(12).kind(), SyndromeKind::RnrNak(12));
        assert_eq!(Syndrome(0x40).kind(), SyndromeKind::Reserved);
        assert_eq!(Syndrome(0x9F).kind(), SyndromeKind::Reserved);
    }

    //= rocev2 §8
    #[test]
    fn credit_codes_count_in_steps_of_half_an_octave() {
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
