// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet II, with at most one IEEE 802.1Q tag.

use core::fmt;

use crate::{
    layout::layout,
    place::{Be16, Bytes},
    truncated::Truncated,
    value::newtypes,
};

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
    /// Returns the EUI-64 of this address, which serves as CA GUID.
    #[must_use]
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

newtypes! {
    MacAddr: [u8; 6], MacAddr, |address: MacAddr| address.0;
    EtherType: u16, EtherType, |ethertype: EtherType| ethertype.0;
    Vlan: u16, Vlan, |vlan: Vlan| vlan.0;
}

layout! {
    /// An Ethernet II header.
    Header, HeaderRepr, 14 bytes {
        destination: MacAddr = Bytes<0, 6>;
        source: MacAddr = Bytes<6, 6>;
        /// Of the payload, or [`EtherType::VLAN`].
        ethertype: EtherType = Be16<12>;
    }
}

layout! {
    /// An 802.1Q tag behind its own ethertype.
    Tag, TagRepr, 4 bytes {
        vlan: Vlan = Be16<0>;
        /// Of the payload.
        ethertype: EtherType = Be16<2>;
    }
}

/// An Ethernet header with the 802.1Q tag behind it, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Eth<'a> {
    header: Header<'a>,
    tag: Option<Tag<'a>>,
}

impl<'a> Eth<'a> {
    /// Length of the header in bytes without a tag.
    pub const LEN: usize = Header::LEN;
    /// Bytes that a tag adds.
    pub const TAG_LEN: usize = Tag::LEN;

    /// Returns the header at the start of `frame` and the bytes behind it.
    ///
    /// # Errors
    /// [`Truncated`] if the frame ends within header or tag.
    #[inline]
    pub fn split(frame: &'a [u8]) -> Result<(Self, &'a [u8]), Truncated> {
        let (header, rest) = frame.split_first_chunk().ok_or(Truncated)?;
        let header = Header::new(header);
        if header.ethertype() != EtherType::VLAN {
            return Ok((Self { header, tag: None }, rest));
        }
        let (tag, rest) = rest.split_first_chunk().ok_or(Truncated)?;
        Ok((Self { header, tag: Some(Tag::new(tag)) }, rest))
    }

    /// Splits a frame without a tag whose payload has this ethertype; `None` for any other frame.
    #[inline]
    pub(crate) fn split_untagged(frame: &'a [u8], ethertype: EtherType) -> Option<(Self, &'a [u8])> {
        let (header, rest) = frame.split_first_chunk()?;
        let header = Header::new(header);
        (header.ethertype() == ethertype).then_some((Self { header, tag: None }, rest))
    }

    /// Returns the destination address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> MacAddr {
        self.header.destination()
    }

    /// Returns the source address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> MacAddr {
        self.header.source()
    }

    /// Returns the tag control information, if the frame has a tag.
    #[must_use]
    #[inline]
    pub fn vlan(&self) -> Option<Vlan> {
        self.tag.map(|tag| tag.vlan())
    }

    /// Returns the ethertype of the payload.
    #[must_use]
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        self.tag.map_or(self.header.ethertype(), |tag| tag.ethertype())
    }

    /// Returns the bytes of header and tag.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> usize {
        if self.tag.is_some() { Self::LEN + Self::TAG_LEN } else { Self::LEN }
    }
}

/// Summary of an [`Eth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthRepr {
    pub destination: MacAddr,
    pub source: MacAddr,
    pub vlan: Option<Vlan>,
    /// Of the payload.
    pub ethertype: EtherType,
}

impl EthRepr {
    /// Reads all fields.
    #[must_use]
    pub fn parse(view: &Eth<'_>) -> Self {
        Self {
            destination: view.destination(),
            source: view.source(),
            vlan: view.vlan(),
            ethertype: view.ethertype(),
        }
    }

    /// Returns the number of bytes that [`EthRepr::emit`] writes.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() { Eth::LEN + Eth::TAG_LEN } else { Eth::LEN }
    }

    /// Writes header and tag to the start of `buffer`; returns the bytes behind them.
    ///
    /// # Errors
    /// [`Truncated`] if `buffer` is shorter than [`EthRepr::header_len`]; its content is then undefined.
    pub fn emit<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b mut [u8], Truncated> {
        let Self { destination, source, vlan, ethertype } = *self;
        let (header, rest) = buffer.split_first_chunk_mut().ok_or(Truncated)?;
        let Some(vlan) = vlan else {
            HeaderRepr { destination, source, ethertype }.emit(header);
            return Ok(rest);
        };
        HeaderRepr { destination, source, ethertype: EtherType::VLAN }.emit(header);
        let (tag, rest) = rest.split_first_chunk_mut().ok_or(Truncated)?;
        TagRepr { vlan, ethertype }.emit(tag);
        Ok(rest)
    }
}
