// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter's limits: one table, and the two structures that report it.
//= R-INFO-10

use super::version;
use core::time::Duration;
use ndk_abi::ndis::{NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};
use ndk_abi::ndk::{
    NDIS_NDK_CAPABILITIES, NDIS_NDK_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED,
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION,
};
use roce::PrivateData;

/// Limits in bytes, entries or objects; 0 means not supported.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub registration: usize,
    pub window: usize,
    /// Pages of a fast registration.
    pub fast_pages: u32,
    pub initiator_sges: u32,
    pub receive_sges: u32,
    pub read_sges: u32,
    pub transfer: u32,
    pub inline: u32,
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub srq_depth: u32,
    pub cq_depth: u32,
    pub caller_data: u32,
    pub callee_data: u32,
    pub qps: u32,
    pub cqs: u32,
    pub mrs: u32,
    pub mws: u32,
    pub pds: u32,
    pub srqs: u32,
}

/// The limits of every adapter.
///
/// Depths leave room for many consumers that ask for the maximum. A CQ holds what one QP of maximum
/// depths can produce.
//= R-INFO-20
//= R-INFO-19
//= R-INFO-18
pub const LIMITS: Limits = Limits {
    // 2 GiB less one page, in one MDL chain. The low 32 bits are not a small number.
    //= R-INFO-21
    registration: 0x7fff_f000,
    window: 0x7fff_f000,
    // 2 MiB; a consumer was seen to need 489 pages. A region costs 16 bytes of pool per page: 8 KiB.
    //= R-INFO-12, R-INFO-13, R-CONSUMER-2
    fast_pages: 512,
    //= R-CONSUMER-20
    initiator_sges: 32,
    receive_sges: 32,
    read_sges: 32,
    //= R-INFO-16
    transfer: 1 << 30,
    inline: 128,
    //= R-INFO-17
    inbound_reads: 16,
    outbound_reads: 16,
    receive_depth: 4096,
    initiator_depth: 4096,
    srq_depth: 8192,
    cq_depth: 16384,
    //= R-INFO-31
    // The private data of a CM REQ less the IP addressing header, and the smaller one of REP and REJ.
    caller_data: PrivateData::MAX_CONNECT as u32,
    callee_data: PrivateData::MAX_REJECT as u32,
    qps: 16384,
    cqs: 32768,
    //= R-MR-70, R-CONSUMER-3
    mrs: 65536,
    mws: 16384,
    pds: 16384,
    srqs: 4096,
};

/// Frames per call of the transmit pump, loopback frames per round, and events per round. The DPC
/// processes the remainder.
//= R-IRQL-10
pub const BUDGET: usize = 64;

/// Neighbors that connects of one adapter resolve at a time, each on a thread of its own.
pub const RESOLUTIONS: u32 = 64;

/// Threads of one adapter that resolve next hops of connections anew. A peer that does not answer occupies one for seconds.
pub const NEXT_HOP_THREADS: u32 = 8;

/// How late a timer expires: a tick of Windows' high-resolution timers, at most 1 ms, and one of the engine's timer wheel.
//= R-CQ-49
pub const TIMER_GRANULARITY: Duration = Duration::from_micros(1020);

/// Length in bytes from which RDMA READ or WRITE is preferable to SEND.
//= R-INFO-33
const LARGE_REQUEST: u32 = 8192;

/// The vendor in `NDK_ADAPTER_INFO` and of `OID_GEN_VENDOR_ID`: an OUI, or this value of a vendor that has none.
//= R-INFO-34
pub const VENDOR_ID: u32 = 0xFF_FFFF;

/// The PCI device ID of a virtio network device.
const DEVICE: u32 = 0x1041;

/// Returns the result of `NdkQueryAdapterInfo` for an adapter opened with `version`.
//= R-INFO-7, R-INFO-8, R-INFO-9, R-INFO-14, R-INFO-22, R-INFO-23, R-INFO-34, R-INFO-35
pub const fn adapter_info(version: NDK_VERSION) -> NDK_ADAPTER_INFO {
    NDK_ADAPTER_INFO {
        Version: version,
        VendorId: VENDOR_ID,
        DeviceId: DEVICE,
        MaxRegistrationSize: LIMITS.registration,
        MaxWindowSize: LIMITS.window,
        FRMRPageCount: LIMITS.fast_pages,
        MaxInitiatorRequestSge: LIMITS.initiator_sges,
        MaxReceiveRequestSge: LIMITS.receive_sges,
        MaxReadRequestSge: LIMITS.read_sges,
        MaxTransferLength: LIMITS.transfer,
        MaxInlineDataSize: LIMITS.inline,
        MaxInboundReadLimit: LIMITS.inbound_reads,
        MaxOutboundReadLimit: LIMITS.outbound_reads,
        MaxReceiveQueueDepth: LIMITS.receive_depth,
        MaxInitiatorQueueDepth: LIMITS.initiator_depth,
        MaxSrqDepth: LIMITS.srq_depth,
        MaxCqDepth: LIMITS.cq_depth,
        LargeRequestThreshold: LARGE_REQUEST,
        MaxCallerData: LIMITS.caller_data,
        MaxCalleeData: LIMITS.callee_data,
        //= R-INFO-25, R-INFO-26, R-INFO-27, R-INFO-28, R-INFO-29
        //= R-CQ-42, R-CQ-44
        //= R-INFO-24, R-INFO-30
        AdapterFlags: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
            | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
            | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
            | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED
            | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED,
        RdmaTechnology: NDK_RDMA_TECHNOLOGY::NdkRoCEv2,
    }
}

