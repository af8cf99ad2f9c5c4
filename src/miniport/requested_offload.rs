// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames for which the stack requests checksums or segmentation. IRQL <= `DISPATCH_LEVEL`.
//!
//! If a request contradicts its frame, the NBL fails, because the device would not send the packet that the stack
//! intended.

use ndk_abi::ndis::{
    NDIS_NET_BUFFER_LIST_INFO, NDIS_STATUS, NDIS_STATUS_FAILURE,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend,
    NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO as UdpSegmentation, NET_BUFFER_LIST,
};
use virtio_net::{
    MAX_HEADERS, MAX_UDP_SEGMENTS, Offload, Protocol, Transport, complete_checksum, write_ipv4_checksum,
};

use super::offload_set::TaskOffloads;
use super::offload_state::OffloadState;
use super::outgoing_frame::Outgoing;
use super::statistics::Cast;
use crate::nbl::info;
use crate::nic::rdma_slots::TransmitSlots;

/// Length of a UDP header, in bytes.
const UDP_HEADER: usize = 8;
/// Offset of the identification of an IPv4 packet in an untagged frame, in bytes.
const IPV4_ID: usize = 18;

/// The offload that the stack requests for an NBL.
#[derive(Clone, Copy)]
pub enum Requested {
    /// Checksums: `TcpIpChecksumNetBufferListInfo`.
    Checksum(u32),
    /// LSO and USO packets: the device segments them.
    Segmentation(Segmentation),
    /// Large send offload, version 1.
    Unsupported,
}

/// LSO and USO packets: the device segments them.
#[derive(Clone, Copy)]
pub struct Segmentation {
    protocol: Protocol,
    is_ipv6: bool,
    /// Offset of the transport header in the frame according to the stack, in bytes.
    header: u32,
    /// Payload of a segment (MSS), in bytes.
    size: u32,
}

/// A frame that was queued.
pub struct Sent {
    pub cast: Cast,
    /// Its length in bytes with its tag, before segmentation.
    pub len: usize,
    /// It is a part of its packet: bytes of the payload that are sent now.
    pub unfinished: Option<usize>,
}

/// A part of a packet to segment, with headers of its own.
struct Part {
    /// Length of its headers at most, in bytes.
    header_len: usize,
    /// Its length in bytes, with headers.
    len: usize,
    /// The same as [`Sent::unfinished`].
    unfinished: Option<usize>,
}

impl Segmentation {
    fn tcp(info: u32) -> Self {
        Self {
            protocol: Protocol::Tcp,
            is_ipv6: info & LargeSend::V2_IPV6 != 0,
            header: (info & LargeSend::V2_TCP_HEADER_OFFSET)
                .wrapping_shr(LargeSend::V2_TCP_HEADER_OFFSET_SHIFT),
            size: info & LargeSend::V2_MSS,
        }
    }

    fn udp(info: u32) -> Self {
        Self {
            protocol: Protocol::Udp,
            is_ipv6: info & UdpSegmentation::IPV6 != 0,
            header: (info & UdpSegmentation::UDP_HEADER_OFFSET)
                .wrapping_shr(UdpSegmentation::UDP_HEADER_OFFSET_SHIFT),
            size: info & UdpSegmentation::MSS,
        }
    }

    const fn task(self) -> TaskOffloads {
        match (self.protocol, self.is_ipv6) {
            (Protocol::Tcp, false) => TaskOffloads::LARGE_SEND4,
            (Protocol::Tcp, true) => TaskOffloads::LARGE_SEND6,
            (Protocol::Udp, false) => TaskOffloads::UDP_SEGMENTATION4,
            (Protocol::Udp, true) => TaskOffloads::UDP_SEGMENTATION6,
        }
    }

