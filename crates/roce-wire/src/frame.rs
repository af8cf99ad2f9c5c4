// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames, written in place.

use core::{fmt, net::IpAddr};

use crate::{
    bth::{self, Bth, BthRepr, PKEY_DEFAULT},
    eth::{Eth, EthRepr, EtherType, MacAddr, Vlan},
    ext::Ext,
    icrc::{Crc, ICRC_LEN, Prefix, Running},
    ipv4::{self, Ipv4, Ipv4Repr},
    ipv6::{self, Ipv6, Ipv6Repr},
    opcode::Opcode,
    packet::{Ip, Packet},
    plain::PlainHeaders,
    psn::Psn,
    qpn::Qpn,
    udp::{self, UDP_PORT, Udp, UdpRepr},
};

/// Addresses and traffic parameters of the frames to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub local_mac: MacAddr,
    /// The MAC address of the peer or of the router towards it.
    pub remote_mac: MacAddr,
    pub vlan: Option<Vlan>,
    /// Must have the same family as `remote_ip`.
    pub local_ip: IpAddr,
    pub remote_ip: IpAddr,
    /// UDP source port; constant for a queue pair, which keeps its packets in order.
    pub source_port: u16,
    /// DSCP (bits 7-2) and ECN (1-0).
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

impl Path {
    /// The hop limit that Linux's rdma_cm uses.
    pub const HOP_LIMIT: u8 = 64;

    /// Returns a path between these addresses, with defaults for everything else.
    #[must_use]
    pub const fn new(local_mac: MacAddr, remote_mac: MacAddr, local_ip: IpAddr, remote_ip: IpAddr) -> Self {
        Self {
            local_mac,
            remote_mac,
            vlan: None,
            local_ip,
            remote_ip,
            source_port: 0xC000,
            traffic_class: 0,
            hop_limit: Self::HOP_LIMIT,
        }
    }
}

/// The header fields that differ from packet to packet of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    pub opcode: Opcode,
    pub solicited: bool,
    pub ack_req: bool,
    pub psn: Psn,
    /// Must be the extended headers that the opcode has.
    pub ext: Ext,
}

impl Headers {
    /// Returns whether the opcode is known and has these extended headers.
    #[inline]
    fn is_consistent(&self) -> bool {
        self.opcode.info().is_some_and(|info| self.ext.headers() == info.ext)
    }
}

/// The reason why [`Template::begin`] failed. The content of the slot is then undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The slot is shorter than [`Template::MIN_SLOT`], or than the frame.
    SlotTooSmall,
    /// The payload does not fit an IP datagram.
    PayloadTooLong,
    /// The opcode is unknown or has other extended headers.
    WrongHeaders,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SlotTooSmall => "the slot is too small for the frame",
            Self::PayloadTooLong => "the payload does not fit an IP datagram",
            Self::WrongHeaders => "the opcode is unknown or has other extended headers",
        })
    }
}

impl core::error::Error for BuildError {}

/// The constant part of a queue pair's frames, ready to be copied into transmit slots.
#[derive(Clone, Debug)]
pub struct Template {
    /// Ethernet, IP and UDP headers; the lengths are set for each frame.
    bytes: [u8; Self::PREFIX],
    shape: Shape,
    /// Of an IPv4 header: the sum of its constant words.
    ip_sum: u16,
    /// The ICRC state before the BTH.
    prefix: Prefix,
    /// With the fields that are the same in all frames.
    bth: [u8; Bth::LEN],
}

/// The headers before the BTH.
#[derive(Clone, Copy, Debug)]
enum Shape {
    V4,
    V4Tagged,
    V6,
    V6Tagged,
}

impl Shape {
    /// Returns the offset of the IP header.
    const fn ip_at(self) -> usize {
        match self {
            Self::V4 | Self::V6 => Eth::LEN,
            Self::V4Tagged | Self::V6Tagged => Eth::LEN + Eth::TAG_LEN,
        }
    }

    /// Returns the length of the IP header.
    const fn ip_len(self) -> usize {
        match self {
            Self::V4 | Self::V4Tagged => Ipv4::LEN,
            Self::V6 | Self::V6Tagged => Ipv6::LEN,
        }
    }
}

impl Template {
    /// Largest length of the headers before the BTH in bytes.
    const PREFIX: usize = Eth::LEN + Eth::TAG_LEN + Ipv6::LEN + Udp::LEN;

    /// Minimum length of every slot in bytes: room for the longest headers and the ICRC. As many bytes may be written
    /// even if the frame is shorter.
    pub const MIN_SLOT: usize = Self::PREFIX + Bth::LEN + Ext::MAX_LEN + ICRC_LEN;

