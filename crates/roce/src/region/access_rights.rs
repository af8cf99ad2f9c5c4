//! rights

use roce_wire::Qpn;

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
    pub(super) const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);

    /// Whether a region can be open in this way.
    pub(super) const fn is_sound(self) -> bool {
        !self.contains(Self::REMOTE_WRITE) || self.contains(Self::LOCAL_WRITE)
    }
}

/// What a key stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRange {
    pub(super) key: u32,
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) access: Access,
}

impl KeyRange {
    pub(super) const NONE: Self = Self { key: 0, base: 0, length: 0, access: Access::empty() };

    /// Where in it `address` is, if all of `[address, address + len)` may be accessed so under `key`.
    #[inline]
    pub(super) fn offset(&self, key: u32, address: u64, len: u64, right: Access) -> Result<u64, AccessError> {
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
