// SPDX-License-Identifier: MIT OR Apache-2.0

//! Access to memory by key, within the key's range and rights.

use lock_api::RawMutex;

use super::access_rights::{Access, AccessError, PRIVILEGED_KEY, Pd, Scope};
use super::fast_register::FastRegion;
use super::memory_region::{Content, Region};
use super::table::RegionTable;
use super::window::WindowState;
use crate::memory::Backing;
use crate::object_table::last_pinned::LastPinned;
use crate::work::Sge;
use roce_wire::{Frame, Qpn};

/// Access to memory by keys of a table, for a batch of packets: the region that was used last stays pinned, and
/// [`RegionTable::deregister`] of it waits for the end of the batch. IRQL == `DISPATCH_LEVEL` meanwhile.
pub(crate) struct RegionAccess<'a, R: RawMutex> {
    regions: &'a RegionTable<R>,
    last: LastPinned<'a, Region, R>,
}

impl<'a, R: RawMutex> RegionAccess<'a, R> {
    #[inline]
    pub(crate) const fn new(regions: &'a RegionTable<R>) -> Self {
        Self { regions, last: LastPinned::new(&regions.table) }
    }

    /// Unpins the region that was used last.
    #[inline]
    pub(crate) fn release(&self) {
        self.last.release();
    }

    /// Copies `[within, within + len)` of a local element to the payload of `frame`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small packet")]
    pub(crate) fn read_local(
        &self,
        pd: Pd,
        sge: &Sge,
        within: u32,
        len: u32,
        frame: &mut Frame<'_>,
    ) -> Result<(), AccessError> {
        let address = sge.address.checked_add(u64::from(within)).ok_or(AccessError)?;
        if sge.key == PRIVILEGED_KEY {
            //= R-LAM-26
            let (range, offset) = self.regions.logical(address)?;
            return range.backing.read(offset, len as usize, frame).then_some(()).ok_or(AccessError);
        }
        //= R-QP-45
        self.access(pd, None, sge.key, address, u64::from(len), Access::empty(), |backing, offset, len| {
            backing.read(offset, len as usize, frame)
        })
    }

    /// Writes `bytes` to a local element, at offset `within`.
    #[inline]
    pub(crate) fn write_local(
        &self,
        pd: Pd,
        sge: &Sge,
        within: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let address = sge.address.checked_add(u64::from(within)).ok_or(AccessError)?;
        if sge.key == PRIVILEGED_KEY {
            let (range, offset) = self.regions.logical(address)?;
            return range.backing.write(offset, bytes).then_some(()).ok_or(AccessError);
        }
        //= R-QP-45
        self.write(pd, None, sge.key, address, bytes, Access::LOCAL_WRITE)
    }

    /// Returns whether the memory of a local element holds `bytes`, at offset `within`.
    pub(crate) fn holds_local(&self, pd: Pd, sge: &Sge, within: u32, bytes: &[u8]) -> bool {
        let Some(address) = sge.address.checked_add(u64::from(within)) else { return false };
        if sge.key == PRIVILEGED_KEY {
            return self
                .regions
                .logical(address)
                .is_ok_and(|(range, offset)| range.backing.holds(offset, bytes));
        }
        self.holds(pd, None, sge.key, address, bytes, Access::LOCAL_WRITE)
    }

    /// Returns whether memory that a peer may write holds `bytes`.
    pub(crate) fn holds_remote(&self, by: Scope, key: u32, address: u64, bytes: &[u8]) -> bool {
        self.holds(by.pd, Some(by.qpn), key, address, bytes, Access::REMOTE_WRITE)
    }

    #[inline(never)]
    fn holds(
        &self,
        pd: Pd,
        peer_of: Option<Qpn>,
        key: u32,
        address: u64,
        bytes: &[u8],
        right: Access,
    ) -> bool {
        let mut rest = bytes;
        let held =
            self.access(pd, peer_of, key, address, bytes.len() as u64, right, |backing, offset, len| {
                let Some((now, later)) = rest.split_at_checked(len as usize) else { return false };
                rest = later;
                backing.holds(offset, now)
            });
        held.is_ok()
    }

