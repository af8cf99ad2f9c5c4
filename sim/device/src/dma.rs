// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's view of memory: the host's memory at logical addresses, and only what was mapped for the device.

use std::{fs::File, io, iter::FusedIterator, option};

use parking_lot::RwLock;
use virtio_device::{DeviceMemory, Violation};
use vm_memory::{
    Bytes as _, FileOffset, GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, MmapRegion,
    Permissions, VolatileMemory as _, VolatileSlice, guest_memory::GuestMemorySliceIterator,
};

use crate::registers::Misuse;

/// Memory as the device sees it, by logical address: the address that the host's DMA remapping gives a page, or without remapping its
/// physical address.
///
/// The memory file of the host is at one logical address: at [`DmaSpace::REMAPPED`] or at [`DmaSpace::PHYSICAL`]. The device reaches
/// only what is mapped.
pub struct DmaSpace {
    memory: FlatMemory,
    /// Mapped ranges that do not overlap, in ascending order: start, and end (exclusive).
    ranges: RwLock<Vec<(u64, u64)>>,
}

/// The memory file of a host, at one range of logical addresses. rust-vmm's memory of several regions looks for the region at
/// each access, which takes longer than the accesses of a device to its rings.
pub struct FlatMemory {
    region: MmapRegion,
    first: u64,
}

/// The one slice of an access.
pub(crate) struct Slice<'a>(option::IntoIter<Result<VolatileSlice<'a>, GuestMemoryError>>);

impl FlatMemory {
    #[inline]
    fn slice(&self, address: u64, len: usize) -> Result<VolatileSlice<'_>, GuestMemoryError> {
        let offset = address.checked_sub(self.first).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.ok_or(GuestMemoryError::InvalidGuestAddress(GuestAddress(address)))?;
        Ok(self.region.get_slice(offset, len)?)
    }
}

impl GuestMemory for FlatMemory {
    type PhysicalMemory = GuestMemoryMmap;
    type Bitmap = ();

    fn check_range(&self, address: GuestAddress, count: usize, _: Permissions) -> bool {
        self.slice(address.0, count).is_ok()
    }

    #[inline]
    fn get_slices(
        &self,
        address: GuestAddress,
        count: usize,
        _: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'_, ()>, GuestMemoryError> {
        let slice = (count > 0).then(|| self.slice(address.0, count));
        Ok(Slice(slice.into_iter()))
    }
}

impl<'a> Iterator for Slice<'a> {
    type Item = Result<VolatileSlice<'a>, GuestMemoryError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl FusedIterator for Slice<'_> {}

impl<'a> GuestMemorySliceIterator<'a, ()> for Slice<'a> {}

impl DmaSpace {
    /// The logical address of the first byte of the host's memory file with DMA remapping: above all physical addresses.
    pub const REMAPPED: u64 = 1 << 40;
    /// Likewise without: memory above 4 GiB has its physical address.
    pub const PHYSICAL: u64 = 64 << 30;

    /// Maps the memory in `file` at the logical address `first`. No range is mapped for the device yet.
    ///
    /// # Errors
    /// When the file cannot be mapped.
    pub fn at(first: u64, file: File, size: usize) -> io::Result<Self> {
        let region = MmapRegion::from_file(FileOffset::new(file, 0), size).map_err(io::Error::other)?;
        if first.checked_add(size as u64).is_none() {
            return Err(io::Error::other("the memory does not fit the address space"));
        }
        Ok(Self { memory: FlatMemory { region, first }, ranges: RwLock::default() })
    }

    /// Returns the logical address of an offset in the host's memory file.
    #[must_use]
    pub const fn logical(&self, offset: usize) -> u64 {
        self.memory.first + offset as u64
    }

    /// Returns whether logical addresses differ from physical ones.
    #[must_use]
    pub const fn is_remapped(&self) -> bool {
        self.memory.first != Self::PHYSICAL
    }

    /// Maps `len` bytes at the logical address `address` for the device.
    pub fn map(&self, address: u64, len: u64) {
        let range = (address, address.saturating_add(len));
        let mut ranges = self.ranges.write();
        match ranges.binary_search_by_key(&address, |range| range.0) {
            Ok(index) => ranges[index] = range,
            Err(index) => ranges.insert(index, range),
        }
    }

    /// Unmaps the range that [`DmaSpace::map`] mapped at `address`.
    pub fn unmap(&self, address: u64) {
        self.ranges.write().retain(|range| range.0 != address);
    }

    /// Returns whether one mapped range contains all of `address..address + len`.
    #[must_use]
    pub fn is_mapped(&self, address: u64, len: u64) -> bool {
        let Some(end) = address.checked_add(len) else { return false };
        let ranges = self.ranges.read();
        let behind = ranges.partition_point(|&(start, _)| start <= address);
        behind.checked_sub(1).is_some_and(|index| end <= ranges[index].1)
    }

    /// # Errors
    /// [`Misuse`] when not all of the range is mapped; `what` names the range.
    pub(crate) fn check(&self, address: u64, len: u64, what: &str) -> Result<(), Misuse> {
        if self.is_mapped(address, len) {
            return Ok(());
        }
        Err(Violation::unmapped(what, address, len).into())
    }

    /// Appends `len` bytes at `address` to `into`.
    pub(crate) fn read(&self, address: u64, len: u32, into: &mut Vec<u8>) -> Result<(), Misuse> {
        self.check(address, len.into(), "a buffer")?;
        let slice = self.memory.slice(address, len as usize);
        let read = slice.and_then(|slice| Ok(slice.write_all_volatile_to(0, into, len as usize)?));
        read.map_err(|error| Misuse::dma(format!("a buffer at {address:#x}: {error}")))
    }

    /// Reads all of `into` from `address`.
    pub(crate) fn fill(&self, into: &mut [u8], address: u64) -> Result<(), Misuse> {
        self.check(address, into.len() as u64, "a buffer")?;
        let read = self.memory.slice(address, into.len()).map(|slice| slice.copy_to(into));
        read.map(drop).map_err(|error| Misuse::dma(format!("a buffer at {address:#x}: {error}")))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Misuse> {
        self.write_parts(address, [bytes, &[]])
    }

    /// Writes `parts`, one after the other.
    pub(crate) fn write_parts(&self, address: u64, parts: [&[u8]; 2]) -> Result<(), Misuse> {
        let [first, second] = parts;
        let len = first.len() + second.len();
        self.check(address, len as u64, "a buffer")?;
        let written = self.memory.slice(address, len).and_then(|slice| {
            slice.copy_from(first);
            slice.offset(first.len())?.copy_from(second);
            Ok(())
        });
        written.map_err(|error| Misuse::dma(format!("a buffer at {address:#x}: {error}")))
    }
}

impl DeviceMemory for DmaSpace {
    type Whole = FlatMemory;

    fn whole(&self) -> &FlatMemory {
        &self.memory
    }

    fn is_mapped(&self, address: u64, len: u64) -> bool {
        self.is_mapped(address, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_reaches_mapped_ranges_only() {
        let region = MmapRegion::new(0x2000).unwrap();
        let memory = FlatMemory { region, first: DmaSpace::REMAPPED };
        let memory = DmaSpace { memory, ranges: RwLock::default() };
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
