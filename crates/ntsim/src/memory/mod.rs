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

use crate::guest::Guest;

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

    /// Allocates `count` zeroed pages, contiguous or not, and maps them. Returns the address.
    #[must_use]
    pub fn allocate(&self, count: usize) -> Option<Guest<u8>> {
        let first = self.physical.allocate(count, 1, u64::MAX)?;
        Some(self.physical.direct(first.address()))
    }

    /// Frees what [`Memory::allocate`] gave.
    pub fn free(&self, address: Guest<u8>, count: usize) {
        if let Some(first) = self.physical.direct_pfn(address.address()) {
            self.physical.free(first, count);
        }
    }
}
