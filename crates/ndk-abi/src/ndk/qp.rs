// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs: posts and their flags (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_CQ, NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_PD, NDK_SRQ,
};
use crate::nt::NTSTATUS;

/// A scatter/gather entry: a virtual address under a region's token, or a logical address under the privileged token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_SGE {
    pub Anonymous: NDK_SGE_Anonymous,
    pub Length: u32,
    pub MemoryRegionToken: u32,
}

/// Address of a scatter/gather entry; the token says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDK_SGE_Anonymous {
    pub VirtualAddress: *mut c_void,
    pub LogicalAddress: NDK_LOGICAL_ADDRESS,
}

/// Functions of a queue pair. All entries are set; the last one came with NDKPI 1.2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_QP_DISPATCH {
    pub NdkCloseQp: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkFlush: Option<NDK_FN_FLUSH>,
    pub NdkSend: Option<NDK_FN_SEND>,
    pub NdkReceive: Option<NDK_FN_RECEIVE>,
    pub NdkBind: Option<NDK_FN_BIND>,
    pub NdkFastRegister: Option<NDK_FN_FAST_REGISTER>,
    pub NdkInvalidate: Option<NDK_FN_INVALIDATE>,
    pub NdkRead: Option<NDK_FN_READ>,
    pub NdkWrite: Option<NDK_FN_WRITE>,
    pub NdkSendAndInvalidate: Option<NDK_FN_SEND_AND_INVALIDATE>,
}

/// A queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_QP {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_QP_DISPATCH,
}

/// Creates a queue pair. Depths in requests, `InlineDataSize` in bytes. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_QP = unsafe extern "efiapi" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    QPContext: *mut c_void,
    ReceiveQueueDepth: u32,
    InitiatorQueueDepth: u32,
    MaxReceiveRequestSge: u32,
    MaxInitiatorRequestSge: u32,
    InlineDataSize: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;

/// Creates a queue pair that receives from a shared receive queue. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_QP_WITH_SRQ = unsafe extern "efiapi" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    pSrq: *mut NDK_SRQ,
    QPContext: *mut c_void,
    InitiatorQueueDepth: u32,
    MaxInitiatorRequestSge: u32,
    InlineDataSize: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;

/// Begins to cancel everything outstanding on the queue pair.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_FLUSH = unsafe extern "efiapi" fn(pNdkQp: *mut NDK_QP);

/// Posts a send. The entries are used during the call only, as in all posts.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_SEND = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    Flags: u32,
) -> NTSTATUS;

/// Posts a send that invalidates a token of the peer (NDKPI 1.2).
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_SEND_AND_INVALIDATE = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    Flags: u32,
    RemoteToken: u32,
) -> NTSTATUS;

/// Posts a receive.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_RECEIVE = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
) -> NTSTATUS;

/// Posts the binding of a memory window to part of a region.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_BIND = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pMr: *mut NDK_MR,
    pMw: *mut NDK_MW,
    VirtualAddress: *mut c_void,
    Length: usize,
    Flags: u32,
) -> NTSTATUS;

/// Posts the registration of pages with a region made ready for it. `FBO`: offset into the first page.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_FAST_REGISTER = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pMr: *mut NDK_MR,
    AdapterPageCount: u32,
    AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
    FBO: u32,
    Length: usize,
    BaseVirtualAddress: *mut c_void,
    Flags: u32,
) -> NTSTATUS;

/// Posts the invalidation of a fast-registered region or a bound window.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_INVALIDATE = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pNdkMrOrMw: *mut NDK_OBJECT_HEADER,
    Flags: u32,
) -> NTSTATUS;

/// Posts a read of the peer's memory. `RemoteAddress` in host byte order.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_READ = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: u32,
) -> NTSTATUS;

/// Posts a write to the peer's memory. `RemoteAddress` in host byte order.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_WRITE = unsafe extern "efiapi" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: u32,
) -> NTSTATUS;

pub const NDK_OP_FLAG_SILENT_SUCCESS: u32 = 1;
pub const NDK_OP_FLAG_READ_FENCE: u32 = 2;
pub const NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT: u32 = 4;
pub const NDK_OP_FLAG_ALLOW_REMOTE_READ: u32 = 8;
pub const NDK_OP_FLAG_ALLOW_LOCAL_WRITE: u32 = 0x10;
pub const NDK_OP_FLAG_ALLOW_REMOTE_WRITE: u32 = 0x30;
pub const NDK_OP_FLAG_INLINE: u32 = 0x40;
pub const NDK_OP_FLAG_RDMA_READ_SINK: u32 = 0x80;
pub const NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE: u32 = 0x100;
pub const NDK_OP_FLAG_DEFER: u32 = 0x200;
