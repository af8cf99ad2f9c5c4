// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connectors: one side of a connection.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::time::Duration;

use driver_support::status::{Result, check};
use fallible::Arc;
use ndk_abi::ndk::{NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK};
use ndk_abi::netio::{AF_INET, AF_INET6, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET};
use ndk_abi::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};

use super::adapter::Adapter;
use super::object::{Object, entry};
use super::pending;
use super::qp::Qp;

/// Largest private data that this driver reads; a peer's may be padded with zeros.
const PRIVATE_DATA: usize = 256;

/// Outstanding RDMA reads: of the peer, and of this side.
#[derive(Clone, Copy)]
pub struct ReadLimits {
    pub inbound: u32,
    pub outbound: u32,
}

/// Private data and limits that the peer has sent for the establishment of the connection.
pub struct ConnectionData {
    pub limits: ReadLimits,
    pub private_data: [u8; PRIVATE_DATA],
}

/// One side of a connection. Dropping it closes it, which ends the connection at once.
pub struct Connector {
    object: Object<NDK_CONNECTOR>,
    // Declared after the object: closed after it.
    _adapter: Arc<Adapter>,
}

impl Connector {
    /// Creates a connector for a side that connects. `PASSIVE_LEVEL`.
    pub fn new(adapter: &Arc<Adapter>) -> Result<Self> {
        let create = entry(adapter.dispatch().NdkCreateConnector)?;
        let object = Object::create(|| {
            pending::create(|completion, context, into| {
                // SAFETY: the adapter is open; the context lives until the completion.
                unsafe { create(adapter.raw(), completion, context, into) }
            })
        })?;
        Ok(Self { object, _adapter: Arc::clone(adapter) })
    }

    /// Takes over the connector of a connect event. IRQL <= `DISPATCH_LEVEL`. If there is no memory, the connector is
    /// closed, which refuses the connection.
    ///
    /// # Safety
    /// The connector belongs to this driver, and only the value returned here closes it.
    pub unsafe fn incoming(adapter: &Arc<Adapter>, raw: NonNull<NDK_CONNECTOR>) -> Result<Self> {
        // SAFETY: the caller passes the connector of a connect event, which it owns from there on.
        let object = unsafe { Object::adopt(raw) }?;
        Ok(Self { object, _adapter: Arc::clone(adapter) })
    }

    /// Connects; returns when the peer has accepted. If that takes longer than `limit`, the connector is closed, which
    /// aborts the attempt. `PASSIVE_LEVEL`.
    pub fn connect(
        &self,
        qp: &Qp,
        addresses: (&SOCKADDR_INET, &SOCKADDR_INET),
        limits: ReadLimits,
        private_data: &[u8],
        limit: Option<Duration>,
    ) -> Result {
        let connect = entry(self.object.dispatch().NdkConnect)?;
        let (local, local_length) = raw_address(addresses.0)?;
        let (remote, remote_length) = raw_address(addresses.1)?;
        pending::request_within(
            limit,
            || self.object.close(),
            |completion, context| {
                // SAFETY: connector and queue pair are open; addresses and data are copied during the call; the
                // context lives until the completion.
                unsafe {
                    connect(
                        self.object.raw(),
                        qp.raw(),
                        local,
                        local_length,
                        remote,
                        remote_length,
                        limits.inbound,
                        limits.outbound,
                        private_data.as_ptr().cast(),
                        private_data.len() as u32,
                        completion,
                        context,
                    )
                }
            },
        )
    }

    /// Completes a connection that the peer has accepted. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `disconnected` may be called with `event_context` until the connector is closed.
    pub unsafe fn complete(
        &self,
        disconnected: NDK_FN_DISCONNECT_EVENT_CALLBACK,
        event_context: *mut c_void,
    ) -> Result {
        let complete = entry(self.object.dispatch().NdkCompleteConnect)?;
        pending::request(|completion, context| {
            // SAFETY: the connector is open; this function's contract for the event's context.
            unsafe { complete(self.object.raw(), Some(disconnected), event_context, completion, context) }
        })
    }

