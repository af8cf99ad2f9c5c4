// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of all keys and logical address ranges of an engine.

use core::sync::atomic::{AtomicU32, Ordering};

use lock_api::{Mutex, RawMutex};

use super::access_rights::{Access, AccessError, KeyRange, PRIVILEGED_KEY, Pd};
use super::fast_register::FastRegion;
use super::memory_region::{Content, FixedRegion, MemoryWindow, Region};
use super::window::{WindowState, WindowType};
use crate::error::{CreateError, ReregisterError};
use crate::memory::Backing;
use crate::number_prefix::NumberPrefix;
use crate::object_table::{ObjectTable, Pinned};
use crate::random::Random;
use fallible::Arc;

/// A logical range.
#[derive(Debug)]
pub(super) struct Logical {
    /// Offset of its first byte.
    pub(super) offset: u64,
    pub(super) backing: Backing,
}

/// Bits of a logical address that are the offset; the bits above are the code of the range.
const LOGICAL_BITS: u32 = 40;

/// The regions, windows and logical address ranges of an engine.
pub(crate) struct RegionTable<R: RawMutex> {
    pub(super) table: ObjectTable<Region, R>,
    logical: ObjectTable<Logical, R>,
    /// Held while a number in memory is replaced by another one for a peer.
    pub(super) updates: Mutex<R, ()>,
}

impl<R: RawMutex> RegionTable<R> {
    /// Returns the number of regions and windows, and of logical ranges.
    pub(crate) fn live(&self) -> [u32; 2] {
        [self.table.live(), self.logical.live()]
    }

    /// Creates the tables of up to so many regions and windows, and logical ranges. A thread that waits for users of an object calls
    /// `relax` meanwhile.
    pub(crate) fn try_new(
        max_regions: u32,
        max_logical: u32,
        relax: fn(),
        random: &mut Random,
    ) -> Result<Self, CreateError> {
        let table = ObjectTable::try_new(max_regions, NumberPrefix::NONE, relax, random)?;
        let logical = ObjectTable::try_new(max_logical, NumberPrefix::NONE, relax, random)?;
        Ok(Self { table, logical, updates: Mutex::new(()) })
    }

    pub(crate) fn register(
        &self,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, CreateError> {
        if !is_valid(base, length, access, &backing) {
            return Err(CreateError::Invalid);
        }
        self.insert(pd, |index, salt| {
            // The consumer chooses the low byte of a fast registration; here it is random.
            let range = KeyRange { key: index | u32::from(salt), base, length, access };
            Content::Fixed(FixedRegion { range, backing, windows: AtomicU32::new(0) })
        })
    }

    /// Registers other memory with the keys of a registered region.
    pub(crate) fn reregister(
        &self,
        region: &Region,
        pd: Pd,
        (base, length): (u64, u64),
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, ReregisterError> {
        let Content::Fixed(fixed) = &region.content else { return Err(ReregisterError::Invalid) };
        if !is_valid(base, length, access, &backing) {
            return Err(ReregisterError::Invalid);
        }
        let range = KeyRange { key: fixed.range.key, base, length, access };
        let content = Content::Fixed(FixedRegion { range, backing, windows: AtomicU32::new(0) });
        let new = Arc::try_new(Region { index: region.index, pd, content })?;
        // Before the region is taken out of use: until it is used again, a window could not be unbound.
        self.table.show(region.index >> 8, Region::check_unbound).ok_or(ReregisterError::Invalid)??;
        let replaced = self.table.replace(region.index >> 8, |old| {
            // Once more: no window can be bound now.
            old.check_unbound().map(|()| new.clone())
        });
        replaced.ok_or(ReregisterError::Invalid)??;
        Ok(new)
    }

    pub(crate) fn allocate(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        let fast = FastRegion::try_new(pages, remote, self.table.relax())?;
        self.insert(pd, |_, _| Content::Fast(fast))
    }

    pub(crate) fn create_window(&self, pd: Pd, window_type: WindowType) -> Result<MemoryWindow, CreateError> {
        let state = WindowState::new(window_type, self.table.relax());
        self.insert(pd, |_, _| Content::Window(state)).map(MemoryWindow)
    }

    fn insert(&self, pd: Pd, content: impl FnOnce(u32, u8) -> Content) -> Result<Arc<Region>, CreateError> {
        //= R-MR-13
        //= R-MR-54
        //= R-MR-69
        let vacant = self.table.reserve(|code| code != 0 && code != PRIVILEGED_KEY >> 8)?;
        let index = vacant.code() << 8;
        let content = content(index, vacant.salt());
        let region = Arc::try_new(Region { index, pd, content })?;
        vacant.fill(region.clone());
        Ok(region)
    }

    /// IRQL <= `DISPATCH_LEVEL`, see [`ObjectTable::remove`].
    pub(crate) fn deregister(&self, region: &Region) -> bool {
        //= R-MR-17
        //= R-CLOSE-27
        self.table.remove(region.index >> 8).is_some()
    }

    /// IRQL <= `DISPATCH_LEVEL`, as [`RegionTable::deregister`].
    pub(crate) fn destroy_window(&self, window: &MemoryWindow) -> bool {
        // Removed from the table first: then no bind executes, and the effect of the last one is visible here.
        let removed = self.deregister(&window.0);
        if removed
            && let Content::Window(view) = &window.0.content
            && let Some(bound) = view.slot.end()
        {
            self.unbound(bound.region());
        }
        removed
    }

    pub(crate) fn map_logical(&self, offset: u64, backing: Backing) -> Result<u64, CreateError> {
        if backing.length() == 0
            || offset.checked_add(backing.length()).is_none_or(|end| end > 1 << LOGICAL_BITS)
        {
            return Err(CreateError::Invalid);
        }
        let vacant = self.logical.reserve(|code| code != 0)?;
        let base = u64::from(vacant.code()) << LOGICAL_BITS;
        vacant.fill(Arc::try_new(Logical { offset, backing })?);
        Ok(base)
    }

    pub(crate) fn unmap_logical(&self, base: u64) -> bool {
        self.logical.remove((base >> LOGICAL_BITS) as u32).is_some()
    }

    /// Returns the logical range of an address, and the offset of the address in its memory.
    #[inline]
    pub(super) fn logical(&self, address: u64) -> Result<(Pinned<'_, Logical>, u64), AccessError> {
        //= R-MR-57
        let range = self.logical.get((address >> LOGICAL_BITS) as u32).ok_or(AccessError)?;
        let offset = (address & ((1 << LOGICAL_BITS) - 1)).checked_sub(range.offset).ok_or(AccessError)?;
        Ok((range, offset))
    }

    /// Accounts for a window of that region that is no longer bound. IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn unbound(&self, region: u32) {
        self.table.show(region >> 8, |region| {
            if let Content::Fixed(fixed) = &region.content {
                fixed.windows.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

/// Returns whether a region can have this range, these rights and this backing.
fn is_valid(base: u64, length: u64, access: Access, backing: &Backing) -> bool {
    length > 0 && length <= backing.length() && base.checked_add(length).is_some() && access.is_sound()
}
