//! Memory that work requests and peers may name: protection domains, regions, logical ranges.

use lock_api::RawMutex;

use crate::arc::Arc;
use crate::error::CreateError;
use crate::memory::Backing;
use crate::random::Random;
use crate::slots::{Pinned, Slots};
use crate::wire::Frame;
use crate::work::Sge;

/// A protection domain: regions and queue pairs of one belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub(crate) u32);

/// The key under which local elements name logical addresses.
///
/// The same for every protection domain, never a region's key, and never good for a peer (R-MR-53,
/// R-MR-54).
pub const PRIVILEGED_KEY: u32 = 0xFFFF_FFFF;

bitflags::bitflags! {
    /// What may be done with a region. Local reading is always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Receives and READs of this side may write it.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may read it.
        const REMOTE_READ = 1 << 1;
        /// Peers may write it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_WRITE = 1 << 2;
    }
}

/// Registered memory.
#[derive(Debug)]
pub struct Region {
    pub(crate) key: u32,
    pub(crate) pd: Pd,
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    pub(crate) backing: Backing,
}

impl Region {
    /// Names the region locally and, if its rights allow, to peers. Never 0, and not used again soon
    /// after the region is gone.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Address of the first byte, for elements and peers.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn access(&self) -> Access {
        self.access
    }
}

/// A logical range.
#[derive(Debug)]
struct Logical {
    /// Of its first byte.
    offset: u64,
    backing: Backing,
}

/// Where in a logical address the offset begins; above it is the code of the range.
const LOGICAL_BITS: u32 = 40;

/// An access that must not be: no such region, another protection domain, no right, or not inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessError;

/// All memory that an engine knows.
pub(crate) struct Regions<R: RawMutex> {
    regions: Slots<Region, R>,
    logical: Slots<Logical, R>,
}

impl<R: RawMutex> Regions<R> {
    pub(crate) fn try_new(
        max_regions: u32,
        max_logical: u32,
        random: &mut Random,
    ) -> Result<Self, CreateError> {
        let regions = Slots::try_new(max_regions, random)?;
        Ok(Self { regions, logical: Slots::try_new(max_logical, random)? })
    }

    pub(crate) fn register(
        &self,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, CreateError> {
        let fits = length > 0 && length <= backing.length() && base.checked_add(length).is_some();
        let rights = !access.contains(Access::REMOTE_WRITE) || access.contains(Access::LOCAL_WRITE);
        if !fits || !rights {
            return Err(CreateError::Invalid);
        }
        //= R-MR-13
        //= R-MR-54
        //= R-MR-69
        let vacant = self.regions.reserve(|code| code != 0 && code != PRIVILEGED_KEY >> 8)?;
        let key = vacant.code() << 8;
        let region = Arc::try_new(Region { key, pd, base, length, access, backing })?;
        vacant.fill(region.clone());
        Ok(region)
    }

    pub(crate) fn deregister(&self, region: &Region) -> bool {
        //= R-MR-17
        self.regions.remove(region.key >> 8).is_some()
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

    /// Reads `[within, within + len)` of a local element into the payload of `frame`.
    #[inline]
    pub(crate) fn read_local(
        &self,
        pd: Pd,
        sge: &Sge,
        within: u32,
        len: u32,
        frame: &mut Frame<'_>,
    ) -> Result<(), AccessError> {
        let address = sge.address.checked_add(u64::from(within)).ok_or(AccessError)?;
        let done = if sge.key == PRIVILEGED_KEY {
            let (range, offset) = self.logical(address)?;
            range.backing.read(offset, len as usize, frame)
        } else {
            //= R-QP-45
            let (region, offset) = self.region(pd, sge.key, address, u64::from(len), Access::empty())?;
            region.backing.read(offset, len as usize, frame)
        };
        done.then_some(()).ok_or(AccessError)
    }

    /// Writes `bytes` to `within` bytes into a local element.
    #[inline]
    pub(crate) fn write_local(
        &self,
        pd: Pd,
        sge: &Sge,
        within: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let address = sge.address.checked_add(u64::from(within)).ok_or(AccessError)?;
        let done = if sge.key == PRIVILEGED_KEY {
            let (range, offset) = self.logical(address)?;
            range.backing.write(offset, bytes)
        } else {
            let len = bytes.len() as u64;
            //= R-QP-45
            let (region, offset) = self.region(pd, sge.key, address, len, Access::LOCAL_WRITE)?;
            region.backing.write(offset, bytes)
        };
        done.then_some(()).ok_or(AccessError)
    }

    /// Whether a peer may do `right` with `[address, address + len)` under `key`.
    pub(crate) fn check_remote(
        &self,
        pd: Pd,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<(), AccessError> {
        self.region(pd, key, address, len, right).map(|_| ())
    }

    /// Reads for a peer into the payload of `frame`.
    #[inline]
    pub(crate) fn read_remote(
        &self,
        pd: Pd,
        key: u32,
        address: u64,
        len: u32,
        frame: &mut Frame<'_>,
    ) -> Result<(), AccessError> {
        let (region, offset) = self.region(pd, key, address, u64::from(len), Access::REMOTE_READ)?;
        region.backing.read(offset, len as usize, frame).then_some(()).ok_or(AccessError)
    }

    /// Writes for a peer.
    #[inline]
    pub(crate) fn write_remote(
        &self,
        pd: Pd,
        key: u32,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let (region, offset) = self.region(pd, key, address, bytes.len() as u64, Access::REMOTE_WRITE)?;
        region.backing.write(offset, bytes).then_some(()).ok_or(AccessError)
    }

    /// The region of `key`, and where in it `address` is, if all of the range may be accessed so.
    #[inline]
    fn region(
        &self,
        pd: Pd,
        key: u32,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<(Pinned<'_, Region>, u64), AccessError> {
        //= rocev2 §10
        //= R-MR-10
        //= R-MR-16
        let region = self.regions.get(key >> 8).ok_or(AccessError)?;
        let offset = address.checked_sub(region.base).ok_or(AccessError)?;
        //= R-QP-57
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.length);
        if region.key != key || region.pd != pd || !region.access.contains(right) || !inside {
            return Err(AccessError);
        }
        Ok((region, offset))
    }

    /// The logical range of an address, and where in its memory the address is.
    #[inline]
    fn logical(&self, address: u64) -> Result<(Pinned<'_, Logical>, u64), AccessError> {
        //= R-MR-57
        let range = self.logical.get((address >> LOGICAL_BITS) as u32).ok_or(AccessError)?;
        let offset = (address & ((1 << LOGICAL_BITS) - 1)).checked_sub(range.offset).ok_or(AccessError)?;
        Ok((range, offset))
    }
}
