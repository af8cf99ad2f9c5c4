// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel addresses: a reserved range in which pages are mapped.

use std::{io, os::fd::AsRawFd, ptr, sync::Arc};

use parking_lot::Mutex;

use super::{
    addresses,
    left_mappings::{self, LeftMappings},
    page_table::PageTable,
    physical::{PAGE_SIZE, Pfn, Physical},
    ranges::Ranges,
};

/// Pages of a host's address range.
pub(super) const PAGES: usize = addresses::SPACE_SIZE / PAGE_SIZE;

/// Access that a mapping allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    ReadWrite,
    ReadOnly,
}

impl Protection {
    /// Returns the access as `mprotect` takes it.
    const fn bits(self) -> i32 {
        match self {
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Self::ReadOnly => libc::PROT_READ,
        }
    }
}

/// The address range and its page table.
pub struct Space {
    base: usize,
    /// Of the pages whose mappings may be left: none if they are not.
    small: Mutex<Ranges>,
    free: Mutex<Ranges>,
    table: PageTable,
    left: Option<Arc<LeftMappings>>,
}

impl Space {
    /// Reserves the range that starts at `base`. Nothing is left where addresses are unmapped.
    ///
    /// # Errors
    /// When the system refuses the mapping.
    pub fn new(base: usize) -> io::Result<Self> {
        Self::reserved(base, None)
    }

    /// Reserves the range like [`new`](Self::new). What is unmapped in a part of it is left without access, for a range of the same pages.
    ///
    /// # Errors
    /// Those of `new`.
    pub fn leaving(base: usize) -> io::Result<Self> {
        Self::reserved(base, Some(Arc::new(LeftMappings::new())))
    }

