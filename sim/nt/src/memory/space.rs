// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel addresses: a reserved range in which pages are mapped.

use std::{io, os::fd::AsRawFd, ptr};

use parking_lot::Mutex;

use super::{
    addresses,
    page_table::PageTable,
    physical::{PAGE_SIZE, Pfn, Physical},
    ranges::Ranges,
};

/// Pages of a host's address range: 16 GiB.
pub(super) const PAGES: usize = (16 << 30) / PAGE_SIZE;

/// Access that a mapping allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    ReadWrite,
    ReadOnly,
}

/// The address range and its page table.
pub struct Space {
    base: usize,
    free: Mutex<Ranges>,
    table: PageTable,
}

impl Space {
    /// Reserves the range that starts at `base`.
    ///
    /// # Errors
    /// When the system refuses the mapping.
    pub fn new(base: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        addresses::map(base, PAGES * PAGE_SIZE, libc::PROT_NONE, flags, None)?;
        Ok(Self { base, free: Mutex::new(Ranges::new(0, PAGES as u64)), table: PageTable::new(PAGES) })
    }

    /// Reserves `pages` pages of addresses without access; returns the first address.
    #[must_use]
    pub fn reserve(&self, pages: usize) -> Option<usize> {
        let first = self.free.lock().allocate(pages as u64, 1, u64::MAX)?;
        Some(self.base + usize::try_from(first).ok()? * PAGE_SIZE)
    }

    /// Releases reserved addresses, at which nothing may be mapped.
    pub fn release(&self, address: usize, pages: usize) {
        self.free.lock().free(((address - self.base) / PAGE_SIZE) as u64, pages as u64);
    }

    /// Maps pages at new addresses, behind `before` pages without access and before `behind` of them. Returns the address of the
    /// first page; `None` when addresses or mappings are exhausted.
    #[must_use]
    pub fn map_new(
        &self,
        physical: &Physical,
        pages: &[Pfn],
        protection: Protection,
        before: usize,
        behind: usize,
    ) -> Option<usize> {
        let all = before + pages.len() + behind;
        let start = self.reserve(all)?;
        let address = start + before * PAGE_SIZE;
        if self.map(physical, address, pages, protection).is_err() {
            self.unmap(address, pages.len());
            self.release(start, all);
            return None;
        }
        Some(address)
    }

    /// Maps pages at reserved addresses. Some of them are mapped after an error.
    ///
    /// # Errors
    /// When the system refuses another mapping: it limits their number.
    fn map(
        &self,
        physical: &Physical,
        address: usize,
        pages: &[Pfn],
        protection: Protection,
    ) -> io::Result<()> {
        let protection = match protection {
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Protection::ReadOnly => libc::PROT_READ,
        };
        let mut at = address;
        // One mapping per run of contiguous pages.
        for run in pages.chunk_by(|a, b| a.0 + 1 == b.0) {
            let offset =
                physical.offset(run[0].address()).ok_or_else(|| io::Error::other("not a page of memory"))?;
            let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            let length = run.len() * PAGE_SIZE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let target = ptr::with_exposed_provenance_mut(at);
            // SAFETY: replaces part of the reservation that the caller owns.
            let mapped =
                unsafe { libc::mmap(target, length, protection, flags, physical.file().as_raw_fd(), offset) };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            at += length;
        }
        if protection & libc::PROT_WRITE != 0 {
            addresses::populate(address, pages.len() * PAGE_SIZE);
        }
        let first = (address - self.base) / PAGE_SIZE;
        for (page, &pfn) in (first..).zip(pages) {
            self.table.set(page, Some(pfn));
        }
        Ok(())
    }

    /// Unmaps addresses; they stay reserved.
    pub fn unmap(&self, address: usize, pages: usize) {
        if pages == 0 {
            return;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let target = ptr::with_exposed_provenance_mut(address);
        // SAFETY: replaces part of the reservation that the caller owns.
        unsafe { libc::mmap(target, pages * PAGE_SIZE, libc::PROT_NONE, flags, -1, 0) };
        let first = (address - self.base) / PAGE_SIZE;
        for page in first..first + pages {
            self.table.set(page, None);
        }
    }

    /// Returns whether an address is in the range, mapped or not.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        (self.base..self.base + PAGES * PAGE_SIZE).contains(&address)
    }

    /// Returns the page mapped at an address.
    #[must_use]
    pub fn pfn(&self, address: usize) -> Option<Pfn> {
        self.table.get(address.checked_sub(self.base)? / PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::addresses::Addresses, *};

    #[test]
    fn a_mapping_that_fails_leaves_no_address_and_no_page() {
        let addresses = Addresses::take(false);
        let physical = Physical::new(1 << 20, addresses.direct(), fastrand::Rng::with_seed(1)).unwrap();
        let space = Space::new(addresses.space()).unwrap();
        let page = physical.allocate(1, 1, u64::MAX).unwrap();
        let beyond = Pfn(physical.allocate(1, 1, u64::MAX).unwrap().0 + (1 << 30));
        assert_eq!(space.map_new(&physical, &[page, beyond], Protection::ReadWrite, 3, 2), None);
        let first = ptr::with_exposed_provenance(addresses.space() + 3 * PAGE_SIZE);
        // SAFETY: the system checks the address that it copies from.
        let copied = unsafe { libc::pwrite(physical.file().as_raw_fd(), first, 1, 0) };
        assert_eq!(copied, -1, "the page before is still mapped");
        // All addresses are free.
        let start = space.reserve(PAGES).unwrap();
        assert_eq!(space.reserve(1), None);
        space.release(start, PAGES);
        let address = space.map_new(&physical, &[page], Protection::ReadWrite, 3, 2).unwrap();
        assert_eq!(address, addresses.space() + 3 * PAGE_SIZE);
        assert_eq!(space.reserve(1), Some(address + 3 * PAGE_SIZE));
    }
}
