//! `NDK_LISTENER_DISPATCH`.

use super::shared_endpoint::show;
use super::{bytes, close, object, query_extension};
use crate::address;
use crate::listener::Listener;
use crate::object::Context;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{BOOLEAN, NTSTATUS, STATUS_INVALID_PARAMETER};

pub static TABLE: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close::<Listener>),
    NdkQueryExtension: Some(query_extension),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(get_local_address),
    NdkControlConnectEvents: Some(control_connect_events),
};

//= R-CREATE-51, R-CONN-13
unsafe extern "efiapi" fn listen(
    listener: *mut NDK_LISTENER,
    socket_address: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let listener = object!(Listener, listener);
    // SAFETY: the consumer's address, `length` bytes of it.
    let bytes = unsafe { bytes(socket_address.cast(), length) };
    let Some(address) = bytes.ok().and_then(address::parse) else { return STATUS_INVALID_PARAMETER };
    listener
        .adapter()
        .core()
        .request(&listener, completion, Context::new(context), move |listener| listener.listen(address))
}

unsafe extern "efiapi" fn get_local_address(
    listener: *mut NDK_LISTENER,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let listener = object!(Listener, listener);
    // SAFETY: the consumer's buffer and its length.
    unsafe { show(listener.local_address(), out, length) }
}

unsafe extern "efiapi" fn control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    object!(Listener, listener, or return).pause(pause != 0);
}
