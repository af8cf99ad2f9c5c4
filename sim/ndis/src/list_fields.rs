// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fields of NET_BUFFER_LISTs, and chains of them.

use ndk_abi::ndis::{NDIS_NET_BUFFER_LIST_INFO, NET_BUFFER_LIST};
use nt_sim::guest::Guest;

use crate::rules::{self, require};

pub(crate) const NEXT: usize = std::mem::offset_of!(NET_BUFFER_LIST, Next);
/// Offset of the status of a send.
pub const STATUS: usize = std::mem::offset_of!(NET_BUFFER_LIST, Status);
/// Offset of the handle of the driver that has made the list.
pub const SOURCE: usize = std::mem::offset_of!(NET_BUFFER_LIST, SourceHandle);
pub(crate) const INFO: usize = std::mem::offset_of!(NET_BUFFER_LIST, NetBufferListInfo);
pub(crate) const INFO_LEN: usize = 27;
pub(crate) const CANCEL_ID: usize = info(NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId);
pub(crate) const CHECKSUM: usize = info(NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo);
pub(crate) const PRIORITY_VLAN: usize = info(NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo);
pub(crate) const HASH_INFO: usize = info(NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashInfo);
pub(crate) const HASH_VALUE: usize = info(NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue);
pub(crate) const COALESCED: usize = info(NDIS_NET_BUFFER_LIST_INFO::TcpRecvSegCoalesceInfo);
pub(crate) const TIMESTAMP_DELTA: usize = info(NDIS_NET_BUFFER_LIST_INFO::RscTcpTimestampDelta);
/// Offset of the request and the result of large send offload.
pub const LARGE_SEND: usize = info(NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo);
pub(crate) const UDP_SEGMENTATION: usize = info(NDIS_NET_BUFFER_LIST_INFO::UdpSegmentationOffloadInfo);
/// NetBufferListInfo of lists that the stack returned.
pub(crate) const STALE_INFO: usize = 0x57a1_e157_a1e1_57a1;

/// Returns the offset of an entry of NetBufferListInfo.
#[allow(clippy::cast_sign_loss, reason = "the numbers of entries are not negative")]
const fn info(entry: NDIS_NET_BUFFER_LIST_INFO) -> usize {
    INFO + entry.0 as usize * size_of::<usize>()
}

/// Returns the lists of a chain.
#[must_use]
pub fn chain(first: Guest<NET_BUFFER_LIST>) -> Vec<Guest<NET_BUFFER_LIST>> {
    const LONGEST: usize = 1 << 16;
    let mut lists = Vec::new();
    let mut at = first;
    while !at.is_null() {
        lists.push(at);
        require(lists.len() <= LONGEST, rules::CHAIN, || {
            "a chain of NET_BUFFER_LISTs is longer than 65536: it may be a loop".into()
        });
        at = Guest::new(at.field::<*mut NET_BUFFER_LIST>(NEXT).read());
    }
    lists
}

/// Makes a chain of lists; returns the first one, null if there is none.
#[must_use]
pub fn link(lists: &[Guest<NET_BUFFER_LIST>]) -> Guest<NET_BUFFER_LIST> {
    let nexts = lists.iter().skip(1).map(|next| next.address()).chain([0]);
    for (list, next) in lists.iter().zip(nexts) {
        list.field::<usize>(NEXT).write(next);
    }
    lists.first().copied().unwrap_or(Guest::null())
}
