//! Headers of atomic operations.

use super::{Truncated, field};

mod at {
    pub const ADDRESS: usize = 0;
    pub const R_KEY: usize = 8;
    pub const SWAP_OR_ADD: usize = 12;
    pub const COMPARE: usize = 20;
    // Of AtomicAckETH.
    pub const ORIGINAL: usize = 0;
}

/// The request of an atomic operation.
///
/// Source: rocev2 §3.
#[derive(Clone, Copy, Debug)]
pub struct AtomicEth<'a>(&'a [u8; AtomicEth::LEN]);

impl<'a> AtomicEth<'a> {
    pub const LEN: usize = 28;

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

    /// The value to store (`CmpSwap`) or to add (`FetchAdd`).
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        field::be64::<{ at::SWAP_OR_ADD }, _>(self.0)
    }

    /// The value to compare with (`CmpSwap`).
    #[inline]
    pub fn compare(&self) -> u64 {
        field::be64::<{ at::COMPARE }, _>(self.0)
    }
}

/// Summary of an AtomicETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEthRepr {
    pub address: u64,
    pub r_key: u32,
    pub swap_or_add: u64,
    pub compare: u64,
}

impl AtomicEthRepr {
    pub fn parse(view: &AtomicEth<'_>) -> Self {
        Self {
            address: view.address(),
            r_key: view.r_key(),
            swap_or_add: view.swap_or_add(),
            compare: view.compare(),
        }
    }

    pub fn emit(&self, header: &mut [u8; AtomicEth::LEN]) {
        field::put64::<{ at::ADDRESS }, _>(header, self.address);
        field::put32::<{ at::R_KEY }, _>(header, self.r_key);
        field::put64::<{ at::SWAP_OR_ADD }, _>(header, self.swap_or_add);
        field::put64::<{ at::COMPARE }, _>(header, self.compare);
    }
}

/// The answer of an atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct AtomicAckEth<'a>(&'a [u8; AtomicAckEth::LEN]);

impl<'a> AtomicAckEth<'a> {
    pub const LEN: usize = 8;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    /// What the memory held before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        field::be64::<{ at::ORIGINAL }, _>(self.0)
    }
}

/// Summary of an AtomicAckETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEthRepr {
    pub original: u64,
}

impl AtomicAckEthRepr {
    pub fn parse(view: &AtomicAckEth<'_>) -> Self {
        Self { original: view.original() }
    }

    pub fn emit(&self, header: &mut [u8; AtomicAckEth::LEN]) {
        field::put64::<{ at::ORIGINAL }, _>(header, self.original);
    }
}
