// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_CQ_DISPATCH` with checks.

use super::close::{close, query_extension};
use super::posts::PollGuard;
use crate::objects::cq::Cq;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_CQ, NDK_CQ_DISPATCH, NDK_FN_REQUEST_COMPLETION, NDK_RESULT, NDK_RESULT_EX};
use ndk_abi::nt::NTSTATUS;

pub static TABLE: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: Some(close::<Cq>),
    NdkQueryExtension: Some(query_extension::<Cq>),
    NdkResizeCq: Some(resize),
    NdkArmCq: Some(arm),
    NdkGetCqResults: Some(get_results),
    NdkControlCqInterruptModeration: Some(control_moderation),
    NdkGetCqResultsEx: Some(get_results_ex),
};

checked! { Cq, NDK_CQ;
    Request resize = NdkResizeCq(
        depth: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Request arm = NdkArmCq(kind: u32) -> (), guard PollGuard [false];
    Query get_results = NdkGetCqResults(results: *mut NDK_RESULT, count: u32) -> u32,
        guard PollGuard [results.is_null() && count != 0];
    Request control_moderation = NdkControlCqInterruptModeration(interval: u32, count: u32) -> NTSTATUS;
    Query get_results_ex = NdkGetCqResultsEx(results: *mut NDK_RESULT_EX, count: u32) -> u32,
        guard PollGuard [results.is_null() && count != 0];
}
