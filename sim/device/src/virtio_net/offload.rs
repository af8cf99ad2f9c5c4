// SPDX-License-Identifier: MIT OR Apache-2.0

//! The header before every frame, and the offloads that it requests or reports. (virtio §9)

use super::features::Features;
use crate::{
    checksum::{self, Protocol, Transport},
    link::wire::Frame,
    registers::Misuse,
};

/// Bytes of the header with VERSION_1.
const HEADER_LEN: usize = 12;
/// The same with HASH_REPORT: the hash and its type follow.
pub const MAX_HEADER_LEN: usize = 20;

/// The checksum field of the frame contains the sum of the pseudo-header only.
pub(super) const NEEDS_CSUM: u8 = 1;
/// The checksum was verified.
const DATA_VALID: u8 = 2;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Added to the type: the flag CWR is set.
const GSO_ECN: u8 = 0x80;
const CWR: u8 = 0x80;

/// Bytes of the header of a UDP datagram.
const UDP_HEADER: usize = 8;
/// Most segments of a UDP packet: UDP_MAX_SEGMENTS of Linux, whose `virtio_net_hdr_to_skb` refuses more. Newer kernels allow 128.
const MAX_UDP_SEGMENTS: usize = 64;

/// Returns the number of bytes of the header.
pub const fn header_len(accepted: Features) -> usize {
    if accepted.contains(Features::HASH_REPORT) { MAX_HEADER_LEN } else { HEADER_LEN }
}

/// The header before a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    pub flags: u8,
    pub gso_type: u8,
    pub hdr_len: u16,
    pub gso_size: u16,
    pub csum_start: u16,
    pub csum_offset: u16,
    pub num_buffers: u16,
}

impl Header {
    pub fn parse(bytes: &[u8; MAX_HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: word(10),
        }
    }

    /// Returns the bytes of the header with this hash, and its type.
    pub fn bytes(&self, (hash_value, hash_report): (u32, u16)) -> [u8; MAX_HEADER_LEN] {
        let mut bytes = [0; MAX_HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset, self.num_buffers];
        for (to, word) in bytes[2..].as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes[12..16].copy_from_slice(&hash_value.to_le_bytes());
        bytes[16..18].copy_from_slice(&hash_report.to_le_bytes());
        bytes
    }

    /// Returns the header of a received frame with GUEST_CSUM: whether its checksum is right.
    pub fn verified(frame: &[u8]) -> Self {
        let is_valid = Transport::find(frame).is_some_and(|found| found.is_valid(frame));
        Self { flags: if is_valid { DATA_VALID } else { 0 }, ..Self::default() }
    }

    /// Replaces a right checksum of `frame` by the sum of its pseudo-header, as in a frame of a guest on the same machine, and
    /// returns its header; `None` if it has none.
    pub fn partial(frame: &mut [u8]) -> Option<Self> {
        let found = Transport::find(frame).filter(|found| found.is_valid(frame))?;
        if frame[found.checksum()] == [0, 0] {
            return None;
        }
        found.write(frame, found.pseudo_header(frame, found.range.len()));
        Some(Self {
            flags: NEEDS_CSUM,
            csum_start: found.range.start as u16,
            csum_offset: found.protocol.checksum_offset() as u16,
            ..Self::default()
        })
    }
}

/// Carries out what the header of a frame to send requests. Returns the frames that go to the wire.
pub fn carry_out(header: &Header, mut frame: Frame, accepted: Features) -> Result<Vec<Frame>, Misuse> {
    let len = frame.len();
    let refused = |what: &str| Err(Misuse::ring(format!("{what}: {header:?}, {len} bytes")));
    if *header == Header::default() {
        return Ok(vec![frame]);
    }
    if header.num_buffers != 0 || header.flags & !NEEDS_CSUM != 0 {
        return refused("the transmit header has fields of received frames (virtio 5.1.6.2)");
    }
    let has_ecn = header.gso_type & GSO_ECN != 0;
    if has_ecn && !accepted.contains(Features::HOST_ECN) {
        return refused("the transmit header has GSO_ECN, but HOST_ECN was not negotiated");
    }
    let divides = match header.gso_type & !GSO_ECN {
        0 => false,
        GSO_TCPV4 if accepted.contains(Features::HOST_TSO4) => true,
        GSO_TCPV6 if accepted.contains(Features::HOST_TSO6) => true,
        GSO_UDP_L4 if accepted.contains(Features::HOST_USO) => true,
        _ => return refused("the transmit header requests a segmentation that was not negotiated"),
    };
    if header.flags == 0 {
        return refused("the transmit header requests an offload without NEEDS_CSUM");
    }
    if !accepted.contains(Features::CSUM) {
        return refused("the transmit header requests a checksum, but CSUM was not negotiated");
    }
    let start = usize::from(header.csum_start);
    let field = start + usize::from(header.csum_offset);
    if field + 2 > len {
        return refused("the checksum is not in the frame");
    }
    if divides {
        let of_cwr = Header { gso_type: header.gso_type & !GSO_ECN, ..*header };
        return segments(&of_cwr, &frame, has_ecn, accepted);
    }
    if has_ecn {
        return refused("the transmit header has GSO_ECN without a segmentation");
    }
    if header.gso_size != 0 || header.hdr_len != 0 {
        return refused("the transmit header has fields of a segmentation that it does not request");
    }
    complete(&mut frame, start, field);
    Ok(vec![frame])
}

