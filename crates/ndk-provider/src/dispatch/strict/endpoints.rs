// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NDK_LISTENER_DISPATCH` and `NDK_SHARED_ENDPOINT_DISPATCH` with checks.

use super::close::{close, query_extension};
use crate::objects::listener::Listener;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_SHARED_ENDPOINT,
    NDK_SHARED_ENDPOINT_DISPATCH,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{BOOLEAN, NTSTATUS};

pub static LISTENER: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close::<Listener>),
    NdkQueryExtension: Some(query_extension::<Listener>),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(get_listener_address),
    NdkControlConnectEvents: Some(control_connect_events),
};

pub static SHARED_ENDPOINT: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: Some(close::<SharedEndpoint>),
    NdkQueryExtension: Some(query_extension::<SharedEndpoint>),
    NdkGetLocalAddress: Some(get_endpoint_address),
};

checked! { Listener, NDK_LISTENER;
    Request listen = NdkListen(
        address: *const SOCKADDR,
        length: u32,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> NTSTATUS, completion completion;
    Query get_listener_address = NdkGetLocalAddress(out: *mut SOCKADDR, length: *mut u32) -> NTSTATUS;
    Query control_connect_events = NdkControlConnectEvents(pause: BOOLEAN) -> ();
}

checked! { SharedEndpoint, NDK_SHARED_ENDPOINT;
    Query get_endpoint_address = NdkGetLocalAddress(out: *mut SOCKADDR, length: *mut u32) -> NTSTATUS;
}
