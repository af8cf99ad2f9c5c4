// SPDX-License-Identifier: MIT OR Apache-2.0

//! The usual frames of small messages, SENDs of one packet and acknowledgements: recognized by comparing words, instead of
//! reading header by header.

use crate::{
    aeth::{Aeth, Syndrome},
    bth::Bth,
    eth::{Eth, EtherType},
    icrc::{self, Crc, ICRC_LEN},
    ipv4::Ipv4,
    opcode::Opcode,
    place::{Be32, Bytes, Flag},
    psn::Psn,
    qpn::Qpn,
    udp::{UDP_PORT, Udp},
};

/// Offsets of the headers in the frame.
const IP: usize = Eth::LEN;
const UDP: usize = IP + Ipv4::LEN;
const BTH: usize = UDP + Udp::LEN;
const BODY: usize = BTH + Bth::LEN;
/// Length of an acknowledgement, without bytes behind the IP datagram.
const ACK: usize = BODY + Aeth::LEN + ICRC_LEN;
/// Where the bytes that the ICRC covers begin, with those before them.
const LED: usize = IP - icrc::LEAD;

/// The opcode and P_Key fields of the word at the start of a BTH, and the transport version.
const KIND: u32 = 0xFF0F_7FFF;
/// [`KIND`], and the pad count.
const KIND_AND_PAD: u32 = KIND | 0x0030_0000;

/// A frame of the usual form: an acknowledgement or a SEND of one packet, over IPv4 without a VLAN tag, without options, not a
/// fragment, not marked by a switch as congestion experienced, with the default partition key.
///
/// [`Packet::parse`](crate::Packet::parse) accepts every such frame and reads the same values from it. Not checked: the ICRC
/// and everything that depends on the queue pair.
#[derive(Clone, Copy, Debug)]
pub enum PlainFrame<'a> {
    /// A positive acknowledgement.
    Ack(PlainAck<'a>),
    /// A SEND of at least one byte, without immediate data or a key to invalidate.
    Send(PlainSend<'a>),
}

/// A positive acknowledgement, see [`PlainFrame::Ack`].
#[derive(Clone, Copy, Debug)]
pub struct PlainAck<'a> {
    pub headers: PlainHeaders<'a>,
}

/// A SEND of one packet, see [`PlainFrame::Send`].
#[derive(Clone, Copy, Debug)]
pub struct PlainSend<'a> {
    pub headers: PlainHeaders<'a>,
    /// The bytes that the ICRC covers, and [`icrc::LEAD`] bytes before them.
    led: &'a [u8],
    /// Without pad bytes.
    payload: &'a [u8],
    icrc: [u8; ICRC_LEN],
}

impl<'a> PlainFrame<'a> {
    /// Returns the frame; `None` if it is another one, or not of the usual form.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame")]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let headers = PlainHeaders { bytes: frame.first_chunk()? };
        // First what tells the two from other RoCE frames: opcode, transport version 0, and the partition key with or without
        // the bit of full membership.
        //= rocev2 §3
        //= rocev2 §13
        let word = Be32::<BTH>::get(headers.bytes);
        if word & KIND_AND_PAD == u32::from(Opcode::ACKNOWLEDGE.0) << 24 | 0x7FFF {
            // The upper bits of the syndrome are zero, the lower ones are credits.
            let is_positive = Bytes::<BODY, 1>::get(headers.bytes)[0] & !Syndrome::ACK.0 == 0;
            (is_positive & (headers.total() == ACK - IP) && headers.is_plain())
                .then_some(Self::Ack(PlainAck { headers }))
        } else if word & KIND == u32::from(Opcode::SEND_ONLY.0) << 24 | 0x7FFF && headers.is_plain() {
            PlainSend::new(headers, frame, word >> 20 & 3).map(Self::Send)
        } else {
            None
        }
    }
}

/// The headers of a frame of the usual form, up to the BTH.
#[derive(Clone, Copy, Debug)]
pub struct PlainHeaders<'a> {
    /// The first bytes of the frame: as many as its shortest form has.
    bytes: &'a [u8; ACK],
}

impl<'a> PlainHeaders<'a> {
    /// Returns the bytes of the IP datagram, as its header claims.
    #[inline]
    fn total(self) -> usize {
        (Be32::<{ IP + 2 }>::get(self.bytes) >> 16) as usize
    }

