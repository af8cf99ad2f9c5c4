//! A whole received frame.

use core::net::IpAddr;

use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Eth, EtherType, Ext, ExtHeaders, ICRC_LEN, Ieth, ImmDt, Ipv4,
    Ipv6, OpcodeInfo, PayloadRule, Reth, UDP_PORT, Udp,
};
use crate::icrc::{self, Crc};

/// Why a frame to the RoCEv2 port was dropped before any queue pair saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The frame is shorter than its headers say, or has no room for BTH, extended headers and ICRC.
    Truncated,
    /// IPv4 header checksum.
    HeaderChecksum,
    /// A fragment of an IPv4 datagram; senders of RoCEv2 do not fragment.
    Fragment,
    /// IPv4 options, which RoCEv2 does not have.
    Options,
    /// The UDP length is not what the IP header leaves for it.
    UdpLength,
    /// Transport version other than 0.
    Version,
    /// An opcode that is not in the table.
    Opcode,
    /// Pad bytes without payload, or payload and pad no multiple of 4.
    Pad,
    /// Payload behind an opcode that has none.
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

    /// For people and for statistics.
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

/// Why a frame is no [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not a frame to UDP port 4791: someone else's business.
    NotRoce,
    /// A RoCEv2 frame that must be dropped.
    Malformed(DropReason),
}

/// The IP header of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Ip<'a> {
    V4(Ipv4<'a>),
    V6(Ipv6<'a>),
}

impl Ip<'_> {
    #[inline]
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.source()),
            Self::V6(ip) => IpAddr::V6(ip.source()),
        }
    }

    #[inline]
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.destination()),
            Self::V6(ip) => IpAddr::V6(ip.destination()),
        }
    }

    /// Bytes of the header.
    #[inline]
    const fn header_len(&self) -> usize {
        match self {
            Self::V4(_) => Ipv4::LEN,
            Self::V6(_) => Ipv6::LEN,
        }
    }

    /// DSCP (bits 7-2) and ECN (1-0).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.traffic_class(),
            Self::V6(ip) => ip.traffic_class(),
        }
    }
}

/// A RoCEv2 frame whose headers are complete and agree with each other.
///
/// What holds: lengths of IP, UDP, extended headers, payload and pad fit into each other, the transport
/// version is 0, the opcode is in the table. What does not: the ICRC (see [`Packet::icrc_valid`]), and
/// everything that a queue pair knows better.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    eth: Eth<'a>,
    ip: Ip<'a>,
    udp: Udp<'a>,
    bth: Bth<'a>,
    info: &'static OpcodeInfo,
    /// Everything that the ICRC covers: from the IP header to the last pad byte.
    covered: &'a [u8],
    ext: &'a [u8],
    /// Without pad bytes.
    payload: &'a [u8],
    pad: &'a [u8],
    icrc: [u8; ICRC_LEN],
}

