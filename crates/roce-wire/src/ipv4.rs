//! IPv4, fixed header.

use core::net::Ipv4Addr;

use super::{Truncated, field};

mod at {
    pub const VERSION_IHL: usize = 0;
    pub const TRAFFIC_CLASS: usize = 1;
    pub const TOTAL_LENGTH: usize = 2;
    pub const IDENTIFICATION: usize = 4;
    pub const FLAGS_FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SOURCE: usize = 12;
    pub const DESTINATION: usize = 16;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1FFF;

/// An IPv4 header without its options.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a>(&'a [u8; Ipv4::LEN]);

impl<'a> Ipv4<'a> {
    /// Bytes without options.
    pub const LEN: usize = 20;
    /// Protocol number of UDP, the same for IPv6.
    pub const UDP: u8 = 17;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn new(bytes: &'a [u8; Ipv4::LEN]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn as_bytes(&self) -> &'a [u8; Ipv4::LEN] {
        self.0
    }

    #[inline]
    pub fn version(&self) -> u8 {
        self.0[at::VERSION_IHL] >> 4
    }

    /// Bytes of header and options as the header claims.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0[at::VERSION_IHL] & 0x0F) * 4
    }

    /// DSCP (bits 7-2) and ECN (1-0).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.0[at::TRAFFIC_CLASS]
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn total_length(&self) -> u16 {
        field::be16::<{ at::TOTAL_LENGTH }, _>(self.0)
    }

    #[inline]
    pub fn identification(&self) -> u16 {
        field::be16::<{ at::IDENTIFICATION }, _>(self.0)
    }

    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_fragment() & DONT_FRAGMENT != 0
    }

    /// Whether this is one of several fragments.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_fragment() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Where in its datagram this fragment begins, in units of 8 bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        self.flags_fragment() & FRAGMENT_OFFSET
    }

    #[inline]
    pub fn ttl(&self) -> u8 {
        self.0[at::TTL]
    }

    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[at::PROTOCOL]
    }

    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(field::be32::<{ at::SOURCE }, _>(self.0))
    }

    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(field::be32::<{ at::DESTINATION }, _>(self.0))
    }

    /// Whether the header checksum is right, for a header without options.
    #[inline]
    pub fn checksum_valid(&self) -> bool {
        sum(self.0) == 0xFFFF
    }

    #[inline]
    fn flags_fragment(self) -> u16 {
        field::be16::<{ at::FLAGS_FRAGMENT }, _>(self.0)
    }
}

/// Ones' complement sum of a header's words.
#[inline]
fn sum(header: &[u8; Ipv4::LEN]) -> u16 {
    let words = u64::from(field::be32::<0, _>(header))
        + u64::from(field::be32::<4, _>(header))
        + u64::from(field::be32::<8, _>(header))
        + u64::from(field::be32::<12, _>(header))
        + u64::from(field::be32::<16, _>(header));
    fold(words)
}

/// `sum` reduced to 16 bits with end-around carry.
#[inline]
pub(super) const fn fold(sum: u64) -> u16 {
    // 35 bits, then 20, then 17, then 16.
    let sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    sum as u16
}

/// Summary of an IPv4 header without options that carries UDP and is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    pub traffic_class: u8,
    pub identification: u16,
    pub dont_fragment: bool,
    pub ttl: u8,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// Bytes behind the header, at most 65515.
    pub payload_len: u16,
}

impl Ipv4Repr {
    pub fn parse(view: &Ipv4<'_>) -> Self {
        Self {
            traffic_class: view.traffic_class(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            ttl: view.ttl(),
            source: view.source(),
            destination: view.destination(),
            payload_len: view.total_length().saturating_sub(Ipv4::LEN as u16),
        }
    }

    /// Writes the header, checksum included.
    pub fn emit(&self, header: &mut [u8; Ipv4::LEN]) {
        header[at::VERSION_IHL] = 0x45;
        header[at::TRAFFIC_CLASS] = self.traffic_class;
        field::put16::<{ at::IDENTIFICATION }, _>(header, self.identification);
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        field::put16::<{ at::FLAGS_FRAGMENT }, _>(header, flags);
        header[at::TTL] = self.ttl;
        header[at::PROTOCOL] = Ipv4::UDP;
        field::put32::<{ at::SOURCE }, _>(header, self.source.to_bits());
        field::put32::<{ at::DESTINATION }, _>(header, self.destination.to_bits());
        field::put16::<{ at::TOTAL_LENGTH }, _>(header, self.payload_len.saturating_add(Ipv4::LEN as u16));
        field::put16::<{ at::CHECKSUM }, _>(header, 0);
        let checksum = !sum(header);
        field::put16::<{ at::CHECKSUM }, _>(header, checksum);
    }
}

/// Sets the length of a header written before with `payload_len` 0, and its checksum, whose sum over
/// the other words is `partial` (see [`partial_sum`]).
#[inline]
pub(super) fn patch_length(header: &mut [u8; Ipv4::LEN], partial: u64, total_length: u16) {
    field::put16::<{ at::TOTAL_LENGTH }, _>(header, total_length);
    field::put16::<{ at::CHECKSUM }, _>(header, !fold(partial + u64::from(total_length)));
}

/// Sets the traffic class of a finished header.
pub(super) fn patch_traffic_class(header: &mut [u8; Ipv4::LEN], traffic_class: u8) {
    header[at::TRAFFIC_CLASS] = traffic_class;
    field::put16::<{ at::CHECKSUM }, _>(header, 0);
    let checksum = !sum(header);
    field::put16::<{ at::CHECKSUM }, _>(header, checksum);
}

/// Sum of a header's words without length and checksum, for [`patch_length`].
pub(super) fn partial_sum(header: &[u8; Ipv4::LEN]) -> u64 {
    let mut header = *header;
    field::put16::<{ at::TOTAL_LENGTH }, _>(&mut header, 0);
    field::put16::<{ at::CHECKSUM }, _>(&mut header, 0);
    u64::from(sum(&header))
}

/// Sets the fields that the ICRC does not cover to ones.
#[inline]
pub(crate) const fn mask_variable(header: &mut [u8; Ipv4::LEN]) {
    //= rocev2 §2
    header[at::TRAFFIC_CLASS] = 0xFF;
    header[at::TTL] = 0xFF;
    field::put16::<{ at::CHECKSUM }, _>(header, 0xFFFF);
}
