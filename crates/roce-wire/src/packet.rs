// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames: headers checked and split.

use core::{fmt, net::IpAddr};

use crate::{
    aeth::Aeth,
    atomic::{AtomicAckEth, AtomicEth},
    bth::Bth,
    deth::Deth,
    eth::{Eth, EtherType},
    ext::Ext,
    icrc::{self, Crc, ICRC_LEN},
    ieth::Ieth,
    immdt::ImmDt,
    ipv4::Ipv4,
    ipv6::Ipv6,
    opcode::{ExtHeaders, OpcodeInfo, PayloadRule},
    reth::Reth,
    udp::{UDP_PORT, Udp},
};

/// The reason why a frame to the RoCEv2 port is dropped before it is assigned to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The frame is shorter than its headers say, or has no room for BTH, extended headers and ICRC.
    Truncated,
    /// The IPv4 header checksum is wrong.
    HeaderChecksum,
    /// The frame is a fragment of an IPv4 datagram. RoCEv2 senders do not fragment.
    Fragment,
    /// The frame has IPv4 options, which RoCEv2 does not use.
    Options,
    /// The UDP length differs from the length that the IP header gives.
    UdpLength,
    /// The transport header version is not 0.
    Version,
    /// The opcode is unknown.
    Opcode,
    /// There are more pad bytes than bytes before the ICRC, or payload and pad are not a multiple of 4.
    Pad,
    /// The opcode allows no payload.
    Payload,
    /// The invariant CRC is wrong.
    Icrc,
}

impl DropReason {
    pub const ALL: [Self; 10] = [
        Self::Truncated,
        Self::HeaderChecksum,
        Self::Fragment,
        Self::Options,
        Self::UdpLength,
        Self::Version,
        Self::Opcode,
        Self::Pad,
        Self::Payload,
        Self::Icrc,
    ];

    /// Returns the name for reports and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::HeaderChecksum => "IPv4 header checksum",
            Self::Fragment => "IPv4 fragment",
            Self::Options => "IPv4 options",
            Self::UdpLength => "UDP length",
            Self::Version => "transport version",
            Self::Opcode => "unknown opcode",
            Self::Pad => "pad count",
            Self::Payload => "payload not allowed",
            Self::Icrc => "ICRC",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for DropReason {}

/// The reason why a frame is not a [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not a frame to UDP port 4791.
    NotRoce,
    /// A RoCEv2 frame that must be dropped.
    Malformed(DropReason),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoce => f.write_str("not a RoCEv2 frame"),
            Self::Malformed(reason) => write!(f, "malformed RoCEv2 frame: {reason}"),
        }
    }
}

impl core::error::Error for ParseError {}

/// The IP header of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Ip<'a> {
    V4(Ipv4<'a>),
    V6(Ipv6<'a>),
}

impl Ip<'_> {
    /// Returns the source IP address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.source()),
            Self::V6(ip) => IpAddr::V6(ip.source()),
        }
    }

    /// Returns the destination IP address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.destination()),
            Self::V6(ip) => IpAddr::V6(ip.destination()),
        }
    }

    /// Returns the length of the header in bytes.
    #[inline]
    const fn header_len(&self) -> usize {
        match self {
            Self::V4(_) => Ipv4::LEN,
            Self::V6(_) => Ipv6::LEN,
        }
    }

    /// Returns DSCP (bits 7-2) and ECN (1-0).
    #[must_use]
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.traffic_class(),
            Self::V6(ip) => ip.traffic_class(),
        }
    }
}

/// A RoCEv2 frame whose headers are complete and consistent.
///
/// Checked: the lengths of IP, UDP, extended headers, payload and pad are consistent, the transport version is 0, the
/// opcode is known. Not checked: the ICRC (see [`Packet::icrc_valid`]) and everything that depends on the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    eth: Eth<'a>,
    ip: Ip<'a>,
    udp: Udp<'a>,
    bth: Bth<'a>,
    info: &'static OpcodeInfo,
    /// The bytes that the ICRC covers, from the IP header to the last pad byte, and [`icrc::LEAD`] bytes before them.
    led: &'a [u8],
    ext: &'a [u8],
    /// Without pad bytes.
    payload: &'a [u8],
    icrc: [u8; ICRC_LEN],
}

