//! Immediate data.

use super::{Truncated, field};

/// Four bytes that a SEND or WRITE hands to the peer's receive completion.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct ImmDt<'a>(&'a [u8; ImmDt::LEN]);

impl<'a> ImmDt<'a> {
    pub const LEN: usize = 4;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    /// Opaque: in the order of the wire.
    #[inline]
    pub fn data(&self) -> [u8; 4] {
        *self.0
    }
}

/// Summary of immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDtRepr {
    pub data: [u8; 4],
}

impl ImmDtRepr {
    pub fn parse(view: &ImmDt<'_>) -> Self {
        Self { data: view.data() }
    }

    pub fn emit(&self, header: &mut [u8; ImmDt::LEN]) {
        *header = self.data;
    }
}
