// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK adapters: limits, dispatch table, logical address mappings (`ndkinfo.h`, `ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_FN_CREATE_CONNECTOR, NDK_FN_CREATE_CQ, NDK_FN_CREATE_LISTENER, NDK_FN_CREATE_PD,
    NDK_FN_CREATE_SHARED_ENDPOINT, NDK_FN_QUERY_EXTENSION_INTERFACE, NDK_FN_REQUEST_COMPLETION,
    NDK_OBJECT_HEADER, NDK_VERSION,
};
use crate::nt::{LARGE_INTEGER, MDL, NTSTATUS};

/// Wire protocol under the provider.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDK_RDMA_TECHNOLOGY(pub i32);

impl NDK_RDMA_TECHNOLOGY {
    pub const NdkUndefined: Self = Self(0);
    pub const NdkiWarp: Self = Self(1);
    pub const NdkInfiniBand: Self = Self(2);
    pub const NdkRoCE: Self = Self(3);
    pub const NdkRoCEv2: Self = Self(4);
    pub const NdkMaxTechnology: Self = Self(5);
}

/// Limits and abilities of an NDK adapter. Sizes in bytes, depths and SGE limits in entries.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_ADAPTER_INFO {
    pub Version: NDK_VERSION,
    pub VendorId: u32,
    pub DeviceId: u32,
    pub MaxRegistrationSize: usize,
    pub MaxWindowSize: usize,
    pub FRMRPageCount: u32,
    pub MaxInitiatorRequestSge: u32,
    pub MaxReceiveRequestSge: u32,
    pub MaxReadRequestSge: u32,
    pub MaxTransferLength: u32,
    pub MaxInlineDataSize: u32,
    pub MaxInboundReadLimit: u32,
    pub MaxOutboundReadLimit: u32,
    pub MaxReceiveQueueDepth: u32,
    pub MaxInitiatorQueueDepth: u32,
    pub MaxSrqDepth: u32,
    pub MaxCqDepth: u32,
    pub LargeRequestThreshold: u32,
    pub MaxCallerData: u32,
    pub MaxCalleeData: u32,
    pub AdapterFlags: u32,
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}

/// Logical addresses of a buffer, one per adapter page; variable length, `AdapterPageArray` is its first entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_LOGICAL_ADDRESS_MAPPING {
    pub AdapterContext: *mut c_void,
    pub AdapterPageCount: u32,
    pub AdapterPageArray: [NDK_LOGICAL_ADDRESS; 1],
}

/// Functions of an adapter. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_ADAPTER_DISPATCH {
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkQueryAdapterInfo: Option<NDK_FN_QUERY_ADAPTER_INFO>,
    pub NdkCreateCq: Option<NDK_FN_CREATE_CQ>,
    pub NdkCreatePd: Option<NDK_FN_CREATE_PD>,
    pub NdkCreateSharedEndpoint: Option<NDK_FN_CREATE_SHARED_ENDPOINT>,
    pub NdkCreateConnector: Option<NDK_FN_CREATE_CONNECTOR>,
    pub NdkCreateListener: Option<NDK_FN_CREATE_LISTENER>,
    pub NdkBuildLAM: Option<NDK_FN_BUILD_LAM>,
    pub NdkReleaseLAM: Option<NDK_FN_RELEASE_LAM>,
}

/// An opened NDK adapter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_ADAPTER {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_ADAPTER_DISPATCH,
}

/// Reads the adapter's limits; `pBufferSize` in bytes, also on return. Never pends.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type NDK_FN_QUERY_ADAPTER_INFO = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut u32,
) -> NTSTATUS;

/// Reads the adapter's limits as a given version has them. In no dispatch table.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type NDK_FN_QUERY_ADAPTER_INFO_EX = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Version: NDK_VERSION,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut u32,
) -> NTSTATUS;

/// Maps locked memory to logical addresses; `pLAMSize` in bytes, `pFBO` the offset into the first page. May
/// pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_BUILD_LAM = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Mdl: *mut MDL,
    Length: usize,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
    pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    pLAMSize: *mut u32,
    pFBO: *mut u32,
) -> NTSTATUS;

/// Undoes `NDK_FN_BUILD_LAM`.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_RELEASE_LAM =
    unsafe extern "efiapi" fn(pNdkAdapter: *mut NDK_ADAPTER, pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING);

pub const NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: u32 = 1;
pub const NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED: u32 = 2;
pub const NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED: u32 = 4;
pub const NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED: u32 = 8;
pub const NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED: u32 = 0x10;
pub const NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED: u32 = 0x100;
pub const NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED: u32 = 0x10000;

/// A bus address of an adapter page.
pub type NDK_LOGICAL_ADDRESS = LARGE_INTEGER;
