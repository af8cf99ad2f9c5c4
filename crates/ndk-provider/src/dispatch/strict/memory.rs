// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_MR_DISPATCH` and `NDK_MW_DISPATCH` with checks.

use super::call::{Call, Guard};
use super::close::{check_token_unused, close, query_extension};
use crate::base::object::Borrow;
use crate::base::strict::CallKind;
use crate::objects::mr::Mr;
use crate::objects::mw::Mw;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH, NDK_MW, NDK_MW_DISPATCH,
    NDK_OBJECT_HEADER,
};
use ndk_abi::nt::{BOOLEAN, MDL, NTSTATUS};

pub static MR: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close_mr),
    NdkQueryExtension: Some(query_extension::<Mr>),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkInitializeFastRegisterMr: Some(initialize_fast_register),
    NdkGetRemoteTokenFromMr: Some(get_remote_token),
    NdkGetLocalTokenFromMr: Some(get_local_token),
};

pub static MW: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: Some(close::<Mw>),
    NdkQueryExtension: Some(query_extension::<Mw>),
    NdkGetRemoteTokenFromMw: Some(get_window_token),
};

checked! { Mr, NDK_MR;
    Request register = NdkRegisterMr(
        mdl: *mut MDL,
        length: usize,
        flags: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Request deregister = NdkDeregisterMr(
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion, guard RemovedMemory [];
    Request initialize_fast_register = NdkInitializeFastRegisterMr(
        pages: u32,
        remote_access: BOOLEAN,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Query get_remote_token = NdkGetRemoteTokenFromMr() -> u32;
    Query get_local_token = NdkGetLocalTokenFromMr() -> u32;
}

checked! { Mw, NDK_MW;
    Query get_window_token = NdkGetRemoteTokenFromMw() -> u32;
}

/// Checks that no posted request uses memory that is deregistered.
struct RemovedMemory;

impl RemovedMemory {
    /// # Safety
    /// `mr` is open.
    //= R-MR-21
    unsafe fn new(call: &Call, mr: *mut NDK_MR) -> Self {
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        if let Some(mr) = unsafe { Borrow::<Mr>::new(mr) } {
            check_token_unused(call, mr.token());
        }
        Self
    }
}

impl Guard for RemovedMemory {
    fn end(self, _call: &Call, _status: NTSTATUS) {}
}

/// `NdkCloseMr`.
unsafe extern "efiapi" fn close_mr(
    mr: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    // SAFETY: the consumer's promise about object pointers; the memory of closed objects is kept.
    let call = unsafe { Call::enter::<Mr>(mr.cast(), CallKind::Query) };
    if call.is_valid() {
        // SAFETY: the call is valid, so the object is open; it is closed after this.
        unsafe { RemovedMemory::new(&call, mr.cast()) };
        // SAFETY: the arguments are those that the consumer passed to the function of this name, with the same contract.
        return unsafe { close::<Mr>(mr, completion, context) };
    }
    ndk_abi::nt::STATUS_SUCCESS
}
