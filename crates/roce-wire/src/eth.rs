//! Ethernet II, with at most one 802.1Q tag.

use core::fmt;

use super::{Truncated, field};

mod at {
    pub const DESTINATION: usize = 0;
    pub const SOURCE: usize = 6;
    pub const ETHERTYPE: usize = 12;
    // Within the tag, which begins after its own ethertype.
    pub const TCI: usize = 0;
    pub const TAGGED_ETHERTYPE: usize = 2;
}

/// A MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl MacAddr {
    /// The EUI-64 made of this address, which serves as CA GUID.
    pub const fn eui64(self) -> u64 {
        let [o0, o1, o2, n0, n1, n2] = self.0;
        u64::from_be_bytes([o0, o1, o2, 0xFF, 0xFE, n0, n1, n2])
    }
}

/// An ethertype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const IPV6: Self = Self(0x86DD);
    pub const VLAN: Self = Self(0x8100);
}

/// Tag control information of 802.1Q: priority (bits 15-13), drop eligible (12), VLAN id (11-0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vlan(pub u16);

/// An Ethernet header and the tag behind it, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Eth<'a> {
    header: &'a [u8; Eth::LEN],
    tag: Option<&'a [u8; Eth::TAG_LEN]>,
}

impl<'a> Eth<'a> {
    /// Bytes without a tag.
    pub const LEN: usize = 14;
    /// Bytes that a tag adds.
    pub const TAG_LEN: usize = 4;

    /// The header at the start of `frame`, and what follows it.
    #[inline]
    pub fn split(frame: &'a [u8]) -> Result<(Self, &'a [u8]), Truncated> {
        let (header, rest) = frame.split_first_chunk().ok_or(Truncated)?;
        if field::be16::<{ at::ETHERTYPE }, _>(header) != EtherType::VLAN.0 {
            return Ok((Self { header, tag: None }, rest));
        }
        let (tag, rest) = rest.split_first_chunk().ok_or(Truncated)?;
        Ok((Self { header, tag: Some(tag) }, rest))
    }

    #[inline]
    pub fn destination(&self) -> MacAddr {
        MacAddr(*field::sub::<{ at::DESTINATION }, 6, _>(self.header))
    }

    #[inline]
    pub fn source(&self) -> MacAddr {
        MacAddr(*field::sub::<{ at::SOURCE }, 6, _>(self.header))
    }

    /// The tag, if the frame has one.
    #[inline]
    pub fn vlan(&self) -> Option<Vlan> {
        self.tag.map(|tag| Vlan(field::be16::<{ at::TCI }, _>(tag)))
    }

    /// The ethertype of the payload, behind the tag.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(match self.tag {
            Some(tag) => field::be16::<{ at::TAGGED_ETHERTYPE }, _>(tag),
            None => field::be16::<{ at::ETHERTYPE }, _>(self.header),
        })
    }

    /// Bytes of header and tag.
    #[inline]
    pub fn header_len(&self) -> usize {
        if self.tag.is_some() { Self::LEN + Self::TAG_LEN } else { Self::LEN }
    }
}

/// Summary of an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthRepr {
    pub destination: MacAddr,
    pub source: MacAddr,
    pub vlan: Option<Vlan>,
    /// Of the payload.
    pub ethertype: EtherType,
}

impl EthRepr {
    pub fn parse(view: &Eth<'_>) -> Self {
        Self {
            destination: view.destination(),
            source: view.source(),
            vlan: view.vlan(),
            ethertype: view.ethertype(),
        }
    }

    /// Bytes that [`EthRepr::emit`] writes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() { Eth::LEN + Eth::TAG_LEN } else { Eth::LEN }
    }

    /// Writes header and tag to the start of `buffer`; returns the bytes behind them.
    pub fn emit<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b mut [u8], Truncated> {
        let (header, rest) = buffer.split_first_chunk_mut::<{ Eth::LEN }>().ok_or(Truncated)?;
        field::put::<{ at::DESTINATION }, 6, _>(header, &self.destination.0);
        field::put::<{ at::SOURCE }, 6, _>(header, &self.source.0);
        let Some(vlan) = self.vlan else {
            field::put16::<{ at::ETHERTYPE }, _>(header, self.ethertype.0);
            return Ok(rest);
        };
        field::put16::<{ at::ETHERTYPE }, _>(header, EtherType::VLAN.0);
        let (tag, rest) = rest.split_first_chunk_mut::<{ Eth::TAG_LEN }>().ok_or(Truncated)?;
        field::put16::<{ at::TCI }, _>(tag, vlan.0);
        field::put16::<{ at::TAGGED_ETHERTYPE }, _>(tag, self.ethertype.0);
        Ok(rest)
    }
}