    /// Accepts an incoming connection; returns when the peer has completed it. If that takes longer than `limit`, the
    /// connector is closed, which aborts the attempt. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// As for [`complete`](Self::complete).
    pub unsafe fn accept(
        &self,
        qp: &Qp,
        limits: ReadLimits,
        private_data: &[u8],
        disconnected: NDK_FN_DISCONNECT_EVENT_CALLBACK,
        event_context: *mut c_void,
        limit: Duration,
    ) -> Result {
        let accept = entry(self.object.dispatch().NdkAccept)?;
        pending::request_within(
            Some(limit),
            || self.object.close(),
            |completion, context| {
                // SAFETY: connector and queue pair are open; the data is copied during the call; this function's
                // contract for the event's context.
                unsafe {
                    accept(
                        self.object.raw(),
                        qp.raw(),
                        limits.inbound,
                        limits.outbound,
                        private_data.as_ptr().cast(),
                        private_data.len() as u32,
                        Some(disconnected),
                        event_context,
                        completion,
                        context,
                    )
                }
            },
        )
    }

    /// Refuses an incoming connection, with a reason for the peer. IRQL <= `DISPATCH_LEVEL`.
    pub fn reject(&self, private_data: &[u8]) -> Result {
        let reject = entry(self.object.dispatch().NdkReject)?;
        let (data, length) = (private_data.as_ptr().cast(), private_data.len() as u32);
        // SAFETY: the connector is open; the data is copied during the call.
        check(unsafe { reject(self.object.raw(), data, length) })
    }

    /// Returns the peer's read limits and private data. IRQL <= `DISPATCH_LEVEL`.
    pub fn data(&self) -> Result<ConnectionData> {
        let get = entry(self.object.dispatch().NdkGetConnectionData)?;
        let mut limits = ReadLimits { inbound: 0, outbound: 0 };
        let mut private_data = [0; PRIVATE_DATA];
        let mut length = PRIVATE_DATA as u32;
        let (inbound, outbound) = (&raw mut limits.inbound, &raw mut limits.outbound);
        let data = private_data.as_mut_ptr().cast();
        // SAFETY: the connector is open; the buffer has `length` bytes.
        match unsafe { get(self.object.raw(), inbound, outbound, data, &raw mut length) } {
            // More than this driver reads.
            STATUS_SUCCESS | STATUS_BUFFER_TOO_SMALL | STATUS_BUFFER_OVERFLOW => {}
            status => check(status)?,
        }
        Ok(ConnectionData { limits, private_data })
    }

    /// Ends the connection in agreement with the peer; returns when the peer has answered, or the provider has given
    /// up. `PASSIVE_LEVEL`.
    pub fn disconnect(&self) -> Result {
        let disconnect = entry(self.object.dispatch().NdkDisconnect)?;
        pending::request(|completion, context| {
            // SAFETY: the connector is open; the context lives until the completion.
            unsafe { disconnect(self.object.raw(), completion, context) }
        })
    }

    /// Closes the connector and waits: no disconnect event runs afterwards. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        self.object.close();
    }

    /// Closes the connector without waiting. IRQL <= `DISPATCH_LEVEL`.
    pub fn close_unwaited(self) {
        let Self { object, _adapter } = self;
        object.close_unwaited();
    }
}

/// Returns a socket address and the length of its family.
pub fn raw_address(address: &SOCKADDR_INET) -> Result<(*const ndk_abi::netio::SOCKADDR, u32)> {
    // SAFETY: all variants begin with the family.
    let length = match unsafe { address.si_family } {
        AF_INET => size_of::<SOCKADDR_IN>(),
        AF_INET6 => size_of::<SOCKADDR_IN6>(),
        _ => return Err(STATUS_INVALID_PARAMETER),
    };
    Ok(((&raw const *address).cast(), length as u32))
}