/// The adapter info of the newest version, for NDIS.
static NEWEST_INFO: Static<NDK_ADAPTER_INFO> = Static(adapter_info(version::NEWEST));

/// The capabilities that the miniport reports to NDIS. NDIS may read them as long as the adapter exists.
//= R-OPEN-7, R-INFO-11, R-INFO-15, R-INFO-36, R-INFO-37, R-INFO-38
static CAPABILITIES: Static<NDIS_NDK_CAPABILITIES> = Static(NDIS_NDK_CAPABILITIES {
    Header: NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NDIS_NDK_CAPABILITIES_REVISION_1,
        Size: NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
    },
    Flags: 0,
    MaxQpCount: LIMITS.qps,
    MaxCqCount: LIMITS.cqs,
    MaxMrCount: LIMITS.mrs,
    MaxPdCount: LIMITS.pds,
    MaxInboundReadLimit: 0,
    MaxOutboundReadLimit: 0,
    MaxMwCount: LIMITS.mws,
    MaxSrqCount: LIMITS.srqs,
    MissingCounterMask: 0,
    NdkInfo: (&raw const NEWEST_INFO.0).cast_mut(),
});

/// Returns the capabilities that the miniport reports to NDIS. `NdkInfo` points to the info of the newest version.
pub fn capabilities() -> &'static NDIS_NDK_CAPABILITIES {
    &CAPABILITIES.0
}

/// A structure in static storage that is never written.
struct Static<T>(T);

// SAFETY: what the structures of this file point to is static and never written either.
unsafe impl<T> Sync for Static<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_consistent() {
        let info = adapter_info(version::NEWEST);
        //= R-INFO-19
        assert!(info.MaxCqDepth >= info.MaxReceiveQueueDepth + info.MaxInitiatorQueueDepth);
        //= R-CREATE-38
        assert!(info.MaxReadRequestSge <= info.MaxInitiatorRequestSge);
        //= R-INFO-12
        assert!(info.FRMRPageCount >= 16);
        //= R-INFO-21
        assert!(info.MaxRegistrationSize as u32 >= 1 << 20);
        //= R-INFO-22
        assert_eq!(info.AdapterFlags & !0x1_011f, 0);
        //= R-INFO-23
        assert_ne!(info.AdapterFlags & 2, 0);
        // Frames that arrive out of order are placed as they arrive: the last byte may be there first.
        //= R-INFO-28
        assert_eq!(info.AdapterFlags & 1, 0);
        //= R-INFO-30
        assert_eq!(ndk_abi::ndk::NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, 8);
        // An OUI has 24 bits, the second lowest bit of the first byte clear; or the value of a vendor without one.
        //= R-INFO-34
        assert!(info.VendorId < 1 << 24 && (info.VendorId & 0x02_0000 == 0 || info.VendorId == 0xFF_FFFF));
        //= R-INFO-35
        assert!((1..=4).contains(&info.RdmaTechnology.0));
    }

    //= R-OPEN-7, R-INFO-10, R-INFO-36
    #[test]
    fn ndis_gets_the_same_limits() {
        let reported = capabilities();
        assert_eq!((reported.Header.Type, reported.Header.Revision, reported.Header.Size), (0x80, 1, 56));
        assert!(reported.MaxQpCount != 0 && reported.MaxCqCount != 0);
        assert_eq!(reported.NdkInfo.cast_const(), &raw const NEWEST_INFO.0);
        //= R-INFO-15
        assert_eq!(NEWEST_INFO.0.MaxSrqDepth == 0, reported.MaxSrqCount == 0);
        //= R-INFO-37
        assert_eq!((reported.MaxInboundReadLimit, reported.MaxOutboundReadLimit), (0, 0));
        //= R-INFO-38
        assert_eq!(reported.MissingCounterMask, 0);
    }
}