    /// Returns the template of frames over `path` to the queue pair `dest_qp`; `None` if the IP addresses of the path
    /// have different families.
    ///
    /// The IPv4 identification is 0 and the don't-fragment bit is set (an atomic datagram, RFC 6864 §4): the
    /// identification is covered by the ICRC and must be known in advance.
    #[must_use]
    pub fn new(path: &Path, dest_qp: Qpn) -> Option<Self> {
        Self::with_identification(path, dest_qp, 0)
    }

    /// Changes the destination MAC address of later frames: the path has another next hop.
    pub fn set_destination(&mut self, mac: MacAddr) {
        if let Some(destination) = self.bytes.first_chunk_mut() {
            *destination = mac.0;
        }
    }

    /// Like [`Template::new`], with an IPv4 identification.
    #[must_use]
    pub fn with_identification(path: &Path, dest_qp: Qpn, identification: u16) -> Option<Self> {
        let mut bytes = [0; Self::PREFIX];
        let eth = EthRepr {
            destination: path.remote_mac,
            source: path.local_mac,
            vlan: path.vlan,
            ethertype: if path.local_ip.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 },
        };
        let rest = eth.emit(&mut bytes).ok()?;
        let tagged = path.vlan.is_some();
        let (shape, ip_sum) = match (path.local_ip, path.remote_ip) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = rest.first_chunk_mut()?;
                let ip = Ipv4Repr {
                    traffic_class: path.traffic_class,
                    identification,
                    dont_fragment: true,
                    ttl: path.hop_limit,
                    source,
                    destination,
                    total_length: (Ipv4::LEN + Udp::LEN) as u16,
                };
                ip.emit(header);
                (if tagged { Shape::V4Tagged } else { Shape::V4 }, ipv4::partial_sum(header))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = Ipv6Repr {
                    traffic_class: path.traffic_class,
                    flow_label: 0,
                    hop_limit: path.hop_limit,
                    source,
                    destination,
                    payload_length: Udp::LEN as u16,
                };
                ip.emit(rest.first_chunk_mut()?);
                (if tagged { Shape::V6Tagged } else { Shape::V6 }, 0)
            }
            _ => return None,
        };
        //= rocev2 §1
        let udp = UdpRepr {
            source_port: path.source_port,
            destination_port: UDP_PORT,
            length: Udp::LEN as u16,
            checksum: 0,
        };
        let (ip, rest) = rest.split_at_mut_checked(shape.ip_len())?;
        let udp_header = rest.first_chunk_mut()?;
        udp.emit(udp_header);
        let prefix = Prefix::new(ip, Udp::new(udp_header));
        let mut bth = [0; Bth::LEN];
        let constant = BthRepr {
            opcode: Opcode(0),
            solicited: false,
            mig_req: false,
            pad_count: 0,
            p_key: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn: Psn::new(0),
        };
        constant.emit(&mut bth);
        Some(Self { bytes, shape, ip_sum, prefix, bth })
    }

    /// Returns the template of frames with a gap hint.
    #[must_use]
    pub fn with_gap_hint(&self, hint: u16) -> Self {
        let mut template = self.clone();
        Bth::set_gap_hint(&mut template.bth, hint);
        template
    }

    /// Returns whether `packet` came from where the frames of this template go, to where they come from, by IP addresses.
    #[must_use]
    #[inline]
    pub fn is_reverse_of(&self, packet: &Packet<'_>) -> bool {
        match (packet.ip(), self.shape) {
            (Ip::V4(ip), Shape::V4) => self.is_reverse_v4::<{ Eth::LEN }>(ip.addresses()),
            (Ip::V4(ip), Shape::V4Tagged) => {
                self.is_reverse_v4::<{ Eth::LEN + Eth::TAG_LEN }>(ip.addresses())
            }
            (Ip::V6(ip), Shape::V6 | Shape::V6Tagged) => self.is_reverse_v6(ip),
            _ => false,
        }
    }

    /// [`Template::is_reverse_of`] for a frame of the usual form. `false` for a template with a VLAN tag, too.
    #[must_use]
    #[inline]
    pub fn is_reverse_of_plain(&self, headers: PlainHeaders<'_>) -> bool {
        matches!(self.shape, Shape::V4) && self.is_reverse_v4::<{ Eth::LEN }>(headers.addresses())
    }

    #[inline]
    fn is_reverse_v4<const IP_AT: usize>(&self, addresses: u64) -> bool {
        let Some((_, header)) = self.bytes.split_first_chunk::<IP_AT>() else { return false };
        let Some(header) = header.first_chunk() else { return false };
        // Source and destination change places.
        Ipv4::new(header).addresses().rotate_left(32) == addresses
    }

    #[inline(never)]
    fn is_reverse_v6(&self, ip: Ipv6<'_>) -> bool {
        let header = self.bytes.get(self.shape.ip_at()..).and_then(|rest| rest.first_chunk());
        header
            .map(Ipv6::new)
            .is_some_and(|own| (own.source(), own.destination()) == (ip.destination(), ip.source()))
    }

    /// Changes the traffic class of a frame that was built from this template. The ICRC does not cover the traffic
    /// class and stays valid.
    pub fn set_traffic_class(&self, frame: &mut [u8], traffic_class: u8) {
        let Some(ip) = frame.get_mut(self.shape.ip_at()..) else { return };
        match self.shape {
            Shape::V4 | Shape::V4Tagged => {
                if let Some(header) = ip.first_chunk_mut() {
                    ipv4::set_traffic_class(header, traffic_class);
                }
            }
            Shape::V6 | Shape::V6Tagged => {
                if let Some(header) = ip.first_chunk_mut() {
                    ipv6::set_traffic_class(header, traffic_class);
                }
            }
        }
    }

    /// Returns the bytes of a frame without payload and pad bytes.
    #[must_use]
    pub fn overhead(&self, opcode: Opcode) -> usize {
        let ext = opcode.info().map_or(0, |info| usize::from(info.ext_len));
        self.shape.ip_at() + self.shape.ip_len() + Udp::LEN + Bth::LEN + ext + ICRC_LEN
    }

    /// Writes all headers of a frame with `payload_len` bytes of payload to the start of `slot`. The caller then writes
    /// the payload and calls [`Frame::finish`].
    ///
    /// # Errors
    /// See [`BuildError`].
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "on the way of every frame, whose builder knows the extended headers"
    )]
    pub fn begin<'s>(
        &self,
        crc: Crc,
        slot: &'s mut [u8],
        headers: &Headers,
        payload_len: usize,
    ) -> Result<Frame<'s>, BuildError> {
        // The usual frames over IPv4 without a tag, each with a known length of the headers.
        match (self.shape, headers.ext) {
            (Shape::V4, Ext::None) => {
                let headers = Headers { ext: Ext::None, ..*headers };
                self.begin_at::<{ Eth::LEN }, { Ipv4::LEN }>(crc, slot, &headers, payload_len)
            }
            (Shape::V4, Ext::Aeth(aeth)) => {
                let headers = Headers { ext: Ext::Aeth(aeth), ..*headers };
                self.begin_at::<{ Eth::LEN }, { Ipv4::LEN }>(crc, slot, &headers, payload_len)
            }
            _ => self.begin_other(crc, slot, headers, payload_len),
        }
    }

    /// [`Template::begin`] for all other frames, once instead of in each caller.
    #[inline(never)]
    fn begin_other<'s>(
        &self,
        crc: Crc,
        slot: &'s mut [u8],
        headers: &Headers,
        payload_len: usize,
    ) -> Result<Frame<'s>, BuildError> {
        const TAGGED: usize = Eth::LEN + Eth::TAG_LEN;
        match self.shape {
            Shape::V4 => self.begin_at::<{ Eth::LEN }, { Ipv4::LEN }>(crc, slot, headers, payload_len),
            Shape::V4Tagged => self.begin_at::<TAGGED, { Ipv4::LEN }>(crc, slot, headers, payload_len),
            Shape::V6 => self.begin_at::<{ Eth::LEN }, { Ipv6::LEN }>(crc, slot, headers, payload_len),
            Shape::V6Tagged => self.begin_at::<TAGGED, { Ipv6::LEN }>(crc, slot, headers, payload_len),
        }
    }

    /// [`Template::begin`] for headers of these lengths: so offsets are constants.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "on the way of every frame; so the extended headers are known, too"
    )]
    fn begin_at<'s, const IP_AT: usize, const IP_LEN: usize>(
        &self,
        crc: Crc,
        slot: &'s mut [u8],
        headers: &Headers,
        payload_len: usize,
    ) -> Result<Frame<'s>, BuildError> {
        if !headers.is_consistent() {
            return Err(BuildError::WrongHeaders);
        }
        let ext_len = headers.ext.headers().byte_len();
        let lengths = Lengths::of(payload_len, ext_len)?;
        let too_small = BuildError::SlotTooSmall;
        let start: &mut [u8; Self::MIN_SLOT] = slot.first_chunk_mut().ok_or(too_small)?;
        let (eth, rest) = start.split_first_chunk_mut::<IP_AT>().ok_or(too_small)?;
        let (ip, rest) = rest.split_first_chunk_mut::<IP_LEN>().ok_or(too_small)?;
        let (udp, rest) = rest.split_first_chunk_mut::<{ Udp::LEN }>().ok_or(too_small)?;
        let (bth, rest) = rest.split_first_chunk_mut::<{ Bth::LEN }>().ok_or(too_small)?;
        let ext: &mut [u8; Ext::MAX_LEN] = rest.first_chunk_mut().ok_or(too_small)?;

        let (from_eth, rest) = self.bytes.split_first_chunk::<IP_AT>().ok_or(too_small)?;
        let (from_ip, rest) = rest.split_first_chunk::<IP_LEN>().ok_or(too_small)?;
        *eth = *from_eth;
        *ip = *from_ip;
        *udp = *rest.first_chunk().ok_or(too_small)?;
        if let Some(ip) = ip.first_chunk_mut().filter(|_| IP_LEN == Ipv4::LEN) {
            let total = lengths.udp.checked_add(Ipv4::LEN as u16).ok_or(BuildError::PayloadTooLong)?;
            ipv4::set_total_length(ip, self.ip_sum, total);
        } else if let Some(ip) = ip.first_chunk_mut() {
            ipv6::set_payload_length(ip, lengths.udp);
        }
        udp::set_length(udp, lengths.udp);
        let mut variable = self.bth;
        let Headers { opcode, solicited, ack_req, psn, .. } = *headers;
        bth::set_variable(&mut variable, opcode, solicited, lengths.pad as u8, ack_req, psn);
        *bth = variable;
        headers.ext.emit(ext);
        let ext = ext.get(..ext_len).unwrap_or_default();
        let state = self.prefix.begin(crc, IP_LEN == Ipv4::LEN, lengths.udp, &variable, ext);
        let before = IP_AT + IP_LEN + Udp::LEN + Bth::LEN;
        let (_, rest) = slot.split_at_mut_checked(before + ext_len).ok_or(too_small)?;
        let (rest, _) =
            rest.split_at_mut_checked(lengths.payload + lengths.pad + ICRC_LEN).ok_or(too_small)?;
        let len = before + ext_len + rest.len();
        Ok(Frame { len, rest, missing: lengths.payload, crc, state })
    }
}

