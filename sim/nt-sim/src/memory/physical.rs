// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical memory: one memfd, mapped once as a whole.

use std::{fs::File, io, os::fd::FromRawFd};

use parking_lot::Mutex;

use super::{addresses, ranges::Ranges};
use crate::guest::Guest;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A page frame number: physical address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Pfn(pub u64);

impl Pfn {
    /// Returns the physical address of the page.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 * PAGE_SIZE as u64
    }
}

/// Physical memory. Page 0 is never allocated.
pub struct Physical {
    file: File,
    size: usize,
    base: usize,
    free: Mutex<Ranges>,
}

impl Physical {
    /// Creates `size` bytes of memory, mapped at `base`.
    ///
    /// # Errors
    /// When the memory exceeds the host's address range, or the system refuses it.
    pub fn new(size: u64, base: usize) -> io::Result<Self> {
        let size = usize::try_from(size).map_err(io::Error::other)?.next_multiple_of(PAGE_SIZE);
        if size > addresses::MAX_PHYSICAL {
            return Err(io::Error::other("the memory exceeds the host's address range"));
        }
        // SAFETY: the name is a NUL-terminated string.
        let fd = unsafe { libc::memfd_create(c"physical".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor just made, with no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        addresses::map(base, size, protection, libc::MAP_SHARED, Some(&file))?;
        let free = Mutex::new(Ranges::new(1, (size / PAGE_SIZE) as u64));
        Ok(Self { file, size, base, free })
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the memfd, for a device that shares the memory.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the address of the direct map, which is that of physical address 0.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns the address of a physical address in the direct map.
    #[must_use]
    pub fn direct(&self, address: u64) -> Guest<u8> {
        Guest::from_address(self.base + usize::try_from(address).unwrap_or(usize::MAX / 2))
    }

    /// Returns the page of an address of the direct map.
    #[must_use]
    pub fn direct_pfn(&self, address: usize) -> Option<Pfn> {
        let offset = address.checked_sub(self.base)?;
        (offset < self.size).then_some(Pfn((offset / PAGE_SIZE) as u64))
    }

    /// Allocates `count` contiguous zeroed pages below the physical address `limit`. The number of the first is a
    /// multiple of `align`.
    #[must_use]
    pub fn allocate(&self, count: usize, align: u64, limit: u64) -> Option<Pfn> {
        let first = self.free.lock().allocate(count as u64, align, limit / PAGE_SIZE as u64)?;
        self.direct(Pfn(first).address()).fill(0, count * PAGE_SIZE);
        Some(Pfn(first))
    }

    /// Frees pages.
    pub fn free(&self, first: Pfn, count: usize) {
        self.free.lock().free(first.0, count as u64);
    }

    /// Returns the number of free pages.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.lock().available()
    }
}
