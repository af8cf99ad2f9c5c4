// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames, written in place.

use core::{fmt, net::IpAddr};

use crate::{
    bth::{Bth, BthRepr, PKEY_DEFAULT},
    eth::{Eth, EthRepr, EtherType, MacAddr, Vlan},
    ext::Ext,
    icrc::{Crc, CrcState, ICRC_LEN, Prefix},
    ipv4::{self, Ipv4, Ipv4Repr},
    ipv6::{self, Ipv6, Ipv6Repr},
    opcode::Opcode,
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
    /// Offset of the IP header: 14 or 18.
    ip_at: usize,
    family: Family,
    /// The ICRC state before the BTH.
    prefix: Prefix,
    p_key: u16,
    dest_qp: Qpn,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    /// With the checksum of the header's constant words.
    V4(u64),
    V6,
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
        let (family, ip_len) = match (path.local_ip, path.remote_ip) {
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
                (Family::V4(ipv4::partial_sum(header)), Ipv4::LEN)
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
                (Family::V6, Ipv6::LEN)
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
        let (ip, rest) = rest.split_at_mut_checked(ip_len)?;
        let udp_header = rest.first_chunk_mut()?;
        udp.emit(udp_header);
        let prefix = Prefix::new(ip, Udp::new(udp_header));
        Some(Self { bytes, ip_at: eth.header_len(), family, prefix, p_key: PKEY_DEFAULT, dest_qp })
    }

    /// Changes the traffic class of a frame that was built from this template. The ICRC does not cover the traffic
    /// class and stays valid.
    pub fn set_traffic_class(&self, frame: &mut [u8], traffic_class: u8) {
        let Some(ip) = frame.get_mut(self.ip_at..) else { return };
        match self.family {
            Family::V4(_) => {
                if let Some(header) = ip.first_chunk_mut() {
                    ipv4::set_traffic_class(header, traffic_class);
                }
            }
            Family::V6 => {
                if let Some(header) = ip.first_chunk_mut() {
                    ipv6::set_traffic_class(header, traffic_class);
                }
            }
        }
    }

    /// Returns the bytes of a frame without payload and pad bytes.
    #[must_use]
    pub fn overhead(&self, opcode: Opcode) -> usize {
        let ip = match self.family {
            Family::V4(_) => Ipv4::LEN,
            Family::V6 => Ipv6::LEN,
        };
        let ext = opcode.info().map_or(0, |info| usize::from(info.ext_len));
        self.ip_at + ip + Udp::LEN + Bth::LEN + ext + ICRC_LEN
    }

    /// Writes all headers of a frame with `payload_len` bytes of payload to the start of `slot`. The caller then writes
    /// the payload and calls [`Frame::finish`].
    ///
    /// # Errors
    /// See [`BuildError`].
    #[inline]
    pub fn begin<'s>(
        &self,
        crc: Crc,
        slot: &'s mut [u8],
        headers: &Headers,
        payload_len: usize,
    ) -> Result<Frame<'s>, BuildError> {
        let info = headers.opcode.info().ok_or(BuildError::WrongHeaders)?;
        if headers.ext.headers() != info.ext {
            return Err(BuildError::WrongHeaders);
        }
        if slot.len() < Self::MIN_SLOT {
            return Err(BuildError::SlotTooSmall);
        }
        let lengths = Lengths::of(payload_len, usize::from(info.ext_len))?;
        let too_small = BuildError::SlotTooSmall;
        *slot.first_chunk_mut::<{ Self::PREFIX }>().ok_or(too_small)? = self.bytes;
        let (_, rest) = slot.split_at_mut_checked(self.ip_at).ok_or(too_small)?;
        match self.family {
            Family::V4(sum) => {
                let (ip, rest) = rest.split_first_chunk_mut().ok_or(too_small)?;
                let total = lengths.udp.checked_add(Ipv4::LEN as u16).ok_or(BuildError::PayloadTooLong)?;
                ipv4::set_total_length(ip, sum, total);
                self.begin_transport(crc, Ipv4::LEN, rest, headers, lengths)
            }
            Family::V6 => {
                let (ip, rest) = rest.split_first_chunk_mut().ok_or(too_small)?;
                ipv6::set_payload_length(ip, lengths.udp);
                self.begin_transport(crc, Ipv6::LEN, rest, headers, lengths)
            }
        }
    }

    /// Writes UDP, BTH and extended headers to the start of `rest`.
    #[inline]
    fn begin_transport<'s>(
        &self,
        crc: Crc,
        ip_len: usize,
        rest: &'s mut [u8],
        headers: &Headers,
        lengths: Lengths,
    ) -> Result<Frame<'s>, BuildError> {
        let too_small = BuildError::SlotTooSmall;
        let (udp, rest) = rest.split_first_chunk_mut().ok_or(too_small)?;
        udp::set_length(udp, lengths.udp);
        let (bth, rest) = rest.split_first_chunk_mut().ok_or(too_small)?;
        let repr = BthRepr {
            opcode: headers.opcode,
            solicited: headers.solicited,
            mig_req: false,
            pad_count: lengths.pad as u8,
            p_key: self.p_key,
            fecn: false,
            //= rocev2 §14
            becn: headers.opcode == Opcode::CNP,
            dest_qp: self.dest_qp,
            ack_req: headers.ack_req,
            psn: headers.psn,
        };
        repr.emit(bth);
        let mut state = self.prefix.with_bth(lengths.udp, bth);
        let ext_len = headers.ext.emit(rest.first_chunk_mut().ok_or(too_small)?);
        let (ext, rest) = rest.split_at_mut_checked(ext_len).ok_or(too_small)?;
        if !ext.is_empty() {
            // For so few bytes the tables are the fastest implementation.
            state = Crc::table().update(state, ext);
        }
        let (payload, rest) = rest.split_at_mut_checked(lengths.payload).ok_or(too_small)?;
        let (trailer, _) = rest.split_at_mut_checked(lengths.pad + ICRC_LEN).ok_or(too_small)?;
        let len = self.ip_at + ip_len + usize::from(lengths.udp);
        Ok(Frame { len, payload, trailer, crc, state })
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
    /// The payload bytes still to be written.
    payload: &'s mut [u8],
    /// Pad and ICRC.
    trailer: &'s mut [u8],
    crc: Crc,
    state: CrcState,
}

