//! `NDK_PD_DISPATCH`.

use super::{answer_create, close, object, query_extension};
use crate::cq::Cq;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::object::{Context, CreateRequest};
use crate::pd::Pd;
use crate::qp::{Qp, Sizes};
use crate::srq::{Notification, Srq};
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_PD,
    NDK_PD_DISPATCH, NDK_QP, NDK_SRQ,
};
use ndk_abi::nt::{BOOLEAN, GROUP_AFFINITY, NTSTATUS};

pub static TABLE: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close::<Pd>),
    NdkQueryExtension: Some(query_extension),
    NdkCreateMr: Some(create_mr),
    NdkCreateMw: Some(create_mw),
    NdkCreateSrq: Some(create_srq),
    NdkCreateQp: Some(create_qp),
    NdkCreateQpWithSrq: Some(create_qp_with_srq),
    NdkGetPrivilegedMemoryRegionToken: Some(get_privileged_token),
};

unsafe extern "efiapi" fn create_mr(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MR,
) -> NTSTATUS {
    let pd = object!(Pd, pd);
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = pd.clone();
    let outcome = pd.core().create(&pd, request, move || Mr::create(&parent, fast_register != 0));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_mw(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MW,
) -> NTSTATUS {
    let pd = object!(Pd, pd);
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = pd.clone();
    let outcome = pd.core().create(&pd, request, move || Mw::create(&parent));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

//= R-CREATE-24, R-CREATE-31, R-SRQ-19
unsafe extern "efiapi" fn create_srq(
    pd: *mut NDK_PD,
    depth: u32,
    sges: u32,
    threshold: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    _affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    let pd = object!(Pd, pd);
    let notification_context = Context::new(notification_context);
    let notification = notification.map(|callback| Notification { callback, context: notification_context });
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = pd.clone();
    let make = move || Srq::create(&parent, depth, sges, threshold, notification);
    let outcome = pd.core().create(&pd, request, make);
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    receive_sges: u32,
    initiator_sges: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let (pd, receive_cq, initiator_cq) =
        (object!(Pd, pd), object!(Cq, receive_cq).clone(), object!(Cq, initiator_cq).clone());
    let sizes = Sizes { receive_depth, initiator_depth, receive_sges, initiator_sges, inline };
    let request = CreateRequest::new(completion, Context::new(context));
    let (parent, qp_context) = (pd.clone(), qp_context.expose_provenance() as u64);
    let make = move || Qp::create(&parent, &receive_cq, &initiator_cq, None, qp_context, sizes);
    let outcome = pd.core().create(&pd, request, make);
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

//= R-CREATE-39, R-CREATE-41
unsafe extern "efiapi" fn create_qp_with_srq(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: *mut c_void,
    initiator_depth: u32,
    initiator_sges: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let (pd, receive_cq, initiator_cq, srq) = (
        object!(Pd, pd),
        object!(Cq, receive_cq).clone(),
        object!(Cq, initiator_cq).clone(),
        object!(Srq, srq).clone(),
    );
    let sizes = Sizes { receive_depth: 0, initiator_depth, receive_sges: 0, initiator_sges, inline };
    let request = CreateRequest::new(completion, Context::new(context));
    let (parent, qp_context) = (pd.clone(), qp_context.expose_provenance() as u64);
    let make = move || Qp::create(&parent, &receive_cq, &initiator_cq, Some(&srq), qp_context, sizes);
    let outcome = pd.core().create(&pd, request, make);
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

//= R-CREATE-28, R-MR-54, R-MR-55
unsafe extern "efiapi" fn get_privileged_token(_pd: *mut NDK_PD, token: *mut u32) {
    // SAFETY: the consumer's slot.
    unsafe { token.write(roce::PRIVILEGED_KEY) };
}
