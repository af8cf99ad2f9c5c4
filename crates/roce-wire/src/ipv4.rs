// SPDX-License-Identifier: MIT OR Apache-2.0

//! IPv4 header without options (RFC 791 §3.1).

use core::net::Ipv4Addr;

use crate::{
    layout::layout,
    place::{Be16, Be32, Bits, Bits16, Byte, Flag},
};

type TrafficClass = Byte<1>;
type TotalLength = Be16<2>;
type Checksum = Be16<10>;

//= rocev2 §2
layout! {
    /// An IPv4 header without its options. The summary is for one that carries UDP and is no fragment.
    Ipv4, Ipv4Repr, 20 bytes {
        /// DSCP (bits 7-2) and ECN (1-0).
        traffic_class: u8 = TrafficClass, variant;
        /// Bytes of header and payload.
        total_length: u16 = TotalLength;
        identification: u16 = Be16<4>;
        dont_fragment: bool = Flag<6, 6>;
        ttl: u8 = Byte<8>, variant;
        source: Ipv4Addr = Be32<12>;
        destination: Ipv4Addr = Be32<16>;
    }
    constant {
        /// 4.
        version: u8 = Bits<0, 7, 4>, 4;
        /// Internet header length: header and options in units of 4 bytes, as the header claims.
        ihl: u8 = Bits<0, 3, 0>, 5;
        more_fragments: bool = Flag<6, 5>, false;
        /// Offset of this fragment in its datagram, in units of 8 bytes.
        fragment_offset: u16 = Bits16<6, 12, 0>, 0;
        protocol: u8 = Byte<9>, Ipv4::UDP;
        /// Header checksum. `emit` writes the right one.
        checksum: u16 = Checksum, 0, variant;
    }
    then write_checksum;
}

impl Ipv4<'_> {
    /// Protocol number of UDP, the same for IPv6.
    pub const UDP: u8 = 17;

    /// Returns the bytes of header and options as the header claims.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.ihl()) * 4
    }

    /// Returns source and destination address as one number.
    #[must_use]
    #[inline]
    pub(crate) fn addresses(self) -> u64 {
        self.0.last_chunk().map_or(0, |addresses| u64::from_ne_bytes(*addresses))
    }

    /// Returns whether this is one of several fragments.
    #[must_use]
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Returns whether the datagram is UDP, without IPv4 options and no fragment.
    #[must_use]
    #[inline]
    pub fn is_plain_udp(&self) -> bool {
        let [start, _, _, _, _, _, flags, offset, _, protocol, ..] = *self.0;
        // Version and header length; all bits of flags and offset but "don't fragment".
        start == 0x45 && (flags & 0xBF) | offset == 0 && protocol == Self::UDP
    }

    /// Returns whether the header checksum is right, for a header without options.
    #[must_use]
    #[inline]
    pub fn checksum_valid(&self) -> bool {
        // The ones' complement sum is 0xFFFF: the sum is a multiple of that, and not zero. Multiplied by the inverse, a multiple
        // becomes its quotient, and what is none becomes greater than every quotient of a sum, which has 35 bits.
        let quotient = words(self.0).wrapping_mul(INVERSE);
        quotient.wrapping_sub(1) < 1 << 20
    }
}

/// The inverse of 0xFFFF modulo 2^64.
const INVERSE: u64 = 0xFFFE_FFFE_FFFE_FFFF;
const _: () = assert!(INVERSE.wrapping_mul(0xFFFF) == 1, "the inverse");

/// Ones' complement sum of a header's 16-bit words (RFC 1071).
#[inline(always)]
#[allow(clippy::inline_always, reason = "on the way of every packet, and ten additions")]
fn sum(header: &[u8; Ipv4::LEN]) -> u16 {
    u16::from_be(fold(words(header)))
}

/// Sum of a header's 32-bit words, in the byte order of the processor: only the bytes of the folded sum depend on it.
#[inline(always)]
#[allow(clippy::inline_always, reason = "on the way of every packet, and five additions")]
fn words(header: &[u8; Ipv4::LEN]) -> u64 {
    header.as_chunks().0.iter().fold(0u64, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)))
}

/// Reduces a sum to 16 bits with end-around carry.
#[inline]
const fn fold(sum: u64) -> u16 {
    // 35 bits, then 20, then 17, then 16.
    let sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    sum as u16
}

fn write_checksum(header: &mut [u8; Ipv4::LEN]) {
    Checksum::put(header, 0);
    let checksum = !sum(header);
    Checksum::put(header, checksum);
}

/// Sets the traffic class of an existing header, and its checksum.
pub(crate) fn set_traffic_class(header: &mut [u8; Ipv4::LEN], traffic_class: u8) {
    TrafficClass::put(header, traffic_class);
    write_checksum(header);
}

/// Returns the sum of a header's words without length and checksum, for [`set_total_length`].
pub(crate) fn partial_sum(header: &[u8; Ipv4::LEN]) -> u16 {
    let mut header = *header;
    TotalLength::put(&mut header, 0);
    Checksum::put(&mut header, 0);
    sum(&header)
}

/// Sets the length of an existing header, and its checksum. `partial` is the header's [`partial_sum`].
#[inline]
pub(crate) const fn set_total_length(header: &mut [u8; Ipv4::LEN], partial: u16, total_length: u16) {
    TotalLength::put(header, total_length);
    let (sum, carry) = partial.overflowing_add(total_length);
    // Cannot wrap: with a carry the sum is at most 0xFFFE.
    Checksum::put(header, !sum.wrapping_add(carry as u16));
}
