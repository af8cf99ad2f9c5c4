// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fields of NET_BUFFER_LISTs, and chains of them.

use ndk_abi::ndis::{NDIS_NET_BUFFER_LIST_INFO, NET_BUFFER_LIST};
use nt_sim::guest::Guest;

use crate::rules::require;

pub(crate) const NEXT: usize = std::mem::offset_of!(NET_BUFFER_LIST, Next);
pub(crate) const STATUS: usize = std::mem::offset_of!(NET_BUFFER_LIST, Status);
pub(crate) const SOURCE: usize = std::mem::offset_of!(NET_BUFFER_LIST, SourceHandle);
pub(crate) const INFO: usize = std::mem::offset_of!(NET_BUFFER_LIST, NetBufferListInfo);
pub(crate) const INFO_LEN: usize = 27;
pub(crate) const CANCEL_ID: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId.0 as usize * size_of::<usize>();
pub(crate) const CHECKSUM: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo.0 as usize * size_of::<usize>();
pub(crate) const PRIORITY_VLAN: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo.0 as usize * size_of::<usize>();
pub(crate) const HASH_INFO: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashInfo.0 as usize * size_of::<usize>();
pub(crate) const HASH_VALUE: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue.0 as usize * size_of::<usize>();
pub(crate) const COALESCED: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpRecvSegCoalesceInfo.0 as usize * size_of::<usize>();
pub(crate) const TIMESTAMP_DELTA: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::RscTcpTimestampDelta.0 as usize * size_of::<usize>();
pub(crate) const LARGE_SEND: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo.0 as usize * size_of::<usize>();
pub(crate) const UDP_SEGMENTATION: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::UdpSegmentationOffloadInfo.0 as usize * size_of::<usize>();
/// NetBufferListInfo of lists that the stack returned.
pub(crate) const STALE_INFO: usize = 0x57a1_e157_a1e1_57a1;

/// Returns the lists of a chain.
pub(crate) fn chain(first: Guest<NET_BUFFER_LIST>) -> Vec<Guest<NET_BUFFER_LIST>> {
    const LONGEST: usize = 1 << 16;
    let mut lists = Vec::new();
    let mut at = first;
    while !at.is_null() {
        lists.push(at);
        require(lists.len() <= LONGEST, || {
            "a chain of NET_BUFFER_LISTs is longer than 65536: it may be a loop".into()
        });
        at = Guest::new(at.field::<*mut NET_BUFFER_LIST>(NEXT).read());
    }
    lists
}

/// Makes a chain of lists; returns the first one, null if there is none.
pub(crate) fn link(lists: &[Guest<NET_BUFFER_LIST>]) -> Guest<NET_BUFFER_LIST> {
    let nexts = lists.iter().skip(1).map(|next| next.address()).chain([0]);
    for (list, next) in lists.iter().zip(nexts) {
        list.field::<usize>(NEXT).write(next);
    }
    lists.first().copied().unwrap_or(Guest::null())
}
