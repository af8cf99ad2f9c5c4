// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners and connectors.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use ndk_abi::ndk::{NDK_CONNECTOR, NDK_LISTENER};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::NTSTATUS;

use crate::address::RawAddress;
use crate::object::{Object, entry};
use crate::os::{Event, Lock, Os};
use crate::{Adapter, Qp, Status, Waker, pending};

/// One side of a connection. Dropping it aborts the connection if it is established.
pub struct Connector<O: Os> {
    object: Object<O, NDK_CONNECTOR>,
    // Declared after the object: the disconnect callback uses it until the close is complete.
    peer: Option<Arc<Peer<O>>>,
    // A listener must not be closed before its connectors.
    //= R-CLOSE-14
    _listener: Option<Arc<Listener<O>>>,
}

/// State of the peer after the connection is established.
struct Peer<O: Os> {
    os: Arc<O>,
    is_disconnected: AtomicBool,
    waker: Waker<O>,
}

/// Limits on outstanding reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// Outstanding reads of the peer that this side serves.
    pub inbound: u32,
    /// Outstanding reads of this side that the peer serves.
    pub outbound: u32,
}

/// Data of the peer for the establishment of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionData {
    /// The limits in force.
    pub limits: ReadLimits,
    /// Padded with zeros to a length that the provider chooses.
    pub private_data: Vec<u8>,
}

/// A listening endpoint.
pub struct Listener<O: Os> {
    object: Object<O, NDK_LISTENER>,
    // Declared after the object: the connect callback uses it until the close is complete.
    incoming: Arc<Incoming<O>>,
    _adapter: Arc<Adapter<O>>,
}

struct Incoming<O: Os> {
    os: Arc<O>,
    event: O::Event,
    queue: O::Lock<Queue<O>>,
}

/// Connectors that the consumer has not taken yet.
struct Queue<O: Os> {
    connectors: VecDeque<Object<O, NDK_CONNECTOR>>,
    closing: bool,
}

impl<O: Os> Connector<O> {
    /// Creates a connector for the active side.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(adapter: &Arc<Adapter<O>>) -> Result<Self, Status> {
        let os = adapter.os();
        let create = entry(adapter.object().dispatch().NdkCreateConnector)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the adapter is open; the context lives until the callback.
            unsafe { create(adapter.raw(), completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(os, raw) };
        Ok(Self { object, peer: None, _listener: None })
    }

    /// Connects `qp`; returns when the peer has accepted. The caller must then call [`complete`](Self::complete).
    ///
    /// # Errors
    /// The status of the provider, for example `STATUS_CONNECTION_REFUSED`.
    pub fn connect(
        &self,
        qp: &Qp<O>,
        local: SocketAddr,
        remote: SocketAddr,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Result<(), Status> {
        let connect = entry(self.object.dispatch().NdkConnect)?;
        let (local, remote) = (RawAddress::from(local), RawAddress::from(remote));
        pending::request(self.object.os(), |completion, request| {
            // SAFETY: connector and queue pair are open; addresses and data are copied during the call.
            unsafe {
                connect(
                    self.object.raw(),
                    qp.raw(),
                    local.as_ptr(),
                    local.length(),
                    remote.as_ptr(),
                    remote.length(),
                    limits.inbound,
                    limits.outbound,
                    private_data.as_ptr().cast(),
                    private_data.len() as u32,
                    completion,
                    request,
                )
            }
        })
    }

    /// Completes a connection that the peer has accepted. `waker` is woken when the peer disconnects.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn complete(&mut self, waker: Waker<O>) -> Result<(), Status> {
        let complete = entry(self.object.dispatch().NdkCompleteConnect)?;
        let peer = self.watch(waker);
        pending::request(self.object.os(), |completion, request| {
            // SAFETY: the connector is open, and `peer` lives until it is closed.
            unsafe { complete(self.object.raw(), Some(disconnected::<O>), peer, completion, request) }
        })
    }

