//! `NDK_SRQ_DISPATCH`.

use super::qp::{MAX_SGES, sges};
use super::{close, object, query_extension};
use crate::object::Context;
use crate::srq::Srq;
use crate::status;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_REQUEST_COMPLETION, NDK_SGE, NDK_SRQ, NDK_SRQ_DISPATCH};
use ndk_abi::nt::NTSTATUS;
use roce::Sge;

pub static TABLE: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: Some(close::<Srq>),
    NdkQueryExtension: Some(query_extension),
    NdkModifySrq: Some(modify),
    NdkSrqReceive: Some(receive),
};

//= R-SRQ-13
unsafe extern "efiapi" fn modify(
    srq: *mut NDK_SRQ,
    depth: u32,
    threshold: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let srq = object!(Srq, srq);
    srq.pd().core().request(&srq, completion, Context::new(context), move |srq| srq.modify(depth, threshold))
}

unsafe extern "efiapi" fn receive(
    srq: *mut NDK_SRQ,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let srq = object!(Srq, srq);
    let mut copy = [Sge::default(); MAX_SGES];
    // SAFETY: the consumer's list has `count` elements.
    let answer = unsafe { sges(sgl, count, &mut copy) };
    status::of(answer.and_then(|sges| srq.receive(context.expose_provenance() as u64, sges)))
}
