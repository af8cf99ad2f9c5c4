//! Path MTU: the largest payload of a packet.

/// A path MTU that exists.
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

    /// Headers that are counted against an Ethernet MTU, in bytes, as Linux's rdma_cm counts them.
    pub const OVERHEAD: usize = 96;

    /// Payload bytes of a full packet.
    #[inline]
    pub const fn bytes(self) -> usize {
        256 << (self as usize)
    }

    /// The code of CM messages.
    #[inline]
    pub const fn code(self) -> MtuCode {
        MtuCode(self as u8 + 1)
    }

    /// The largest whose packets fit an Ethernet MTU of `ethernet` bytes; `None` when not even 256 do.
    pub fn largest_for(ethernet: usize) -> Option<Self> {
        //= rocev2 §5
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes().saturating_add(Self::OVERHEAD) <= ethernet)
    }
}

/// The 4-bit path MTU code of CM messages: 1 (256 bytes) to 5 (4096 bytes) exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuCode(pub u8);

impl MtuCode {
    /// The path MTU of this code; `None` when there is none.
    #[inline]
    pub fn mtu(self) -> Option<PathMtu> {
        PathMtu::ALL.into_iter().find(|mtu| mtu.code() == self)
    }
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
    fn an_ethernet_mtu_leaves_96_bytes_for_headers() {
        assert_eq!(PathMtu::largest_for(1500), Some(PathMtu::Bytes1024));
        assert_eq!(PathMtu::largest_for(2143), Some(PathMtu::Bytes1024));
        assert_eq!(PathMtu::largest_for(2144), Some(PathMtu::Bytes2048));
        assert_eq!(PathMtu::largest_for(4192), Some(PathMtu::Bytes4096));
        assert_eq!(PathMtu::largest_for(351), None);
    }
}
