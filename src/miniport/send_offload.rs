// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames for which the stack requests checksums or segmentation. IRQL <= `DISPATCH_LEVEL`.
//!
//! A request that contradicts its frame fails the list: the device would send something else than the stack means.

use ndk_abi::ndis::{
    NDIS_NET_BUFFER_LIST_INFO, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_INVALID_LENGTH,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend, NET_BUFFER, NET_BUFFER_LIST,
};
use virtio_net::{Offload, Protocol, Transport, complete_checksum, write_ipv4_checksum};

use super::statistics::Cast;
use super::task_offload::{OffloadState, TaskOffloads};
use crate::nbl::{copy_data, info};
use crate::nic::port::TransmitSlots;

/// What the stack requests for a list.
#[derive(Clone, Copy)]
pub struct Requested {
    checksum: u32,
    large: u32,
}

/// A frame that was queued.
pub struct Sent {
    pub cast: Cast,
    /// Its length in bytes, before it is divided.
    pub len: usize,
}

impl Requested {
    /// Returns what is requested for a list; `None` if nothing is.
    pub fn of(nbl: &NET_BUFFER_LIST) -> Option<Self> {
        let checksum = info(nbl, NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo).addr() as u32;
        let large = info(nbl, NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo).addr() as u32;
        (checksum & (Checksum::TRANSMIT_IS_IPV4 | Checksum::TRANSMIT_IS_IPV6) != 0 || large != 0)
            .then_some(Self { checksum, large })
    }

    /// Queues a frame of the list; `None` if no slot is free, otherwise the status of a list that fails.
    #[cold]
    pub fn send(
        self,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        max_frame: u32,
        net_buffer: *mut NET_BUFFER,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        if self.large != 0 {
            self.send_large(offloads, queue, max_frame, net_buffer)
        } else {
            self.send_checksum(offloads, queue, net_buffer)
        }
    }

    fn send_large(
        self,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        max_frame: u32,
        net_buffer: *mut NET_BUFFER,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        let is_ipv6 = self.large & LargeSend::V2_IPV6 != 0;
        let needed = if is_ipv6 { TaskOffloads::LARGE_SEND6 } else { TaskOffloads::LARGE_SEND4 };
        // Version 1 is not supported; after the offload was disabled such lists are dropped.
        if self.large & LargeSend::TYPE_V2 == 0 || !offloads.current().has(needed) {
            return Some(Err(NDIS_STATUS_FAILURE));
        }
        let slot = queue.large_slot()?;
        let Some(len) = copy_data(net_buffer, slot) else { return Some(Err(NDIS_STATUS_INVALID_LENGTH)) };
        let cast = Cast::of(slot);
        let offload = slot.get_mut(..len).and_then(|frame| {
            let found = Transport::find_large(frame)?;
            let offset = (self.large & LargeSend::V2_TCP_HEADER_OFFSET)
                .wrapping_shr(LargeSend::V2_TCP_HEADER_OFFSET_SHIFT);
            let size = u16::try_from(self.large & LargeSend::V2_MSS).ok()?;
            let agrees = found.is_ipv6 == is_ipv6 && u32::from(found.start) == offset;
            let offload = agrees.then(|| Offload::segmentation(frame, &found, size)).flatten()?;
            (offload.longest_frame(len) <= max_frame as usize).then_some(offload)
        });
        let Some(offload) = offload else { return Some(Err(NDIS_STATUS_FAILURE)) };
        queue.commit_large(len, &offload);
        Some(Ok(Sent { cast, len }))
    }

    fn send_checksum(
        self,
        offloads: &OffloadState,
        queue: &mut TransmitSlots,
        net_buffer: *mut NET_BUFFER,
    ) -> Option<Result<Sent, NDIS_STATUS>> {
        let slot = queue.slot()?;
        let Some(len) = copy_data(net_buffer, slot) else { return Some(Err(NDIS_STATUS_INVALID_LENGTH)) };
        let cast = Cast::of(slot);
        let by_device = offloads.completes_checksums();
        let Some(offload) = slot.get_mut(..len).and_then(|frame| self.checksum(frame, by_device)) else {
            return Some(Err(NDIS_STATUS_FAILURE));
        };
        if offload == Offload::default() {
            queue.commit(len);
        } else {
            queue.commit_with(len, &offload);
        }
        Some(Ok(Sent { cast, len }))
    }

    /// Computes the checksums of a frame, or leaves that of TCP or UDP to the device. Returns what the device is to do; `None`
    /// if the request contradicts the frame.
    fn checksum(self, frame: &mut [u8], by_device: bool) -> Option<Offload> {
        let has = |bit: u32| self.checksum & bit != 0;
        if has(Checksum::TRANSMIT_IS_IPV4) == has(Checksum::TRANSMIT_IS_IPV6) {
            return None;
        }
        if has(Checksum::TRANSMIT_IP_HEADER_CHECKSUM) {
            if has(Checksum::TRANSMIT_IS_IPV6) {
                return None;
            }
            write_ipv4_checksum(frame)?;
        }
        let protocol = match (has(Checksum::TRANSMIT_TCP_CHECKSUM), has(Checksum::TRANSMIT_UDP_CHECKSUM)) {
            (false, false) => return Some(Offload::default()),
            (true, false) => Protocol::Tcp,
            (false, true) => Protocol::Udp,
            (true, true) => return None,
        };
        let found = Transport::find(frame)?;
        let offset = (self.checksum & Checksum::TRANSMIT_TCP_HEADER_OFFSET)
            .wrapping_shr(Checksum::TRANSMIT_TCP_HEADER_OFFSET_SHIFT);
        // The offset is one of TCP headers.
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
