// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections: connectors, listeners, shared endpoints (`ndkpi.h`).

use core::ffi::c_void;

use super::{
    NDK_ADAPTER, NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_QP,
};
use crate::netio::SOCKADDR;
use crate::nt::{BOOLEAN, NTSTATUS};

/// Functions of a connector. All entries are set; the last two came with NDKPI 2.1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_CONNECTOR_DISPATCH {
    pub NdkCloseConnector: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkConnect: Option<NDK_FN_CONNECT>,
    pub NdkConnectWithSharedEndpoint: Option<NDK_FN_CONNECT_WITH_SHARED_ENDPOINT>,
    pub NdkCompleteConnect: Option<NDK_FN_COMPLETE_CONNECT>,
    pub NdkAccept: Option<NDK_FN_ACCEPT>,
    pub NdkReject: Option<NDK_FN_REJECT>,
    pub NdkGetConnectionData: Option<NDK_FN_GET_CONNECTION_DATA>,
    pub NdkGetLocalAddress: Option<NDK_FN_GET_LOCAL_ADDRESS>,
    pub NdkGetPeerAddress: Option<NDK_FN_GET_PEER_ADDRESS>,
    pub NdkDisconnect: Option<NDK_FN_DISCONNECT>,
    pub NdkCompleteConnectEx: Option<NDK_FN_COMPLETE_CONNECT_EX>,
    pub NdkAcceptEx: Option<NDK_FN_ACCEPT_EX>,
}

/// One connection, active or passive side.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_CONNECTOR {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_CONNECTOR_DISPATCH,
}

/// Functions of a listener. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_LISTENER_DISPATCH {
    pub NdkCloseListener: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkListen: Option<NDK_FN_LISTEN>,
    pub NdkGetLocalAddress: Option<NDK_FN_GET_LISTENER_LOCAL_ADDRESS>,
    pub NdkControlConnectEvents: Option<NDK_FN_CONTROL_CONNECT_EVENTS>,
}

/// A listening endpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_LISTENER {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_LISTENER_DISPATCH,
}

/// Functions of a shared endpoint. All entries are set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_SHARED_ENDPOINT_DISPATCH {
    pub NdkCloseSharedEndpoint: Option<NDK_FN_CLOSE_OBJECT>,
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    pub NdkGetLocalAddress: Option<NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS>,
}

/// A local endpoint several connectors share.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_SHARED_ENDPOINT {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_SHARED_ENDPOINT_DISPATCH,
}

/// Creates a connector for the active side. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_CONNECTOR = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkConnector: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS;

/// Connects a queue pair; done when the peer has accepted. Lengths in bytes. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CONNECT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pSrcAddress: *const SOCKADDR,
    SrcAddressLength: u32,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: u32,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Connects from the address of a shared endpoint. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: u32,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Completes what the peer has accepted. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_COMPLETE_CONNECT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Completes, with a disconnect event that tells the reason (NDKPI 2.1). May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_COMPLETE_CONNECT_EX = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Accepts on a queue pair; done when the peer has completed. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_ACCEPT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Accepts, with a disconnect event that tells the reason (NDKPI 2.1). May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_ACCEPT_EX = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Refuses a connection. Never pends.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_REJECT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
) -> NTSTATUS;

/// Reads limits and private data of the peer; the length in bytes, also on return.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_CONNECTION_DATA = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pInboundReadLimit: *mut u32,
    pOutboundReadLimit: *mut u32,
    pPrivateData: *mut c_void,
    pPrivateDataLength: *mut u32,
) -> NTSTATUS;

/// Reads the connector's own address; the length in bytes, also on return.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_LOCAL_ADDRESS = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NTSTATUS;

/// Reads the peer's address; the length in bytes, also on return.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_PEER_ADDRESS = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NTSTATUS;

/// Ends a connection in agreement with the peer. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_DISCONNECT = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Ends a connection, abruptly if asked. In no dispatch table.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_DISCONNECT_EX = unsafe extern "efiapi" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    Abortive: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// The peer has left, or the connection broke.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK = unsafe extern "efiapi" fn(DisconnectEventContext: *mut c_void);

/// The peer has left, or the connection broke, and why (NDKPI 2.1).
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX =
    unsafe extern "efiapi" fn(DisconnectEventContext: *mut c_void, ProviderDisconnectReason: u32);

/// Creates a listener. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_LISTENER = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    ConnectEvent: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    ConnectEventContext: *mut c_void,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkListener: *mut *mut NDK_LISTENER,
) -> NTSTATUS;

/// A peer requests a connection. The consumer owns the connector from now on.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CONNECT_EVENT_CALLBACK =
    unsafe extern "efiapi" fn(ConnectEventContext: *mut c_void, pNdkConnector: *mut NDK_CONNECTOR);

/// Begins to listen at an address. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_LISTEN = unsafe extern "efiapi" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *const SOCKADDR,
    AddressLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NTSTATUS;

/// Reads the address listened at; the length in bytes, also on return.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS = unsafe extern "efiapi" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NTSTATUS;

/// Refuses connections for a while, or no longer.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CONTROL_CONNECT_EVENTS =
    unsafe extern "efiapi" fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN);

/// Creates a shared endpoint at an address. May pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_CREATE_SHARED_ENDPOINT = unsafe extern "efiapi" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pAddress: *const SOCKADDR,
    AddressLength: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS;

/// Reads the shared endpoint's address; the length in bytes, also on return.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = unsafe extern "efiapi" fn(
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NTSTATUS;