    fn reserved(base: usize, left: Option<Arc<LeftMappings>>) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        addresses::map(base, PAGES * PAGE_SIZE, libc::PROT_NONE, flags, None)?;
        Ok(Self::at(base, left))
    }

    /// Takes the reserved range that starts at `base`, with what is left in it, of the same physical memory.
    #[must_use]
    pub fn reused(base: usize, left: Arc<LeftMappings>) -> Self {
        Self::at(base, Some(left))
    }

    fn at(base: usize, left: Option<Arc<LeftMappings>>) -> Self {
        let end = if left.is_some() { left_mappings::PAGES as u64 } else { 0 };
        let [small, free] =
            [0..end, end..PAGES as u64].map(|range| Mutex::new(Ranges::new(range.start, range.end)));
        Self { base, small, free, table: PageTable::new(PAGES), left }
    }

    /// Removes access to all addresses, at the end of the range's use. Returns what is left, for [`reused`](Self::reused); `None` if
    /// that is nothing.
    #[must_use]
    pub fn leave_all(&self) -> Option<Arc<LeftMappings>> {
        let left = self.left.clone()?;
        let end = self.base + left_mappings::PAGES * PAGE_SIZE;
        let is_left = addresses::protect(self.base, end - self.base, libc::PROT_NONE)
            && replace_by_nothing(end, (PAGES - left_mappings::PAGES) * PAGE_SIZE);
        is_left.then_some(left)
    }

    /// Reserves `pages` pages of addresses without access; returns the first address.
    #[must_use]
    pub fn reserve(&self, pages: usize) -> Option<usize> {
        self.reserve_of(&self.free, pages)
    }

    /// Reserves addresses like [`reserve`](Self::reserve) at which mappings may be left, if there are some.
    #[must_use]
    pub fn reserve_small(&self, pages: usize) -> Option<usize> {
        self.reserve_of(&self.small, pages)
    }

    fn reserve_of(&self, ranges: &Mutex<Ranges>, pages: usize) -> Option<usize> {
        let first = ranges.lock().allocate(pages as u64, 1, u64::MAX)?;
        Some(self.base + usize::try_from(first).ok()? * PAGE_SIZE)
    }

    /// Releases reserved addresses, at which nothing may be mapped.
    pub fn release(&self, address: usize, pages: usize) {
        let ranges = if self.may_leave(address) { &self.small } else { &self.free };
        ranges.lock().free(self.page(address) as u64, pages as u64);
    }

    /// Returns whether what is mapped at an address may be left there.
    fn may_leave(&self, address: usize) -> bool {
        self.left.is_some() && self.page(address) < left_mappings::PAGES
    }

    /// Returns the number of the page of an address in the range.
    #[must_use]
    pub fn page(&self, address: usize) -> usize {
        (address - self.base) / PAGE_SIZE
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
        if !self.map(physical, address, pages, protection) {
            self.release(start, all);
            return None;
        }
        Some(address)
    }

    /// Maps pages at reserved addresses. Returns `false`, and maps nothing, when the system refuses another mapping: it limits their number.
    pub fn map(&self, physical: &Physical, address: usize, pages: &[Pfn], protection: Protection) -> bool {
        let is_mapped = self.take_left(address, pages, protection)
            || self.map_runs(physical, address, pages, protection).is_ok();
        if !is_mapped {
            self.remove(address, pages.len());
        }
        is_mapped
    }

    /// Gives access to the pages, if the system still maps them there.
    fn take_left(&self, address: usize, pages: &[Pfn], protection: Protection) -> bool {
        let first = self.page(address);
        if !self.left.as_ref().is_some_and(|left| left.has(first, pages)) {
            return false;
        }
        if !addresses::protect(address, pages.len() * PAGE_SIZE, protection.bits()) {
            return false;
        }
        for (page, &pfn) in (first..).zip(pages) {
            self.table.set(page, Some(pfn));
        }
        true
    }

    /// Maps each run of contiguous pages. Some of them are mapped after an error.
    fn map_runs(
        &self,
        physical: &Physical,
        address: usize,
        pages: &[Pfn],
        protection: Protection,
    ) -> io::Result<()> {
        let mut at = address;
        for run in pages.chunk_by(|a, b| a.0 + 1 == b.0) {
            let offset =
                physical.offset(run[0].address()).ok_or_else(|| io::Error::other("not a page of memory"))?;
            let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            let length = run.len() * PAGE_SIZE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let (target, fd) = (ptr::with_exposed_provenance_mut(at), physical.file().as_raw_fd());
            // SAFETY: replaces part of the reservation that the caller owns.
            let mapped = unsafe { libc::mmap(target, length, protection.bits(), flags, fd, offset) };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            for (page, &pfn) in (self.page(at)..).zip(run) {
                if let Some(left) = &self.left {
                    left.set(page, Some(pfn));
                }
                self.table.set(page, Some(pfn));
            }
            at += length;
        }
        if protection == Protection::ReadWrite {
            addresses::populate(address, pages.len() * PAGE_SIZE);
        }
        Ok(())
    }

    /// Unmaps addresses; they stay reserved.
    pub fn unmap(&self, address: usize, pages: usize) {
        if self.may_leave(address) && addresses::protect(address, pages * PAGE_SIZE, libc::PROT_NONE) {
            let first = self.page(address);
            (first..first + pages).for_each(|page| self.table.set(page, None));
        } else {
            self.remove(address, pages);
        }
    }

    /// Unmaps addresses, of which some may have been mapped, and leaves nothing there.
    fn remove(&self, address: usize, pages: usize) {
        if pages == 0 {
            return;
        }
        replace_by_nothing(address, pages * PAGE_SIZE);
        let first = self.page(address);
        for page in first..first + pages {
            if let Some(left) = &self.left {
                left.set(page, None);
            }
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

/// Replaces what is mapped in a part of the reservation by addresses without access. Returns `false` if the system refuses it.
fn replace_by_nothing(address: usize, size: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let target = ptr::with_exposed_provenance_mut(address);
    // SAFETY: replaces part of the reservation that the caller owns.
    unsafe { libc::mmap(target, size, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED }
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
