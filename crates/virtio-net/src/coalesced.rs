// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames that consist of several TCP segments of a flow. (virtio §9; WDK: Receive Segment Coalescing)

use core::ops::ControlFlow;

use crate::offload::{
    CWR, CoalescedHeader, ETHERNET, GSO_TCPV4, GSO_TCPV6, IPV6_HEADER, MIN_IPV4, MIN_TCP, Protocol,
    TCP_FLAGS, TcpChecksum, Transport, complete, ipv4_checksum_is_valid, word, write, write_ipv4_checksum,
};

/// Length of the longest such frame in bytes: Ethernet header, tag, and the longest IP packet.
pub const MAX_COALESCED: usize = 14 + 4 + 65_535;

/// TCP flags that a coalesced frame must not have: SYN, RST, URG.
const NOT_COALESCED: u8 = 0x26;
/// TCP flags that belong in the last segment alone: FIN, PSH.
const LAST_ONLY: u8 = 0x09;
/// Offset in the TCP header of the byte whose upper half is the header's length.
const TCP_LEN: usize = 12;
/// Offset in the TCP header of the sequence number.
const TCP_SEQUENCE: usize = 4;
/// Offsets in IP headers: the length of the packet and the identification (IPv4), the length of the payload (IPv6).
const IPV4_LEN: usize = 2;
const IPV4_ID: usize = 4;
const IPV6_LEN: usize = 4;
/// Length of the longest headers of such a frame in bytes, with all TCP options.
const LONGEST_HEADERS: usize = ETHERNET + IPV6_HEADER + 60;

/// A received frame of several TCP segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesced {
    pub is_ipv6: bool,
    /// Number of segments, at least 1: a device may also report a single segment as coalesced.
    pub segments: u16,
    /// Bytes of the headers, which each segment had on the wire.
    pub headers: usize,
    /// Bytes of payload.
    pub payload: usize,
    /// Bytes of payload of each segment except the last.
    pub segment_size: usize,
    /// The field of the TCP checksum has the frame's. Otherwise the device has verified the segments, or the frame comes from a virtual
    /// machine of the same host.
    pub has_checksum: bool,
}

impl Coalesced {
    /// Checks that an untagged frame consists of TCP segments as its virtio-net header states, each in a frame of at most `max_frame`
    /// bytes. `None` if the check fails, or the frame's checksum is neither partial nor verified by the
    /// device nor right. Computes the checksum of a single segment; for more, NDIS accepts that it was verified, which saves reading up to
    /// 64 KiB.
    ///
    /// If the header states no segment size, or a larger one than `max_frame` allows, the largest one counts.
    //= virtio §9
    #[must_use]
    pub fn complete(frame: &mut [u8], header: CoalescedHeader, max_frame: usize) -> Option<Self> {
        let found = Transport::find(frame)?;
        let start = usize::from(found.start);
        let (gso_type, ip_header) =
            if found.is_ipv6 { (GSO_TCPV6, IPV6_HEADER) } else { (GSO_TCPV4, MIN_IPV4) };
        let is_as_stated = header.gso_type == gso_type && found.protocol == Protocol::Tcp;
        // The packet fills the frame, and has no IP options, as Windows requires. (WDK: Updating the IP Headers for Coalesced Segments)
        let is_plain = found.end == frame.len() && start == ETHERNET.checked_add(ip_header)?;
        if !is_as_stated || !is_plain || ipv4_checksum_is_valid(frame) == Some(false) {
            return None;
        }
        let tcp_header = usize::from(frame.get(start.checked_add(TCP_LEN)?)? >> 4).checked_mul(4)?;
        let flags = frame.get(start.checked_add(TCP_FLAGS)?)?;
        let headers = start.checked_add(tcp_header)?;
        let payload = frame.len().checked_sub(headers)?;
        if tcp_header < MIN_TCP || flags & NOT_COALESCED != 0 || payload == 0 {
            return None;
        }
        let segment_size = header.segment_size(max_frame.checked_sub(headers)?)?;
        let segments = u16::try_from(payload.div_ceil(segment_size)).ok()?;
        let is_unknown = header.checksum == TcpChecksum::Unknown;
        if is_unknown && !found.checksum_is_valid(frame)? {
            return None;
        }
        let is_single = segments == 1;
        if is_single && !is_unknown {
            let checksum_offset = found.protocol.checksum_offset();
            let pseudo_header = found.pseudo_header(frame)?;
            write(frame, start.checked_add(checksum_offset.into())?, pseudo_header)?;
            complete(frame, start, checksum_offset.into())?;
        }
        let has_checksum = is_single || is_unknown;
        Some(Self { is_ipv6: found.is_ipv6, segments, headers, payload, segment_size, has_checksum })
    }

    /// Divides the frame, which was [completed](Self::complete), into its segments: calls `each` with a frame of each segment, in order,
    /// until it breaks. Each has its headers and right checksums. They are built in the memory of the frame, which has other contents
    /// afterwards. `None` if this is another frame.
    pub fn divide(&self, frame: &mut [u8], mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> Option<()> {
        let mut saved = [0; LONGEST_HEADERS];
        let headers = saved.get_mut(..self.headers)?;
        copy(headers, frame);
        for number in 0..self.segments {
            // The headers replace the end of the payload before, which was passed on.
            let offset = usize::from(number).checked_mul(self.segment_size)?;
            let left = frame.get_mut(offset..)?;
            let len = left.len().min(self.headers.checked_add(self.segment_size)?);
            let segment = left.get_mut(..len)?;
            copy(segment, headers);
            self.complete_segment(segment, number, offset)?;
            if each(segment).is_break() {
                break;
            }
        }
        Some(())
    }

    /// Writes into the headers of a segment, which are those of the frame, what is its own. Its payload begins at `offset` of the frame's.
    fn complete_segment(&self, segment: &mut [u8], number: u16, offset: usize) -> Option<()> {
        let ip_len = segment.len().checked_sub(ETHERNET)?;
        if self.is_ipv6 {
            let len = u16::try_from(ip_len.checked_sub(IPV6_HEADER)?).ok()?;
            write(segment, ETHERNET.checked_add(IPV6_LEN)?, len)?;
        } else {
            write(segment, ETHERNET.checked_add(IPV4_LEN)?, u16::try_from(ip_len).ok()?)?;
            let at = ETHERNET.checked_add(IPV4_ID)?;
            let id = word(segment, at)?.wrapping_add(number);
            write(segment, at, id)?;
            write_ipv4_checksum(segment)?;
        }
        let found = Transport::find(segment)?;
        let start = usize::from(found.start);
        let sequence = segment.get_mut(start.checked_add(TCP_SEQUENCE)?..)?.first_chunk_mut::<4>()?;
        *sequence = u32::from_be_bytes(*sequence).wrapping_add(offset as u32).to_be_bytes();
        let flags = segment.get_mut(start.checked_add(TCP_FLAGS)?)?;
        if number != 0 {
            *flags &= !CWR;
        }
        if number.wrapping_add(1) != self.segments {
            *flags &= !LAST_ONLY;
        }
        let checksum_offset = usize::from(found.protocol.checksum_offset());
        let pseudo_header = found.pseudo_header(segment)?;
        write(segment, start.checked_add(checksum_offset)?, pseudo_header)?;
        complete(segment, start, checksum_offset)
    }
}

/// Copies as many bytes as there are in both.
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
