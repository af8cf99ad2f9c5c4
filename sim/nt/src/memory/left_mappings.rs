// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mappings without access, left at addresses that were unmapped: the same pages are mapped there once more by a change of access, which takes
//! the system a small part of the time of a mapping.
//!
//! Only the first pages of an address range are left, since the system limits the mappings of a process.

use super::{page_table::PageTable, physical::Pfn};

/// Pages of a range that may be left: each is a mapping, of the 65,530 that Linux allows a process.
pub const PAGES: usize = 16 << 10;

/// The pages that the system maps at the first [`PAGES`] of an address range, with access or without.
pub struct LeftMappings(PageTable);

impl LeftMappings {
    pub fn new() -> Self {
        Self(PageTable::new(PAGES))
    }

    /// Returns whether the system maps these pages at those from `first` on.
    pub fn has(&self, first: usize, pages: &[Pfn]) -> bool {
        (first..).zip(pages).all(|(page, &pfn)| self.0.get(page) == Some(pfn))
    }

    /// Notes that the system maps a page, or none, at a page of the range.
    pub fn set(&self, page: usize, pfn: Option<Pfn>) {
        if page < PAGES {
            self.0.set(page, pfn);
        }
    }
}