    /// Accepts an incoming connection on `qp`; returns when the peer has completed it. `waker` is woken when the peer
    /// disconnects.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn accept(
        &mut self,
        qp: &Qp<O>,
        limits: ReadLimits,
        private_data: &[u8],
        waker: Waker<O>,
    ) -> Result<(), Status> {
        let accept = entry(self.object.dispatch().NdkAccept)?;
        let peer = self.watch(waker);
        pending::request(self.object.os(), |completion, request| {
            // SAFETY: connector and queue pair are open, data is copied during the call, and `peer` lives
            // until the connector is closed.
            unsafe {
                accept(
                    self.object.raw(),
                    qp.raw(),
                    limits.inbound,
                    limits.outbound,
                    private_data.as_ptr().cast(),
                    private_data.len() as u32,
                    Some(disconnected::<O>),
                    peer,
                    completion,
                    request,
                )
            }
        })
    }

    /// Rejects an incoming connection, or one that the peer has accepted.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Status> {
        let reject = entry(self.object.dispatch().NdkReject)?;
        let status = self.object.os().call(|| {
            // SAFETY: the connector is open; data is copied during the call.
            unsafe { reject(self.object.raw(), private_data.as_ptr().cast(), private_data.len() as u32) }
        });
        Status(status).check()
    }

    /// Disconnects (`NdkDisconnect`); returns when the peer has replied or the provider has given up waiting.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn disconnect(&self) -> Result<(), Status> {
        let disconnect = entry(self.object.dispatch().NdkDisconnect)?;
        pending::request(self.object.os(), |completion, request| {
            // SAFETY: the connector is open; the context lives until the callback.
            unsafe { disconnect(self.object.raw(), completion, request) }
        })
    }

    /// Returns whether the peer has disconnected or the connection has failed.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_disconnected.load(Ordering::Acquire))
    }

    /// Returns the connection data of the peer. Private data is available to the passive side until it accepts, and to the
    /// active side between connect and complete.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn data(&self) -> Result<ConnectionData, Status> {
        let get = entry(self.object.dispatch().NdkGetConnectionData)?;
        let mut limits = ReadLimits { inbound: 0, outbound: 0 };
        let mut length = 0_u32;
        let mut query = |buffer: *mut c_void, length: *mut u32| {
            let (inbound, outbound) = (&raw mut limits.inbound, &raw mut limits.outbound);
            Status(self.object.os().call(|| {
                // SAFETY: the connector is open; `buffer` has `*length` bytes.
                unsafe { get(self.object.raw(), inbound, outbound, buffer, length) }
            }))
        };
        query(ptr::null_mut(), &raw mut length).check()?;
        let mut private_data = vec![0; length as usize];
        query(private_data.as_mut_ptr().cast(), &raw mut length).check()?;
        private_data.truncate(length as usize);
        Ok(ConnectionData { limits, private_data })
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        let get = entry(self.object.dispatch().NdkGetLocalAddress)?;
        self.address(get)
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn peer_address(&self) -> Result<SocketAddr, Status> {
        let get = entry(self.object.dispatch().NdkGetPeerAddress)?;
        self.address(get)
    }

    fn address(
        &self,
        get: unsafe extern "efiapi" fn(*mut NDK_CONNECTOR, *mut SOCKADDR, *mut u32) -> NTSTATUS,
    ) -> Result<SocketAddr, Status> {
        RawAddress::query(|address, length| {
            Status(self.object.os().call(|| {
                // SAFETY: the connector is open; `address` has `*length` bytes.
                unsafe { get(self.object.raw(), address, length) }
            }))
        })
    }

    fn watch(&mut self, waker: Waker<O>) -> *mut c_void {
        let os = Arc::clone(self.object.os());
        let peer = Arc::new(Peer { os, is_disconnected: AtomicBool::new(false), waker });
        Arc::as_ptr(self.peer.insert(peer)).cast_mut().cast()
    }
}

