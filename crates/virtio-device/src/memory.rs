// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory as a device sees it.

use std::sync::Arc;

use vm_memory::{GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

/// Memory as a device sees it, by the addresses that its driver writes to the device.
pub trait DeviceMemory {
    /// The whole memory of the machine.
    type Whole: GuestMemory;

    /// Returns the whole memory. An address taken from the driver is checked first, with [`is_mapped`](Self::is_mapped).
    fn whole(&self) -> &Self::Whole;

    /// Returns whether the device may access all of `address..address + len`.
    fn is_mapped(&self, address: u64, len: u64) -> bool;
}

/// The memory of a machine without DMA remapping: the device may access all of it.
impl DeviceMemory for GuestMemoryMmap {
    type Whole = Self;

    fn whole(&self) -> &Self {
        self
    }

    fn is_mapped(&self, address: u64, len: u64) -> bool {
        usize::try_from(len)
            .is_ok_and(|len| self.check_range(GuestAddress(address), len, Permissions::ReadWrite))
    }
}

impl<M: DeviceMemory> DeviceMemory for Arc<M> {
    type Whole = M::Whole;

    fn whole(&self) -> &M::Whole {
        (**self).whole()
    }

    fn is_mapped(&self, address: u64, len: u64) -> bool {
        (**self).is_mapped(address, len)
    }
}
