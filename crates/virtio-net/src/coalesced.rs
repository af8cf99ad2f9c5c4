// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames that consist of several TCP segments of a flow. (virtio §9; WDK: Receive Segment Coalescing)

use crate::offload::{
    CoalescedHeader, ETHERNET, GSO_TCPV4, GSO_TCPV6, IPV6_HEADER, MIN_IPV4, MIN_TCP, Protocol, TCP_FLAGS,
    Transport, complete, ipv4_checksum_is_valid, write,
};

/// Length of the longest such frame in bytes: Ethernet header, tag, and the longest IP packet.
pub const MAX_COALESCED: usize = 14 + 4 + 65_535;

/// Flags of TCP that no segment of such a frame has: SYN, RST, URG.
const NOT_COALESCED: u8 = 0x26;
/// Offset of the TCP header's length, in its upper half.
const TCP_LEN: usize = 12;

/// A received frame of several TCP segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesced {
    pub is_ipv6: bool,
    /// Number of segments; a device may also say of one segment that it is several.
    pub segments: u16,
    /// Bytes of all headers, which each segment had.
    pub headers: usize,
    /// Bytes of payload.
    pub payload: usize,
}

impl Coalesced {
    /// Checks that a frame without a tag consists of TCP segments as its header says, each in a frame of at most `max_frame` bytes, and
    /// computes its checksum. `None` if it does not.
    //= virtio §9
    #[must_use]
    pub fn complete(frame: &mut [u8], header: CoalescedHeader, max_frame: usize) -> Option<Self> {
        let found = Transport::find(frame)?;
        let start = usize::from(found.start);
        let (gso_type, ip_header) =
            if found.is_ipv6 { (GSO_TCPV6, IPV6_HEADER) } else { (GSO_TCPV4, MIN_IPV4) };
        let is_as_stated =
            header.is_partial && header.gso_type == gso_type && found.protocol == Protocol::Tcp;
        // The packet fills the frame, and has no IP options.
        let is_plain = found.end == frame.len() && start == ETHERNET.checked_add(ip_header)?;
        if !is_as_stated || !is_plain || ipv4_checksum_is_valid(frame) == Some(false) {
            return None;
        }
        let tcp_header = usize::from(frame.get(start.checked_add(TCP_LEN)?)? >> 4).checked_mul(4)?;
        let flags = frame.get(start.checked_add(TCP_FLAGS)?)?;
        let headers = start.checked_add(tcp_header)?;
        let payload = frame.len().checked_sub(headers)?;
        let size = usize::from(header.segment_size);
        if tcp_header < MIN_TCP
            || flags & NOT_COALESCED != 0
            || payload == 0
            || size == 0
            || headers.checked_add(size)? > max_frame
        {
            return None;
        }
        let segments = u16::try_from(payload.div_ceil(size)).ok()?;
        let checksum_offset = found.protocol.checksum_offset();
        let pseudo_header = found.pseudo_header(frame)?;
        write(frame, start.checked_add(checksum_offset.into())?, pseudo_header)?;
        complete(frame, start, checksum_offset.into())?;
        Some(Self { is_ipv6: found.is_ipv6, segments, headers, payload })
    }
}
