// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checksums and segmentation: the fields of the virtio-net header that request or report offloads, and the packet headers to which they
//! refer. (virtio §9; RFC 1071)
//!
//! All functions here work on memory that the device cannot access. A received frame is copied first. A sent frame is built in memory that
//! the device can access, so its first [`MAX_HEADERS`] bytes are copied, and written back.

use crate::buffers::HEADER_LEN;

/// Length of an Ethernet header in bytes.
pub(crate) const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
const VLAN: [u8; 2] = [0x81, 0x00];
/// Length of a VLAN tag in bytes.
const TAG: usize = 4;
pub(crate) const MIN_IPV4: usize = 20;
pub(crate) const IPV6_HEADER: usize = 40;
/// IPv6 extension headers that are skipped: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// Most extension headers that are skipped to find the transport header.
const MAX_EXTENSIONS: usize = 8;
/// Number of bytes at the start of a sent frame that must contain all its headers. With the longest TCP header over IPv6, this leaves 142
/// bytes for extension headers. The bytes fit on a kernel stack.
pub const MAX_HEADERS: usize = 256;
/// Most segments of a UDP packet. Linux's tap and vhost drop a packet with more: UDP_MAX_SEGMENTS, 128 in newer kernels.
pub const MAX_UDP_SEGMENTS: usize = 64;
pub(crate) const MIN_TCP: usize = 20;
const MIN_UDP: usize = 8;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
/// The flag CWR of a TCP header, and the offset of the flags in it.
pub(crate) const CWR: u8 = 0x80;
pub(crate) const TCP_FLAGS: usize = 13;

/// Offload request for a sent frame, as fields of its virtio-net header. The default requests nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    /// Length of all headers of a packet to segment, in bytes. The device repeats them in each segment.
    header_len: u16,
    /// Payload of each segment, in bytes.
    segment_size: u16,
    /// Offset in the frame at which the checksum's coverage begins, in bytes.
    checksum_start: u16,
    /// Offset of the checksum field from there, in bytes.
    checksum_offset: u16,
    /// Number of frames on the wire minus one, for the counters.
    further: u16,
    /// The packet has the TCP flag CWR, which belongs in the first segment only.
    has_cwr: bool,
}

/// Protocols with a checksum over payload and pseudo-header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// A TCP segment or UDP datagram, not fragmented, in an Ethernet frame without VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    pub protocol: Protocol,
    pub is_ipv6: bool,
    /// Offset of its header in the frame.
    pub start: u16,
    /// End of its payload in the frame. A frame may be padded.
    pub(crate) end: usize,
}

impl Protocol {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    pub(crate) const fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    const fn min_header(self) -> usize {
        match self {
            Self::Tcp => MIN_TCP,
            Self::Udp => MIN_UDP,
        }
    }
}

impl Transport {
    /// Finds the transport header of a frame whose IP header states the packet's length.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        Self::find_in(frame, frame.len())
    }

    /// Finds the transport header, given only the first bytes of a frame of `frame_len` bytes.
    #[must_use]
    pub fn find_in(headers: &[u8], frame_len: usize) -> Option<Self> {
        Self::find_with(headers, frame_len.checked_sub(ETHERNET)?, Some)
    }

    /// Finds the transport header of an LSO or USO packet, which fills the frame: its IP header need not state the length.
    #[must_use]
    pub fn find_large(headers: &[u8], frame_len: usize) -> Option<Self> {
        let len = frame_len.checked_sub(ETHERNET)?;
        Self::find_with(headers, len, |_| Some(len))
    }

    /// Finds the transport header. `len` maps the length in the IP header to the packet's length, at most `longest`.
    fn find_with(headers: &[u8], longest: usize, len: impl FnOnce(usize) -> Option<usize>) -> Option<Self> {
        let packet = headers.get(ETHERNET..)?;
        let is_ipv6 = match ether_type(headers)? {
            IPV4 => false,
            IPV6 => true,
            _ => return None,
        };
        let (number, header, stated) = if is_ipv6 { ipv6(packet)? } else { ipv4(packet)? };
        let protocol = [Protocol::Tcp, Protocol::Udp].into_iter().find(|of| of.number() == number)?;
        let len = len(stated)?;
        if len > longest || header.checked_add(protocol.min_header())? > len.min(packet.len()) {
            return None;
        }
        let start = u16::try_from(header.checked_add(ETHERNET)?).ok()?;
        Some(Self { protocol, is_ipv6, start, end: len.checked_add(ETHERNET)? })
    }

    /// Whether the checksum in a frame, which contains the whole packet, is right.
    pub(crate) fn checksum_is_valid(&self, frame: &[u8]) -> Option<bool> {
        let covered = frame.get(self.start.into()..self.end)?;
        Some(sum(covered, self.pseudo_header(frame)?.into()) == u16::MAX)
    }

    /// Returns the sum of the pseudo-header. Its addresses are at the end of the fixed IP header.
    pub(crate) fn pseudo_header(&self, headers: &[u8]) -> Option<u16> {
        let addresses = if self.is_ipv6 { 8..IPV6_HEADER } else { 12..MIN_IPV4 };
        let addresses = headers.get(ETHERNET..)?.get(addresses)?;
        let len = self.end.checked_sub(usize::from(self.start))?;
        Some(sum(addresses, u64::from(self.protocol.number()).wrapping_add(len as u64)))
    }
}