impl<'a> Packet<'a> {
    /// Reads a frame, from its Ethernet header on. Bytes behind the IP datagram are ignored: Ethernet pads short frames.
    ///
    /// # Errors
    /// See [`ParseError`].
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame")]
    pub fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        // The usual frames, whose headers before the BTH have a known length.
        match Eth::split_untagged(frame, EtherType::IPV4) {
            Some((eth, bytes)) => Self::new(frame, eth, split_ipv4(bytes)?),
            None => Self::parse_other(frame),
        }
    }

    /// [`Packet::parse`] for any frame.
    #[inline(never)]
    pub(crate) fn parse_other(frame: &'a [u8]) -> Result<Self, ParseError> {
        let (eth, bytes) = Eth::split(frame).map_err(|_| ParseError::NotRoce)?;
        let datagram = match eth.ethertype() {
            EtherType::IPV4 => split_ipv4(bytes)?,
            EtherType::IPV6 => split_ipv6(bytes)?,
            _ => return Err(ParseError::NotRoce),
        };
        Self::new(frame, eth, datagram)
    }

    /// Reads `frame` from its UDP header on: the headers before it, and the UDP datagram.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame, with a known length of the headers")]
    fn new(
        frame: &'a [u8],
        eth: Eth<'a>,
        (ip, udp, udp_bytes): (Ip<'a>, Udp<'a>, &'a [u8]),
    ) -> Result<Self, ParseError> {
        let malformed = |reason| Err(ParseError::Malformed(reason));
        let split = udp_bytes.split_first_chunk::<{ Udp::LEN + Bth::LEN }>();
        let Some((headers, (body, &icrc))) =
            split.and_then(|(headers, rest)| Some((headers, rest.split_last_chunk()?)))
        else {
            return Err(too_short(udp, udp_bytes));
        };
        //= rocev2 §1
        if usize::from(udp.length()) != udp_bytes.len() {
            return malformed(DropReason::UdpLength);
        }
        let Some(bth) = headers.last_chunk() else {
            return malformed(DropReason::Truncated);
        };
        let bth = Bth::new(bth);
        //= rocev2 §3
        if bth.version() != 0 {
            return malformed(DropReason::Version);
        }
        let Some(info) = bth.opcode().info() else {
            return malformed(DropReason::Opcode);
        };
        let Some((ext, padded)) = body.split_at_checked(usize::from(info.ext_len)) else {
            return malformed(DropReason::Truncated);
        };
        //= rocev2 §3
        if !padded.len().is_multiple_of(4) {
            return malformed(DropReason::Pad);
        }
        let payload_len = padded.len().checked_sub(usize::from(bth.pad_count()));
        let Some(payload) = payload_len.and_then(|len| padded.get(..len)) else {
            return malformed(DropReason::Pad);
        };
        if info.payload == PayloadRule::None && !payload.is_empty() {
            return malformed(DropReason::Payload);
        }
        let start = eth.header_len().saturating_sub(icrc::LEAD);
        let end = eth.header_len().saturating_add(ip.header_len()).saturating_add(udp_bytes.len());
        let led = frame.get(start..end.saturating_sub(ICRC_LEN)).unwrap_or_default();
        Ok(Self { eth, ip, udp, bth, info, led, ext, payload, icrc })
    }

    /// Returns whether the ICRC is right.
    #[must_use]
    #[inline]
    pub fn icrc_valid(&self, crc: Crc) -> bool {
        let is_v4 = matches!(self.ip, Ip::V4(_));
        icrc::of_packet(crc, is_v4, self.led).to_wire() == self.icrc
    }

    /// Returns the Ethernet header.
    #[must_use]
    pub fn eth(&self) -> Eth<'a> {
        self.eth
    }

    /// Returns the IP header.
    #[must_use]
    #[inline]
    pub fn ip(&self) -> Ip<'a> {
        self.ip
    }

    /// Returns the UDP header.
    #[must_use]
    #[inline]
    pub fn udp(&self) -> Udp<'a> {
        self.udp
    }

    /// Returns the base transport header.
    #[must_use]
    #[inline]
    pub fn bth(&self) -> Bth<'a> {
        self.bth
    }

    /// Returns the properties of the opcode.
    #[must_use]
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// Returns the source IP address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> IpAddr {
        self.ip.source()
    }

    /// Returns the destination IP address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> IpAddr {
        self.ip.destination()
    }

    /// Returns whether a switch marked the packet as congestion experienced (ECN 11).
    #[must_use]
    #[inline]
    pub fn congestion_experienced(&self) -> bool {
        self.ip.traffic_class() & 3 == 3
    }

    /// Returns the payload, without pad bytes.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the pad bytes, 0 to 3. Their value has no meaning.
    #[must_use]
    pub fn pad(&self) -> &'a [u8] {
        let start = self.led.len().saturating_sub(usize::from(self.bth.pad_count()));
        self.led.get(start..).unwrap_or_default()
    }

    /// Returns the ICRC of the frame, right or wrong.
    #[must_use]
    pub fn icrc(&self) -> [u8; ICRC_LEN] {
        self.icrc
    }

    /// Returns all extended headers in one summary.
    #[must_use]
    pub fn ext(&self) -> Ext {
        // Always `Some`: every opcode of the table has a combination, and its length was checked.
        Ext::parse(self.info.ext, self.ext).unwrap_or(Ext::None)
    }

    /// Returns the pieces of a frame that is parsed to this packet again: an Ethernet header without addresses and tag, what
    /// the ICRC covers, and the ICRC.
    #[must_use]
    pub fn pieces(&self) -> ([u8; Eth::LEN], &'a [u8], [u8; ICRC_LEN]) {
        let ethertype = match self.ip {
            Ip::V4(_) => EtherType::IPV4,
            Ip::V6(_) => EtherType::IPV6,
        };
        let mut eth = [0; Eth::LEN];
        [eth[12], eth[13]] = ethertype.0.to_be_bytes();
        (eth, self.led.get(icrc::LEAD..).unwrap_or_default(), self.icrc)
    }

    /// Returns whether both packets ask for the same: opcode, solicited event, extended headers, payload.
    #[must_use]
    pub fn requests_the_same(&self, other: &Packet<'_>) -> bool {
        self.bth.opcode() == other.bth.opcode()
            && self.bth.solicited() == other.bth.solicited()
            && self.ext == other.ext
            && self.payload == other.payload
    }

    /// Returns the RETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn reth(&self) -> Option<Reth<'a>> {
        self.leading(ExtHeaders::RETH).and_then(|bytes| Reth::new_checked(bytes).ok())
    }

    /// Returns the AETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn aeth(&self) -> Option<Aeth<'a>> {
        self.leading(ExtHeaders::AETH).and_then(|bytes| Aeth::new_checked(bytes).ok())
    }

    /// Returns the DETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn deth(&self) -> Option<Deth<'a>> {
        self.leading(ExtHeaders::DETH).and_then(|bytes| Deth::new_checked(bytes).ok())
    }

    /// Returns the AtomicETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn atomic_eth(&self) -> Option<AtomicEth<'a>> {
        self.leading(ExtHeaders::ATOMIC_ETH).and_then(|bytes| AtomicEth::new_checked(bytes).ok())
    }

    /// Returns the AtomicAckETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn atomic_ack_eth(&self) -> Option<AtomicAckEth<'a>> {
        self.trailing(ExtHeaders::ATOMIC_ACK_ETH, AtomicAckEth::LEN)
            .and_then(|bytes| AtomicAckEth::new_checked(bytes).ok())
    }

    /// Returns the immediate data, if the opcode has any.
    #[must_use]
    #[inline]
    pub fn imm_dt(&self) -> Option<ImmDt<'a>> {
        self.trailing(ExtHeaders::IMM_DT, ImmDt::LEN).and_then(|bytes| ImmDt::new_checked(bytes).ok())
    }

    /// Returns the IETH, if the opcode has one.
    #[must_use]
    #[inline]
    pub fn ieth(&self) -> Option<Ieth<'a>> {
        self.trailing(ExtHeaders::IETH, Ieth::LEN).and_then(|bytes| Ieth::new_checked(bytes).ok())
    }

    /// Returns the extended headers, if `header`, which is always the first of them, is present.
    #[inline]
    fn leading(&self, header: ExtHeaders) -> Option<&'a [u8]> {
        self.info.ext.contains(header).then_some(self.ext)
    }

    /// Returns the last `len` bytes of the extended headers, if `header`, which is always the last of them, is present.
    #[inline]
    fn trailing(&self, header: ExtHeaders, len: usize) -> Option<&'a [u8]> {
        self.leading(header)?.get(self.ext.len().checked_sub(len)?..)
    }
}

