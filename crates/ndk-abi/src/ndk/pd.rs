// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_ADAPTER, NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_CREATE_MR, NDK_FN_CREATE_MW,
    NDK_FN_CREATE_QP, NDK_FN_CREATE_QP_WITH_SRQ, NDK_FN_CREATE_SRQ, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_OBJECT_HEADER,
};
use crate::nt::NTSTATUS;

/// Functions of a protection domain. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_PD_DISPATCH {
    pub NdkClosePd: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkCreateMr: Option<NDK_FN_CREATE_MR>,
    pub NdkCreateMw: Option<NDK_FN_CREATE_MW>,
    pub NdkCreateSrq: Option<NDK_FN_CREATE_SRQ>,
    pub NdkCreateQp: Option<NDK_FN_CREATE_QP>,
    pub NdkCreateQpWithSrq: Option<NDK_FN_CREATE_QP_WITH_SRQ>,
    pub NdkGetPrivilegedMemoryRegionToken: Option<NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN>,
}

/// A protection domain.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_PD {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_PD_DISPATCH,
}

/// Creates a protection domain. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_PD = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkPd: *mut *mut NDK_PD,
) -> NTSTATUS;

/// The token under which entries hold logical addresses. Never for a peer.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN =
    unsafe extern "efiapi" fn(pNdkPd: *mut NDK_PD, pToken: *mut u32);