impl Offload {
    /// Requests that the device complete a checksum. The checksum field contains the sum of the pseudo-header.
    #[must_use]
    pub fn checksum(of: &Transport) -> Self {
        Self {
            flags: NEEDS_CSUM,
            checksum_start: of.start,
            checksum_offset: of.protocol.checksum_offset(),
            ..Self::default()
        }
    }

    /// Requests that the device segment a TCP or UDP packet, which fills its frame, into segments with `size` bytes of payload. A packet
    /// with at most `size` bytes only gets its checksum completed. In `headers`, the first bytes of the frame, writes the lengths, the sum
    /// of the pseudo-header and the IP header's checksum. `None` if a header is invalid, or not within `headers`, or a UDP packet has more
    /// than [`MAX_UDP_SEGMENTS`].
    #[must_use]
    pub fn segmentation(headers: &mut [u8], of: &Transport, size: u16) -> Option<Self> {
        let (start, frame_len) = (usize::from(of.start), of.end);
        let transport_header = match of.protocol {
            Protocol::Tcp => usize::from(headers.get(start.checked_add(12)?)? >> 4).checked_mul(4)?,
            Protocol::Udp => MIN_UDP,
        };
        let header_len = start.checked_add(transport_header)?;
        if transport_header < of.protocol.min_header() || header_len > headers.len() || size == 0 {
            return None;
        }
        let ip_len = frame_len.checked_sub(ETHERNET)?;
        if of.is_ipv6 {
            write(headers, ETHERNET.checked_add(4)?, u16::try_from(ip_len.checked_sub(IPV6_HEADER)?).ok()?)?;
        } else {
            write(headers, ETHERNET.checked_add(2)?, u16::try_from(ip_len).ok()?)?;
            write_ipv4_checksum(headers)?;
        }
        if of.protocol == Protocol::Udp {
            let len = frame_len.checked_sub(start)?;
            write(headers, start.checked_add(4)?, u16::try_from(len).ok()?)?;
        }
        let pseudo_header = of.pseudo_header(headers)?;
        write(headers, start.checked_add(usize::from(of.protocol.checksum_offset()))?, pseudo_header)?;
        let payload = frame_len.checked_sub(header_len)?;
        if payload <= usize::from(size) {
            return Some(Self::checksum(of));
        }
        let segments = payload.div_ceil(size.into());
        if of.protocol == Protocol::Udp && segments > MAX_UDP_SEGMENTS {
            return None;
        }
        Some(Self {
            gso_type: match (of.protocol, of.is_ipv6) {
                (Protocol::Tcp, false) => GSO_TCPV4,
                (Protocol::Tcp, true) => GSO_TCPV6,
                (Protocol::Udp, _) => GSO_UDP_L4,
            },
            header_len: u16::try_from(header_len).ok()?,
            segment_size: size,
            further: u16::try_from(segments.checked_sub(1)?).ok()?,
            has_cwr: of.protocol == Protocol::Tcp && *headers.get(start.checked_add(TCP_FLAGS)?)? & CWR != 0,
            ..Self::checksum(of)
        })
    }

    /// Returns the length of the longest frame on the wire that results from a frame of `len` bytes.
    #[must_use]
    pub fn longest_frame(&self, len: usize) -> usize {
        if self.segment_size == 0 {
            len
        } else {
            usize::from(self.header_len).saturating_add(self.segment_size.into())
        }
    }

    /// Returns the request for a frame into which `len` bytes were inserted before the IP header.
    #[must_use]
    pub fn behind(self, len: u16) -> Self {
        let moved = |offset: u16| if self.flags == 0 { offset } else { offset.wrapping_add(len) };
        let header_len = if self.segment_size == 0 { 0 } else { moved(self.header_len) };
        Self { header_len, checksum_start: moved(self.checksum_start), ..self }
    }

