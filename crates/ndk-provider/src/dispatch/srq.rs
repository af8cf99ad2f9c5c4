// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues: `NdkCreateSrq` and `NDK_SRQ_DISPATCH`.

use super::close::close;
use super::created_object::{preferred_processors, return_created};
use super::query_extension::query_extension;
use super::sge_list::with_sges;
use crate::base::object::DispatchTable;
use crate::base::object::callback::{CreateCallback, RequestCallback, SrqNotification};
use crate::base::status;
use crate::objects::pd::Pd;
use crate::objects::srq::Srq;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_PD, NDK_SGE,
    NDK_SRQ, NDK_SRQ_DISPATCH,
};
use ndk_abi::nt::{GROUP_AFFINITY, NTSTATUS};

impl DispatchTable for Srq {
    type Table = NDK_SRQ_DISPATCH;
    const TABLE: &'static NDK_SRQ_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_SRQ_DISPATCH = &super::strict::srq::TABLE;
}

static TABLE: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: Some(close::<Srq>),
    NdkQueryExtension: Some(query_extension::<Srq>),
    NdkModifySrq: Some(modify),
    NdkSrqReceive: Some(receive),
};

/// `NdkCreateSrq`.
//= R-CREATE-24, R-CREATE-31, R-SRQ-19
pub unsafe extern "efiapi" fn create(
    pd: *mut NDK_PD,
    depth: u32,
    sges: u32,
    threshold: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    let pd = object!(Pd, pd, or null in out);
    let notification = SrqNotification::new(notification, notification_context);
    // SAFETY: the consumer's variable is valid during the call.
    let affinity = unsafe { preferred_processors(affinity) };
    let completion = CreateCallback::new(completion, context);
    let parent = pd.clone();
    let make = move || Srq::create(&parent, depth, sges, threshold, notification, affinity);
    let outcome = pd.provider().create(&pd, completion, Srq::memory(depth, sges), make);
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

//= R-SRQ-13
unsafe extern "efiapi" fn modify(
    srq: *mut NDK_SRQ,
    depth: u32,
    threshold: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let srq = object!(Srq, srq);
    let completion = RequestCallback::new(completion, context);
    let memory = Srq::memory(depth, srq.queue().sges());
    srq.pd().provider().request(&srq, completion, memory, move |srq| srq.modify(depth, threshold))
}

unsafe extern "efiapi" fn receive(
    srq: *mut NDK_SRQ,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let srq = object!(Srq, srq);
    let context = context.expose_provenance() as u64;
    // SAFETY: the consumer's list has `count` elements.
    unsafe { with_sges(sgl, count, |sges| status::of(sges.and_then(|sges| srq.receive(context, sges)))) }
}
