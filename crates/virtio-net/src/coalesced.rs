// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames that consist of several TCP segments of a flow. (virtio §9; WDK: Receive Segment Coalescing)

use crate::offload::{
    CoalescedHeader, ETHERNET, GSO_TCPV4, GSO_TCPV6, IPV6_HEADER, MIN_IPV4, MIN_TCP, Protocol, TCP_FLAGS,
    TcpChecksum, Transport, complete, ipv4_checksum_is_valid, write,
};

/// Length of the longest such frame in bytes: Ethernet header, tag, and the longest IP packet.
pub const MAX_COALESCED: usize = 14 + 4 + 65_535;

/// TCP flags that a coalesced frame must not have: SYN, RST, URG.
const NOT_COALESCED: u8 = 0x26;
/// Offset in the TCP header of the byte whose upper half is the header's length.
const TCP_LEN: usize = 12;

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
        let segments = payload.div_ceil(header.segment_size(max_frame.checked_sub(headers)?)?);
        let segments = u16::try_from(segments).ok()?;
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
        Some(Self { is_ipv6: found.is_ipv6, segments, headers, payload, has_checksum })
    }
}
