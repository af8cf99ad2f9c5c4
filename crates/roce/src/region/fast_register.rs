// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions registered by work requests: a list of pages that changes without a wait of the consumer.
//!
//! A page is named by its logical address, which every access looks up: an access to a page that is no longer
//! mapped fails.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::access_rights::{Access, KeyRange};
use super::binding_slot::{BindingSlot, Place, SharedRange};
use crate::error::{CreateError, PostError};
use fallible::vec;

/// Page size in bytes.
pub(super) const PAGE: u64 = 4096;

/// Pages of the largest region: 256 MiB.
const MAX_PAGES: u32 = 1 << 16;

/// Parameters of a fast registration: `length` bytes in pages, from `offset` bytes into the first page, which
/// the consumer and its peers address from `base` on.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    pub base: u64,
    /// Below 4096, and `base` modulo 4096.
    pub offset: u32,
    /// In bytes, at least 1; the pages have as many behind `offset`.
    pub length: u64,
    pub access: Access,
    /// Logical addresses, see [`crate::MemoryCommands::map_logical`], multiples of 4096. At least one, and at most
    /// as many as the region was allocated for. Copied by the post.
    pub pages: &'a [u64],
}

/// A region for fast registration.
#[derive(Debug)]
pub(super) struct FastRegion {
    pub(super) slot: BindingSlot<PageList>,
    /// Maximum number of pages.
    capacity: u32,
    /// Whether a registration may give peers rights.
    remote: bool,
}

/// A registration: current, last or staged.
#[derive(Debug)]
pub(super) struct PageList {
    pub(super) range: SharedRange,
    /// Offset of the range in the first page.
    offset: AtomicU32,
    pages: Vec<AtomicU64>,
}

/// Returns the bytes of the page lists of a region of up to `pages` pages.
pub(crate) const fn page_list_bytes(pages: u32) -> usize {
    (2 * size_of::<AtomicU64>()).saturating_mul(pages as usize)
}

impl FastRegion {
    pub(super) fn try_new(pages: u32, remote: bool, relax: fn()) -> Result<Self, CreateError> {
        if pages == 0 || pages > MAX_PAGES {
            return Err(CreateError::Invalid);
        }
        let slot = BindingSlot::new([PageList::try_new(pages)?, PageList::try_new(pages)?], relax);
        Ok(Self { slot, capacity: pages, remote })
    }

    /// Checks the parameters of a registration, independent of the region's state.
    pub(super) fn check(&self, asked: &Registration<'_>) -> Result<(), PostError> {
        //= R-MR-32
        //= R-MR-33
        //= R-MR-34
        let pages = asked.pages.len() as u64;
        let fits = (1..=u64::from(self.capacity)).contains(&pages)
            && asked.pages.iter().all(|page| page.is_multiple_of(PAGE));
        //= R-MR-35
        //= R-MR-36
        //= R-MR-38
        let offset = u64::from(asked.offset);
        let room = pages.saturating_mul(PAGE).saturating_sub(offset);
        let inside = (1..=room).contains(&asked.length)
            && asked.base % PAGE == offset
            && asked.base.checked_add(asked.length).is_some();
        if !fits || !inside || !asked.access.is_sound() {
            return Err(PostError::Invalid);
        }
        //= R-MR-31
        if asked.access.intersects(Access::OF_PEERS) && !self.remote {
            return Err(PostError::NoRight);
        }
        Ok(())
    }
}

impl Place for PageList {
    fn range(&self) -> &SharedRange {
        &self.range
    }
}

impl PageList {
    fn try_new(pages: u32) -> Result<Self, CreateError> {
        let mut list = Vec::new();
        vec::grow_to(&mut list, pages as usize, AtomicU64::default)?;
        Ok(Self { range: SharedRange::default(), offset: AtomicU32::new(0), pages: list })
    }

    //= R-MR-39
    pub(super) fn set(&self, key: u32, asked: &Registration<'_>) {
        let Registration { base, offset, length, access, pages } = *asked;
        self.range.set(&KeyRange { key, base, length, access });
        self.offset.store(offset, Ordering::Relaxed);
        for (to, from) in self.pages.iter().zip(pages) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Returns the logical address of the byte at `offset`, and the number of bytes from there to the end of its
    /// page.
    #[inline]
    pub(super) fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let at = offset.checked_add(u64::from(self.offset.load(Ordering::Relaxed)))?;
        let page = self.pages.get((at / PAGE) as usize)?.load(Ordering::Relaxed);
        let within = at % PAGE;
        Some((page.checked_add(within)?, PAGE.saturating_sub(within)))
    }
}