    /// Queues what is left of a packet after `sent` bytes of its payload, or a part of that.
    fn send(
        self,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        outgoing: Outgoing,
        sent: usize,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        // The stack may not have seen yet that the offload was disabled.
        if !offloads.current().has(self.task()) {
            return Some(Err(NDIS_STATUS_FAILURE));
        }
        let slot = queue.large_slot()?;
        let frame = match outgoing.copy_untagged(slot, usize::MAX) {
            Ok(frame) => frame,
            Err(status) => return Some(Err(status)),
        };
        let mut headers = Headers::of(frame);
        let Some(Part { header_len, len, unfinished }) = self.part(headers.get(), frame, sent) else {
            return Some(Err(NDIS_STATUS_FAILURE));
        };
        // The bytes behind the headers may be others now.
        headers.truncate(header_len);
        let Some(offload) = self.offload_of(headers.get(), len, outgoing.max_frame) else {
            return Some(Err(NDIS_STATUS_FAILURE));
        };
        let cast = Cast::of(headers.get());
        headers.write_to(frame);
        let len = outgoing.insert_tag(slot, len);
        queue.commit_large(len, &offload.behind(outgoing.room() as u16));
        Some(Ok(Sent { cast, len, unfinished }))
    }

    /// Moves what is sent next of a packet, whose first `sent` bytes of payload are sent, behind its headers: the packet, unless it is a UDP
    /// packet with more segments than a device takes. `None` if the packet has no UDP header, or no payload is left.
    fn part(self, headers: &mut [u8], frame: &mut [u8], sent: usize) -> Option<Part> {
        let (len, size) = (frame.len(), self.size as usize);
        if self.protocol != Protocol::Udp {
            return Some(Part { header_len: MAX_HEADERS, len, unfinished: None });
        }
        let found = Transport::find_large(headers, len).filter(|found| found.protocol == Protocol::Udp)?;
        let start = usize::from(found.start).checked_add(UDP_HEADER)?;
        let left = len.checked_sub(start)?.checked_sub(sent)?;
        let now = left.min(size.checked_mul(MAX_UDP_SEGMENTS)?);
        if sent != 0 {
            // They do not overlap: all parts before this one are at least as long.
            let (before, rest) = frame.split_at_mut_checked(start.checked_add(sent)?)?;
            let (to, from) = (before.get_mut(start..)?, rest.get(..now).filter(|from| !from.is_empty())?);
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
        if !found.is_ipv6 {
            // The identification grows with each segment.
            let id = headers.get_mut(IPV4_ID..)?.first_chunk_mut::<2>()?;
            let segments = sent.checked_div(size)? as u16;
            *id = u16::from_be_bytes(*id).wrapping_add(segments).to_be_bytes();
        }
        let unfinished = (now < left).then(|| sent.saturating_add(now));
        Some(Part { header_len: start, len: start.checked_add(now)?, unfinished })
    }

    /// Completes the headers of an untagged frame of `len` bytes. Returns the offload for the device; `None` if the request contradicts the
    /// frame, or asks for segments that are too long or too many.
    fn offload_of(self, headers: &mut [u8], len: usize, max_frame: usize) -> Option<Offload> {
        let found = Transport::find_large(headers, len)?;
        let size = u16::try_from(self.size).ok()?;
        let agrees = (found.protocol, found.is_ipv6) == (self.protocol, self.is_ipv6)
            && u32::from(found.start) == self.header;
        let offload = agrees.then(|| Offload::segmentation(headers, &found, size)).flatten()?;
        (offload.longest_frame(len) <= max_frame).then_some(offload)
    }
}

/// A private copy of the first bytes of a frame in a slot. The device cannot write to it, so checked bytes do not change before they are
/// used.
struct Headers {
    bytes: [u8; MAX_HEADERS],
    len: usize,
}

impl Headers {
    fn of(frame: &[u8]) -> Self {
        let mut bytes = [0; MAX_HEADERS];
        for (to, from) in bytes.iter_mut().zip(frame) {
            *to = *from;
        }
        Self { bytes, len: frame.len().min(MAX_HEADERS) }
    }

