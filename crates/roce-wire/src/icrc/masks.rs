// SPDX-License-Identifier: MIT OR Apache-2.0

//! The variant fields of a packet's headers, which routers may change: the ICRC counts them as ones.

use crate::{bth::Bth, ipv4::Ipv4, ipv6::Ipv6, udp::Udp};

/// The CRC register after the eight 0xFF bytes that replace the absent local route header.
///
/// Source: rocev2 §2.
pub(super) const START: u32 = 0xDEBB_20E3;

/// Bytes before the IP header that [`super::header::of_packet`] gets, too: the end of the Ethernet header. They do not count. With them, a
/// packet, which is a multiple of 4 bytes long, can be divided into blocks of 16 bytes from its end on.
pub(crate) const LEAD: usize = 12;

/// Bytes that [`Masks`] change; at least [`LEAD`] and the longest headers, in whole blocks at any offset up to [`LEAD`].
pub(super) const MASKED: usize = 96;

/// Treatment of the first bytes of a packet, from [`LEAD`] bytes before its IP header on, so that a CRC that starts at
/// zero gives the ICRC: the lead and variant fields are removed, ones and the start of the ICRC are added.
pub(super) struct Masks {
    pub(super) keep: [u8; MASKED],
    pub(super) add: [u8; MASKED],
}

//= rocev2 §2
pub(super) static V4: Masks = Masks::new(&Ipv4::VARIANT);
//= rocev2 §2
pub(super) static V6: Masks = Masks::new(&Ipv6::VARIANT);

impl Masks {
    #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
    const fn new(ip: &[u8]) -> Self {
        let (ones, start) = (ones(ip), START.to_le_bytes());
        let mut masks = Self { keep: [0xFF; MASKED], add: [0; MASKED] };
        let mut at = 0;
        while at < LEAD {
            masks.keep[at] = 0;
            at += 1;
        }
        at = 0;
        while at < HEAD {
            masks.keep[LEAD + at] = !ones[at];
            masks.add[LEAD + at] = ones[at];
            at += 1;
        }
        at = 0;
        while at < start.len() {
            masks.add[LEAD + at] ^= start[at];
            at += 1;
        }
        masks
    }
}

/// Length of the longest headers that have variant fields, in bytes.
const HEAD: usize = Ipv6::LEN + Udp::LEN + Bth::LEN;

/// Returns the variant bits of an IP header, UDP and BTH.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
pub(super) const fn ones(ip: &[u8]) -> [u8; HEAD] {
    let (udp, bth) = (Udp::VARIANT, Bth::VARIANT);
    let mut ones = [0; HEAD];
    let mut at = 0;
    while at < ip.len() + Udp::LEN + Bth::LEN {
        ones[at] = if at < ip.len() {
            ip[at]
        } else if at < ip.len() + Udp::LEN {
            udp[at - ip.len()]
        } else {
            bth[at - ip.len() - Udp::LEN]
        };
        at += 1;
    }
    ones
}
