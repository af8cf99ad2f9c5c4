//! Memory of a host: physical pages, kernel addresses.
//!
//! Physical memory is one memfd; a physical address is an offset into it. All of it is mapped once
//! (the direct map), and any pages can be mapped again in any order inside the kernel address range,
//! so that a block can end at a page without access, and an MDL's scattered pages can be contiguous.

mod physical;
pub mod pool;
mod ranges;
mod space;

use std::io;

pub use physical::{PAGE_SIZE, Pfn, Physical};
pub use space::{Protection, Space};

/// Physical memory and kernel addresses of one host.
pub struct Memory {
    pub physical: Physical,
    pub space: Space,
    pub pool: pool::Pool,
}

impl Memory {
    pub(crate) fn new(size: u64, special_pool: bool) -> io::Result<Self> {
        let physical = Physical::new(size)?;
        let space = Space::new()?;
        Ok(Self { physical, space, pool: pool::Pool::new(special_pool) })
    }

    /// The physical address behind a kernel address: in the direct map or in a mapping.
    #[must_use]
    pub fn physical_address(&self, address: usize) -> Option<u64> {
        let offset = (address % PAGE_SIZE) as u64;
        self.pfn(address).map(|pfn| pfn.address() + offset)
    }

    /// The page behind a kernel address.
    #[must_use]
    pub fn pfn(&self, address: usize) -> Option<Pfn> {
        self.physical.direct_pfn(address).or_else(|| self.space.pfn(address))
    }

    /// Maps pages one after the other, with a page without access behind them. Returns the address;
    /// `None` when addresses or mappings run out.
    #[must_use]
    pub fn map(&self, pages: &[Pfn], protection: Protection) -> Option<usize> {
        let start = self.space.reserve(pages.len() + 1)?;
        if self.space.map(self.physical.file(), start, pages, protection).is_err() {
            self.space.release(start, pages.len() + 1);
            return None;
        }
        Some(start)
    }

    /// Undoes [`Memory::map`].
    pub fn unmap(&self, address: usize, pages: usize) {
        self.space.unmap(address, pages);
        self.space.release(address, pages + 1);
    }

    /// Takes `count` zeroed pages below the physical address `limit` of which no two are neighbours in
    /// order, so that nobody gets away with taking them for contiguous.
    #[must_use]
    pub fn allocate_scattered(&self, count: usize, limit: u64) -> Option<Vec<Pfn>> {
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(page) = self.physical.allocate(1, 1, limit) else {
                for &page in &pages {
                    self.physical.free(page, 1);
                }
                return None;
            };
            pages.push(page);
        }
        pages.reverse();
        Some(pages)
    }
}
