// SPDX-License-Identifier: MIT OR Apache-2.0

//! The limits of a connection: the driver's wishes, lowered to what the adapter offers.

use driver_support::status::Result;
use ndk_abi::ndk::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED,
    NDK_ADAPTER_INFO,
};
use ndk_abi::nt::STATUS_NOT_SUPPORTED;
use nt::PAGE_SIZE;

use super::message::{Hello, LEAST_CREDITS, Message};
use crate::ndk::{QpLimits, ReadLimits};

/// Wishes.
const INITIATOR_DEPTH: u32 = 256;
const ENTRIES: u32 = 32;
const REGION_PAGES: u32 = 512;
const READS: u32 = 16;
/// Least that the driver can work with.
const LEAST_REGION_PAGES: u32 = 16;
const LEAST_INITIATOR_DEPTH: u32 = 64;
const LEAST_TRANSFER: u32 = 64 << 10;

/// Limits of the connections on an adapter.
#[derive(Clone, Copy)]
pub struct Limits {
    pub qp: QpLimits,
    pub reads: ReadLimits,
    /// Completion notifications are moderated.
    pub moderated: bool,
    /// Pages of a fast registration.
    pub region_pages: u32,
    /// Bytes of an RDMA operation.
    pub transfer: u32,
    /// Bytes that one request may name.
    pub part: u32,
}

impl Limits {
    /// Lowers the wishes to the adapter's limits. `receives` is the number of receives to post.
    ///
    /// # Errors
    /// `STATUS_NOT_SUPPORTED` if the adapter offers less than the driver can work with.
    pub fn new(info: &NDK_ADAPTER_INFO, receives: u16) -> Result<Self> {
        let version = (info.Version.Major, info.Version.Minor);
        let receives = u32::from(receives).min(info.MaxReceiveQueueDepth).min(info.MaxCqDepth);
        let initiator = INITIATOR_DEPTH.min(info.MaxInitiatorQueueDepth).min(info.MaxCqDepth);
        let entries = ENTRIES.min(info.MaxInitiatorRequestSge).min(info.MaxReadRequestSge);
        let region_pages = REGION_PAGES.min(info.FRMRPageCount);
        let is_usable = version >= (1, 2)
            && info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED != 0
            && receives >= LEAST_CREDITS.into()
            && initiator >= LEAST_INITIATOR_DEPTH
            && entries != 0
            && region_pages >= LEAST_REGION_PAGES
            && info.MaxTransferLength >= LEAST_TRANSFER
            && info.MaxReceiveRequestSge != 0
            && info.MaxInboundReadLimit != 0
            && info.MaxOutboundReadLimit != 0
            && info.MaxCallerData as usize >= Hello::SIZE
            && info.MaxCalleeData as usize >= Hello::SIZE;
        if !is_usable {
            return Err(STATUS_NOT_SUPPORTED);
        }
        let part = (region_pages as usize * PAGE_SIZE).min(info.MaxRegistrationSize);
        Ok(Self {
            // A message lies within one page.
            qp: QpLimits { receives, initiator, receive_entries: 1, initiator_entries: entries },
            reads: ReadLimits {
                inbound: READS.min(info.MaxInboundReadLimit),
                outbound: READS.min(info.MaxOutboundReadLimit),
            },
            moderated: info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED != 0,
            region_pages,
            transfer: info.MaxTransferLength,
            part: part as u32,
        })
    }
}

// Messages are placed in slots of this size, which divides a page: none crosses a page boundary.
pub const SLOT: usize = 64;
const _: () = assert!(Message::SIZE <= SLOT && PAGE_SIZE.is_multiple_of(SLOT));
