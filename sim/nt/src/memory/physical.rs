// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical memory: one memfd, mapped once as a whole, and which of its pages are free.

use std::{cmp::Reverse, fs::File, io, os::fd::FromRawFd};

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

/// The physical address at which a PC's memory continues above the addresses of its devices, or later.
const HIGH: u64 = 4 << 30;

/// The difference between a physical address above [`HIGH`] and its offset in the memfd: where QEMU has the memory that its devices
/// share with a simulated host, so that a device without DMA remapping reaches it by physical addresses.
pub const UPPER: u64 = 64 << 30;

/// Pages among which neighbors are scattered.
const GROUP: usize = 64;

/// Keeps the last page of a group from being before the first of the next one.
const MIXED: usize = 21;

/// Orders tried to scatter pages, before they are put in reverse order.
const SHUFFLES: usize = 16;

/// Maximum memory below [`HIGH`]: 3 GiB, as below the devices of a PC.
const MAX_LOW: usize = 3 << 30;

/// Physical memory. Page 0 is never allocated.
///
/// A quarter of it, at most 3 GiB, is at physical address 0, the rest above 64 GiB, as in a PC with hot-plugged memory. Pages there are
/// allocated first: a 64-bit address that is truncated to 32 bits is then another page, or none.
pub struct Physical {
    file: File,
    size: usize,
    /// Bytes below [`HIGH`].
    low: usize,
    base: usize,
    /// Whether no simulation used the memory before: the system has prepared none of its pages.
    is_new: bool,
    free: Mutex<Free>,
}

struct Free {
    low: Ranges,
    high: Ranges,
    random: fastrand::Rng,
}

impl Physical {
    /// Creates `size` bytes of memory, mapped at `base`. `random` scatters pages.
    ///
    /// # Errors
    /// When the memory exceeds the host's address range, or the system refuses it.
    pub fn new(size: u64, base: usize, random: fastrand::Rng) -> io::Result<Self> {
        let size = rounded(size)?;
        if size > addresses::MAX_PHYSICAL {
            return Err(io::Error::other("the memory exceeds the host's address range"));
        }
        Ok(Self::of(made(size, base)?, size, base, random, true))
    }

    /// Creates memory like [`new`](Self::new) of `file`, which has this size and is mapped at `base`: that of a simulation that has ended,
    /// with any content.
    ///
    /// # Errors
    /// The size is none.
    pub fn reused(size: u64, base: usize, random: fastrand::Rng, file: File) -> io::Result<Self> {
        Ok(Self::of(file, rounded(size)?, base, random, false))
    }

