// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners: `NdkCreateListener` and `NDK_LISTENER_DISPATCH`.

use super::buffers::{return_address, socket_address};
use super::close::close;
use super::created_object::{refuse, return_created};
use super::query_extension::query_extension;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::DispatchTable;
use crate::base::object::callback::{ConnectEvent, CreateCallback, RequestCallback};
use crate::objects::adapter::Adapter;
use crate::objects::listener::Listener;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION,
    NDK_LISTENER, NDK_LISTENER_DISPATCH,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{BOOLEAN, NTSTATUS, STATUS_INVALID_PARAMETER};

impl DispatchTable for Listener {
    type Table = NDK_LISTENER_DISPATCH;
    const TABLE: &'static NDK_LISTENER_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_LISTENER_DISPATCH = &super::strict::endpoints::LISTENER;
}

static TABLE: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close::<Listener>),
    NdkQueryExtension: Some(query_extension::<Listener>),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(get_local_address),
    NdkControlConnectEvents: Some(control_connect_events),
};

/// `NdkCreateListener`.
pub unsafe extern "efiapi" fn create(
    adapter: *mut NDK_ADAPTER,
    connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    connect_event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter, or null in out);
    let Some(connect_event) = ConnectEvent::new(connect_event, connect_event_context) else {
        // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
        return unsafe { refuse(out) };
    };
    let completion = CreateCallback::new(completion, context);
    let parent = adapter.clone();
    let make = move || Listener::create(&parent, connect_event);
    let outcome = adapter.provider().create(&adapter, completion, NeededMemory::SMALL, make);
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

//= R-CREATE-51, R-CONN-13
unsafe extern "efiapi" fn listen(
    listener: *mut NDK_LISTENER,
    address: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let listener = object!(Listener, listener);
    // SAFETY: the consumer's address has `length` bytes.
    let Ok(address) = (unsafe { socket_address(address, length) }) else { return STATUS_INVALID_PARAMETER };
    let completion = RequestCallback::new(completion, context);
    let provider = listener.adapter().provider();
    provider.request(&listener, completion, NeededMemory::SMALL, move |listener| listener.listen(address))
}

unsafe extern "efiapi" fn get_local_address(
    listener: *mut NDK_LISTENER,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let listener = object!(Listener, listener);
    // SAFETY: the consumer's buffer and its length.
    unsafe { return_address(listener.local_address(), out, length) }
}

unsafe extern "efiapi" fn control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    object!(Listener, listener, or return).pause(pause != 0);
}
