// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connector object.
//!
//! Commands are given to the engine under the connector's lock, so that an event cannot overtake the command
//! that caused it. Callbacks are made without the lock, in order and one at a time
//! ([`Connector::make_callbacks`]): the completion of the pending request first, then the disconnect event.
//= R-CONN-92

use super::connection_data::{ConnectParameters, ConnectionData, Exchanged};
use super::state::{Event, State};
use crate::base::calls::pended_call::PendedRequest;
use crate::base::object::callback::DisconnectEvent;
use crate::base::object::closed::CloseLater;
use crate::base::object::registry::{Registered, Registry, Ticket};
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::ports::Endpoint;
use crate::base::state::provider_state::{ProviderState, now};
use crate::base::status::NtResult;
use crate::base::strict::Checker;
use crate::objects::adapter::Adapter;
use crate::objects::listener::Listener;
use crate::objects::qp::Qp;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use fallible::Arc;
use ndk_abi::ndk::{NDK_CONNECTOR, NDK_OBJECT_TYPE};
use ndk_abi::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_INVALID};
use nt::SpinLock;
use roce::ConnId;

/// The data of a connector object.
pub struct Connector {
    ticket: Ticket,
    pub(super) inner: SpinLock<Inner>,
    /// The peer's next hop is to be resolved anew.
    pub(super) path_suspect: AtomicBool,
    /// The listener of an incoming request, which is an antecedent.
    //= R-CLOSE-15
    listener: Option<Ref<Listener>>,
    adapter: Ref<Adapter>,
}

/// The part of a connector that its lock guards.
pub(super) struct Inner {
    pub state: State,
    pub connection: Option<ConnId>,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub exchanged: Exchanged,
    /// Held from connect or accept on.
    //= R-CLOSE-14
    pub qp: Option<Ref<Qp>>,
    /// The port of a connect without a shared endpoint.
    //= R-CONN-56, R-CONN-58
    pub endpoint: Option<Endpoint>,
    /// The shared endpoint of a connect with one.
    pub shared_endpoint: Option<Ref<SharedEndpoint>>,
    /// The connect, accept or disconnect that pends.
    pub pending: Option<PendedRequest<Connector>>,
    /// The status of further commands, once the connection has ended before the consumer's answer.
    pub aborted: NTSTATUS,
    /// The status of the pending request, once it is decided.
    pub outcome: Option<NTSTATUS>,
    pub disconnect_event: Option<DisconnectEvent>,
    /// The disconnect event is to be raised.
    pub disconnect_event_due: bool,
    /// A thread is making callbacks.
    delivering: bool,
    /// Counted as an active connection.
    active: bool,
}

impl ObjectType for Connector {
    type Public = NDK_CONNECTOR;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeConnector;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.adapter.provider())
    }

    /// Closes abortively: flushes the queue pair, rejects a peer that waits for a reply, disconnects one that
    /// is connected. The consumer gets no disconnect event.
    //= R-CLOSE-6, R-CLOSE-7, R-CLOSE-30, R-CLOSE-31, R-CLOSE-32, R-CONN-89, R-CONN-96
    fn on_close(this: &Ref<Self>) {
        let provider = this.adapter.provider();
        let mut inner = this.inner.lock();
        inner.enter(provider, Event::Close);
        if let Some(connection) = inner.connection.take() {
            provider.engine.connections().release(now(), connection);
        }
        inner.detach_qp();
        inner.disconnect_event = None;
        inner.finish_pending(STATUS_CANCELLED);
        drop(inner);
        // The DPC makes the callback, not the closing thread.
        this.defer_callbacks();
        provider.after_call();
    }

    fn on_finish(&self) {
        let endpoint = self.inner.lock().endpoint.take();
        drop(endpoint);
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.adapter.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        let inner = self.inner.lock();
        self.adapter.as_ptr().cast() == antecedent
            || self.listener.as_ref().is_some_and(|listener| listener.as_ptr().cast() == antecedent)
            || inner.qp.as_ref().is_some_and(|qp| qp.as_ptr().cast() == antecedent)
            || inner.shared_endpoint.as_ref().is_some_and(|endpoint| endpoint.as_ptr().cast() == antecedent)
    }
}

impl Registered for Connector {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl Connector {
    /// `NdkCreateConnector`.
    //= R-CREATE-45
    pub fn create(adapter: &Ref<Adapter>) -> NtResult<Created<Self>> {
        Self::new(adapter, None, State::Idle)
    }

    pub(super) fn new(
        adapter: &Ref<Adapter>,
        listener: Option<Ref<Listener>>,
        state: State,
    ) -> NtResult<Created<Self>> {
        let ticket = Registry::ticket(&adapter.provider().registry)?;
        let inner = SpinLock::new(Inner::new(state));
        let path_suspect = AtomicBool::new(false);
        let body = Self { ticket, inner, path_suspect, listener, adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), body)?;
        Ticket::enter(&created.reference());
        Ok(created)
    }

    pub(super) fn provider(&self) -> &Arc<ProviderState> {
        self.adapter.provider()
    }