    /// Returns the number of frames on the wire after the first, and the bytes of their headers.
    pub(crate) fn further_frames(&self) -> (u64, u64) {
        let further = u64::from(self.further);
        (further, further.wrapping_mul(self.header_len.into()))
    }

    /// Returns the virtio-net header for a device with HOST_ECN.
    pub(crate) fn to_bytes_with_ecn(self) -> [u8; HEADER_LEN] {
        let gso_type = self.gso_type | if self.has_cwr { GSO_ECN } else { 0 };
        Self { gso_type, ..self }.to_bytes()
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let [flags, gso_type, words @ ..] = &mut bytes;
        (*flags, *gso_type) = (self.flags, self.gso_type);
        let fields = [self.header_len, self.segment_size, self.checksum_start, self.checksum_offset];
        for (word, field) in words.as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *word = field.to_le_bytes();
        }
        bytes
    }
}

/// The fields of a received frame's virtio-net header that the driver uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveHeader {
    flags: u8,
    gso_type: u8,
    segment_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
    /// Number of buffers of the frame.
    pub(crate) buffers: u16,
}

/// The virtio-net header's information about the segments of a coalesced frame. Not verified: see
/// [`Coalesced::complete`](crate::Coalesced::complete).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoalescedHeader {
    pub(crate) gso_type: u8,
    /// Payload of each segment except the last, in bytes.
    segment_size: u16,
    pub(crate) checksum: TcpChecksum,
}

/// Checksum state of a coalesced frame according to the virtio-net header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TcpChecksum {
    /// The field contains the sum of the pseudo-header: the frame comes from a VM on the same host, or from Linux's GRO.
    Partial,
    /// The device has verified the segments, as network cards with LRO do. The field may contain the checksum of one of them.
    Verified,
    Unknown,
}

impl CoalescedHeader {
    /// Returns the payload of each segment except the last, in bytes: the stated one if there is one, and it is at most `largest`.
    /// `None` if `largest` is 0.
    pub(crate) fn segment_size(self, largest: usize) -> Option<usize> {
        let stated = usize::from(self.segment_size);
        let size = if stated == 0 { largest } else { stated.min(largest) };
        (size != 0).then_some(size)
    }
}

impl ReceiveHeader {
    pub(crate) const fn parse(bytes: [u8; HEADER_LEN]) -> Self {
        let [flags, gso_type, _, _, size, size_high, start, start_high, offset, offset_high, words @ ..] =
            bytes;
        let [buffers, buffers_high] = words;
        Self {
            flags,
            gso_type,
            segment_size: u16::from_le_bytes([size, size_high]),
            checksum_start: u16::from_le_bytes([start, start_high]),
            checksum_offset: u16::from_le_bytes([offset, offset_high]),
            buffers: u16::from_le_bytes([buffers, buffers_high]),
        }
    }

    /// Whether the device has verified the checksum.
    pub(crate) const fn is_verified(self) -> bool {
        self.flags & DATA_VALID != 0
    }

