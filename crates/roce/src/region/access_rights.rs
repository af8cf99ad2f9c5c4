// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains, access rights, and the check of an access against a key.

use roce_wire::Qpn;

/// A protection domain: a queue pair can use the regions and windows of its own one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub(crate) u32);

/// The key with which local scatter/gather elements name logical addresses.
///
/// The same for every protection domain, never a region's key, and not valid for a peer.
//= R-MR-53, R-MR-54
pub const PRIVILEGED_KEY: u32 = 0xFFFF_FFFF;

bitflags::bitflags! {
    /// Access rights of a region. Local read access is always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Receives and READ responses may write it.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may read it.
        const REMOTE_READ = 1 << 1;
        /// Peers may write it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_WRITE = 1 << 2;
        /// Peers may execute atomic operations on it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl Access {
    /// The rights of peers that connection management gives them.
    pub(crate) const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);

    /// All rights of peers.
    pub(crate) const OF_PEERS: Self = Self::REMOTE.union(Self::REMOTE_ATOMIC);

    /// Returns whether a region can have these rights.
    pub(super) const fn is_sound(self) -> bool {
        !self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC)) || self.contains(Self::LOCAL_WRITE)
    }
}

/// The address range and the rights of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRange {
    pub(super) key: u32,
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) access: Access,
}

impl KeyRange {
    pub(super) const NONE: Self = Self { key: 0, base: 0, length: 0, access: Access::empty() };

    /// Returns the offset of `address`, if `key` allows `right` on all of `[address, address + len)`.
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

/// Access denied: unknown key, another protection domain, missing right, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessError;

/// The key's state does not allow the registration, bind or invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyError;

/// The queue pair on whose behalf memory is accessed or a key is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) pd: Pd,
    pub(crate) qpn: Qpn,
}
