// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checksum results of received frames, as NDIS expects them in `TcpIpChecksumNetBufferListInfo`.

use ndk_abi::ndis::NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum;
use virtio_net::{Protocol, Transport, ipv4_checksum_is_valid};

use super::offload_set::TaskOffloads;
use super::offload_state::OffloadState;

/// Returns `TcpIpChecksumNetBufferListInfo` of a coalesced frame, whose checksums were verified. `has_checksum`: its field of the TCP checksum
/// has the one of the whole. (WDK: Indicating Coalesced Segments)
pub fn report_coalesced(frame: &[u8], has_checksum: bool) -> u32 {
    let of_ip = if ipv4_checksum_is_valid(frame).is_some() { Checksum::RECEIVE_IP_SUCCEEDED } else { 0 };
    let value = if has_checksum { 0 } else { Checksum::RECEIVE_TCP_VALUE_INVALID };
    Checksum::RECEIVE_TCP_SUCCEEDED | of_ip | value
}

/// Returns `TcpIpChecksumNetBufferListInfo` of a received frame. `is_verified`: its TCP or UDP checksum was verified.
pub fn report(offloads: &OffloadState, frame: &[u8], is_verified: bool) -> u32 {
    let current = offloads.current_receives();
    if current == TaskOffloads::NONE {
        return 0;
    }
    let ip = match ipv4_checksum_is_valid(frame) {
        Some(is_valid) if current.has(TaskOffloads::RECEIVE_IPV4) => {
            if is_valid {
                Checksum::RECEIVE_IP_SUCCEEDED
            } else {
                Checksum::RECEIVE_IP_FAILED
            }
        }
        _ => 0,
    };
    let Some(found) = Transport::find(frame).filter(|_| is_verified) else { return ip };
    let (offload, succeeded) = match (found.protocol, found.is_ipv6) {
        (Protocol::Tcp, false) => (TaskOffloads::RECEIVE_TCP4, Checksum::RECEIVE_TCP_SUCCEEDED),
        (Protocol::Udp, false) => (TaskOffloads::RECEIVE_UDP4, Checksum::RECEIVE_UDP_SUCCEEDED),
        (Protocol::Tcp, true) => (TaskOffloads::RECEIVE_TCP6, Checksum::RECEIVE_TCP_SUCCEEDED),
        (Protocol::Udp, true) => (TaskOffloads::RECEIVE_UDP6, Checksum::RECEIVE_UDP_SUCCEEDED),
    };
    if current.has(offload) { ip | succeeded } else { ip }
}
