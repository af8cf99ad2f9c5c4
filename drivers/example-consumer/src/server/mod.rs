// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server: a listener, its connections, and the store that they share.

mod session;
mod store;

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use driver_support::status::{Result, no_memory};
use driver_support::wsk::Wsk;
use fallible::{Arc, vec};
use ndk_abi::ndk::NDK_CONNECTOR;
use ndk_abi::netio::SOCKADDR_INET;
use ndk_abi::nt::{DEVICE_OBJECT, STATUS_CANCELLED, STATUS_DEVICE_NOT_READY, STATUS_QUOTA_EXCEEDED};
use nt::SpinLock;

use self::session::Session;
use self::store::Store;
use crate::connection::{Connection, Hello, Limits, refuse};
use crate::ndk::{Adapter, Connector, Listener};
use crate::os::{Once, Tally, WorkItem};

/// Parameters of a server.
pub struct Options {
    /// Where to listen. With port 0, the provider chooses one.
    pub address: SOCKADDR_INET,
    /// Index of the interface with that address.
    pub interface: u32,
    /// Connections at the same time; more are refused.
    pub connections: usize,
    /// Bytes of the store.
    pub store: usize,
    /// Receives to post on each connection: credits of the client.
    pub receives: u16,
}

/// A running server. Dropping it stops it, at `PASSIVE_LEVEL`.
pub struct Server {
    shared: Arc<ServerState>,
}

/// State of a server that callbacks and work items share.
struct ServerState {
    device: Device,
    adapter: Arc<Adapter>,
    limits: Limits,
    store: Arc<Store>,
    capacity: usize,
    /// Work items in progress: connections that are being accepted or closed.
    work: Arc<Tally>,
    sessions: SpinLock<Sessions>,
    next_id: AtomicU64,
    listener: Once<Listener>,
}

struct Sessions {
    /// Established, by number.
    established: Vec<(u64, Connection<Session>)>,
    /// Established, or about to be.
    count: usize,
}

/// The device that keeps the driver loaded while work items run.
#[derive(Clone, Copy)]
struct Device(NonNull<DEVICE_OBJECT>);

// SAFETY: a device object may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: a shared reference gives out the device's address only.
unsafe impl Sync for Device {}

impl Server {
    /// Starts a server: opens the adapter and listens. `PASSIVE_LEVEL`.
    pub fn start(wsk: &Arc<Wsk>, device: NonNull<DEVICE_OBJECT>, options: &Options) -> Result<Self> {
        let adapter = Adapter::open(wsk, options.interface)?;
        let limits = Limits::new(&adapter.info()?, options.receives)?;
        let store = Arc::try_new(Store::new(&adapter, options.store)?).map_err(no_memory)?;
        let established = vec::with_capacity(options.connections).map_err(no_memory)?;
        let shared = Arc::try_new(ServerState {
            device: Device(device),
            adapter,
            limits,
            store,
            capacity: options.connections,
            work: Arc::try_new(Tally::new()?).map_err(no_memory)?,
            sessions: SpinLock::new(Sessions { established, count: 0 }),
            next_id: AtomicU64::new(0),
            listener: Once::new(),
        })
        .map_err(no_memory)?;
        // From here on, dropping the server stops it.
        let server = Self { shared };
        let context = Arc::as_ptr(&server.shared).cast_mut().cast();
        // SAFETY: the listener is closed before the shared part is dropped.
        let listener =
            unsafe { Listener::new(&server.shared.adapter, &options.address, connecting, context) }?;
        drop(server.shared.listener.set(listener));
        Ok(server)
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> Result<SOCKADDR_INET> {
        self.shared.listener.get().ok_or(STATUS_DEVICE_NOT_READY)?.local_address()
    }
}

impl Drop for Server {
    /// Refuses new connections, ends those that there are, and closes the listener.
    fn drop(&mut self) {
        let shared = &self.shared;
        if let Some(listener) = shared.listener.get() {
            listener.pause();
        }
        // Connections that are being accepted are established or closed afterwards, and no more come.
        shared.work.close();
        while let Some(connection) = shared.take_any() {
            drop(connection);
        }
        if let Some(listener) = shared.listener.get() {
            // Waits for connectors that are being closed, and for connect events.
            //= R-CLOSE-14
            listener.close();
        }
    }
}

impl ServerState {
    /// Admits an incoming connection, and lets a work item accept it. `DISPATCH_LEVEL`.
    fn connecting(this: &Arc<Self>, connector: Connector) {
        let admitted = this.admit(&connector);
        let Ok(client) = admitted else { return refuse(connector) };
        // The routine owns the connector; if it cannot be queued, it is dropped, and the connector with it: at this
        // IRQL it must not be. So the work item is made first, with a place for it.
        let Ok(place) = Arc::try_new(SpinLock::new(None)) else { return this.give_up(connector) };
        let (shared, taken, tally) = (this.clone(), place.clone(), this.work.clone());
        let work = WorkItem::new(this.device.0, move || {
            let connector = taken.lock().take();
            if let Some(connector) = connector {
                Self::accept(&shared, connector, client);
            }
            // The server may be gone as soon as its last work item has left.
            drop(shared);
            tally.leave();
        });
        match work {
            Ok(work) => {
                *place.lock() = Some(connector);
                work.queue();
            }
            Err(_) => this.give_up(connector),
        }
    }

