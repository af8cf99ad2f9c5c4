// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_SRQ_DISPATCH` with checks.

use super::close::{close, query_extension};
use super::posts::SrqGuard;
use crate::objects::srq::Srq;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_REQUEST_COMPLETION, NDK_SGE, NDK_SRQ, NDK_SRQ_DISPATCH};
use ndk_abi::nt::NTSTATUS;

pub static TABLE: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: Some(close::<Srq>),
    NdkQueryExtension: Some(query_extension::<Srq>),
    NdkModifySrq: Some(modify),
    NdkSrqReceive: Some(receive),
};

checked! { Srq, NDK_SRQ;
    Request modify = NdkModifySrq(
        depth: u32,
        threshold: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Receive receive = NdkSrqReceive(context: *mut c_void, sgl: *const NDK_SGE, count: u32) -> NTSTATUS,
        guard SrqGuard [sgl, count];
}