    /// Whether the driver must complete the checksum, because the frame comes from a VM on the same host.
    pub(crate) const fn is_partial(self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Returns the segment information of a coalesced frame; `None` for any other frame.
    pub(crate) const fn coalesced(self) -> Option<CoalescedHeader> {
        match self.gso_type {
            0 => None,
            gso_type => Some(CoalescedHeader {
                gso_type,
                segment_size: self.segment_size,
                checksum: match (self.is_partial(), self.is_verified()) {
                    (true, _) => TcpChecksum::Partial,
                    (false, true) => TcpChecksum::Verified,
                    (false, false) => TcpChecksum::Unknown,
                },
            }),
        }
    }

    /// Completes the checksum of a frame, with or without a VLAN tag, and returns whether it is that of its TCP segment or UDP datagram,
    /// which ends with the IP packet: what follows is padding. Another checksum, of a tunnel's inner packet for example, ends with the
    /// frame. `None` if the checksum field lies outside of that.
    #[must_use]
    pub(crate) fn complete(self, frame: &mut [u8]) -> Option<bool> {
        let (start, offset) = (self.checksum_start.into(), self.checksum_offset.into());
        let tag = if ether_type(frame) == Some(VLAN) { TAG } else { 0 };
        let end = Transport::find(frame.get(tag..)?)
            .filter(|found| usize::from(found.start).checked_add(tag) == Some(start))
            .filter(|found| usize::from(found.protocol.checksum_offset()) == offset)
            .and_then(|found| found.end.checked_add(tag));
        let covered = frame.get_mut(..end.unwrap_or(frame.len()))?;
        complete(covered, start, offset)?;
        Some(end.is_some())
    }
}

/// Completes the checksum of a sent frame in place of the device. The checksum field contains the sum of the pseudo-header.
#[must_use]
pub fn complete_checksum(frame: &mut [u8], of: &Transport) -> Option<()> {
    let frame = frame.get_mut(..of.end)?;
    complete(frame, of.start.into(), of.protocol.checksum_offset().into())
}

/// Computes and writes the IPv4 header checksum of a frame; `None` if it is not an IPv4 packet.
#[must_use]
pub fn write_ipv4_checksum(frame: &mut [u8]) -> Option<()> {
    let at = ETHERNET.checked_add(10)?;
    ipv4_header(frame)?;
    write(frame, at, 0)?;
    let checksum = !sum(ipv4_header(frame)?, 0);
    write(frame, at, checksum)
}

/// Whether the IPv4 header checksum of a frame is correct; `None` if it is not an IPv4 packet.
#[must_use]
pub fn ipv4_checksum_is_valid(frame: &[u8]) -> Option<bool> {
    Some(sum(ipv4_header(frame)?, 0) == u16::MAX)
}

pub(crate) fn complete(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let field = start.checked_add(offset)?;
    let checksum = !sum(frame.get(start..)?, 0);
    // 0 means that a datagram has no checksum. `write` writes nothing outside of the frame.
    write(frame, field, if checksum == 0 { u16::MAX } else { checksum })
}

pub(crate) fn write(frame: &mut [u8], at: usize, value: u16) -> Option<()> {
    frame.get_mut(at..at.checked_add(2)?)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn ether_type(frame: &[u8]) -> Option<[u8; 2]> {
    frame.get(12..)?.first_chunk().copied()
}

/// Returns the IPv4 header of a frame, options included.
fn ipv4_header(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET..).filter(|_| ether_type(frame) == Some(IPV4))?;
    packet.get(..ipv4_header_len(packet)?)
}

fn ipv4_header_len(packet: &[u8]) -> Option<usize> {
    let len = usize::from(packet.first()? & 0xF).checked_mul(4)?;
    (len >= MIN_IPV4).then_some(len)
}

/// Returns protocol, header length and packet length of an IPv4 packet; `None` for a fragment.
fn ipv4(packet: &[u8]) -> Option<(u8, usize, usize)> {
    const FRAGMENT: u16 = 0x3FFF;
    let header = ipv4_header_len(packet)?;
    (word(packet, 6)? & FRAGMENT == 0).then_some(())?;
    Some((*packet.get(9)?, header, word(packet, 2)?.into()))
}

/// Parses an IPv6 header; the header length includes extension headers. `None` for a fragment, too: its header is not skipped.
fn ipv6(packet: &[u8]) -> Option<(u8, usize, usize)> {
    let (mut number, mut header) = (*packet.get(6)?, IPV6_HEADER);
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&number) {
            break;
        }
        let &[next, units] = packet.get(header..)?.first_chunk()?;
        number = next;
        header = header.checked_add(usize::from(units).checked_add(1)?.checked_mul(8)?)?;
    }
    Some((number, header, usize::from(word(packet, 4)?).checked_add(IPV6_HEADER)?))
}

/// Returns the one's complement sum of 16-bit words and `initial`.
fn sum(bytes: &[u8], initial: u64) -> u16 {
    // Eight bytes at a time, in the machine's byte order: the sum does not depend on it. (RFC 1071 §2)
    let (longs, rest) = bytes.as_chunks::<8>();
    let mut total = 0_u128;
    for &long in longs {
        total = total.wrapping_add(u64::from_ne_bytes(long).into());
    }
    let mut tail = [0; 8];
    for (to, from) in tail.iter_mut().zip(rest) {
        *to = *from;
    }
    total = total.wrapping_add(u64::from_ne_bytes(tail).into());
    // There are fewer than 2^32 carries out of 64 bits.
    let (carries, total) = ((total >> 64) as u64, total as u64);
    let total = (total >> 32).wrapping_add(total & 0xFFFF_FFFF).wrapping_add(carries);
    fold(u64::from(u16::from_be(fold(total))).wrapping_add(initial))
}

/// Adds the carries of a sum of fewer than 2^32 numbers of 32 bits.
const fn fold(mut total: u64) -> u16 {
    total = (total >> 32).wrapping_add(total & 0xFFFF_FFFF);
    total = (total >> 16).wrapping_add(total & 0xFFFF);
    total = (total >> 16).wrapping_add(total & 0xFFFF);
    total = (total >> 16).wrapping_add(total & 0xFFFF);
    (total >> 16).wrapping_add(total & 0xFFFF) as u16
}