    /// Reads the client's private data and reserves a place for the connection.
    fn admit(&self, connector: &Connector) -> Result<Hello> {
        let client = Hello::parse(&connector.data()?.private_data)?;
        if !self.work.enter() {
            return Err(STATUS_CANCELLED);
        }
        let mut sessions = self.sessions.lock();
        if sessions.count == self.capacity {
            drop(sessions);
            self.work.leave();
            return Err(STATUS_QUOTA_EXCEEDED);
        }
        sessions.count += 1;
        Ok(client)
    }

    /// Refuses a connection that was admitted.
    fn give_up(&self, connector: Connector) {
        refuse(connector);
        self.sessions.lock().count -= 1;
        self.work.leave();
    }

    /// Accepts a connection. `PASSIVE_LEVEL`.
    fn accept(this: &Arc<Self>, connector: Connector, client: Hello) {
        let id = this.next_id.fetch_add(1, Ordering::Relaxed);
        let Ok(connection) = Self::establish(this, connector, client, id) else {
            this.sessions.lock().count -= 1;
            return;
        };
        this.sessions.lock().established.push((id, connection));
        // If it ended before it was in the list, its own work item has not found it there.
        this.close_if_ended(id);
    }

    fn establish(
        this: &Arc<Self>,
        connector: Connector,
        client: Hello,
        id: u64,
    ) -> Result<Connection<Session>> {
        let limits = this.limits;
        let mut connection = Connection::new(&this.adapter, limits, connector, |pd| {
            // Allocated now: the end of a connection must not fail for lack of memory.
            let (shared, tally) = (this.clone(), this.work.clone());
            let closing = WorkItem::new(this.device.0, move || {
                drop(shared.take(id));
                // As above.
                drop(shared);
                tally.leave();
            })?;
            let tally = this.work.clone();
            let close = move || {
                // If the server stops, it closes the connection itself.
                if tally.enter() {
                    closing.queue();
                }
            };
            Session::new(this.store.clone(), pd.privileged_token(), limits, close)
        })?;
        let store = u32::try_from(this.store.length()).unwrap_or(u32::MAX);
        let hello = Hello { credits: limits.qp.receives as u16, store, part: limits.part };
        connection.accept(hello, client.credits)?;
        Ok(connection)
    }

    fn close_if_ended(&self, id: u64) {
        let has_ended = {
            let sessions = self.sessions.lock();
            let found = sessions.established.iter().find(|(other, _)| *other == id);
            found.is_some_and(|(_, connection)| connection.channel().ended().is_some())
        };
        if has_ended {
            drop(self.take(id));
        }
    }

    /// Takes a connection out of the list; the caller drops it, which closes it.
    fn take(&self, id: u64) -> Option<Connection<Session>> {
        let mut sessions = self.sessions.lock();
        let index = sessions.established.iter().position(|(other, _)| *other == id)?;
        sessions.count -= 1;
        Some(sessions.established.swap_remove(index).1)
    }

    fn take_any(&self) -> Option<Connection<Session>> {
        let mut sessions = self.sessions.lock();
        let (_, connection) = sessions.established.pop()?;
        sessions.count -= 1;
        Some(connection)
    }
}

/// The connect event; `context` is the server's shared part.
unsafe extern "efiapi" fn connecting(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    let shared = context.cast_const().cast::<ServerState>();
    // SAFETY: the shared part is alive until the listener is closed, and was made by an `Arc`.
    let owner = unsafe { Arc::from_raw(shared) };
    let shared = owner.clone();
    // The reference belongs to the server.
    core::mem::forget(owner);
    let Some(connector) = NonNull::new(connector) else { return };
    // SAFETY: the connector of a connect event belongs to this driver.
    //= R-CONN-46
    if let Ok(connector) = unsafe { Connector::incoming(&shared.adapter, connector) } {
        ServerState::connecting(&shared, connector);
    }
}
