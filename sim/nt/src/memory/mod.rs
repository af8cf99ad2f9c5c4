// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a host: physical pages, kernel addresses.
//!
//! Physical memory is one memfd, most of it above the physical address 4 GiB. All of it is mapped once (the direct map).
//! A device sees it at other addresses, its logical ones. Pages can also be mapped in any order inside the kernel address range, so that a block can
//! end at a page without access, and an MDL's scattered pages can be contiguous.

mod addresses;
mod kept;
mod kernel_stack;
mod left_mappings;
mod page_table;
pub mod paged;
mod physical;
pub mod pool;
mod ranges;
mod space;

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use parking_lot::Mutex;

use addresses::Addresses;
pub(crate) use addresses::{Alone, map};
use kept::{KEPT, Kept};
pub use kernel_stack::{KERNEL_STACK_SIZE, KernelStack};
pub use physical::{PAGE_SIZE, Pfn, Physical};
pub use space::{Protection, Space};

use crate::{guest::Guest, image::frame::Capture};

/// Runs of contiguous pages in a scattered allocation. Linux limits the number of mappings of a process,
/// and each run takes one.
const RUNS: usize = 64;

/// Physical memory and kernel addresses of one host.
pub struct Memory {
    pub physical: Physical,
    pub space: Space,
    pub pool: pool::Pool,
    /// Pageable memory of the pool and of images.
    pub paged: Arc<paged::Paged>,
    stacks: kernel_stack::KernelStacks,
    addresses: Addresses,
    /// Mappings removed last, to explain faults.
    unmapped: Mutex<VecDeque<Range<usize>>>,
}

/// Number of removed mappings that are remembered.
const REMEMBERED: usize = 256;

impl Memory {
    pub(crate) fn new(
        size: u64,
        special_pool: bool,
        deterministic: bool,
        capture: Capture,
        random: fastrand::Rng,
    ) -> io::Result<Self> {
        let addresses = Addresses::take(deterministic);
        let paged = Arc::<paged::Paged>::default();
        let kept = if deterministic { KEPT.take(&addresses, size) } else { None };
        let (file, left) = kept.map_or((None, None), |kept| (Some(kept.file), kept.left));
        let physical = match file {
            Some(file) => Physical::reused(size, addresses.direct(), random, file),
            None => Physical::new(size, addresses.direct(), random),
        };
        let space = match left {
            Some(left) => Ok(Space::reused(addresses.space(), left)),
            None if Kept::may_leave(&addresses) => Space::leaving(addresses.space()),
            None => Space::new(addresses.space()),
        };
        Ok(Self {
            physical: physical?,
            space: space?,
            pool: pool::Pool::new(special_pool, capture, paged.clone()),
            paged,
            stacks: kernel_stack::KernelStacks::default(),
            addresses,
            unmapped: Mutex::default(),
        })
    }

    /// Returns the address of the host's first image.
    #[must_use]
    pub(crate) fn image_base(&self) -> usize {
        self.addresses.image()
    }

    /// Unmaps all memory of the host at the end of its simulation.
    pub(crate) fn vacate(&self) {
        // Processes of others may still write to the memory of a simulation in real time.
        let may_keep = self.addresses.is_deterministic() && !self.addresses.is_vacated();
        let keeps_space = may_keep && KEPT.keep(&self.addresses, &self.physical, &self.space);
        self.addresses.vacate(keeps_space);
    }

    /// Returns the physical address of a kernel address in the direct map or in a mapping.
    #[must_use]
    pub fn physical_address(&self, address: usize) -> Option<u64> {
        let offset = (address % PAGE_SIZE) as u64;
        self.pfn(address).map(|pfn| pfn.address() + offset)
    }

    /// Returns the page of a kernel address.
    #[must_use]
    pub fn pfn(&self, address: usize) -> Option<Pfn> {
        self.physical.direct_pfn(address).or_else(|| self.space.pfn(address))
    }

    /// Maps pages contiguously, followed by a page without access. Returns the address; `None` when addresses or
    /// mappings are exhausted.
    #[must_use]
    pub fn map(&self, pages: &[Pfn], protection: Protection) -> Option<usize> {
        if self.addresses.is_vacated() {
            return None;
        }
        self.space.map_new(&self.physical, pages, protection, 0, 1)
    }

    /// Undoes [`Memory::map`].
    pub fn unmap(&self, address: usize, pages: usize) {
        if self.addresses.is_vacated() {
            return;
        }
        self.space.unmap(address, pages);
        self.space.release(address, pages + 1);
        let mut unmapped = self.unmapped.lock();
        if unmapped.len() == REMEMBERED {
            unmapped.pop_front();
        }
        unmapped.push_back(address..address + pages * PAGE_SIZE);
    }

    /// Explains an address that faulted.
    #[must_use]
    pub fn explain(&self, address: usize) -> Option<String> {
        // A fault can occur while the lock is held: no explanation then.
        let unmapped = self.unmapped.try_lock()?;
        if let Some(mapping) = unmapped.iter().rev().find(|mapping| mapping.contains(&address)) {
            return Some(format!("offset {:#x} of a mapping that was removed", address - mapping.start));
        }
        let before = address.checked_sub(PAGE_SIZE)?;
        let behind = self.space.contains(address) && self.space.pfn(before).is_some();
        behind.then(|| "beyond the end of a mapping".to_owned())
    }

    /// Allocates `count` zeroed pages below the physical address `limit`, scattered in up to 64 runs, so that code that
    /// takes them for contiguous fails.
    #[must_use]
    pub fn allocate_scattered(&self, count: usize, limit: u64) -> Option<Vec<Pfn>> {
        self.physical.allocate_scattered(count, RUNS, limit)
    }

    /// Allocates `count` zeroed pages, scattered in physical memory, and maps them. [`Memory::pfn`] returns each
    /// page.
    #[must_use]
    pub fn allocate(&self, count: usize) -> Option<Guest<u8>> {
        if self.addresses.is_vacated() {
            return None;
        }
        let pages = self.allocate_scattered(count, u64::MAX)?;
        let Some(address) = self.map(&pages, Protection::ReadWrite) else {
            self.physical.free_pages(&pages);
            return None;
        };
        Some(Guest::from_address(address))
    }

    /// Frees memory of [`Memory::allocate`].
    pub fn free(&self, address: Guest<u8>, count: usize) {
        let start = address.address();
        let pages: Vec<_> = (0..count).filter_map(|index| self.pfn(start + index * PAGE_SIZE)).collect();
        self.unmap(start, count);
        self.physical.free_pages(&pages);
    }

    /// Allocates a kernel stack; returns `None` when memory is exhausted.
    #[must_use]
    pub fn allocate_stack(&self) -> Option<KernelStack> {
        if self.addresses.is_vacated() {
            return None;
        }
        if let Some(unused) = self.stacks.pop() {
            return Some(unused);
        }
        let frames = self.allocate_scattered(kernel_stack::PAGES, u64::MAX)?;
        let stack = kernel_stack::map(&self.physical, &self.space, &frames);
        if stack.is_none() {
            self.physical.free_pages(&frames);
        }
        stack
    }

    /// Releases a stack that no code runs on.
    pub fn release_stack(&self, stack: KernelStack) {
        self.stacks.push(stack);
    }
}
