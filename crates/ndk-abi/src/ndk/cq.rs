// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_ADAPTER, NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
};
use crate::nt::{GROUP_AFFINITY, NTSTATUS};

/// The operation that a completion completes. Values are the header's, neither dense nor ordered.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDK_OPERATION_TYPE(pub i32);

impl NDK_OPERATION_TYPE {
    pub const NdkOperationTypeReceive: Self = Self(1);
    pub const NdkOperationTypeReceiveAndInvalidate: Self = Self(32769);
    pub const NdkOperationTypeSend: Self = Self(2);
    pub const NdkOperationTypeFastRegister: Self = Self(4);
    pub const NdkOperationTypeBind: Self = Self(8);
    pub const NdkOperationTypeInvalidate: Self = Self(16);
    pub const NdkOperationTypeRead: Self = Self(32);
    pub const NdkOperationTypeWrite: Self = Self(64);
}

/// A completion, as `NdkGetCqResults` hands it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_RESULT {
    pub Status: NTSTATUS,
    pub BytesTransferred: u32,
    pub QPContext: *mut c_void,
    pub RequestContext: *mut c_void,
}

/// A completion with its operation type (NDKPI 1.2) and the provider's own error code (NDKPI 2.1).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_RESULT_EX {
    pub Status: NTSTATUS,
    pub BytesTransferred: u32,
    pub QPContext: *mut c_void,
    pub RequestContext: *mut c_void,
    pub Type: NDK_OPERATION_TYPE,
    pub ProviderErrorCode: u32,
    pub TypeSpecificCompletionOutput: usize,
}

/// Functions of a completion queue. All entries are set; the last one came with NDKPI 1.2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_CQ_DISPATCH {
    pub NdkCloseCq: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkResizeCq: Option<NDK_FN_RESIZE_CQ>,
    pub NdkArmCq: Option<NDK_FN_ARM_CQ>,
    pub NdkGetCqResults: Option<NDK_FN_GET_CQ_RESULTS>,
    pub NdkControlCqInterruptModeration: Option<NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION>,
    pub NdkGetCqResultsEx: Option<NDK_FN_GET_CQ_RESULTS_EX>,
}

/// A completion queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_CQ {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_CQ_DISPATCH,
}

/// Creates a completion queue of at least `CqDepth` entries. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_CQ = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CqDepth: u32,
    CqNotification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    CqNotificationContext: *mut c_void,
    Affinity: *mut GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkCq: *mut *mut NDK_CQ,
) -> NTSTATUS;

/// An armed completion queue has something to read, or a fault.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CQ_NOTIFICATION_CALLBACK =
    unsafe extern "efiapi" fn(CqNotificationContext: *mut c_void, CqStatus: NTSTATUS);

/// Changes the depth of a completion queue. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_RESIZE_CQ = unsafe extern "efiapi" fn(
    pNdkCq: *mut NDK_CQ,
    CqDepth: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Asks for one notification; `Type` is one of `NDK_CQ_NOTIFY_*`.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_ARM_CQ = unsafe extern "efiapi" fn(pNdkCq: *mut NDK_CQ, Type: u32);

/// Takes up to `nResults` completions; returns how many.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_CQ_RESULTS =
    unsafe extern "efiapi" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT, nResults: u32) -> u32;

/// Takes up to `nResults` completions with their types; returns how many (NDKPI 1.2).
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_CQ_RESULTS_EX =
    unsafe extern "efiapi" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT_EX, nResults: u32) -> u32;

/// Delays notifications by up to `ModerationInterval` microseconds or `ModerationCount` completions.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION =
    unsafe extern "efiapi" fn(pNdkCq: *mut NDK_CQ, ModerationInterval: u32, ModerationCount: u32) -> NTSTATUS;

pub const NDK_CQ_NOTIFY_ANY: u32 = 1;
pub const NDK_CQ_NOTIFY_ERRORS: u32 = 0;
pub const NDK_CQ_NOTIFY_SOLICITED: u32 = 2;