    /// Has the DPC make the callbacks that are due.
    pub(super) fn defer_callbacks(&self) {
        self.provider().registry.defer(&self.ticket);
    }

    /// Makes the callbacks that are due, unless another thread is doing so. Called without a lock, on the
    /// provider's own stack.
    pub fn make_callbacks(&self) {
        let mut inner = self.inner.lock();
        if core::mem::replace(&mut inner.delivering, true) {
            return;
        }
        // Bounded: a connector makes few callbacks in its lifetime, each once.
        loop {
            if let Some((request, status)) = inner.take_completed() {
                drop(inner);
                request.complete(status);
            } else if let Some(event) = inner.take_disconnect_event() {
                drop(inner);
                event.call();
            } else {
                inner.delivering = false;
                return;
            }
            inner = self.inner.lock();
        }
    }

    /// `NdkGetConnectionData`.
    //= R-CONN-22, R-CONN-72, R-CONN-73, R-CONN-74
    pub fn data(&self) -> NtResult<ConnectionData> {
        let inner = self.inner.lock();
        let Exchanged::Peer(ConnectParameters { reads, private_data }) = inner.exchanged else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let (inbound, outbound) = (reads.inbound.into(), reads.outbound.into());
        Ok(ConnectionData { inbound, outbound, private_data })
    }

    /// `NdkGetLocalAddress`.
    //= R-CONN-77, R-CONN-79
    pub fn local_address(&self) -> NtResult<SocketAddr> {
        self.inner.lock().local.ok_or(STATUS_CONNECTION_INVALID)
    }

    /// `NdkGetPeerAddress`.
    //= R-CONN-78, R-CONN-79
    pub fn peer_address(&self) -> NtResult<SocketAddr> {
        self.inner.lock().remote.ok_or(STATUS_CONNECTION_INVALID)
    }

    /// Returns the local and the remote address of an active connection.
    //= R-OIDNDK-27
    pub fn active_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let inner = self.inner.lock();
        if inner.active { inner.local.zip(inner.remote) } else { None }
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}

impl Inner {
    fn new(state: State) -> Self {
        Self {
            state,
            connection: None,
            local: None,
            remote: None,
            exchanged: Exchanged::None,
            qp: None,
            endpoint: None,
            shared_endpoint: None,
            pending: None,
            aborted: STATUS_CONNECTION_ABORTED,
            outcome: None,
            disconnect_event: None,
            disconnect_event_due: false,
            delivering: false,
            active: false,
        }
    }

    /// Returns the next state for a consumer's command, and the engine's connection.
    pub fn command(&self, event: Event) -> NtResult<(State, ConnId)> {
        match (self.state.on(event), self.connection) {
            (Ok(next), Some(connection)) => Ok((next, connection)),
            //= R-CONN-29, R-CONN-30, R-CONN-37, R-CONN-41
            _ if self.state == State::Aborted => Err(self.aborted),
            _ => Err(STATUS_CONNECTION_INVALID),
        }
    }

    /// Makes a transition if it is in the table. Returns whether it is.
    pub fn enter(&mut self, provider: &ProviderState, event: Event) -> bool {
        let Ok(next) = self.state.on(event) else { return false };
        self.state = next;
        if !matches!(next, State::Connected) {
            self.set_active(provider, false);
        }
        true
    }

    /// Releases the queue pair, for another attempt to connect if it was not connected.
    //= R-QP-74
    pub fn detach_qp(&self) {
        if let Some(qp) = &self.qp {
            qp.detach();
        }
    }

    /// Decides the status of the pending request, if there is one and its status is not decided.
    pub fn finish_pending(&mut self, status: NTSTATUS) {
        if self.pending.is_some() {
            self.outcome.get_or_insert(status);
        }
    }

    //= R-PERF-6
    pub fn set_active(&mut self, provider: &ProviderState, active: bool) {
        if core::mem::replace(&mut self.active, active) != active {
            if active {
                provider.counters.active.add();
            } else {
                provider.counters.active.remove();
            }
        }
    }

    fn take_completed(&mut self) -> Option<(PendedRequest<Connector>, NTSTATUS)> {
        let status = self.outcome.take()?;
        self.pending.take().map(|request| (request, status))
    }

    fn take_disconnect_event(&mut self) -> Option<DisconnectEvent> {
        core::mem::take(&mut self.disconnect_event_due).then(|| self.disconnect_event.take()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndk_abi::nt::STATUS_IO_TIMEOUT;

    //= R-CONN-29, R-CONN-30
    #[test]
    fn commands_return_why_the_connection_ended_before_the_answer() {
        let mut inner = Inner::new(State::Aborted);
        assert_eq!(inner.command(Event::Complete).err(), Some(STATUS_CONNECTION_ABORTED));
        inner.aborted = STATUS_IO_TIMEOUT;
        assert_eq!(inner.command(Event::Complete).err(), Some(STATUS_IO_TIMEOUT));
        inner.state = State::Idle;
        assert_eq!(inner.command(Event::Complete).err(), Some(STATUS_CONNECTION_INVALID));
    }
}
