//! Memory that work requests and peers may name: protection domains, regions, windows, logical ranges.
//!
//! One table has all that a key can name. What the consumer registers for good ([`Fixed`]) is found and used
//! without more ado; what requests turn on and off ([`fast`], [`window`]) has a [`switch`]. `access` is how
//! packets reach the memory of a key, `keys` what requests do to keys.

mod access;
mod fast;
mod gate;
mod keys;
mod life;
mod switch;
#[cfg(test)]
mod tests;
mod window;

pub use fast::Registration;
pub use life::{Event as KeyEvent, KeyTransitions, State as KeyState};
pub(crate) use switch::Ticket;
pub use window::{Binding, Window};

use core::sync::atomic::{AtomicU32, Ordering};

use lock_api::RawMutex;

use crate::arc::Arc;
use crate::error::CreateError;
use crate::memory::Backing;
use crate::random::Random;
use crate::slots::{Pinned, Slots};
use fast::Fast;
use life::State;
use roce_wire::Qpn;
use window::View;

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

impl Access {
    /// All that peers may do.
    const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);

    /// Whether a region can be open in this way.
    const fn is_sound(self) -> bool {
        !self.contains(Self::REMOTE_WRITE) || self.contains(Self::LOCAL_WRITE)
    }
}

/// Memory that has a key.
#[derive(Debug)]
pub struct Region {
    /// The key's upper 24 bits, the lower 8 being 0.
    index: u32,
    pd: Pd,
    content: Content,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "each in an allocation of its own")]
enum Content {
    /// Registered until it is deregistered.
    Fixed(Fixed),
    /// Registered by requests.
    Fast(Fast),
    /// A part of another one, bound by requests.
    Window(View),
}

#[derive(Debug)]
struct Fixed {
    range: Range,
    backing: Backing,
    /// Windows that are bound to it.
    windows: AtomicU32,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug)]
struct Range {
    key: u32,
    base: u64,
    length: u64,
    access: Access,
}

impl Range {
    const NONE: Self = Self { key: 0, base: 0, length: 0, access: Access::empty() };

    /// Where in it `address` is, if all of `[address, address + len)` may be accessed so under `key`.
    #[inline]
    fn offset(&self, key: u32, address: u64, len: u64, right: Access) -> Result<u64, AccessError> {
        let offset = address.checked_sub(self.base).ok_or(AccessError)?;
        //= rocev2 §10
        //= R-QP-57
        //= R-MR-10
        //= R-MR-16
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.length);
        if self.key != key || !self.access.contains(right) || !inside {
            return Err(AccessError);
        }
        Ok(offset)
    }
}

impl Region {
    /// Names the region locally and, if its rights allow, to peers. Never 0, and not used again soon
    /// after the region is gone. The low byte of a region for fast registration is that of the last
    /// registration that had its turn, whether it is in force still or not, and 0 before the first.
    ///
    /// This and the other getters wait for nobody, and nobody waits for their callers: any IRQL. While a
    /// registration has its turn, they may tell of it or of the one before.
    #[inline]
    pub fn key(&self) -> u32 {
        match self.range().key {
            0 => self.index,
            key => key,
        }
    }

    /// Address of the first byte, for elements and peers; 0 when nothing is registered.
    #[inline]
    pub fn base(&self) -> u64 {
        self.range().base
    }

    /// In bytes; 0 when nothing is registered.
    pub fn length(&self) -> u64 {
        self.range().length
    }

    /// None when nothing is registered.
    pub fn access(&self) -> Access {
        self.range().access
    }

    /// Whether it grants anything at the moment; once it is deregistered, whether it did at last.
    pub fn state(&self) -> KeyState {
        match &self.content {
            Content::Fixed(_) => State::Valid,
            Content::Fast(fast) => fast.switch.state(),
            Content::Window(view) => view.switch.state(),
        }
    }

    /// Windows that are bound to it. They grant nothing any more once it is deregistered.
    pub fn windows(&self) -> u32 {
        match &self.content {
            Content::Fixed(fixed) => fixed.windows.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// What is in force; of what is not, nothing but the key that it had.
    #[inline]
    fn range(&self) -> Range {
        let state = self.state();
        let told = match &self.content {
            Content::Fixed(fixed) => fixed.range,
            Content::Fast(fast) => fast.switch.told(),
            Content::Window(view) => view.switch.told(),
        };
        match state {
            State::Valid => told,
            State::Free => Range { key: told.key, ..Range::NONE },
        }
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

/// A registration, bind or invalidation that must not be, as the key is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyError;

/// Who accesses memory, or turns keys on and off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) pd: Pd,
    pub(crate) qpn: Qpn,
}

/// All memory that an engine knows.
pub(crate) struct Regions<R: RawMutex> {
    table: Slots<Region, R>,
    logical: Slots<Logical, R>,
}

impl<R: RawMutex> Regions<R> {
    pub(crate) fn try_new(
        max_regions: u32,
        max_logical: u32,
        random: &mut Random,
    ) -> Result<Self, CreateError> {
        let table = Slots::try_new(max_regions, random)?;
        Ok(Self { table, logical: Slots::try_new(max_logical, random)? })
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
        if !fits || !access.is_sound() {
            return Err(CreateError::Invalid);
        }
        self.insert(pd, |index, salt| {
            // The lower bits are the consumer's where it registers by requests; here they are nobody's.
            let range = Range { key: index | u32::from(salt), base, length, access };
            Content::Fixed(Fixed { range, backing, windows: AtomicU32::new(0) })
        })
    }

    pub(crate) fn allocate(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        let fast = Fast::try_new(pages, remote)?;
        self.insert(pd, |_, _| Content::Fast(fast))
    }

    pub(crate) fn create_window(&self, pd: Pd) -> Result<Window, CreateError> {
        self.insert(pd, |_, _| Content::Window(View::new())).map(Window)
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

    /// IRQL <= `DISPATCH_LEVEL`, see [`Slots::remove`].
    pub(crate) fn deregister(&self, region: &Region) -> bool {
        //= R-MR-17
        //= R-CLOSE-27
        self.table.remove(region.index >> 8).is_some()
    }

    /// IRQL <= `DISPATCH_LEVEL`, as [`Regions::deregister`].
    pub(crate) fn destroy_window(&self, window: &Window) -> bool {
        // Out of the table first: then no bind has its turn any more, and what one has done is seen here.
        let removed = self.deregister(&window.0);
        if removed
            && let Content::Window(view) = &window.0.content
            && let Some(bound) = view.switch.end()
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

    /// The logical range of an address, and where in its memory the address is.
    #[inline]
    fn logical(&self, address: u64) -> Result<(Pinned<'_, Logical>, u64), AccessError> {
        //= R-MR-57
        let range = self.logical.get((address >> LOGICAL_BITS) as u32).ok_or(AccessError)?;
        let offset = (address & ((1 << LOGICAL_BITS) - 1)).checked_sub(range.offset).ok_or(AccessError)?;
        Ok((range, offset))
    }
}
