//! `NDK_CONNECTOR_DISPATCH`.

use super::shared_endpoint::show;
use super::{bytes, close, object, query_extension};
use crate::address;
use crate::connector::{Connector, DisconnectEvent, Source, Terms};
use crate::info::LIMITS;
use crate::object::{Context, Request};
use crate::qp::Qp;
use crate::shared_endpoint::SharedEndpoint;
use crate::status::{self, Answer};
use core::ffi::c_void;
use core::net::SocketAddr;
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_SHARED_ENDPOINT,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{
    NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};

pub static TABLE: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: Some(close::<Connector>),
    NdkQueryExtension: Some(query_extension),
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

/// The answer of a call that pends when it succeeds.
fn pending(answer: Answer) -> NTSTATUS {
    answer.err().unwrap_or(STATUS_PENDING)
}

/// A consumer's address, copied.
///
/// # Safety
/// `address` is null or has `length` bytes.
unsafe fn socket_address(address: *const SOCKADDR, length: u32) -> Answer<SocketAddr> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(address.cast(), length) }?;
    address::parse(bytes).ok_or(STATUS_INVALID_PARAMETER)
}

/// A consumer's read limits and private data, checked and copied.
///
/// # Safety
/// `private_data` is null or has `length` bytes.
unsafe fn terms(
    inbound: u32,
    outbound: u32,
    private_data: *const c_void,
    length: u32,
    room: u32,
) -> Answer<Terms> {
    // SAFETY: the caller's promise.
    let private_data = unsafe { bytes(private_data, length) }?;
    Terms::new(inbound, outbound, private_data, room)
}

unsafe extern "efiapi" fn connect(
    connector: *mut NDK_CONNECTOR,
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
) -> NTSTATUS {
    let (connector, qp) = (object!(Connector, connector), object!(Qp, qp));
    // SAFETY: the consumer's address.
    let source = unsafe { socket_address(source, source_length) };
    // SAFETY: the consumer's address.
    let destination = unsafe { socket_address(destination, destination_length) };
    // SAFETY: the consumer's data.
    let terms = unsafe { terms(inbound, outbound, private_data, private_data_length, LIMITS.caller_data) };
    let answer = source.and_then(|source| {
        Connector::connect(
            &connector,
            &qp,
            &Source::Address(source),
            destination?,
            terms.as_ref().map_err(|status| *status)?,
            completion,
            Context::new(context),
        )
    });
    pending(answer)
}

unsafe extern "efiapi" fn connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
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
) -> NTSTATUS {
    let (connector, qp) = (object!(Connector, connector), object!(Qp, qp));
    let endpoint = object!(SharedEndpoint, endpoint);
    // SAFETY: the consumer's address.
    let destination = unsafe { socket_address(destination, destination_length) };
    // SAFETY: the consumer's data.
    let terms = unsafe { terms(inbound, outbound, private_data, private_data_length, LIMITS.caller_data) };
    let answer = destination.and_then(|destination| {
        Connector::connect(
            &connector,
            &qp,
            &Source::Shared(&endpoint),
            destination,
            terms.as_ref().map_err(|status| *status)?,
            completion,
            Context::new(context),
        )
    });
    pending(answer)
}

unsafe extern "efiapi" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    complete(connector, plain(event, event_context), completion, context)
}

unsafe extern "efiapi" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    complete(connector, extended(event, event_context), completion, context)
}

unsafe extern "efiapi" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    private_data: *const c_void,
    private_data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    // SAFETY: the consumer's data.
    let terms = unsafe { terms(inbound, outbound, private_data, private_data_length, LIMITS.callee_data) };
    answer(connector, qp, &terms, plain(event, event_context), completion, context)
}

unsafe extern "efiapi" fn accept_ex(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    private_data: *const c_void,
    private_data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    // SAFETY: the consumer's data.
    let terms = unsafe { terms(inbound, outbound, private_data, private_data_length, LIMITS.callee_data) };
    answer(connector, qp, &terms, extended(event, event_context), completion, context)
}

/// Whom to tell as it has always been told.
fn plain(event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, context: *mut c_void) -> Option<DisconnectEvent> {
    event.map(|callback| DisconnectEvent::Plain(callback, Context::new(context)))
}

/// Whom to tell as it is told from 2.1 on.
//= R-CONN-98
fn extended(
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    context: *mut c_void,
) -> Option<DisconnectEvent> {
    event.map(|callback| DisconnectEvent::Ex(callback, Context::new(context)))
}

/// `NdkCompleteConnect` of both kinds.
fn complete(
    connector: *mut NDK_CONNECTOR,
    event: Option<DisconnectEvent>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    let core = connector.adapter().core();
    core.request(&connector, completion, Context::new(context), move |connector| {
        connector.complete_connect(event)
    })
}

/// `NdkAccept` of both kinds.
fn answer(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    terms: &Answer<Terms>,
    event: Option<DisconnectEvent>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let (connector, qp) = (object!(Connector, connector), object!(Qp, qp));
    match terms {
        Ok(terms) => {
            pending(Connector::accept(&connector, &qp, terms, event, completion, Context::new(context)))
        }
        Err(status) => *status,
    }
}

unsafe extern "efiapi" fn reject(
    connector: *mut NDK_CONNECTOR,
    private_data: *const c_void,
    length: u32,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    // SAFETY: the consumer's data.
    let private_data = unsafe { bytes(private_data, length) };
    status::of(private_data.and_then(|private_data| connector.reject(private_data)))
}

unsafe extern "efiapi" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    match connector.disconnect(|| Request::new(connector.clone(), completion, Context::new(context))) {
        Ok(true) => STATUS_PENDING,
        Ok(false) => STATUS_SUCCESS,
        Err(status) => status,
    }
}

//= R-CONN-64, R-CONN-65, R-CONN-66, R-CONN-67, R-CONN-68, R-CONN-69, R-CONN-70, R-CONN-71
unsafe extern "efiapi" fn get_connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    private_data: *mut c_void,
    length: *mut u32,
) -> NTSTATUS {
    let data = match object!(Connector, connector).data() {
        Ok(data) => data,
        Err(status) => return status,
    };
    // SAFETY: null, or the consumer's.
    if let Some(inbound) = unsafe { inbound.as_mut() } {
        *inbound = data.inbound;
    }
    // SAFETY: null, or the consumer's.
    if let Some(outbound) = unsafe { outbound.as_mut() } {
        *outbound = data.outbound;
    }
    // SAFETY: null, or the consumer's.
    let Some(length) = (unsafe { length.as_mut() }) else {
        return if private_data.is_null() { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER };
    };
    let sent = data.private_data.as_slice();
    let room = core::mem::replace(length, sent.len() as u32);
    match (private_data.is_null(), room) {
        (true, 0) => STATUS_SUCCESS,
        (true, _) => STATUS_INVALID_PARAMETER,
        (false, _) => {
            let copied = sent.len().min(room as usize);
            // SAFETY: the consumer's buffer has `room` bytes.
            unsafe { core::ptr::copy_nonoverlapping(sent.as_ptr(), private_data.cast(), copied) };
            if copied < sent.len() { STATUS_BUFFER_TOO_SMALL } else { STATUS_SUCCESS }
        }
    }
}

unsafe extern "efiapi" fn get_local_address(
    connector: *mut NDK_CONNECTOR,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    // SAFETY: the consumer's buffer and its length.
    unsafe { show(connector.local_address(), out, length) }
}

unsafe extern "efiapi" fn get_peer_address(
    connector: *mut NDK_CONNECTOR,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    // SAFETY: the consumer's buffer and its length.
    unsafe { show(connector.peer_address(), out, length) }
}
