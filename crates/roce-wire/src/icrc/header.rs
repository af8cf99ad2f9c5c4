// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ICRC of the headers: variant fields, which routers may change, count as ones.
//!
//! A received packet is contiguous from its IP header on. Masks are applied to its first bytes while they are summed
//! ([`of_packet`]). Packets that a queue pair sends differ before their BTH in two lengths only. Their state up to
//! there is computed once, without the lengths, and the lengths are added for each packet ([`Prefix`]).

use super::{
    crc::{Crc, CrcState, Running},
    masks::{LEAD, MASKED, Masks, V4, V6, ones},
    table,
};
use crate::{bth::Bth, ipv4::Ipv4, ipv6::Ipv6, udp::Udp};

/// Returns the ICRC state at the end of a packet, which goes from its IP header (IPv4 without options, or IPv6) to its
/// last pad byte. `led` is the packet and the [`LEAD`] bytes before it.
#[inline]
pub(crate) fn of_packet(crc: Crc, is_v4: bool, led: &[u8]) -> CrcState {
    let state = if is_v4 { crc.of_packet::<false>(led, &V4) } else { crc.of_packet::<true>(led, &V6) };
    state.unwrap_or_else(|| by_table(if is_v4 { &V4 } else { &V6 }, led))
}

/// [`of_packet`] for packets over IPv4 of a length that the compiler knows.
#[inline]
pub(crate) fn of_v4<const LEN: usize>(crc: Crc, led: &[u8; LEN]) -> CrcState {
    crc.of_v4(led).unwrap_or_else(|| by_table(&V4, led))
}

/// [`of_packet`] for any length, on any processor.
#[inline(never)]
fn by_table(masks: &Masks, led: &[u8]) -> CrcState {
    let (head, rest) = led.split_at(led.len().min(MASKED));
    let mut masked = [0; MASKED];
    for (((to, from), keep), add) in masked.iter_mut().zip(head).zip(&masks.keep).zip(&masks.add) {
        *to = from & keep ^ add;
    }
    let head = masked.get(LEAD..head.len()).unwrap_or_default();
    Crc::table().update(Crc::table().update(CrcState(0), head), rest)
}

/// The ICRC state behind the UDP header, for packets that are equal up to there except in length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    /// The register for lengths of zero.
    zero: u32,
}

impl Prefix {
    /// Returns the prefix of packets with these headers. Both headers must give the same length.
    pub(crate) fn new(ip: &[u8], udp: Udp<'_>) -> Self {
        let is_v4 = ip.len() == Ipv4::LEN;
        let mut masked = ones(if is_v4 { &Ipv4::VARIANT } else { &Ipv6::VARIANT });
        for (byte, header) in masked.iter_mut().zip(ip.iter().chain(udp.as_bytes())) {
            *byte |= header;
        }
        let headers = masked.get(..ip.len().saturating_add(Udp::LEN)).unwrap_or_default();
        let whole = Self { zero: Crc::table().update(CrcState::ICRC_START, headers).0 };
        // Adding the contribution of the length a second time removes it.
        Self { zero: whole.with_length(is_v4, udp.length()).0 }
    }

    /// Returns the state for a packet of `udp_len` bytes from its UDP header on. `is_v4` is that of the headers.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame; the family is known there")]
    pub(crate) fn with_length(self, is_v4: bool, udp_len: u16) -> CrcState {
        // The register is linear in its input: the contribution of the lengths does not depend on the other bytes.
        let in_udp = UDP_LENGTH.of(udp_len);
        let in_ip = if is_v4 {
            let total = udp_len.wrapping_add(Ipv4::LEN as u16);
            V4_LENGTH.of(total)
        } else {
            V6_LENGTH.of(udp_len)
        };
        CrcState(self.zero ^ in_udp ^ in_ip)
    }

    /// Returns [`Prefix::with_length`], continued over BTH and extended headers.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame; the length of `ext` is known there")]
    pub(crate) fn begin(
        self,
        crc: Crc,
        is_v4: bool,
        udp_len: u16,
        bth: &[u8; Bth::LEN],
        ext: &[u8],
    ) -> Running {
        let mut masked = table::words(bth);
        for (word, ones) in masked.iter_mut().zip(table::words(&Bth::VARIANT)) {
            *word |= ones;
        }
        crc.begin(self.with_length(is_v4, udp_len), masked, ext)
    }
}

/// The contributions of the bytes of a 16-bit field to the register at the end of the UDP header.
struct Field {
    high: [u32; 256],
    low: [u32; 256],
}

// The length is at offset 4 of the UDP header, and at 2 (IPv4) or 4 (IPv6) of the IP header.
static UDP_LENGTH: Field = Field::before(Udp::LEN - 4 - 2);
static V4_LENGTH: Field = Field::before(Ipv4::LEN + Udp::LEN - 2 - 2);
static V6_LENGTH: Field = Field::before(Ipv6::LEN + Udp::LEN - 4 - 2);

impl Field {
    /// Returns the contributions of a field that `follow` bytes come after.
    #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
    const fn before(follow: usize) -> Self {
        let mut field = Self { high: [0; 256], low: [0; 256] };
        let mut byte = 0;
        while byte < 256 {
            field.high[byte] = table::contribution(byte as u8, follow + 1);
            field.low[byte] = table::contribution(byte as u8, follow);
            byte += 1;
        }
        field
    }

    #[inline]
    #[allow(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
    fn of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}
