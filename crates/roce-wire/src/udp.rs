// SPDX-License-Identifier: MIT OR Apache-2.0

//! UDP (RFC 768).

use crate::{layout::layout, place::Be16, qpn::Qpn};

/// UDP destination port of every RoCEv2 frame, in both directions.
///
/// Source: rocev2 §1.
pub const UDP_PORT: u16 = 4791;

type Length = Be16<4>;

//= rocev2 §2
layout! {
    /// A UDP header.
    Udp, UdpRepr, 8 bytes {
        source_port: u16 = Be16<0>;
        destination_port: u16 = Be16<2>;
        /// Bytes of header and payload.
        length: u16 = Length;
        /// 0 when the sender computed none, which RoCEv2 permits over IPv6, too.
        checksum: u16 = Be16<6>, variant;
    }
}

/// Sets the length (header and payload) of an existing header.
#[inline]
pub(crate) const fn set_length(header: &mut [u8; Udp::LEN], length: u16) {
    Length::put(header, length);
}

/// Returns the UDP source port for packets between two queue pairs: in 0xC000-0xFFFF, the same in both directions,
/// hashed from the two numbers.
#[must_use]
pub const fn flow_source_port(a: Qpn, b: Qpn) -> u16 {
    //= rocev2 §1
    let mut v = (a.value() as u64).wrapping_mul(b.value() as u64);
    v ^= v >> 20;
    v ^= v >> 40;
    let label = (v & 0x000F_FFFF) as u32;
    (0xC000 | (label & 0x3FFF) ^ (label >> 14)) as u16
}