/// Returns `false` for most frames of which [`Packet::parse`] says that they are not RoCEv2, and for no others: by a look at a few
/// bytes.
#[must_use]
#[inline]
pub fn may_be_roce(frame: &[u8]) -> bool {
    let Ok((eth, bytes)) = Eth::split(frame) else { return false };
    match eth.ethertype() {
        EtherType::IPV4 => ipv4_headers(bytes).is_some_and(|(ip, udp)| {
            ip.protocol() == Ipv4::UDP && (udp.destination_port() == UDP_PORT || ip.header_len() != Ipv4::LEN)
        }),
        EtherType::IPV6 => {
            bytes.split_first_chunk().is_some_and(|(header, _)| Ipv6::new(header).next_header() == Ipv4::UDP)
        }
        _ => false,
    }
}

/// Returns the destination address of a frame's IP datagram, from the Ethernet header on; `None` if it has none.
#[must_use]
pub fn destination(frame: &[u8]) -> Option<IpAddr> {
    let (eth, bytes) = Eth::split(frame).ok()?;
    match eth.ethertype() {
        EtherType::IPV4 => Ipv4::new_checked(bytes).ok().map(|ip| ip.destination().into()),
        EtherType::IPV6 => {
            bytes.split_first_chunk().map(|(header, _)| Ipv6::new(header).destination().into())
        }
        _ => None,
    }
}

