// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's view of memory: the host's memory at logical addresses, and only what was mapped for the device.

use std::{collections::BTreeMap, fs::File, io};

use parking_lot::RwLock;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::registers::Misuse;

/// Memory as the device sees it, by logical address: the address that the host's DMA remapping gives a page, which is
/// not its physical address.
///
/// The memory file of the host is at one logical address, [`DmaSpace::FIRST`] unless the device demands another. The device
/// reaches only what is mapped.
pub struct DmaSpace {
    memory: GuestMemoryMmap,
    first: u64,
    /// Mapped ranges that do not overlap: start, and end (exclusive).
    ranges: RwLock<BTreeMap<u64, u64>>,
}

impl DmaSpace {
    /// The logical address of the first byte of the host's memory file: above all physical addresses.
    pub const FIRST: u64 = 1 << 40;

    /// Maps the memory in `file` at the logical address [`DmaSpace::FIRST`]. No range is mapped for the device yet.
    ///
    /// # Errors
    /// When the file cannot be mapped.
    pub fn new(file: File, size: usize) -> io::Result<Self> {
        Self::at(Self::FIRST, file, size)
    }

    /// As [`DmaSpace::new`], at the logical address `first`.
    ///
    /// # Errors
    /// When the file cannot be mapped.
    pub fn at(first: u64, file: File, size: usize) -> io::Result<Self> {
        let region = MmapRegion::from_file(FileOffset::new(file, 0), size).map_err(io::Error::other)?;
        let region = GuestRegionMmap::new(region, GuestAddress(first))
            .ok_or_else(|| io::Error::other("the memory does not fit the address space"))?;
        let memory = GuestMemoryMmap::from_regions(vec![region]).map_err(io::Error::other)?;
        Ok(Self { memory, first, ranges: RwLock::default() })
    }

    /// Returns the logical address of an offset in the host's memory file.
    #[must_use]
    pub const fn logical(&self, offset: usize) -> u64 {
        self.first + offset as u64
    }

    /// Maps `len` bytes at the logical address `address` for the device.
    pub fn map(&self, address: u64, len: u64) {
        self.ranges.write().insert(address, address.saturating_add(len));
    }

    /// Unmaps the range that [`DmaSpace::map`] mapped at `address`.
    pub fn unmap(&self, address: u64) {
        self.ranges.write().remove(&address);
    }

    /// Returns whether one mapped range contains all of `address..address + len`.
    #[must_use]
    pub fn is_mapped(&self, address: u64, len: u64) -> bool {
        let Some(end) = address.checked_add(len) else { return false };
        let ranges = self.ranges.read();
        ranges.range(..=address).next_back().is_some_and(|(_, &limit)| end <= limit)
    }

    /// # Errors
    /// [`Misuse`] when not all of the range is mapped; `what` names the range.
    pub(crate) fn check(&self, address: u64, len: u64, what: &str) -> Result<(), Misuse> {
        if self.is_mapped(address, len) {
            return Ok(());
        }
        Err(Misuse::dma(format!("{what} at {address:#x}, {len} bytes: not mapped for the device")))
    }

    /// The whole memory. Addresses taken from the driver are [checked](Self::check) first.
    pub(crate) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Appends `len` bytes at `address` to `into`.
    pub(crate) fn read(&self, address: u64, len: u32, into: &mut Vec<u8>) -> Result<(), Misuse> {
        self.check(address, len.into(), "a buffer")?;
        let read = self.memory.write_all_volatile_to(GuestAddress(address), into, len as usize);
        read.map_err(|error| Misuse::dma(format!("a buffer at {address:#x}: {error}")))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Misuse> {
        self.check(address, bytes.len() as u64, "a buffer")?;
        let written = self.memory.write_slice(bytes, GuestAddress(address));
        written.map_err(|error| Misuse::dma(format!("a buffer at {address:#x}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_reaches_mapped_ranges_only() {
        let memory =
            DmaSpace { memory: GuestMemoryMmap::new(), first: DmaSpace::FIRST, ranges: RwLock::default() };
        memory.map(0x1000, 0x100);
        memory.map(0x1100, 0x100);
        assert!(memory.is_mapped(0x1000, 0x100));
        assert!(memory.is_mapped(0x10ff, 1));
        assert!(!memory.is_mapped(0x0fff, 1));
        assert!(!memory.is_mapped(0x1080, 0x100), "a range across two mappings");
        assert!(!memory.is_mapped(u64::MAX, 2));
        memory.unmap(0x1100);
        assert!(!memory.is_mapped(0x1100, 1));
    }
}