#[derive(Clone, Copy)]
struct Lengths {
    payload: usize,
    /// 0 to 3.
    pad: usize,
    /// From the UDP header to the ICRC.
    udp: u16,
}

impl Lengths {
    #[inline]
    fn of(payload: usize, ext: usize) -> Result<Self, BuildError> {
        //= rocev2 §3
        let pad = payload.wrapping_neg() & 3;
        let around = pad + Udp::LEN + Bth::LEN + ext + ICRC_LEN;
        let udp = payload.checked_add(around).and_then(|len| u16::try_from(len).ok());
        Ok(Self { payload, pad, udp: udp.ok_or(BuildError::PayloadTooLong)? })
    }
}

/// A frame whose headers are in the slot and whose payload is being written.
#[derive(Debug)]
pub struct Frame<'s> {
    /// Length of the finished frame.
    len: usize,
    /// The payload bytes still to be written, pad and ICRC.
    rest: &'s mut [u8],
    /// Number of the payload bytes still to be written.
    missing: usize,
    crc: Crc,
    state: Running,
}

impl Frame<'_> {
    /// Returns the number of payload bytes still to be written.
    #[must_use]
    #[inline]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Copies the next piece of the payload; of a piece that is too long, only its start. Returns the number of bytes
    /// copied.
    #[inline]
    pub fn write(&mut self, piece: &[u8]) -> usize {
        self.fill(piece.len(), |crc, dst, state| crc.copy(dst, piece, state))
    }

    /// Calls `copy` to write the next `len` bytes of the payload, or all missing bytes if those are fewer. `copy` must
    /// fill the whole slice and return the CRC state, continued over the bytes that it wrote. Returns their number.
    #[inline]
    pub fn fill(&mut self, len: usize, copy: impl FnOnce(Crc, &mut [u8], Running) -> Running) -> usize {
        let len = len.min(self.missing);
        let Some((next, rest)) = core::mem::take(&mut self.rest).split_at_mut_checked(len) else {
            return 0;
        };
        self.state = copy(self.crc, next, self.state);
        self.rest = rest;
        self.missing = self.missing.saturating_sub(len);
        len
    }

    /// Writes pad bytes and ICRC; returns the length of the frame. Payload that was not written becomes zeros, so that
    /// the previous content of the slot is never sent. To be called once.
    #[must_use]
    #[inline]
    pub fn finish(&mut self) -> usize {
        if let Some((zeros, icrc)) = self.rest.split_last_chunk_mut::<ICRC_LEN>() {
            let mut state = self.crc.end(self.state);
            if !zeros.is_empty() {
                zeros.fill(0);
                state = self.crc.update(state, zeros);
            }
            *icrc = state.to_wire();
        }
        self.len
    }
}
