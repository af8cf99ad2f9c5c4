// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_PD, NDK_SGE,
};
use crate::nt::{GROUP_AFFINITY, NTSTATUS};

/// Functions of a shared receive queue. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_SRQ_DISPATCH {
    pub NdkCloseSrq: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkModifySrq: Option<NDK_FN_MODIFY_SRQ>,
    pub NdkSrqReceive: Option<NDK_FN_SRQ_RECEIVE>,
}

/// A shared receive queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_SRQ {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_SRQ_DISPATCH,
}

/// Creates a shared receive queue. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_SRQ = unsafe extern "efiapi" fn(
    pNdkPd: *mut NDK_PD,
    SrqDepth: u32,
    MaxReceiveRequestSge: u32,
    NotifyThreshold: u32,
    SrqNotification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    SrqNotificationContext: *mut c_void,
    Affinity: *mut GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkSrq: *mut *mut NDK_SRQ,
) -> NTSTATUS;

/// The queue has fallen below its threshold, or has a fault.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK =
    unsafe extern "efiapi" fn(SrqNotificationContext: *mut c_void, SrqStatus: NTSTATUS);

/// Changes depth and threshold. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_MODIFY_SRQ = unsafe extern "efiapi" fn(
    pNdkSrq: *mut NDK_SRQ,
    SrqDepth: u32,
    NotifyThreshold: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Posts a receive for any queue pair on the queue.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_SRQ_RECEIVE = unsafe extern "efiapi" fn(
    pNdkSrq: *mut NDK_SRQ,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
) -> NTSTATUS;
