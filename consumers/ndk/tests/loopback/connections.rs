// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connectors and listeners.
#![allow(unsafe_code, reason = "opens a provider and calls it through pointers")]

use core::ffi::c_void;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ptr;
use std::sync::Arc;

use ndk_abi::ndk::*;
use ndk_abi::netio::{AF_INET, SOCKADDR, SOCKADDR_IN};
use ndk_abi::nt::*;

use super::*;

fn ipv4(address: *const SOCKADDR) -> SocketAddrV4 {
    // SAFETY: tests pass addresses of the family IPv4 only, so that the pointer is to a SOCKADDR_IN.
    let address = unsafe { address.cast::<SOCKADDR_IN>().read_unaligned() };
    SocketAddrV4::new(
        Ipv4Addr::from(address.sin_addr.S_un.S_addr.to_ne_bytes()),
        u16::from_be(address.sin_port),
    )
}

fn put_address(address: Option<SocketAddrV4>, into: *mut SOCKADDR, length: *mut u32) -> NTSTATUS {
    let Some(address) = address else { return STATUS_CONNECTION_INVALID };
    let mut raw = SOCKADDR_IN::zeroed();
    raw.sin_family = AF_INET;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.S_un.S_addr = u32::from_ne_bytes(address.ip().octets());
    // SAFETY: the consumer passes room for any address.
    unsafe { into.cast::<SOCKADDR_IN>().write_unaligned(raw) };
    // SAFETY: the consumer passes a length.
    unsafe { length.write(size_of::<SOCKADDR_IN>() as u32) };
    STATUS_SUCCESS
}

fn bytes(data: *const c_void, length: u32) -> Vec<u8> {
    // SAFETY: the consumer passes `length` bytes.
    unsafe { core::slice::from_raw_parts(data.cast::<u8>(), length as usize) }.to_vec()
}

fn new_connector(
    world: &Arc<World>,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    let kind = header(NDK_OBJECT_TYPE::NdkObjectTypeConnector);
    let ndk = NDK_CONNECTOR { Header: kind, Dispatch: &raw const CONNECTOR };
    world.create(ndk, completion, context, into, |state, key| {
        state.connectors.insert(key, Connector::default());
    })
}

pub unsafe extern "efiapi" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    new_connector(&world(adapter), completion, context, into)
}

unsafe extern "efiapi" fn connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    local: *const SOCKADDR,
    _: u32,
    remote: *const SOCKADDR,
    _: u32,
    _: u32,
    _: u32,
    data: *const c_void,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let (key, local, remote) = (connector as usize, ipv4(local), ipv4(remote));
    let mut state = world.lock();
    let event =
        state.listeners.values().find(|listener| !listener.paused && listener.address == Some(remote));
    let Some((event, event_context)) = event.map(|listener| listener.event) else {
        return STATUS_CONNECTION_REFUSED;
    };
    let passive = Object {
        ndk: NDK_CONNECTOR {
            Header: header(NDK_OBJECT_TYPE::NdkObjectTypeConnector),
            Dispatch: &raw const CONNECTOR,
        },
        world: Arc::clone(&world),
    };
    let passive = Box::into_raw(Box::new(passive)) as usize;
    state.objects += 1;
    let data = bytes(data, length);
    let incoming = Connector { peer: key, data, local: Some(remote), ..Connector::default() };
    state.connectors.insert(passive, incoming);
    let active = state.connectors.get_mut(&key).unwrap();
    active.qp = qp as usize;
    active.peer = passive;
    active.local = Some(local);
    active.request = Some((completion.unwrap(), context as usize));
    drop(state);
    // SAFETY: the consumer's callback and its context; the connector is its own from here on.
    world.later(move || unsafe { event(event_context as *mut c_void, passive as *mut NDK_CONNECTOR) });
    STATUS_PENDING
}

unsafe extern "efiapi" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    _: u32,
    _: u32,
    data: *const c_void,
    length: u32,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let passive = state.connectors.get_mut(&(connector as usize)).unwrap();
    passive.qp = qp as usize;
    passive.disconnect = Some((disconnect.unwrap(), disconnect_context as usize));
    passive.request = Some((completion.unwrap(), context as usize));
    let peer = passive.peer;
    let Some(active) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    active.data = bytes(data, length);
    let (request, request_context) = active.request.take().unwrap();
    let active = active.qp;
    state.qps.get_mut(&active).unwrap().peer = Some(qp as usize);
    state.qps.get_mut(&(qp as usize)).unwrap().peer = Some(active);
    drop(state);
    world.complete(request, request_context, STATUS_SUCCESS);
    STATUS_PENDING
}