/// Completes a checksum whose field contains the sum of the pseudo-header, to the end of the frame. UDP's is never 0.
fn complete(frame: &mut [u8], start: usize, field: usize) {
    let checksum = !checksum::sum(&frame[start..], 0);
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Divides a TCP segment or UDP datagram as Linux does: it relies on the lengths and checksums in the headers of the whole.
fn segments(header: &Header, whole: &[u8], has_ecn: bool, accepted: Features) -> Result<Vec<Frame>, Misuse> {
    let refused = |what: &str| Err(Misuse::ring(format!("{what}: {header:?}, {} bytes", whole.len())));
    let protocol = if header.gso_type == GSO_UDP_L4 { Protocol::Udp } else { Protocol::Tcp };
    let found = Transport::find(whole)
        .filter(|found| found.protocol == protocol)
        .filter(|found| protocol == Protocol::Udp || found.is_ipv6 == (header.gso_type == GSO_TCPV6))
        .filter(|found| found.range.end == whole.len());
    let Some(found) = found else {
        return refused("a frame to be divided is not the packet of which its headers say the length");
    };
    let start = found.range.start;
    let header_len = match protocol {
        Protocol::Tcp => usize::from(whole[start + 12] >> 4) * 4,
        Protocol::Udp => UDP_HEADER,
    };
    let headers = start + header_len;
    let size = usize::from(header.gso_size);
    if size == 0 || header_len < protocol.min_header() || headers > whole.len() {
        return refused("a packet to be divided has a wrong header length, or no segment size");
    }
    if usize::from(header.hdr_len) != headers
        || usize::from(header.csum_start) != start
        || usize::from(header.csum_offset) != protocol.checksum_offset()
    {
        return refused("the transmit header contradicts the packet to be divided");
    }
    if checksum::ipv4_header_is_valid(whole) == Some(false) {
        return refused("the IPv4 header checksum of a packet to be divided is wrong");
    }
    if protocol == Protocol::Udp && word(whole, start + 4) != found.range.len() as u16 {
        return refused("the length in the header of a UDP datagram to be divided is wrong");
    }
    let has_cwr = protocol == Protocol::Tcp && whole[start + 13] & CWR != 0;
    if accepted.contains(Features::HOST_ECN) && has_cwr != has_ecn {
        return refused("GSO_ECN of the transmit header is not the flag CWR of the segment to be divided");
    }
    let (head, payload) = whole.split_at(headers);
    let count = payload.len().div_ceil(size).max(1);
    if protocol == Protocol::Udp && count > MAX_UDP_SEGMENTS {
        return refused("a UDP packet has more than 64 segments");
    }
    let segment = |number: usize| {
        let part = &payload[number * size..payload.len().min((number + 1) * size)];
        let mut frame = [head, part].concat();
        number_ip(&mut frame, &found, number);
        match protocol {
            Protocol::Tcp => {
                // A device that does not know of the flag may repeat it.
                let first = if number == 0 || has_cwr && !has_ecn { CWR } else { 0 };
                number_tcp(&mut frame[start..], first, number + 1 == count, number * size);
            }
            Protocol::Udp => write(&mut frame, start + 4, (UDP_HEADER + part.len()) as u16),
        }
        // The sum of the pseudo-header of the whole, with this one's length instead.
        let (seed, len) = (word(head, start + protocol.checksum_offset()), frame.len() - start);
        let lengths = [seed.to_be_bytes(), (!(found.range.len() as u16)).to_be_bytes()].concat();
        let field = start + protocol.checksum_offset();
        write(&mut frame, field, checksum::sum(&lengths, len as u32));
        complete(&mut frame, start, field);
        frame
    };
    Ok((0..count).map(segment).collect())
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn write(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Completes the IP header of a segment: its length; over IPv4 the identification and the checksum.
fn number_ip(frame: &mut [u8], of: &Transport, number: usize) {
    let (len, ip) = (frame.len(), of.ip);
    if of.is_ipv6 {
        write(frame, ip + 4, (len - ip - 40) as u16);
    } else {
        write(frame, ip + 2, (len - ip) as u16);
        let id = word(frame, ip + 4);
        write(frame, ip + 4, id.wrapping_add(number as u16));
        write(frame, ip + 10, 0);
        let sum = !checksum::sum(&frame[ip..of.range.start], 0);
        write(frame, ip + 10, sum);
    }
}

/// Sets the sequence number of a segment that is `offset` bytes behind the first, and its flags: FIN and PSH only in the last one,
/// CWR only in the first.
fn number_tcp(segment: &mut [u8], cwr: u8, is_last: bool, offset: usize) {
    let sequence = u32::from(word(segment, 4)) << 16 | u32::from(word(segment, 6));
    let at = sequence.wrapping_add(offset as u32);
    write(segment, 4, (at >> 16) as u16);
    write(segment, 6, at as u16);
    segment[13] &= if is_last { 0xff } else { !0x09 };
    segment[13] &= !CWR | cwr;
}