impl<O: Os> Listener<O> {
    /// Listens at `local`; with port 0, the provider chooses a port.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(adapter: &Arc<Adapter<O>>, local: SocketAddr) -> Result<Arc<Self>, Status> {
        let os = adapter.os();
        let incoming = Arc::new(Incoming {
            os: Arc::clone(os),
            event: os.event(),
            queue: Lock::new(Queue { connectors: VecDeque::new(), closing: false }),
        });
        let context: *mut c_void = Arc::as_ptr(&incoming).cast_mut().cast();
        let create = entry(adapter.object().dispatch().NdkCreateListener)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the adapter is open; `incoming` lives until the listener is closed.
            unsafe { create(adapter.raw(), Some(connecting::<O>), context, completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let object: Object<O, NDK_LISTENER> = unsafe { Object::new(os, raw) };
        let listener = Self { object, incoming, _adapter: Arc::clone(adapter) };
        let listen = entry(listener.object.dispatch().NdkListen)?;
        let local = RawAddress::from(local);
        pending::request(os, |completion, request| {
            // SAFETY: the listener is open; the address is copied during the call.
            unsafe { listen(listener.object.raw(), local.as_ptr(), local.length(), completion, request) }
        })?;
        Ok(Arc::new(listener))
    }

    /// Waits for the next incoming connection, which the caller must accept or reject; `None` after `timeout`.
    #[must_use]
    pub fn next(self: &Arc<Self>, timeout: Option<Duration>) -> Option<Connector<O>> {
        loop {
            let taken = self.incoming.queue.with(|queue| queue.connectors.pop_front());
            if let Some(object) = taken {
                return Some(Connector { object, peer: None, _listener: Some(Arc::clone(self)) });
            }
            if !self.incoming.event.wait(timeout) {
                return None;
            }
        }
    }

    /// Pauses or resumes connect events; while paused, connection requests are rejected. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_NOT_SUPPORTED` if the provider has no such function.
    pub fn pause(&self, pause: bool) -> Result<(), Status> {
        let control = entry(self.object.dispatch().NdkControlConnectEvents)?;
        // SAFETY: `object` keeps the listener open, and the function is a member of its dispatch table.
        self.object.os().call(|| unsafe { control(self.object.raw(), pause.into()) });
        Ok(())
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The status of the provider.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        let get = entry(self.object.dispatch().NdkGetLocalAddress)?;
        RawAddress::query(|address, length| {
            Status(self.object.os().call(|| {
                // SAFETY: the listener is open; `address` has `*length` bytes.
                unsafe { get(self.object.raw(), address, length) }
            }))
        })
    }
}

impl<O: Os> Drop for Listener<O> {
    fn drop(&mut self) {
        let unclaimed = self.incoming.queue.with(|queue| {
            queue.closing = true;
            core::mem::take(&mut queue.connectors)
        });
        drop(unclaimed);
    }
}

unsafe extern "efiapi" fn connecting<O: Os>(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context of the create call, which lives until the listener is closed.
    let incoming = unsafe { &*context.cast_const().cast::<Incoming<O>>() };
    incoming.os.callback("ConnectEvent", || {
        let Some(connector) = ptr::NonNull::new(connector) else { return };
        // SAFETY: the consumer owns an incoming connector, and only this value closes it.
        //= R-CONN-46
        let object: Object<O, NDK_CONNECTOR> = unsafe { Object::new(&incoming.os, connector) };
        let refused = incoming.queue.with(|queue| {
            if queue.closing {
                return Some(object);
            }
            queue.connectors.push_back(object);
            None
        });
        match refused {
            // The close of the listener, which has started, waits for it.
            Some(object) => object.close_unwaited(),
            None => incoming.event.set(),
        }
    });
}

unsafe extern "efiapi" fn disconnected<O: Os>(context: *mut c_void) {
    // SAFETY: the context of accept or complete, which lives until the connector is closed.
    let peer = unsafe { &*context.cast_const().cast::<Peer<O>>() };
    peer.os.callback("DisconnectEvent", || {
        peer.is_disconnected.store(true, Ordering::Release);
        peer.waker.wake();
    });
}
