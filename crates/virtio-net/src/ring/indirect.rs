// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables of indirect descriptors. They describe the parts of a buffer that takes one descriptor of the ring. (virtio
//! §5, §6)

use super::{packed, split};
use crate::error::Error;
use crate::hal::{Dma, Hal};

/// A table of `N` parts, all of which are used.
#[derive(Debug)]
pub(crate) struct Table<H: Hal, const N: usize> {
    memory: Dma<H>,
    is_packed: bool,
}

impl<H: Hal, const N: usize> Table<H, N> {
    /// Length in bytes.
    pub(super) const LEN: u32 = (N * size_of::<split::Descriptor>()) as u32;

    /// Allocates a table for a packed or a split ring; its parts are not described yet.
    pub(super) fn new(hal: &H, is_packed: bool) -> Result<Self, Error> {
        Ok(Self { memory: Dma::new(hal, Self::LEN as usize)?, is_packed })
    }

    /// Returns the device's address of the table.
    pub(super) fn device_address(&self) -> u64 {
        self.memory.device_address(0)
    }

    /// Describes a part, which the device writes if it is `writable`, otherwise reads. The buffer is not outstanding.
    pub(crate) fn describe(&self, part: u16, address: u64, len: u32, writable: bool) {
        let (at, is_last) = (usize::from(part), usize::from(part).saturating_add(1) >= N);
        if self.is_packed {
            packed::describe_part(self.memory.view(0, N), at, address, len, writable);
        } else {
            split::describe_part(self.memory.view(0, N), at, address, len, writable, is_last);
        }
    }
}
