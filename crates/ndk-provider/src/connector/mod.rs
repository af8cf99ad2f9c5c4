//! Connectors: one connection each, from either side.
//!
//! [`state`] is the table of what may happen when. Commands to the engine are given under the connector's
//! lock, so that an event cannot overtake the command that caused it; callbacks are made without it, in
//! order, one at a time ([`Connector::deliver`]): first the completion of the pending request, then the
//! disconnect event (R-CONN-92).
//= R-CONN-92

mod commands;
mod inner;
mod state;
mod terms;

pub use commands::Source;
pub use terms::{ConnectionData, Terms};

use crate::adapter::Adapter;
use crate::address::of_link;
use crate::dispatch;
use crate::listener::Listener;
use crate::object::{Body, Context, Created, Ref};
use crate::provider::{Core, now};
use crate::registry::{Registry, Ticket};
use crate::status::Answer;
use core::net::SocketAddr;
use inner::Inner;
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_OBJECT_TYPE,
};
use ndk_abi::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_INVALID};
use nt::SpinLock;
use roce::{ConnEvent, ConnId};
use state::{Event, State};
use terms::Said;

/// What is special to a connector.
pub struct Connector {
    pub(crate) ticket: Ticket,
    inner: SpinLock<Inner>,
    /// Whom an incoming request came to; the connector is its successor.
    //= R-CLOSE-15
    _listener: Option<Ref<Listener>>,
    adapter: Ref<Adapter>,
}

/// Whom to tell that the peer has gone.
#[derive(Clone, Copy)]
pub enum DisconnectEvent {
    Plain(NDK_FN_DISCONNECT_EVENT_CALLBACK, Context),
    /// From 2.1 on.
    //= R-CONN-98
    Ex(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, Context),
}

impl Body for Connector {
    type Public = NDK_CONNECTOR;
    type Dispatch = NDK_CONNECTOR_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeConnector;
    const DISPATCH: &'static NDK_CONNECTOR_DISPATCH = &dispatch::connector::TABLE;

    /// Abortive: the queue pair is flushed, a peer that waits for an answer is refused, one that is
    /// connected is told; the consumer gets no disconnect event.
    //= R-CLOSE-6, R-CLOSE-7, R-CLOSE-30, R-CLOSE-31, R-CLOSE-32, R-CONN-89, R-CONN-96
    fn closing(this: &Ref<Self>) {
        let core = this.adapter.core();
        let mut inner = this.inner.lock();
        let was = inner.state;
        inner.enter(core, Event::Close);
        if let Some(connection) = inner.connection.take() {
            core.engine.release(now(), connection);
        }
        if let Some(qp) = &inner.qp {
            match was {
                State::Connected | State::Disconnecting | State::Parted => qp.spend(),
                _ => qp.detach(),
            }
        }
        inner.disconnect = None;
        inner.finish_pending(STATUS_CANCELLED);
        drop(inner);
        // Not on the closer's stack: the DPC tells.
        core.registry.defer(&this.ticket);
        core.after_call();
    }

    fn finish(&self) {
        self.ticket.leave();
        let endpoint = self.inner.lock().endpoint.take();
        drop(endpoint);
    }
}

impl Connector {
    //= R-CREATE-45
    pub fn create(adapter: &Ref<Adapter>) -> Answer<Created<Self>> {
        Self::make(adapter, None, State::Idle)
    }

    /// For a request that has come in.
    //= R-CONN-24, R-CONN-47, R-CONN-78
    pub fn indicated(
        listener: &Ref<Listener>,
        connection: ConnId,
        request: &roce::Request,
    ) -> Answer<Created<Self>> {
        let adapter = listener.adapter();
        let created = Self::make(adapter, Some(listener.clone()), State::Indicated)?;
        let this = created.hold();
        let mut inner = this.inner.lock();
        inner.connection = Some(connection);
        let scope = adapter.core().host.link().scope;
        inner.local = Some(of_link(request.path.local_ip, request.local_port, scope));
        inner.remote = Some(of_link(request.path.remote_ip, request.remote_port, scope));
        inner.said = Said::There(Terms { reads: request.reads, private_data: request.private_data });
        drop(inner);
        adapter.core().engine.set_context(connection, this.ticket.number());
        Ok(created)
    }

    fn make(adapter: &Ref<Adapter>, listener: Option<Ref<Listener>>, state: State) -> Answer<Created<Self>> {
        let ticket = Registry::ticket(&adapter.core().registry)?;
        let inner = SpinLock::new(Inner::new(state));
        let body = Self { ticket, inner, _listener: listener, adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), body)?;
        Ticket::enter(&created.hold());
        Ok(created)
    }

    fn core(&self) -> &roce::Arc<Core> {
        self.adapter.core()
    }

    /// What the engine tells of the connection.
    #[inline(never)]
    pub fn on_event(&self, event: &ConnEvent) {
        self.inner.lock().on_event(self.core(), event);
        self.deliver();
    }

    /// The device or the address has gone: as if the peer had.
    //= R-PNP-8, R-PNP-10, R-CONN-101
    pub fn abort(&self) {
        let core = self.core();
        let mut inner = self.inner.lock();
        if let Some(qp) = &inner.qp {
            core.engine.flush(qp.pair());
        }
        inner.on_event(core, &ConnEvent::Aborted);
        inner.fail(core, STATUS_CONNECTION_ABORTED);
        drop(inner);
        core.registry.defer(&self.ticket);
    }

    /// Makes the callbacks that are due, unless another thread is doing so already. No lock is held, and no
    /// stack but the provider's is below.
    pub fn deliver(&self) {
        let mut inner = self.inner.lock();
        if core::mem::replace(&mut inner.delivering, true) {
            return;
        }
        // A connector has few callbacks in its life, each due once.
        loop {
            if let Some((request, status)) = inner.take_finished() {
                drop(inner);
                request.complete(status);
            } else if let Some(event) = inner.take_disconnect() {
                drop(inner);
                dispatch::callback::disconnect_event(event);
            } else {
                inner.delivering = false;
                return;
            }
            inner = self.inner.lock();
        }
    }

    //= R-CONN-22, R-CONN-72, R-CONN-73, R-CONN-74
    pub fn data(&self) -> Answer<ConnectionData> {
        let inner = self.inner.lock();
        let Said::There(Terms { reads, private_data }) = inner.said else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let (inbound, outbound) = (reads.inbound.into(), reads.outbound.into());
        Ok(ConnectionData { inbound, outbound, private_data })
    }

    //= R-CONN-77, R-CONN-79
    pub fn local_address(&self) -> Answer<SocketAddr> {
        self.inner.lock().local.ok_or(STATUS_CONNECTION_INVALID)
    }

    //= R-CONN-78, R-CONN-79
    pub fn peer_address(&self) -> Answer<SocketAddr> {
        self.inner.lock().remote.ok_or(STATUS_CONNECTION_INVALID)
    }

    /// Both ends, if it is an active connection.
    //= R-OIDNDK-27
    pub fn active_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let inner = self.inner.lock();
        if inner.active { inner.local.zip(inner.remote) } else { None }
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}