unsafe extern "efiapi" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let active = state.connectors.get_mut(&(connector as usize)).unwrap();
    active.disconnect = Some((disconnect.unwrap(), disconnect_context as usize));
    active.connected = true;
    let (peer, qp) = (active.peer, active.qp);
    let Some(passive) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    passive.connected = true;
    let (request, request_context) = passive.request.take().unwrap();
    let passive = passive.qp;
    state.qps.get_mut(&qp).unwrap().connected = true;
    state.qps.get_mut(&passive).unwrap().connected = true;
    drop(state);
    world.complete(request, request_context, STATUS_SUCCESS);
    world.request(completion, context)
}

unsafe extern "efiapi" fn reject(connector: *mut NDK_CONNECTOR, _: *const c_void, _: u32) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let peer = state.connectors[&(connector as usize)].peer;
    let Some(peer) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    let (request, context) = peer.request.take().unwrap();
    world.complete(request, context, STATUS_CONNECTION_REFUSED);
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    into: *mut c_void,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(connector);
    let state = world.lock();
    let data = &state.connectors[&(connector as usize)].data;
    for limit in [inbound, outbound] {
        // SAFETY: the consumer asks for both limits.
        unsafe { limit.write(16) };
    }
    if !into.is_null() {
        // SAFETY: the consumer asked for the size before.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), into.cast(), data.len()) };
    }
    // SAFETY: the consumer passes a length.
    unsafe { length.write(data.len() as u32) };
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn local_address(
    connector: *mut NDK_CONNECTOR,
    into: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(connector);
    let address = world.lock().connectors[&(connector as usize)].local;
    put_address(address, into, length)
}

unsafe extern "efiapi" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let (world, key) = (world(connector), connector as usize);
    let mut state = world.lock();
    let mut connector = state.connectors.remove(&key).unwrap();
    connector.connected = false;
    leave(&world, &mut state, &connector);
    world.flush(&mut state, connector.qp);
    connector.peer = 0;
    state.connectors.insert(key, connector);
    drop(state);
    world.request(completion, context)
}

pub unsafe extern "efiapi" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    let kind = header(NDK_OBJECT_TYPE::NdkObjectTypeListener);
    let ndk = NDK_LISTENER { Header: kind, Dispatch: &raw const LISTENER };
    let event = (event.unwrap(), event_context as usize);
    world(adapter).create(ndk, completion, context, into, |state, key| {
        state.listeners.insert(key, Listener { address: None, paused: false, event });
    })
}

unsafe extern "efiapi" fn listen(
    listener: *mut NDK_LISTENER,
    address: *const SOCKADDR,
    _: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(listener);
    let mut address = ipv4(address);
    if address.port() == 0 {
        address.set_port(49152);
    }
    world.lock().listeners.get_mut(&(listener as usize)).unwrap().address = Some(address);
    world.request(completion, context)
}

unsafe extern "efiapi" fn listener_address(
    listener: *mut NDK_LISTENER,
    into: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(listener);
    let address = world.lock().listeners[&(listener as usize)].address;
    put_address(address, into, length)
}

unsafe extern "efiapi" fn control_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    let world = world(listener);
    world.lock().listeners.get_mut(&(listener as usize)).unwrap().paused = pause != 0;
}

pub static CONNECTOR: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: Some(close::<NDK_CONNECTOR>),
    NdkConnect: Some(connect),
    NdkAccept: Some(accept),
    NdkCompleteConnect: Some(complete_connect),
    NdkReject: Some(reject),
    NdkGetConnectionData: Some(connection_data),
    NdkGetLocalAddress: Some(local_address),
    NdkDisconnect: Some(disconnect),
    ..NDK_CONNECTOR_DISPATCH::zeroed()
};
pub static LISTENER: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close::<NDK_LISTENER>),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(listener_address),
    NdkControlConnectEvents: Some(control_events),
    ..NDK_LISTENER_DISPATCH::zeroed()
};