    fn get(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or_default()
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Writes the bytes back to the frame that they were copied from.
    fn write_to(&mut self, frame: &mut [u8]) {
        for (to, from) in frame.iter_mut().zip(self.get()) {
            *to = *from;
        }
    }
}

impl Requested {
    /// Returns the request of an NBL; `None` if it requests no offload.
    pub fn of(nbl: &NET_BUFFER_LIST) -> Option<Self> {
        let slot = |slot| info(nbl, slot).addr() as u32;
        let checksum = slot(NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo);
        let large = slot(NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo);
        let udp = slot(NDIS_NET_BUFFER_LIST_INFO::UdpSegmentationOffloadInfo);
        if large | udp != 0 {
            return Some(Self::divided(large, udp));
        }
        let has_checksum = checksum & (Checksum::TRANSMIT_IS_IPV4 | Checksum::TRANSMIT_IS_IPV6) != 0;
        has_checksum.then_some(Self::Checksum(checksum))
    }

    #[cold]
    fn divided(large: u32, udp: u32) -> Self {
        if large == 0 {
            Self::Segmentation(Segmentation::udp(udp))
        } else if large & LargeSend::TYPE_V2 == 0 {
            Self::Unsupported
        } else {
            Self::Segmentation(Segmentation::tcp(large))
        }
    }

    /// Queues a frame of the NBL, or what is left of it after `sent` bytes of its payload; `None` if no slot is free. An error is the status
    /// with which the NBL fails.
    #[cold]
    pub fn send(
        self,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        outgoing: Outgoing,
        sent: usize,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        match self {
            Self::Checksum(info) => Self::send_checksum(info, offloads, queue, outgoing),
            Self::Segmentation(segmentation) => segmentation.send(offloads, queue, outgoing, sent),
            Self::Unsupported => Some(Err(NDIS_STATUS_FAILURE)),
        }
    }

    fn send_checksum(
        info: u32,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        outgoing: Outgoing,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        let slot = queue.slot()?;
        let frame = match outgoing.copy_untagged(slot, outgoing.max_frame) {
            Ok(frame) => frame,
            Err(status) => return Some(Err(status)),
        };
        let (mut headers, len) = (Headers::of(frame), frame.len());
        let cast = Cast::of(headers.get());
        let by_device = offloads.completes_checksums();
        let Some(offload) = Self::checksum(info, &mut headers, frame, by_device) else {
            return Some(Err(NDIS_STATUS_FAILURE));
        };
        let len = outgoing.insert_tag(slot, len);
        let offload = offload.behind(outgoing.room() as u16);
        if offload == Offload::default() {
            queue.commit(len);
        } else {
            queue.commit_with(len, &offload);
        }
        Some(Ok(Sent { cast, len, unfinished: None }))
    }

    /// Computes the checksums of a frame; with `by_device`, leaves the TCP or UDP checksum to the device. Returns the offload for the
    /// device; `None` if the request contradicts the frame.
    fn checksum(info: u32, headers: &mut Headers, frame: &mut [u8], by_device: bool) -> Option<Offload> {
        let has = |bit: u32| info & bit != 0;
        if has(Checksum::TRANSMIT_IS_IPV4) == has(Checksum::TRANSMIT_IS_IPV6) {
            return None;
        }
        if has(Checksum::TRANSMIT_IP_HEADER_CHECKSUM) {
            if has(Checksum::TRANSMIT_IS_IPV6) {
                return None;
            }
            write_ipv4_checksum(headers.get())?;
            headers.write_to(frame);
        }
        let protocol = match (has(Checksum::TRANSMIT_TCP_CHECKSUM), has(Checksum::TRANSMIT_UDP_CHECKSUM)) {
            (false, false) => return Some(Offload::default()),
            (true, false) => Protocol::Tcp,
            (false, true) => Protocol::Udp,
            (true, true) => return None,
        };
        let found = Transport::find_in(headers.get(), frame.len())?;
        let offset = (info & Checksum::TRANSMIT_TCP_HEADER_OFFSET)
            .wrapping_shr(Checksum::TRANSMIT_TCP_HEADER_OFFSET_SHIFT);
        // NDIS defines the offset for TCP headers only.
        let agrees = protocol == Protocol::Udp || u32::from(found.start) == offset;
        if found.protocol != protocol || found.is_ipv6 != has(Checksum::TRANSMIT_IS_IPV6) || !agrees {
            return None;
        }
        if by_device {
            return Some(Offload::checksum(&found));
        }
        complete_checksum(frame, &found)?;
        Some(Offload::default())
    }
}
