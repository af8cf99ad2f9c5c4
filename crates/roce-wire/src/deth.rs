//! Datagram extended transport header.

use super::{Qpn, Truncated, field};

mod at {
    pub const Q_KEY: usize = 0;
    pub const SOURCE_QP: usize = 5;
}

/// Who sent a datagram.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct Deth<'a>(&'a [u8; Deth::LEN]);

impl<'a> Deth<'a> {
    pub const LEN: usize = 8;
    /// The Q_Key of connection management.
    pub const Q_KEY_GSI: u32 = 0x8001_0000;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn q_key(&self) -> u32 {
        field::be32::<{ at::Q_KEY }, _>(self.0)
    }

    #[inline]
    pub fn source_qp(&self) -> Qpn {
        Qpn::new(field::be24::<{ at::SOURCE_QP }, _>(self.0))
    }
}

/// Summary of a DETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DethRepr {
    pub q_key: u32,
    pub source_qp: Qpn,
}

impl DethRepr {
    /// Of every CM message.
    pub const GSI: Self = Self { q_key: Deth::Q_KEY_GSI, source_qp: Qpn::GSI };

    pub fn parse(view: &Deth<'_>) -> Self {
        Self { q_key: view.q_key(), source_qp: view.source_qp() }
    }

    pub fn emit(&self, header: &mut [u8; Deth::LEN]) {
        field::put32::<{ at::Q_KEY }, _>(header, self.q_key);
        // The byte before the 24-bit number is reserved.
        field::put32::<{ at::SOURCE_QP - 1 }, _>(header, self.source_qp.value());
    }
}
