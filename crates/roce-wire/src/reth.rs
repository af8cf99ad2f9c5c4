//! RDMA extended transport header.

use super::{Truncated, field};

mod at {
    pub const ADDRESS: usize = 0;
    pub const R_KEY: usize = 8;
    pub const LENGTH: usize = 12;
}

/// Which memory of the responder a READ or WRITE is about.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct Reth<'a>(&'a [u8; Reth::LEN]);

impl<'a> Reth<'a> {
    pub const LEN: usize = 16;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn address(&self) -> u64 {
        field::be64::<{ at::ADDRESS }, _>(self.0)
    }

    #[inline]
    pub fn r_key(&self) -> u32 {
        field::be32::<{ at::R_KEY }, _>(self.0)
    }

    /// Bytes of the whole message; the peer may claim more than the 2^31 that are allowed.
    #[inline]
    pub fn length(&self) -> u32 {
        field::be32::<{ at::LENGTH }, _>(self.0)
    }
}

/// Summary of a RETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RethRepr {
    pub address: u64,
    pub r_key: u32,
    /// Bytes of the whole message, up to 2^31.
    pub length: u32,
}

impl RethRepr {
    #[inline]
    pub fn parse(view: &Reth<'_>) -> Self {
        Self { address: view.address(), r_key: view.r_key(), length: view.length() }
    }

    #[inline]
    pub fn emit(&self, header: &mut [u8; Reth::LEN]) {
        field::put64::<{ at::ADDRESS }, _>(header, self.address);
        field::put32::<{ at::R_KEY }, _>(header, self.r_key);
        field::put32::<{ at::LENGTH }, _>(header, self.length);
    }
}
