// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page table of an address range: two levels, of which the lower one is allocated where something is mapped.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use super::physical::Pfn;

/// Entries of a table of the lower level.
const ENTRIES: usize = 1024;

/// The physical page of each page of addresses; 0 for none (page 0 is never allocated).
type Entries = [AtomicU32; ENTRIES];

pub struct PageTable(Box<[OnceLock<Box<Entries>>]>);

impl PageTable {
    /// Creates the table of a range of so many pages, of which none is mapped.
    pub fn new(pages: usize) -> Self {
        Self((0..pages.div_ceil(ENTRIES)).map(|_| OnceLock::new()).collect())
    }

    /// Returns the physical page of a page; `None` if there is none, or the page is beyond the range.
    pub fn get(&self, page: usize) -> Option<Pfn> {
        match self.0.get(page / ENTRIES)?.get()?[page % ENTRIES].load(Relaxed) {
            0 => None,
            pfn => Some(Pfn(pfn.into())),
        }
    }

    /// Sets the physical page of a page in the range.
    pub fn set(&self, page: usize, pfn: Option<Pfn>) {
        let entries = &self.0[page / ENTRIES];
        let number = pfn.map_or(0, |pfn| u32::try_from(pfn.0).unwrap_or(0));
        if number != 0 || entries.get().is_some() {
            let entries = entries.get_or_init(|| Box::new([const { AtomicU32::new(0) }; ENTRIES]));
            entries[page % ENTRIES].store(number, Relaxed);
        }
    }
}
