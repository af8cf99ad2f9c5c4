//! Invalidate extended transport header.

use super::{Truncated, field};

mod at {
    pub const R_KEY: usize = 0;
}

/// The key that a SEND with Invalidate takes back.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct Ieth<'a>(&'a [u8; Ieth::LEN]);

impl<'a> Ieth<'a> {
    pub const LEN: usize = 4;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn r_key(&self) -> u32 {
        field::be32::<{ at::R_KEY }, _>(self.0)
    }
}

/// Summary of an IETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IethRepr {
    pub r_key: u32,
}

impl IethRepr {
    pub fn parse(view: &Ieth<'_>) -> Self {
        Self { r_key: view.r_key() }
    }

    pub fn emit(&self, header: &mut [u8; Ieth::LEN]) {
        field::put32::<{ at::R_KEY }, _>(header, self.r_key);
    }
}
