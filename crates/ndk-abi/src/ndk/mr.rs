// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions and windows (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_PD,
};
use crate::nt::{BOOLEAN, MDL, NTSTATUS};

/// Functions of a memory region. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_MR_DISPATCH {
    pub NdkCloseMr: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkRegisterMr: Option<NDK_FN_REGISTER_MR>,
    pub NdkDeregisterMr: Option<NDK_FN_DEREGISTER_MR>,
    pub NdkInitializeFastRegisterMr: Option<NDK_FN_INITIALIZE_FAST_REGISTER_MR>,
    pub NdkGetRemoteTokenFromMr: Option<NDK_FN_GET_REMOTE_TOKEN_FROM_MR>,
    pub NdkGetLocalTokenFromMr: Option<NDK_FN_GET_LOCAL_TOKEN_FROM_MR>,
}

/// A memory region.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_MR {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_MR_DISPATCH,
}

/// Functions of a memory window. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_MW_DISPATCH {
    pub NdkCloseMw: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkGetRemoteTokenFromMw: Option<NDK_FN_GET_REMOTE_TOKEN_FROM_MW>,
}

/// A memory window.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_MW {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_MW_DISPATCH,
}

/// Creates a memory region, to be registered or fast-registered. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_MR = unsafe extern "efiapi" fn(
    pNdkPd: *mut NDK_PD,
    FastRegister: BOOLEAN,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkMr: *mut *mut NDK_MR,
) -> NTSTATUS;

/// Registers `Length` bytes of a chain of locked MDLs. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_REGISTER_MR = unsafe extern "efiapi" fn(
    pNdkMr: *mut NDK_MR,
    Mdl: *mut MDL,
    Length: usize,
    Flags: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Undoes `NDK_FN_REGISTER_MR`; afterwards nothing reaches the memory. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_DEREGISTER_MR = unsafe extern "efiapi" fn(
    pNdkMr: *mut NDK_MR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Makes a region ready for fast registration of up to `AdapterPageCount` pages. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = unsafe extern "efiapi" fn(
    pNdkMr: *mut NDK_MR,
    AdapterPageCount: u32,
    RemoteAccess: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// The token for entries of our own requests.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = unsafe extern "efiapi" fn(pNdkMr: *mut NDK_MR) -> u32;

/// The token for requests of a peer.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = unsafe extern "efiapi" fn(pNdkMr: *mut NDK_MR) -> u32;

/// Creates a memory window. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_MW = unsafe extern "efiapi" fn(
    pNdkPd: *mut NDK_PD,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkMw: *mut *mut NDK_MW,
) -> NTSTATUS;

/// The token for requests of a peer.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = unsafe extern "efiapi" fn(pNdkMw: *mut NDK_MW) -> u32;

pub const NDK_MR_FLAG_ALLOW_LOCAL_READ: u32 = 0;
pub const NDK_MR_FLAG_ALLOW_LOCAL_WRITE: u32 = 1;
pub const NDK_MR_FLAG_ALLOW_REMOTE_READ: u32 = 2;
pub const NDK_MR_FLAG_ALLOW_REMOTE_WRITE: u32 = 5;
pub const NDK_MR_FLAG_RDMA_READ_SINK: u32 = 8;
