// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_QP_DISPATCH` with checks.

use super::call::Call;
use super::close::{close, query_extension};
use super::posts::{InitiatorGuard, ReceiveGuard};
use crate::base::object::unchecked::{Pointee, Unchecked};
use crate::base::strict::CallKind;
use crate::objects::mr::Mr;
use crate::objects::mw::Mw;
use crate::objects::qp::Qp;
use core::ffi::c_void;
use core::ptr::null;
use ndk_abi::ndk::{
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_QP, NDK_QP_DISPATCH, NDK_SGE,
};
use ndk_abi::nt::{NTSTATUS, STATUS_INVALID_PARAMETER};

pub static TABLE: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close::<Qp>),
    NdkQueryExtension: Some(query_extension::<Qp>),
    NdkFlush: Some(flush),
    NdkSend: Some(send),
    NdkReceive: Some(receive),
    NdkBind: Some(bind),
    NdkFastRegister: Some(fast_register),
    NdkInvalidate: Some(invalidate),
    NdkRead: Some(read),
    NdkWrite: Some(write),
    NdkSendAndInvalidate: Some(send_and_invalidate),
};

checked! { Qp, NDK_QP;
    Query flush = NdkFlush() -> ();
    Initiate send = NdkSend(context: *mut c_void, sgl: *const NDK_SGE, count: u32, flags: u32) -> NTSTATUS,
        guard InitiatorGuard [sgl, count, flags, false];
    Initiate send_and_invalidate = NdkSendAndInvalidate(
        context: *mut c_void,
        sgl: *const NDK_SGE,
        count: u32,
        flags: u32,
        remote_token: u32,
    ) -> NTSTATUS, guard InitiatorGuard [sgl, count, flags, false];
    Receive receive = NdkReceive(context: *mut c_void, sgl: *const NDK_SGE, count: u32) -> NTSTATUS,
        guard ReceiveGuard [sgl, count];
    Initiate read = NdkRead(
        context: *mut c_void,
        sgl: *const NDK_SGE,
        count: u32,
        remote_address: u64,
        remote_token: u32,
        flags: u32,
    ) -> NTSTATUS, guard InitiatorGuard [sgl, count, flags, true];
    Initiate write = NdkWrite(
        context: *mut c_void,
        sgl: *const NDK_SGE,
        count: u32,
        remote_address: u64,
        remote_token: u32,
        flags: u32,
    ) -> NTSTATUS, guard InitiatorGuard [sgl, count, flags, false];
    Register bind = NdkBind(
        context: *mut c_void,
        mr: *mut NDK_MR,
        mw: *mut NDK_MW,
        address: *mut c_void,
        length: usize,
        flags: u32,
    ) -> NTSTATUS, objects [mr: Mr, mw: Mw], guard InitiatorGuard [null(), 0, 0, false];
    Register fast_register = NdkFastRegister(
        context: *mut c_void,
        mr: *mut NDK_MR,
        count: u32,
        pages: *const NDK_LOGICAL_ADDRESS,
        offset: u32,
        length: usize,
        base: *mut c_void,
        flags: u32,
    ) -> NTSTATUS, objects [mr: Mr], guard InitiatorGuard [null(), 0, 0, false];
    Register invalidate_mr = NdkInvalidate(
        context: *mut c_void,
        mr: *mut NDK_OBJECT_HEADER,
        flags: u32,
    ) -> NTSTATUS, guard InitiatorGuard [null(), 0, 0, false];
}

/// `NdkInvalidate`: of a region or a window.
unsafe extern "efiapi" fn invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    object: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NTSTATUS {
    // SAFETY: the consumer's promise about object pointers; the memory of closed objects is kept.
    let call = unsafe { Call::enter::<Qp>(qp, CallKind::Query) };
    // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close while
    // calls are checked.
    let found = unsafe { Unchecked::new::<Mr>(object.cast()) };
    let is_window = found.is_some_and(|found| found.subject().kind == NDK_OBJECT_TYPE::NdkObjectTypeMw);
    let is_open = found.is_some_and(|found| {
        let pointee = if is_window { found.as_type::<Mw>() } else { found.as_type::<Mr>() };
        pointee == Pointee::Open
    });
    if !call.is_valid() || !is_open {
        if is_window {
            // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
            // while calls are checked.
            unsafe { call.argument::<Mw>(object.cast()) };
        } else {
            // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
            // while calls are checked.
            unsafe { call.argument::<Mr>(object.cast()) };
        }
        // SAFETY: the object of the call.
        unsafe { call.refuse(qp.cast()) };
        return STATUS_INVALID_PARAMETER;
    }
    // SAFETY: the arguments are those that the consumer passed to the function of this name, with the same contract.
    unsafe { invalidate_mr(qp, context, object, flags) }
}
