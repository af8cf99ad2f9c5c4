// SPDX-License-Identifier: MIT OR Apache-2.0

//! The usual frame of an acknowledgement: recognized by comparing words, instead of reading header by header.

use crate::{
    aeth::{Aeth, Syndrome},
    bth::Bth,
    eth::{Eth, EtherType},
    icrc::{self, Crc, ICRC_LEN},
    ipv4::Ipv4,
    opcode::Opcode,
    place::{Be32, Bytes},
    psn::Psn,
    qpn::Qpn,
    udp::{UDP_PORT, Udp},
};

/// Offsets of the headers in the frame.
const IP: usize = Eth::LEN;
const UDP: usize = IP + Ipv4::LEN;
const BTH: usize = UDP + Udp::LEN;
const AETH: usize = BTH + Bth::LEN;
const ICRC: usize = AETH + Aeth::LEN;
/// Length of the frame, without bytes behind the IP datagram.
const LEN: usize = ICRC + ICRC_LEN;

/// A frame with a positive acknowledgement: over IPv4 without a VLAN tag, without options, not a fragment, not marked by a
/// switch as congestion experienced, with the default partition key.
///
/// [`Packet::parse`](crate::Packet::parse) accepts every such frame and reads the same values from it. Not checked: the ICRC
/// and everything that depends on the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct PlainAck<'a> {
    frame: &'a [u8; LEN],
}

impl<'a> PlainAck<'a> {
    /// Returns the acknowledgement; `None` if the frame is another one, or not of the usual form.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every acknowledgement")]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let frame: &[u8; LEN] = frame.first_chunk()?;
        // First what tells acknowledgements from other RoCE frames: opcode, no pad bytes, transport version 0, and the partition
        // key with or without the bit of full membership.
        //= rocev2 §3
        //= rocev2 §13
        if Be32::<BTH>::get(frame) & 0xFF3F_7FFF != u32::from(Opcode::ACKNOWLEDGE.0) << 24 | 0x7FFF {
            return None;
        }
        // Ethertype, IP version and header length; UDP destination port and length; total length.
        let is_ipv4 =
            Be32::<{ IP - 2 }>::get(frame) & 0xFFFF_FF00 == u32::from(EtherType::IPV4.0) << 16 | 0x4500;
        let is_roce = Be32::<{ UDP + 2 }>::get(frame) == u32::from(UDP_PORT) << 16 | (LEN - UDP) as u32;
        let is_whole = Be32::<{ IP + 2 }>::get(frame) >> 16 == (LEN - IP) as u32;
        // All bits of flags and fragment offset but "don't fragment"; the protocol.
        let is_udp = Be32::<{ IP + 6 }>::get(frame) & 0xBFFF_00FF == u32::from(Ipv4::UDP);
        // The upper bits of the syndrome are zero, the lower ones are credits.
        let is_positive = Bytes::<AETH, 1>::get(frame)[0] & !Syndrome::ACK.0 == 0;
        if !(is_ipv4 & is_roce & is_whole & is_udp & is_positive) {
            return None;
        }
        let this = Self { frame };
        let ip = this.ip()?;
        (ip.traffic_class() & 3 != 3 && ip.checksum_valid()).then_some(this)
    }

    #[inline]
    fn ip(self) -> Option<Ipv4<'a>> {
        self.frame.split_at(IP).1.first_chunk().map(Ipv4::new)
    }

    /// Returns whether the ICRC is right.
    #[must_use]
    #[inline]
    pub fn icrc_valid(&self, crc: Crc) -> bool {
        let led = self.frame.split_at(IP - icrc::LEAD).1.first_chunk::<{ ICRC - IP + icrc::LEAD }>();
        led.is_some_and(|led| icrc::of_v4(crc, led).to_wire() == Bytes::<ICRC, ICRC_LEN>::get(self.frame))
    }

    /// Returns source and destination address as one number, as [`Ipv4::addresses`] does.
    #[must_use]
    #[inline]
    pub(crate) fn addresses(self) -> u64 {
        self.ip().map_or(0, Ipv4::addresses)
    }

    /// Returns the queue pair that the acknowledgement is to.
    #[must_use]
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn::new(Be32::<{ BTH + 4 }>::get(self.frame))
    }

    /// Returns the PSN of the last packet that is acknowledged.
    #[must_use]
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(Be32::<{ BTH + 8 }>::get(self.frame))
    }
}