impl Frame<'_> {
    /// Returns the number of payload bytes still to be written.
    #[must_use]
    #[inline]
    pub fn missing(&self) -> usize {
        self.payload.len()
    }

    /// Copies the next piece of the payload; of a piece that is too long, only its start. Returns the number of bytes
    /// copied.
    #[inline]
    pub fn write(&mut self, piece: &[u8]) -> usize {
        let len = piece.len().min(self.payload.len());
        self.fill(len, |crc, dst, state| crc.copy_and_crc(dst, piece, state))
    }

    /// Calls `copy` to write the next `len` bytes of the payload, or all missing bytes if those are fewer. `copy` must
    /// fill the whole slice and return the CRC state, continued over the bytes that it wrote. Returns their number.
    #[inline]
    pub fn fill(&mut self, len: usize, copy: impl FnOnce(Crc, &mut [u8], CrcState) -> CrcState) -> usize {
        let len = len.min(self.payload.len());
        let Some((next, rest)) = core::mem::take(&mut self.payload).split_at_mut_checked(len) else {
            return 0;
        };
        self.state = copy(self.crc, next, self.state);
        self.payload = rest;
        len
    }

    /// Writes pad bytes and ICRC; returns the length of the frame. Payload that was not written becomes zeros, so that
    /// the previous content of the slot is never sent.
    #[must_use]
    #[inline]
    pub fn finish(mut self) -> usize {
        if !self.payload.is_empty() {
            self.payload.fill(0);
            self.state = self.crc.update(self.state, self.payload);
        }
        if let Some((pad, icrc)) = self.trailer.split_last_chunk_mut::<ICRC_LEN>() {
            if !pad.is_empty() {
                pad.fill(0);
                self.state = self.crc.update(self.state, pad);
            }
            *icrc = self.state.to_wire();
        }
        self.len
    }
}
