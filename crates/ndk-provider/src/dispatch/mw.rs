// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: `NdkCreateMw` and `NDK_MW_DISPATCH`.

use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::DispatchTable;
use crate::base::object::callback::CreateCallback;
use crate::objects::mw::Mw;
use crate::objects::pd::Pd;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_CREATE_COMPLETION, NDK_MW, NDK_MW_DISPATCH, NDK_PD};
use ndk_abi::nt::NTSTATUS;

impl DispatchTable for Mw {
    type Table = NDK_MW_DISPATCH;
    const TABLE: &'static NDK_MW_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_MW_DISPATCH = &super::strict::memory::MW;
}

static TABLE: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: Some(close::<Mw>),
    NdkQueryExtension: Some(query_extension::<Mw>),
    NdkGetRemoteTokenFromMw: Some(get_remote_token),
};

/// `NdkCreateMw`.
pub unsafe extern "efiapi" fn create(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MW,
) -> NTSTATUS {
    let pd = object!(Pd, pd, or null in out);
    let completion = CreateCallback::new(completion, context);
    let parent = pd.clone();
    let outcome = pd.provider().create(&pd, completion, NeededMemory::SMALL, move || Mw::create(&parent));
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

unsafe extern "efiapi" fn get_remote_token(mw: *mut NDK_MW) -> u32 {
    object!(Mw, mw, 0).token()
}