/// Returns the IPv4 header and, if it is UDP without options, the UDP header; `None` if both are not complete. With options it is
/// longer still.
#[inline]
fn ipv4_headers(bytes: &[u8]) -> Option<(Ipv4<'_>, Udp<'_>)> {
    let headers = bytes.first_chunk::<{ Ipv4::LEN + Udp::LEN }>()?;
    Some((Ipv4::new(headers.first_chunk()?), Udp::new(headers.last_chunk()?)))
}

/// Returns the IPv4 header, the UDP header, which is to the RoCEv2 port, and the UDP datagram by the length of the IP header.
#[inline]
fn split_ipv4(bytes: &[u8]) -> Result<(Ip<'_>, Udp<'_>, &[u8]), ParseError> {
    let malformed = |reason| Err(ParseError::Malformed(reason));
    let Some((ip, udp)) = ipv4_headers(bytes) else { return Err(ParseError::NotRoce) };
    if !ip.is_plain_udp() || udp.destination_port() != UDP_PORT {
        return Err(not_plain(bytes, ip, udp));
    }
    if !ip.checksum_valid() {
        return malformed(DropReason::HeaderChecksum);
    }
    match bytes.get(Ipv4::LEN..usize::from(ip.total_length())) {
        Some(datagram) => Ok((Ip::V4(ip), udp, datagram)),
        None => malformed(DropReason::Truncated),
    }
}

/// Returns why a UDP datagram is not accepted that has no room for BTH and ICRC.
#[cold]
#[inline(never)]
fn too_short(udp: Udp<'_>, udp_bytes: &[u8]) -> ParseError {
    let complete = udp_bytes.len() >= Udp::LEN;
    let wrong = complete && usize::from(udp.length()) != udp_bytes.len();
    ParseError::Malformed(if wrong { DropReason::UdpLength } else { DropReason::Truncated })
}

/// Returns why an IPv4 datagram is not accepted: it is not UDP to the RoCEv2 port, has options, or is a fragment.
#[cold]
#[inline(never)]
fn not_plain(bytes: &[u8], ip: Ipv4<'_>, udp: Udp<'_>) -> ParseError {
    // Later fragments have no UDP header: their destination port is unknown.
    if ip.version() != 4 || ip.protocol() != Ipv4::UDP || ip.fragment_offset() != 0 {
        return ParseError::NotRoce;
    }
    //= rocev2 §1
    if ip.header_len() != Ipv4::LEN {
        return with_options(bytes, ip.header_len());
    }
    if udp.destination_port() != UDP_PORT {
        return ParseError::NotRoce;
    }
    ParseError::Malformed(DropReason::Fragment)
}

/// Returns why an IPv4 datagram with this header length is not accepted.
#[cold]
#[inline(never)]
fn with_options(bytes: &[u8], header_len: usize) -> ParseError {
    let udp = bytes.get(header_len..).and_then(|bytes| Udp::new_checked(bytes).ok());
    match udp {
        Some(udp) if header_len > Ipv4::LEN && udp.destination_port() == UDP_PORT => {
            ParseError::Malformed(DropReason::Options)
        }
        _ => ParseError::NotRoce,
    }
}

/// Splits an IPv6 packet into its headers and the UDP payload.
#[inline]
fn split_ipv6(bytes: &[u8]) -> Result<(Ip<'_>, Udp<'_>, &[u8]), ParseError> {
    let Some((header, rest)) = bytes.split_first_chunk() else {
        return Err(ParseError::NotRoce);
    };
    let (ip, Some(udp)) = (Ipv6::new(header), rest.first_chunk()) else {
        return Err(ParseError::NotRoce);
    };
    let udp = Udp::new(udp);
    if ip.version() != 6 || ip.next_header() != Ipv4::UDP || udp.destination_port() != UDP_PORT {
        return Err(ParseError::NotRoce);
    }
    match rest.get(..usize::from(ip.payload_length())) {
        Some(datagram) => Ok((Ip::V6(ip), udp, datagram)),
        None => Err(ParseError::Malformed(DropReason::Truncated)),
    }
}
