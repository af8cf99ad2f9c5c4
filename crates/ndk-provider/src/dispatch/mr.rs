// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions: `NdkCreateMr` and `NDK_MR_DISPATCH`.

use super::buffers::Sent;
use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::DispatchTable;
use crate::base::object::callback::{CreateCallback, RequestCallback};
use crate::objects::mr::{Mr, Normal};
use crate::objects::pd::Pd;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH, NDK_PD};
use ndk_abi::nt::{BOOLEAN, MDL, NTSTATUS, STATUS_INVALID_PARAMETER};
use nt::MdlChain;

impl DispatchTable for Mr {
    type Table = NDK_MR_DISPATCH;
    const TABLE: &'static NDK_MR_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_MR_DISPATCH = &super::strict::memory::MR;
}

static TABLE: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close::<Mr>),
    NdkQueryExtension: Some(query_extension::<Mr>),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkInitializeFastRegisterMr: Some(initialize_fast_register),
    NdkGetRemoteTokenFromMr: Some(get_token),
    NdkGetLocalTokenFromMr: Some(get_token),
};

/// `NdkCreateMr`.
pub unsafe extern "efiapi" fn create(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MR,
) -> NTSTATUS {
    let pd = object!(Pd, pd, or null in out);
    let completion = CreateCallback::new(completion, context);
    let parent = pd.clone();
    //= R-CONSUMER-12
    let outcome = pd
        .provider()
        .create(&pd, completion, NeededMemory::SMALL, move || Mr::create(&parent, fast_register != 0));
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

unsafe extern "efiapi" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    flags: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let mr = object!(Mr, mr);
    if mdl.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    if let Err(status) = mr.normal().and_then(|normal| normal.begin_register(length)) {
        return status;
    }
    let mdl = Sent::new(mdl);
    let completion = RequestCallback::new(completion, context);
    mr.pd().provider().request(&mr, completion, NeededMemory::registration(length), move |mr| {
        // SAFETY: the consumer's MDL chain, unchanged until the request completes.
        //= R-MR-8
        match unsafe { MdlChain::new(mdl.get()) } {
            Some(chain) => mr.normal()?.register(mr.pd(), chain, length, flags),
            None => Err(STATUS_INVALID_PARAMETER),
        }
    })
}

unsafe extern "efiapi" fn deregister(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let mr = object!(Mr, mr);
    if let Err(status) = mr.normal().and_then(Normal::begin_deregister) {
        return status;
    }
    let completion = RequestCallback::new(completion, context);
    mr.pd().provider().request(&mr, completion, NeededMemory::SMALL, |mr| {
        mr.normal()?.deregister(mr.pd());
        Ok(())
    })
}

unsafe extern "efiapi" fn initialize_fast_register(
    mr: *mut NDK_MR,
    pages: u32,
    remote_access: BOOLEAN,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let mr = object!(Mr, mr);
    if let Err(status) = mr.fast().and_then(|fast| fast.begin_initialize(pages)) {
        return status;
    }
    let completion = RequestCallback::new(completion, context);
    mr.pd().provider().request(&mr, completion, NeededMemory::fast_region(pages), move |mr| {
        mr.fast()?.initialize(mr.pd(), pages, remote_access != 0)
    })
}

unsafe extern "efiapi" fn get_token(mr: *mut NDK_MR) -> u32 {
    object!(Mr, mr, 0).token()
}
