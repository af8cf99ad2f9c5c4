// SPDX-License-Identifier: MIT OR Apache-2.0

//! Path MTU: the largest payload of a packet.

use crate::value::newtypes;

/// A path MTU (PMTU).
///
/// Source: rocev2 §5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    Bytes256,
    Bytes512,
    Bytes1024,
    Bytes2048,
    Bytes4096,
}

impl PathMtu {
    /// From the smallest to the largest.
    pub const ALL: [Self; 5] =
        [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// Bytes of headers counted against an Ethernet MTU, as in Linux's rdma_cm.
    pub const OVERHEAD: usize = 96;

    /// Returns the payload bytes of a full packet.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> usize {
        256 << (self as usize)
    }

    /// Returns the code that CM messages carry.
    #[must_use]
    #[inline]
    pub const fn code(self) -> MtuCode {
        MtuCode(self as u8 + 1)
    }

    /// Returns the largest path MTU whose packets fit an Ethernet MTU of `ethernet` bytes; `None` if none does.
    #[must_use]
    pub fn largest_for(ethernet: usize) -> Option<Self> {
        //= rocev2 §5
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes().saturating_add(Self::OVERHEAD) <= ethernet)
    }
}

/// The 4-bit path MTU code of CM messages: 1 (256 bytes) to 5 (4096 bytes). Others are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuCode(pub u8);

impl MtuCode {
    /// Returns the path MTU; `None` for an invalid code.
    #[must_use]
    #[inline]
    pub fn mtu(self) -> Option<PathMtu> {
        PathMtu::ALL.into_iter().find(|mtu| mtu.code() == self)
    }
}

newtypes! {
    MtuCode: u8, MtuCode, |code: MtuCode| code.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §5
    #[test]
    fn codes_one_to_five_are_256_to_4096_bytes() {
        let bytes: Vec<_> = (0..=6).map(|code| MtuCode(code).mtu().map(PathMtu::bytes)).collect();
        assert_eq!(bytes, [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None]);
    }

    //= rocev2 §5
    #[test]
    fn path_mtu_leaves_96_bytes_of_the_ethernet_mtu_for_headers() {
        assert_eq!(PathMtu::largest_for(1500), Some(PathMtu::Bytes1024));
        assert_eq!(PathMtu::largest_for(2143), Some(PathMtu::Bytes1024));
        assert_eq!(PathMtu::largest_for(2144), Some(PathMtu::Bytes2048));
        assert_eq!(PathMtu::largest_for(4192), Some(PathMtu::Bytes4096));
        assert_eq!(PathMtu::largest_for(351), None);
    }
}