    fn of(file: File, size: usize, base: usize, random: fastrand::Rng, is_new: bool) -> Self {
        let low = (size / 4).next_multiple_of(PAGE_SIZE).clamp(PAGE_SIZE, MAX_LOW).min(size);
        let pages = |bytes: usize| (bytes / PAGE_SIZE) as u64;
        let free = Free {
            low: Ranges::new(1, pages(low)),
            high: Ranges::new(UPPER / PAGE_SIZE as u64 + pages(low), UPPER / PAGE_SIZE as u64 + pages(size)),
            random,
        };
        Self { file, size, low, base, is_new, free: Mutex::new(free) }
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

    /// Returns where a physical address is in the memfd and in the direct map; `None` when there is no memory.
    #[must_use]
    pub fn offset(&self, address: u64) -> Option<usize> {
        let (start, offsets) = if address < HIGH { (0, 0..self.low) } else { (UPPER, self.low..self.size) };
        let offset = usize::try_from(address.checked_sub(start)?).ok()?;
        offsets.contains(&offset).then_some(offset)
    }

    /// Returns the address of a physical address in the direct map; an address that is never mapped when there is no
    /// memory.
    #[must_use]
    pub fn direct(&self, address: u64) -> Guest<u8> {
        Guest::from_address(self.offset(address).map_or(usize::MAX / 2, |offset| self.base + offset))
    }

    /// Returns the page of an address of the direct map.
    #[must_use]
    pub fn direct_pfn(&self, address: usize) -> Option<Pfn> {
        let offset = address.checked_sub(self.base).filter(|&offset| offset < self.size)?;
        let address = if offset < self.low { offset as u64 } else { UPPER + offset as u64 };
        Some(Pfn(address / PAGE_SIZE as u64))
    }

    /// Allocates `count` contiguous zeroed pages below the physical address `limit`, above 4 GiB if possible. The number
    /// of the first is a multiple of `align`.
    #[must_use]
    pub fn allocate(&self, count: usize, align: u64, limit: u64) -> Option<Pfn> {
        let first = self.free.lock().allocate(count, align, limit)?;
        let start = self.direct(first.address());
        if self.is_new {
            addresses::populate(start.address(), count * PAGE_SIZE);
        }
        start.fill(0, count * PAGE_SIZE);
        Some(first)
    }

    /// Allocates `count` zeroed pages below the physical address `limit`, scattered as by [`take_scattered`](Self::take_scattered).
    #[must_use]
    pub fn allocate_scattered(&self, count: usize, runs: usize, limit: u64) -> Option<Vec<Pfn>> {
        let pages = self.take_scattered(count, runs, limit)?;
        for page in &pages {
            self.direct(page.address()).fill(0, PAGE_SIZE);
        }
        Some(pages)
    }

    /// Allocates `count` pages of any content below the physical address `limit`, scattered by the seed: no page is followed by the
    /// physically next one, except inside runs of pages, of which there are at most `runs`.
    #[must_use]
    pub fn take_scattered(&self, count: usize, runs: usize, limit: u64) -> Option<Vec<Pfn>> {
        self.free.lock().scattered(count, runs, limit)
    }

    /// Allocates the pages of any content that belong to `count` pages of addresses from `page` on: the same ones whenever these addresses
    /// are mapped, and no page followed by the physically next one. Returns `None` if one of them is in use.
    #[must_use]
    pub fn take_for(&self, page: usize, count: usize) -> Option<Vec<Pfn>> {
        let frames: Vec<Pfn> = (page..page + count).map(|page| self.page_for(page)).collect::<Option<_>>()?;
        let mut free = self.free.lock();
        let taken = frames.iter().take_while(|frame| free.high.take(frame.0)).count();
        if taken < count {
            for &frame in &frames[..taken] {
                free.free(frame, 1);
            }
            return None;
        }
        Some(frames)
    }

    /// Returns the page that belongs to a page of addresses: in the upper half of the memory above 4 GiB, from whose lower end contiguous pages
    /// are allocated. Neighbors are scattered within groups.
    fn page_for(&self, page: usize) -> Option<Pfn> {
        let pages = (self.size - self.low) / PAGE_SIZE;
        let groups = pages / 2 / GROUP;
        let group = (page / GROUP).checked_rem(groups)?;
        let index = (page % GROUP) ^ MIXED;
        let reversed = index.reverse_bits() >> (usize::BITS - GROUP.trailing_zeros());
        let offset = self.size / PAGE_SIZE - groups * GROUP + group * GROUP + reversed;
        Some(Pfn(UPPER / PAGE_SIZE as u64 + offset as u64))
    }

    /// Frees pages.
    pub fn free(&self, first: Pfn, count: usize) {
        self.free.lock().free(first, count);
    }

    /// Frees pages that need not be contiguous.
    pub fn free_pages(&self, pages: &[Pfn]) {
        let mut free = self.free.lock();
        for &page in pages {
            free.free(page, 1);
        }
    }

    /// Returns the number of free pages.
    #[must_use]
    pub fn available(&self) -> u64 {
        let free = self.free.lock();
        free.low.available() + free.high.available()
    }
}

/// Returns the bytes of whole pages.
fn rounded(size: u64) -> io::Result<usize> {
    Ok(usize::try_from(size).map_err(io::Error::other)?.next_multiple_of(PAGE_SIZE))
}

/// Makes memory of zeros, mapped at `base`.
fn made(size: usize, base: usize) -> io::Result<File> {
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
    Ok(file)
}

impl Free {
    fn allocate(&mut self, count: usize, align: u64, limit: u64) -> Option<Pfn> {
        let limit = limit / PAGE_SIZE as u64;
        let first = self.high.allocate(count as u64, align, limit);
        first.or_else(|| self.low.allocate(count as u64, align, limit)).map(Pfn)
    }

    fn scattered(&mut self, count: usize, runs: usize, limit: u64) -> Option<Vec<Pfn>> {
        let longest = count.div_ceil(runs).max(1);
        let mut taken: Vec<(Pfn, usize)> = Vec::new();
        let mut left = count;
        while left > 0 {
            let length = left.min(longest);
            let Some(first) = self.allocate(length, 1, limit) else {
                for (first, length) in taken {
                    self.free(first, length);
                }
                return None;
            };
            taken.push((first, length));
            left -= length;
        }
        // About every third order is one without neighbors.
        let is_scattered = |runs: &[(Pfn, usize)]| {
            !runs.windows(2).any(|pair| pair[0].0.0 + pair[0].1 as u64 == pair[1].0.0)
        };
        let shuffled = (0..SHUFFLES).any(|_| {
            self.random.shuffle(&mut taken);
            is_scattered(&taken)
        });
        if !shuffled {
            taken.sort_by_key(|&(first, _)| Reverse(first));
        }
        let pages = |(first, length): (Pfn, usize)| (0..length as u64).map(move |index| Pfn(first.0 + index));
        Some(taken.into_iter().flat_map(pages).collect())
    }

    fn free(&mut self, first: Pfn, count: usize) {
        let ranges = if first.address() < HIGH { &mut self.low } else { &mut self.high };
        ranges.free(first.0, count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::addresses::Addresses, *};

    #[test]
    fn pages_of_addresses_differ_and_no_page_is_followed_by_the_physically_next_one() {
        let addresses = Addresses::take(false);
        let physical = Physical::new(64 << 20, addresses.direct(), fastrand::Rng::with_seed(1)).unwrap();
        let count = 64 * 64;
        let frames = physical.take_for(0, count).unwrap();
        assert!(frames.windows(2).all(|pair| pair[0].0 + 1 != pair[1].0));
        assert!(frames.iter().all(|frame| physical.offset(frame.address()).is_some()));
        let mut different = frames.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), count);
        // One that is in use leaves the others free.
        physical.free(frames[0], 1);
        assert_eq!(physical.take_for(0, 2), None);
        assert_eq!(physical.take_for(0, 1), Some(frames[..1].to_vec()));
    }
}
