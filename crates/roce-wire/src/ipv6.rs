//! IPv6, fixed header.

use core::net::Ipv6Addr;

use super::{Truncated, field, ipv4::Ipv4};

mod at {
    pub const VERSION_CLASS_FLOW: usize = 0;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: usize = 8;
    pub const DESTINATION: usize = 24;
}

/// An IPv6 fixed header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a>(&'a [u8; Ipv6::LEN]);

impl<'a> Ipv6<'a> {
    pub const LEN: usize = 40;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn new(bytes: &'a [u8; Ipv6::LEN]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn as_bytes(&self) -> &'a [u8; Ipv6::LEN] {
        self.0
    }

    #[inline]
    pub fn version(&self) -> u8 {
        (self.first_word() >> 28) as u8
    }

    /// DSCP (bits 7-2) and ECN (1-0).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.first_word() >> 20) as u8
    }

    /// 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.first_word() & 0x000F_FFFF
    }

    /// Bytes behind the fixed header.
    #[inline]
    pub fn payload_length(&self) -> u16 {
        field::be16::<{ at::PAYLOAD_LENGTH }, _>(self.0)
    }

    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0[at::NEXT_HEADER]
    }

    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0[at::HOP_LIMIT]
    }

    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(*field::sub::<{ at::SOURCE }, 16, _>(self.0))
    }

    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(*field::sub::<{ at::DESTINATION }, 16, _>(self.0))
    }

    #[inline]
    fn first_word(self) -> u32 {
        field::be32::<{ at::VERSION_CLASS_FLOW }, _>(self.0)
    }
}

/// Summary of an IPv6 header directly before UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    pub hop_limit: u8,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl Ipv6Repr {
    pub fn parse(view: &Ipv6<'_>) -> Self {
        Self {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
            payload_len: view.payload_length(),
        }
    }

    pub fn emit(&self, header: &mut [u8; Ipv6::LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000F_FFFF;
        field::put32::<{ at::VERSION_CLASS_FLOW }, _>(header, first);
        field::put16::<{ at::PAYLOAD_LENGTH }, _>(header, self.payload_len);
        header[at::NEXT_HEADER] = Ipv4::UDP;
        header[at::HOP_LIMIT] = self.hop_limit;
        field::put::<{ at::SOURCE }, 16, _>(header, &self.source.octets());
        field::put::<{ at::DESTINATION }, 16, _>(header, &self.destination.octets());
    }
}

/// Sets the traffic class of a header written before.
pub(super) fn patch_traffic_class(header: &mut [u8; Ipv6::LEN], traffic_class: u8) {
    let first = field::be32::<{ at::VERSION_CLASS_FLOW }, _>(header);
    let first = first & 0xF00F_FFFF | u32::from(traffic_class) << 20;
    field::put32::<{ at::VERSION_CLASS_FLOW }, _>(header, first);
}

/// Sets the payload length of a header written before.
#[inline]
pub(super) fn patch_length(header: &mut [u8; Ipv6::LEN], payload_length: u16) {
    field::put16::<{ at::PAYLOAD_LENGTH }, _>(header, payload_length);
}

/// Sets the fields that the ICRC does not cover to ones.
#[inline]
pub(crate) const fn mask_variable(header: &mut [u8; Ipv6::LEN]) {
    //= rocev2 §2
    field::put32::<{ at::VERSION_CLASS_FLOW }, _>(header, 0x6FFF_FFFF);
    header[at::HOP_LIMIT] = 0xFF;
}
