//! `NDK_MR_DISPATCH`.

use super::{Sent, close, object, query_extension};
use crate::mr::{Mr, Normal};
use crate::object::Context;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH};
use ndk_abi::nt::{BOOLEAN, MDL, NTSTATUS, STATUS_INVALID_PARAMETER};
use nt::MdlChain;

pub static TABLE: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close::<Mr>),
    NdkQueryExtension: Some(query_extension),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkInitializeFastRegisterMr: Some(initialize_fast_register),
    NdkGetRemoteTokenFromMr: Some(get_token),
    NdkGetLocalTokenFromMr: Some(get_token),
};

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
    let mdl = Sent(mdl);
    mr.pd().core().request(&mr, completion, Context::new(context), move |mr| {
        // SAFETY: the consumer's list, unchanged until the request is answered.
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
    mr.pd().core().request(&mr, completion, Context::new(context), |mr| {
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
    mr.pd().core().request(&mr, completion, Context::new(context), move |mr| {
        mr.fast()?.initialize(mr.pd(), pages, remote_access != 0)
    })
}

unsafe extern "efiapi" fn get_token(mr: *mut NDK_MR) -> u32 {
    object!(Mr, mr, 0).token()
}
