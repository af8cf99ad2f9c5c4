// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_PD_DISPATCH` with checks.

use super::close::{close, query_extension};
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::srq::Srq;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_PD,
    NDK_PD_DISPATCH, NDK_QP, NDK_SRQ,
};
use ndk_abi::nt::{BOOLEAN, GROUP_AFFINITY, NTSTATUS};

pub static TABLE: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close::<Pd>),
    NdkQueryExtension: Some(query_extension::<Pd>),
    NdkCreateMr: Some(create_mr),
    NdkCreateMw: Some(create_mw),
    NdkCreateSrq: Some(create_srq),
    NdkCreateQp: Some(create_qp),
    NdkCreateQpWithSrq: Some(create_qp_with_srq),
    NdkGetPrivilegedMemoryRegionToken: Some(get_privileged_token),
};

checked! { Pd, NDK_PD;
    Create create_mr = NdkCreateMr(
        fast_register: BOOLEAN,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_MR,
    ) -> NTSTATUS, completion completion, out out;
    Create create_mw = NdkCreateMw(
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_MW,
    ) -> NTSTATUS, completion completion, out out;
    Create create_srq = NdkCreateSrq(
        depth: u32,
        sges: u32,
        threshold: u32,
        notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
        notification_context: *mut c_void,
        affinity: *mut GROUP_AFFINITY,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut NDK_SRQ,
    ) -> NTSTATUS, completion completion, out out;
    Create create_qp = NdkCreateQp(
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
    ) -> NTSTATUS, objects [receive_cq: Cq, initiator_cq: Cq], completion completion, out out;
    Create create_qp_with_srq = NdkCreateQpWithSrq(
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
    ) -> NTSTATUS, objects [receive_cq: Cq, initiator_cq: Cq, srq: Srq], completion completion, out out;
    Query get_privileged_token = NdkGetPrivilegedMemoryRegionToken(token: *mut u32) -> (), result token;
}
