// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connectors: `NdkCreateConnector` and `NDK_CONNECTOR_DISPATCH`.

use super::buffers::{bytes, return_address, socket_address};
use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::limits::LIMITS;
use crate::base::object::callback::{
    CreateCallback, DisconnectEvent, DisconnectEventEx, DisconnectEventPlain, RequestCallback,
};
use crate::base::object::{DispatchTable, Ref};
use crate::base::status::{self, NtResult};
use crate::objects::adapter::Adapter;
use crate::objects::connector::{ConnectParameters, Connector, Source};
use crate::objects::qp::Qp;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::ffi::c_void;
use core::net::SocketAddr;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_CREATE_COMPLETION,
    NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_QP,
    NDK_SHARED_ENDPOINT,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{
    NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};

impl DispatchTable for Connector {
    type Table = NDK_CONNECTOR_DISPATCH;
    const TABLE: &'static NDK_CONNECTOR_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_CONNECTOR_DISPATCH = &super::strict::connector::TABLE;
}

//= R-CONN-97
static TABLE: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
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

/// `NdkCreateConnector`.
pub unsafe extern "efiapi" fn create(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter, or null in out);
    let completion = CreateCallback::new(completion, context);
    let parent = adapter.clone();
    let outcome = adapter
        .provider()
        .create(&adapter, completion, NeededMemory::SMALL, move || Connector::create(&parent));
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

/// Returns the status of a call that pends if it succeeds.
fn pending(answer: NtResult) -> NTSTATUS {
    answer.err().unwrap_or(STATUS_PENDING)
}

/// Checks and copies a consumer's read limits and private data.
///
/// # Safety
/// `private_data` is null or has `length` bytes.
unsafe fn parameters(
    inbound: u32,
    outbound: u32,
    private_data: *const c_void,
    length: u32,
    max_private_data: u32,
) -> NtResult<ConnectParameters> {
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let private_data = unsafe { bytes(private_data, length) }?;
    ConnectParameters::new(inbound, outbound, private_data, max_private_data)
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
    // SAFETY: the consumer's address is null or readable for its length during the call.
    let source = unsafe { socket_address(source, source_length) }.map(Source::Address);
    // SAFETY: the consumer's address is null or readable for its length during the call.
    let destination = unsafe { socket_address(destination, destination_length) };
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let parameters =
        unsafe { parameters(inbound, outbound, private_data, private_data_length, LIMITS.caller_data) };
    connect_from(&connector, &qp, source, destination, &parameters, RequestCallback::new(completion, context))
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
    // SAFETY: the consumer's address is null or readable for its length during the call.
    let destination = unsafe { socket_address(destination, destination_length) };
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let parameters =
        unsafe { parameters(inbound, outbound, private_data, private_data_length, LIMITS.caller_data) };
    let source = Ok(Source::ProviderState(&endpoint));
    connect_from(&connector, &qp, source, destination, &parameters, RequestCallback::new(completion, context))
}

/// Connects if all arguments are valid.
fn connect_from(
    connector: &Ref<Connector>,
    qp: &Ref<Qp>,
    source: NtResult<Source<'_>>,
    destination: NtResult<SocketAddr>,
    parameters: &NtResult<ConnectParameters>,
    completion: Option<RequestCallback>,
) -> NTSTATUS {
    let connect = |source: Source<'_>, destination, parameters| {
        Connector::connect(connector, qp, &source, destination, parameters, completion)
    };
    match (source, destination, parameters) {
        (Ok(source), Ok(destination), Ok(parameters)) => pending(connect(source, destination, parameters)),
        (Err(status), ..) | (_, Err(status), _) => status,
        (.., Err(status)) => *status,
    }
}

unsafe extern "efiapi" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    complete_any(connector, plain(event, event_context), completion, context)
}

unsafe extern "efiapi" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    complete_any(connector, extended(event, event_context), completion, context)
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
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let parameters =
        unsafe { parameters(inbound, outbound, private_data, private_data_length, LIMITS.callee_data) };
    accept_any(connector, qp, &parameters, plain(event, event_context), completion, context)
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
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let parameters =
        unsafe { parameters(inbound, outbound, private_data, private_data_length, LIMITS.callee_data) };
    accept_any(connector, qp, &parameters, extended(event, event_context), completion, context)
}

/// Returns the disconnect event of `NdkAccept` and `NdkCompleteConnect`.
fn plain(event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, context: *mut c_void) -> Option<DisconnectEvent> {
    DisconnectEventPlain::new(event, context).map(DisconnectEvent::Plain)
}

/// Returns the disconnect event of `NdkAcceptEx` and `NdkCompleteConnectEx`.
//= R-CONN-98
fn extended(
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    context: *mut c_void,
) -> Option<DisconnectEvent> {
    DisconnectEventEx::new(event, context).map(DisconnectEvent::Ex)
}

/// `NdkCompleteConnect` and `NdkCompleteConnectEx`.
fn complete_any(
    connector: *mut NDK_CONNECTOR,
    event: Option<DisconnectEvent>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    let completion = RequestCallback::new(completion, context);
    let provider = connector.adapter().provider();
    provider.request(&connector, completion, NeededMemory::SMALL, move |connector| {
        connector.complete_connect(event)
    })
}

/// `NdkAccept` and `NdkAcceptEx`.
fn accept_any(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    parameters: &NtResult<ConnectParameters>,
    event: Option<DisconnectEvent>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let (connector, qp) = (object!(Connector, connector), object!(Qp, qp));
    match parameters {
        Ok(parameters) => {
            let completion = RequestCallback::new(completion, context);
            pending(Connector::accept(&connector, &qp, parameters, event, completion))
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
    // SAFETY: the consumer's private data is null or readable for its length during the call.
    let private_data = unsafe { bytes(private_data, length) };
    status::of(private_data.and_then(|private_data| connector.reject(private_data)))
}

unsafe extern "efiapi" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    let completion = RequestCallback::new(completion, context);
    match Connector::disconnect(&connector, completion) {
        Ok(true) => STATUS_PENDING,
        // Done already. Reported as the settings say.
        Ok(false) => {
            connector.adapter().provider().request(&connector, completion, NeededMemory::SMALL, |_| Ok(()))
        }
        Err(status) => status,
    }
}

//= R-CONN-64, R-CONN-65, R-CONN-66, R-CONN-67, R-CONN-68, R-CONN-69, R-CONN-70, R-CONN-71
//= R-CONSUMER-13
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
    // SAFETY: the pointer is null or to a variable of the consumer's, which is valid and unshared during the call.
    if let Some(inbound) = unsafe { inbound.as_mut() } {
        *inbound = data.inbound;
    }
    // SAFETY: the pointer is null or to a variable of the consumer's, which is valid and unshared during the call.
    if let Some(outbound) = unsafe { outbound.as_mut() } {
        *outbound = data.outbound;
    }
    // SAFETY: the pointer is null or to a variable of the consumer's, which is valid and unshared during the call.
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
    unsafe { return_address(connector.local_address(), out, length) }
}

unsafe extern "efiapi" fn get_peer_address(
    connector: *mut NDK_CONNECTOR,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let connector = object!(Connector, connector);
    // SAFETY: the consumer's buffer and its length.
    unsafe { return_address(connector.peer_address(), out, length) }
}
