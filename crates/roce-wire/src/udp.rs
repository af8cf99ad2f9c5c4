// SPDX-License-Identifier: MIT OR Apache-2.0

//! UDP (RFC 768).

use crate::{layout::layout, place::Be16};

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