impl<'a> Packet<'a> {
    /// Reads a frame, from its Ethernet header on. Bytes behind the end of the IP datagram are ignored:
    /// Ethernet pads short frames.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        let malformed = |reason| Err(ParseError::Malformed(reason));
        let (eth, datagram_of_ip) = Eth::split(frame).map_err(|_| ParseError::NotRoce)?;
        let (ip, udp_bytes) = match eth.ethertype() {
            EtherType::IPV4 => split_ipv4(datagram_of_ip)?,
            EtherType::IPV6 => split_ipv6(datagram_of_ip)?,
            _ => return Err(ParseError::NotRoce),
        };
        let Some((udp, datagram)) = udp_bytes.split_first_chunk() else {
            return malformed(DropReason::Truncated);
        };
        let udp = Udp::new(udp);
        //= rocev2 §1
        if usize::from(udp.length()) != udp_bytes.len() {
            return malformed(DropReason::UdpLength);
        }
        let Some((bth, rest)) = datagram.split_first_chunk() else {
            return malformed(DropReason::Truncated);
        };
        let bth = Bth::new(bth);
        let Some((body, &icrc)) = rest.split_last_chunk() else {
            return malformed(DropReason::Truncated);
        };
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
        let payload_len = padded.len().checked_sub(bth.pad_count());
        let Some((payload, pad)) = payload_len.and_then(|len| padded.split_at_checked(len)) else {
            return malformed(DropReason::Pad);
        };
        if info.payload == PayloadRule::None && !payload.is_empty() {
            return malformed(DropReason::Payload);
        }
        let covered =
            datagram_of_ip.get(..ip.header_len().saturating_add(udp_bytes.len()).saturating_sub(ICRC_LEN));
        let covered = covered.unwrap_or_default();
        Ok(Self { eth, ip, udp, bth, info, covered, ext, payload, pad, icrc })
    }

    /// Whether the frame's invariant CRC is right.
    #[inline]
    pub fn icrc_valid(&self, crc: Crc) -> bool {
        let is_v4 = matches!(self.ip, Ip::V4(_));
        icrc::of_packet(crc, is_v4, self.covered).to_wire() == self.icrc
    }

    pub fn eth(&self) -> Eth<'a> {
        self.eth
    }

    #[inline]
    pub fn ip(&self) -> Ip<'a> {
        self.ip
    }

    #[inline]
    pub fn udp(&self) -> Udp<'a> {
        self.udp
    }

    #[inline]
    pub fn bth(&self) -> Bth<'a> {
        self.bth
    }

    /// What the table has for the opcode.
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    #[inline]
    pub fn source(&self) -> IpAddr {
        self.ip.source()
    }

    #[inline]
    pub fn destination(&self) -> IpAddr {
        self.ip.destination()
    }

    /// Whether a switch marked the packet: congestion experienced.
    #[inline]
    pub fn congestion_experienced(&self) -> bool {
        self.ip.traffic_class() & 3 == 3
    }

    /// The payload, without pad bytes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The pad bytes, 0 to 3. To be ignored.
    pub fn pad(&self) -> &'a [u8] {
        self.pad
    }

    /// The ICRC as the frame has it.
    pub fn icrc(&self) -> [u8; ICRC_LEN] {
        self.icrc
    }

    /// All extended headers in one summary.
    pub fn ext(&self) -> Ext {
        // There is one for each opcode of the table, and its bytes are there.
        Ext::parse(self.info.ext, self.ext).unwrap_or(Ext::None)
    }

    #[inline]
    pub fn reth(&self) -> Option<Reth<'a>> {
        self.leading(ExtHeaders::RETH).and_then(|bytes| Reth::new_checked(bytes).ok())
    }

    #[inline]
    pub fn aeth(&self) -> Option<Aeth<'a>> {
        self.leading(ExtHeaders::AETH).and_then(|bytes| Aeth::new_checked(bytes).ok())
    }

    #[inline]
    pub fn deth(&self) -> Option<Deth<'a>> {
        self.leading(ExtHeaders::DETH).and_then(|bytes| Deth::new_checked(bytes).ok())
    }

    #[inline]
    pub fn atomic_eth(&self) -> Option<AtomicEth<'a>> {
        self.leading(ExtHeaders::ATOMIC_ETH).and_then(|bytes| AtomicEth::new_checked(bytes).ok())
    }

    #[inline]
    pub fn atomic_ack_eth(&self) -> Option<AtomicAckEth<'a>> {
        self.trailing(ExtHeaders::ATOMIC_ACK_ETH, AtomicAckEth::LEN)
            .and_then(|bytes| AtomicAckEth::new_checked(bytes).ok())
    }

    #[inline]
    pub fn imm_dt(&self) -> Option<ImmDt<'a>> {
        self.trailing(ExtHeaders::IMM_DT, ImmDt::LEN).and_then(|bytes| ImmDt::new_checked(bytes).ok())
    }

    #[inline]
    pub fn ieth(&self) -> Option<Ieth<'a>> {
        self.trailing(ExtHeaders::IETH, Ieth::LEN).and_then(|bytes| Ieth::new_checked(bytes).ok())
    }

    /// The extended headers, if `header`, which stands first wherever it stands, is among them.
    #[inline]
    fn leading(&self, header: ExtHeaders) -> Option<&'a [u8]> {
        self.info.ext.contains(header).then_some(self.ext)
    }

    /// The last `len` bytes of the extended headers, if `header`, which stands last wherever it stands,
    /// is among them.
    #[inline]
    fn trailing(&self, header: ExtHeaders, len: usize) -> Option<&'a [u8]> {
        self.leading(header)?.get(self.ext.len().checked_sub(len)?..)
    }
}

/// The IPv4 header, and the UDP datagram that is addressed to the RoCEv2 port.
#[inline]
fn split_ipv4(bytes: &[u8]) -> Result<(Ip<'_>, &[u8]), ParseError> {
    let malformed = |reason| Err(ParseError::Malformed(reason));
    let ip = Ipv4::new_checked(bytes).map_err(|_| ParseError::NotRoce)?;
    // Later fragments have no UDP header: whose they are cannot be told.
    let header_len = ip.header_len();
    if ip.version() != 4
        || header_len < Ipv4::LEN
        || ip.protocol() != Ipv4::UDP
        || ip.fragment_offset() != 0
        || !is_to_port(bytes.get(header_len..))
    {
        return Err(ParseError::NotRoce);
    }
    //= rocev2 §1
    if header_len != Ipv4::LEN {
        return malformed(DropReason::Options);
    }
    if ip.is_fragment() {
        return malformed(DropReason::Fragment);
    }
    if !ip.checksum_valid() {
        return malformed(DropReason::HeaderChecksum);
    }
    match bytes.get(Ipv4::LEN..usize::from(ip.total_length())) {
        Some(datagram) => Ok((Ip::V4(ip), datagram)),
        None => malformed(DropReason::Truncated),
    }
}

/// The IPv6 header, and the UDP datagram that is addressed to the RoCEv2 port.
#[inline]
fn split_ipv6(bytes: &[u8]) -> Result<(Ip<'_>, &[u8]), ParseError> {
    let Some((header, rest)) = bytes.split_first_chunk() else {
        return Err(ParseError::NotRoce);
    };
    let ip = Ipv6::new(header);
    if ip.version() != 6 || ip.next_header() != Ipv4::UDP || !is_to_port(Some(rest)) {
        return Err(ParseError::NotRoce);
    }
    match rest.get(..usize::from(ip.payload_length())) {
        Some(datagram) => Ok((Ip::V6(ip), datagram)),
        None => Err(ParseError::Malformed(DropReason::Truncated)),
    }
}

/// Whether `bytes` begin with a UDP header to the RoCEv2 port.
#[inline]
fn is_to_port(bytes: Option<&[u8]>) -> bool {
    bytes.and_then(|bytes| Udp::new_checked(bytes).ok()).is_some_and(|udp| udp.destination_port() == UDP_PORT)
}
