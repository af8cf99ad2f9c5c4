// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains: `NdkCreatePd` and `NDK_PD_DISPATCH`.

use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use super::{mr, mw, qp, srq};
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::DispatchTable;
use crate::base::object::callback::CreateCallback;
use crate::objects::adapter::Adapter;
use crate::objects::pd::Pd;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_FN_CREATE_COMPLETION, NDK_PD, NDK_PD_DISPATCH};
use ndk_abi::nt::NTSTATUS;

impl DispatchTable for Pd {
    type Table = NDK_PD_DISPATCH;
    const TABLE: &'static NDK_PD_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_PD_DISPATCH = &super::strict::pd::TABLE;
}

static TABLE: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close::<Pd>),
    NdkQueryExtension: Some(query_extension::<Pd>),
    NdkCreateMr: Some(mr::create),
    NdkCreateMw: Some(mw::create),
    NdkCreateSrq: Some(srq::create),
    NdkCreateQp: Some(qp::create),
    NdkCreateQpWithSrq: Some(qp::create_with_srq),
    NdkGetPrivilegedMemoryRegionToken: Some(get_privileged_token),
};

/// `NdkCreatePd`.
pub unsafe extern "efiapi" fn create(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_PD,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter, or null in out);
    let completion = CreateCallback::new(completion, context);
    let parent = adapter.clone();
    let outcome =
        adapter.provider().create(&adapter, completion, NeededMemory::SMALL, move || Pd::create(&parent));
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

//= R-CREATE-28, R-MR-54, R-MR-55
unsafe extern "efiapi" fn get_privileged_token(pd: *mut NDK_PD, token: *mut u32) {
    let _pd = object!(Pd, pd, or return);
    if !token.is_null() {
        // SAFETY: a token that is not null points to the consumer's variable, valid during the call.
        unsafe { token.write(roce::PRIVILEGED_KEY) };
    }
}
