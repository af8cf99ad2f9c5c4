// SPDX-License-Identifier: MIT OR Apache-2.0

//! The header of the RDMA IP CM service at the start of a REQ's private data (IBTA Vol 1 Annex A11).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    layout::layout,
    place::{Be16, Bits, Byte, Bytes},
};

//= rocev2 §11
layout! {
    /// IP CM header: the IP addresses and the source port of the connection.
    IpCm, IpCmRepr, 36 bytes {
        /// Major version in bits 7-4, minor in 3-0; 0.
        version: u8 = Byte<0>;
        /// 4 or 6.
        ip_version: u8 = Bits<1, 7, 4>;
        source_port: u16 = Be16<2>;
        /// An IPv4 address is in the last four bytes, after zeros.
        source: [u8; 16] = Bytes<4, 16>;
        destination: [u8; 16] = Bytes<20, 16>;
    }
}

/// The addresses of an [`IpCm`] header, both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpEnds {
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
}

impl IpEnds {
    /// Reads the addresses; `None` for a header of another version.
    #[must_use]
    pub fn parse(header: &IpCm<'_>) -> Option<Self> {
        if header.version() != 0 {
            return None;
        }
        let is_v4 = match header.ip_version() {
            4 => true,
            6 => false,
            _ => return None,
        };
        let address = |bytes: [u8; 16]| match bytes {
            [.., a, b, c, d] if is_v4 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)),
        };
        Some(Self {
            source: address(header.source()),
            source_port: header.source_port(),
            destination: address(header.destination()),
        })
    }

    /// Returns the header with these addresses.
    #[must_use]
    pub fn repr(&self) -> IpCmRepr {
        let bytes = |ip| match ip {
            IpAddr::V4(ip) => (u128::from(Ipv4Addr::to_bits(ip))).to_be_bytes(),
            IpAddr::V6(ip) => Ipv6Addr::octets(&ip),
        };
        IpCmRepr {
            version: 0,
            ip_version: if self.source.is_ipv4() { 4 } else { 6 },
            source_port: self.source_port,
            source: bytes(self.source),
            destination: bytes(self.destination),
        }
    }
}
