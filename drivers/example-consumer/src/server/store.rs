// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that clients write to and read from.

use driver_support::status::Result;
use fallible::Arc;
use ndk_abi::ndk::NDK_SGE;

use crate::ndk::{Adapter, Lam};
use crate::os::Buffer;

/// Memory with logical addresses, shared by all connections. Clients that use the same range at the same time get what
/// they asked for.
pub struct Store {
    // Declared before the buffer: the mapping is released before the memory is freed.
    lam: Lam,
    _buffer: Buffer,
}

impl Store {
    /// Allocates `length` bytes, at least 1, zeroed. `PASSIVE_LEVEL`.
    pub fn new(adapter: &Arc<Adapter>, length: usize) -> Result<Self> {
        let buffer = Buffer::new(length)?;
        // SAFETY: the buffer is nonpaged, and declared after the mapping.
        let lam = unsafe { Lam::new(adapter, buffer.mdl(), length) }?;
        Ok(Self { lam, _buffer: buffer })
    }

    pub fn length(&self) -> usize {
        self.lam.length()
    }

    /// Describes a range; see [`Lam::entries`].
    pub fn entries(
        &self,
        token: u32,
        offset: usize,
        length: usize,
        into: &mut [NDK_SGE],
    ) -> Result<(usize, usize)> {
        self.lam.entries(token, offset, length, into)
    }
}
