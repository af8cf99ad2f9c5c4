// SPDX-License-Identifier: MIT OR Apache-2.0

//! IPv6 fixed header (RFC 8200 §3).

use core::net::Ipv6Addr;

use crate::{
    ipv4::Ipv4,
    layout::layout,
    place::{Be16, Bits, Bits24, Byte, Bytes, Straddling8},
};

type TrafficClass = Straddling8<0>;
type PayloadLength = Be16<4>;

//= rocev2 §2
layout! {
    /// An IPv6 fixed header. The summary is for one directly before UDP.
    Ipv6, Ipv6Repr, 40 bytes {
        /// DSCP (bits 7-2) and ECN (1-0).
        traffic_class: u8 = TrafficClass, variant;
        /// 20 bits.
        flow_label: u32 = Bits24<1, 19, 0>, variant;
        /// Bytes behind the fixed header.
        payload_length: u16 = PayloadLength;
        hop_limit: u8 = Byte<7>, variant;
        source: Ipv6Addr = Bytes<8, 16>;
        destination: Ipv6Addr = Bytes<24, 16>;
    }
    constant {
        /// 6.
        version: u8 = Bits<0, 7, 4>, 6;
        /// Protocol number of the next header.
        next_header: u8 = Byte<6>, Ipv4::UDP;
    }
}

/// Sets the traffic class of an existing header.
pub(crate) const fn set_traffic_class(header: &mut [u8; Ipv6::LEN], traffic_class: u8) {
    TrafficClass::put(header, traffic_class);
}

/// Sets the payload length of an existing header.
#[inline]
pub(crate) const fn set_payload_length(header: &mut [u8; Ipv6::LEN], payload_length: u16) {
    PayloadLength::put(header, payload_length);
}