    /// Checks that a peer has `right` on `[address, address + len)` under `key`.
    pub(crate) fn check_remote(
        &self,
        by: Scope,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<(), AccessError> {
        let region = self.last.get(key >> 8).ok_or(AccessError)?;
        if region.pd != by.pd {
            return Err(AccessError);
        }
        match &region.content {
            Content::Fixed(fixed) => fixed.range.offset(key, address, len, right)?,
            Content::Fast(fast) => {
                fast.slot.enter().ok_or(AccessError)?.range.offset(key, address, len, right)?
            }
            Content::Window(view) => {
                let bound = view.slot.enter().ok_or(AccessError)?;
                //= R-MR-63
                if !view.is_for(&bound, by.qpn) {
                    return Err(AccessError);
                }
                bound.range.offset(key, address, len, right)?
            }
        };
        Ok(())
    }

    /// Copies memory that a peer reads to the payload of `frame`.
    #[inline]
    pub(crate) fn read_remote(
        &self,
        by: Scope,
        key: u32,
        address: u64,
        len: u32,
        frame: &mut Frame<'_>,
    ) -> Result<(), AccessError> {
        let right = Access::REMOTE_READ;
        self.access(by.pd, Some(by.qpn), key, address, u64::from(len), right, |backing, offset, len| {
            backing.read(offset, len as usize, frame)
        })
    }

    /// Writes memory on behalf of a peer.
    #[inline]
    pub(crate) fn write_remote(
        &self,
        by: Scope,
        key: u32,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        self.write(by.pd, Some(by.qpn), key, address, bytes, Access::REMOTE_WRITE)
    }

    /// Replaces the number in the 8 bytes at `address` by what `update` returns for it, on behalf of a peer. Returns what it was. Atomic
    /// with regard to other calls. A number that stays as it is is not written: a compare-and-swap that finds another number
    /// undoes no WRITE, by which a peer may release what others wait for.
    #[inline(never)]
    pub(crate) fn update_remote(
        &self,
        by: Scope,
        key: u32,
        address: u64,
        update: impl FnOnce(u64) -> u64,
    ) -> Result<u64, AccessError> {
        let right = Access::REMOTE_ATOMIC;
        let _others = self.regions.updates.lock();
        let mut before = [0; 8];
        let mut rest = &mut before[..];
        self.access(by.pd, Some(by.qpn), key, address, 8, right, |backing, offset, len| {
            let Some((now, later)) = core::mem::take(&mut rest).split_at_mut_checked(len as usize) else {
                return false;
            };
            rest = later;
            backing.copy_to(offset, now)
        })?;
        let before = u64::from_ne_bytes(before);
        let after = update(before);
        if after != before {
            self.write(by.pd, Some(by.qpn), key, address, &after.to_ne_bytes(), right)?;
        }
        Ok(before)
    }

    #[inline]
    fn write(
        &self,
        pd: Pd,
        peer_of: Option<Qpn>,
        key: u32,
        address: u64,
        bytes: &[u8],
        right: Access,
    ) -> Result<(), AccessError> {
        let mut rest = bytes;
        self.access(pd, peer_of, key, address, bytes.len() as u64, right, |backing, offset, len| {
            let Some((now, later)) = rest.split_at_checked(len as usize) else { return false };
            rest = later;
            backing.write(offset, now)
        })
    }

    /// Finds the memory of `[address, address + len)` under `key`, and calls `copy` with each contiguous piece:
    /// backing, offset, length. A window is valid for the peer of its queue pair only.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "the whole of an access, inlined into its callers")]
    #[allow(clippy::inline_always, reason = "on the way of every packet; what is rare is out of line")]
    fn access(
        &self,
        pd: Pd,
        peer_of: Option<Qpn>,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
        mut copy: impl FnMut(&Backing, u64, u64) -> bool,
    ) -> Result<(), AccessError> {
        let region = self.last.get(key >> 8).ok_or(AccessError)?;
        if region.pd != pd {
            return Err(AccessError);
        }
        let done = match &region.content {
            Content::Fixed(fixed) => {
                let offset = fixed.range.offset(key, address, len, right)?;
                copy(&fixed.backing, offset, len)
            }
            content => self.access_indirect(content, peer_of, key, address, len, right, &mut copy)?,
        };
        done.then_some(()).ok_or(AccessError)
    }

    /// [`RegionAccess::access`] to memory that is found by requests.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "the whole of an access")]
    fn access_indirect(
        &self,
        content: &Content,
        peer_of: Option<Qpn>,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
        copy: &mut dyn FnMut(&Backing, u64, u64) -> bool,
    ) -> Result<bool, AccessError> {
        match content {
            Content::Fixed(_) => Err(AccessError),
            Content::Fast(fast) => self.access_pages(fast, key, address, len, right, copy),
            Content::Window(view) => self.access_window(view, peer_of, key, address, len, right, copy),
        }
    }

    fn access_pages(
        &self,
        fast: &FastRegion,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
        copy: &mut dyn FnMut(&Backing, u64, u64) -> bool,
    ) -> Result<bool, AccessError> {
        //= R-MR-42
        //= R-MR-44
        //= R-MR-47
        let pages = fast.slot.enter().ok_or(AccessError)?;
        let mut offset = pages.range.offset(key, address, len, right)?;
        let mut left = len;
        while left > 0 {
            let (at, room) = pages.locate(offset).ok_or(AccessError)?;
            let now = room.min(left);
            let (range, within) = self.regions.logical(at)?;
            if !copy(&range.backing, within, now) {
                return Ok(false);
            }
            offset = offset.saturating_add(now);
            left = left.saturating_sub(now);
        }
        Ok(true)
    }

    #[allow(clippy::too_many_arguments, reason = "the whole of an access")]
    fn access_window(
        &self,
        view: &WindowState,
        peer_of: Option<Qpn>,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
        copy: &mut dyn FnMut(&Backing, u64, u64) -> bool,
    ) -> Result<bool, AccessError> {
        let bound = view.slot.enter().ok_or(AccessError)?;
        //= R-MR-63
        if !peer_of.is_some_and(|qpn| view.is_for(&bound, qpn)) {
            return Err(AccessError);
        }
        bound.range.offset(key, address, len, right)?;
        let key = bound.region();
        let region = self.regions.table.get(key >> 8).ok_or(AccessError)?;
        let Content::Fixed(fixed) = &region.content else { return Err(AccessError) };
        // The rights were compared when the window was bound.
        let offset = fixed.range.offset(key, address, len, Access::empty())?;
        Ok(copy(&fixed.backing, offset, len))
    }
}

impl<R: RawMutex> RegionTable<R> {
    /// Returns whether a local element can become valid: its key exists in the protection domain, and memory that is
    /// not registered by requests, which may still be queued, has the range and allows the access.
    pub(crate) fn is_known_local(&self, pd: Pd, sge: &Sge, write: bool) -> bool {
        let (length, right) =
            (u64::from(sge.length), if write { Access::LOCAL_WRITE } else { Access::empty() });
        if sge.key == PRIVILEGED_KEY {
            return self.logical(sge.address).is_ok_and(|(range, offset)| {
                offset.checked_add(length).is_some_and(|end| end <= range.backing.length())
            });
        }
        let region = self.table.get(sge.key >> 8).filter(|region| region.pd == pd);
        region.is_some_and(|region| match &region.content {
            Content::Fixed(fixed) => fixed.range.offset(sge.key, sge.address, length, right).is_ok(),
            Content::Fast(_) => true,
            Content::Window(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::region::fast_register::Registration;
    use crate::testing::Lock;
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const KEY_BASE: u64 = 0x5000;

    /// Writers use the key all the time; the memory must not change after each invalidation.
    //= R-MR-47
    #[test]
    #[cfg_attr(miri, ignore = "peers write to consumer memory at once, as devices do: a data race for Miri")]
    #[allow(unsafe_code, reason = "memory for a backing")]
    fn memory_is_not_written_after_an_invalidation() {
        let regions =
            RegionTable::<Lock>::try_new(4, 4, core::hint::spin_loop, &mut Random::new([3; 32])).unwrap();
        let memory: Vec<AtomicU64> = (0..1024).map(AtomicU64::new).collect();
        let start = NonNull::from(memory.as_slice()).cast();
        // SAFETY: the memory outlives the regions' use.
        let backing = unsafe { Backing::contiguous(start, 8192) }.unwrap();
        let first = regions.map_logical(0, backing).unwrap();
        let by = Scope { pd: Pd(1), qpn: Qpn::new(5) };
        let region = regions.allocate(by.pd, 2, true).unwrap();
        let key = region.key();
        let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for writer in 0..2u8 {
                let (regions, done, written) = (&regions, &done, &written);
                scope.spawn(move || {
                    let mut value = writer;
                    while !done.load(Ordering::Relaxed) {
                        value = value.wrapping_add(2);
                        // Across the pages.
                        let wrote =
                            RegionAccess::new(regions).write_remote(by, key, KEY_BASE + 4000, &[value; 192]);
                        written.fetch_add(u64::from(wrote.is_ok()), Ordering::Relaxed);
                    }
                });
            }
            let rounds = if cfg!(miri) { 10 } else { 500 };
            for round in 0..rounds {
                // In turn, so that old and new pages differ.
                let pages = if round % 2 == 0 { [first, first + 4096] } else { [first + 4096, first] };
                let asked = Registration {
                    base: KEY_BASE,
                    offset: 0,
                    length: 8192,
                    access: Access::all(),
                    pages: &pages,
                };
                let ticket = regions.stage_registration(by.pd, key, &asked).unwrap();
                regions.activate(by, key, ticket).unwrap();
                let before = written.load(Ordering::Relaxed);
                while written.load(Ordering::Relaxed) == before && round % 64 == 0 {
                    std::thread::yield_now();
                }
                regions.invalidate(by, key).unwrap();
                let look = || memory.iter().map(|word| word.load(Ordering::SeqCst)).collect::<Vec<_>>();
                let seen = look();
                std::thread::yield_now();
                assert_eq!(look(), seen, "round {round}");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(written.into_inner() > 0);
        assert_eq!(
            RegionAccess::new(&regions).check_remote(by, key, KEY_BASE, 8, Access::REMOTE_READ),
            Err(AccessError)
        );
    }
}
