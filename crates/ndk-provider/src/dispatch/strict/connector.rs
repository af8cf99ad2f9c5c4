// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_CONNECTOR_DISPATCH` with checks.

use super::call::{Call, Guard};
use super::close::{close, query_extension};
use crate::base::object::Borrow;
use crate::base::strict::Mistake;
use crate::objects::connector::Connector;
use crate::objects::qp::Qp;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_SHARED_ENDPOINT,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{NTSTATUS, STATUS_CONNECTION_INVALID};

pub static TABLE: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: Some(close::<Connector>),
    NdkQueryExtension: Some(query_extension::<Connector>),
    NdkConnect: Some(connect),
    NdkConnectWithSharedEndpoint: Some(connect_with_shared_endpoint),
    NdkCompleteConnect: Some(complete_connect),
    NdkAccept: Some(accept),
    NdkReject: Some(reject),
    NdkGetConnectionData: Some(get_connection_data),
    NdkGetLocalAddress: Some(get_local_address),
    NdkGetPeerAddress: Some(get_peer_address),
    NdkDisconnect: Some(disconnect),
    NdkCompleteConnectEx: Some(complete_connect_ex),
    NdkAcceptEx: Some(accept_ex),
};

checked! { Connector, NDK_CONNECTOR;
    Connect connect = NdkConnect(
        qp: *mut NDK_QP,
        source: *const SOCKADDR,
        source_length: u32,
        destination: *const SOCKADDR,
        destination_length: u32,
        inbound: u32,
        outbound: u32,
        private_data: *const c_void,
        private_data_length: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, objects [qp: Qp], completion completion;
    Connect connect_with_shared_endpoint = NdkConnectWithSharedEndpoint(
        qp: *mut NDK_QP,
        endpoint: *mut NDK_SHARED_ENDPOINT,
        destination: *const SOCKADDR,
        destination_length: u32,
        inbound: u32,
        outbound: u32,
        private_data: *const c_void,
        private_data_length: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, objects [qp: Qp, endpoint: SharedEndpoint], completion completion;
    Request complete_connect = NdkCompleteConnect(
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        event_context: *mut c_void,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Request complete_connect_ex = NdkCompleteConnectEx(
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        event_context: *mut c_void,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Request accept = NdkAccept(
        qp: *mut NDK_QP,
        inbound: u32,
        outbound: u32,
        private_data: *const c_void,
        private_data_length: u32,
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        event_context: *mut c_void,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, objects [qp: Qp], completion completion, guard AcceptGuard [qp];
    Request accept_ex = NdkAcceptEx(
        qp: *mut NDK_QP,
        inbound: u32,
        outbound: u32,
        private_data: *const c_void,
        private_data_length: u32,
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        event_context: *mut c_void,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, objects [qp: Qp], completion completion, guard AcceptGuard [qp];
    Request reject = NdkReject(private_data: *const c_void, length: u32) -> NTSTATUS;
    Query get_connection_data = NdkGetConnectionData(
        inbound: *mut u32,
        outbound: *mut u32,
        private_data: *mut c_void,
        length: *mut u32,
    ) -> NTSTATUS;
    Query get_local_address = NdkGetLocalAddress(out: *mut SOCKADDR, length: *mut u32) -> NTSTATUS;
    Query get_peer_address = NdkGetPeerAddress(out: *mut SOCKADDR, length: *mut u32) -> NTSTATUS;
    Request disconnect = NdkDisconnect(
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
}

/// Distinguishes a queue pair that was connected from a connector in the wrong state: the status is the same.
//= R-QP-73
struct AcceptGuard {
    was_connected: bool,
}

impl AcceptGuard {
    /// # Safety
    /// `qp` is null or points to an object.
    unsafe fn new(_call: &Call, _connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP) -> Self {
        // SAFETY: null or an open object by this function's contract; the consumer must not close it during the call.
        let qp = unsafe { Borrow::<Qp>::new(qp) };
        Self { was_connected: qp.is_some_and(|qp| qp.was_connected()) }
    }
}

impl Guard for AcceptGuard {
    fn end(self, call: &Call, status: NTSTATUS) {
        if self.was_connected && status == STATUS_CONNECTION_INVALID {
            call.explain(Mistake::QpInUse, status.cast_unsigned());
        }
    }
}