    /// Checks Ethernet, IP and UDP header.
    #[inline]
    fn is_plain(self) -> bool {
        // Ethertype, IP version and header length.
        let is_ipv4 =
            Be32::<{ IP - 2 }>::get(self.bytes) & 0xFFFF_FF00 == u32::from(EtherType::IPV4.0) << 16 | 0x4500;
        // All bits of flags and fragment offset but "don't fragment"; the protocol.
        let is_udp = Be32::<{ IP + 6 }>::get(self.bytes) & 0xBFFF_00FF == u32::from(Ipv4::UDP);
        // Destination port and length; a total length below that of the headers gives no length of this kind.
        let udp = self.total().wrapping_sub(Ipv4::LEN) as u32;
        let is_roce = Be32::<{ UDP + 2 }>::get(self.bytes) == u32::from(UDP_PORT) << 16 | udp;
        is_ipv4 & is_udp & is_roce
            && self.ip().is_some_and(|ip| ip.traffic_class() & 3 != 3 && ip.checksum_valid())
    }

    #[inline]
    fn ip(self) -> Option<Ipv4<'a>> {
        self.bytes.split_at(IP).1.first_chunk().map(Ipv4::new)
    }

    /// Returns the queue pair that the frame is to.
    #[must_use]
    #[inline]
    pub fn dest_qp(self) -> Qpn {
        Qpn::new(Be32::<{ BTH + 4 }>::get(self.bytes))
    }

    /// Returns the PSN: of an acknowledgement, that of the last packet that is acknowledged.
    #[must_use]
    #[inline]
    pub fn psn(self) -> Psn {
        Psn::new(Be32::<{ BTH + 8 }>::get(self.bytes))
    }

    /// Returns the gap hint, as [`Bth::gap_hint`].
    #[must_use]
    #[inline]
    pub fn gap_hint(self) -> u16 {
        Bth::new(&Bytes::<BTH, { Bth::LEN }>::get(self.bytes)).gap_hint()
    }

    /// Returns source and destination address as one number, as [`Ipv4::addresses`] does.
    #[inline]
    pub(crate) fn addresses(self) -> u64 {
        self.ip().map_or(0, Ipv4::addresses)
    }
}

impl PlainAck<'_> {
    /// Returns whether the ICRC is right.
    #[must_use]
    #[inline]
    pub fn icrc_valid(&self, crc: Crc) -> bool {
        let (led, icrc) = self.headers.bytes.split_at(LED).1.split_at(ACK - LED - ICRC_LEN);
        let led = led.first_chunk::<{ ACK - LED - ICRC_LEN }>();
        led.is_some_and(|led| icrc::of_v4(crc, led).to_wire() == icrc)
    }
}

impl<'a> PlainSend<'a> {
    /// Returns the SEND with `pad` pad bytes, whose headers were checked.
    #[inline]
    fn new(headers: PlainHeaders<'a>, frame: &'a [u8], pad: u32) -> Option<Self> {
        let end = IP.checked_add(headers.total())?;
        let (led, icrc) = frame.get(LED..end)?.split_last_chunk::<ICRC_LEN>()?;
        let padded = led.get(BODY - LED..)?;
        let payload = padded.get(..padded.len().checked_sub(pad as usize)?)?;
        //= rocev2 §3
        (padded.len().is_multiple_of(4) && !payload.is_empty()).then_some(Self {
            headers,
            led,
            payload,
            icrc: *icrc,
        })
    }

    /// Returns whether the ICRC is right.
    #[must_use]
    #[inline]
    pub fn icrc_valid(&self, crc: Crc) -> bool {
        icrc::of_packet(crc, true, self.led).to_wire() == self.icrc
    }

    /// Returns whether the requester asks for an acknowledgement.
    #[must_use]
    #[inline]
    pub fn ack_req(&self) -> bool {
        Flag::<{ BTH + 8 }, 7>::get(self.headers.bytes)
    }

    /// Returns whether the message is a solicited event.
    #[must_use]
    #[inline]
    pub fn solicited(&self) -> bool {
        Flag::<{ BTH + 1 }, 7>::get(self.headers.bytes)
    }

    /// Returns the payload, without pad bytes; at least one byte.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
