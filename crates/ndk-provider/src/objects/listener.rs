// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners.

use crate::base::address::{normalize, with_scope};
use crate::base::object::callback::ConnectEvent;
use crate::base::object::closed::CloseLater;
use crate::base::object::registry::{Registered, Registry, Ticket};
use crate::base::object::{Created, ObjectType, Ref};
use crate::base::state::ports::{Endpoint, PortSpace, Purpose};
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::objects::adapter::Adapter;
use core::ffi::c_void;
use core::net::{IpAddr, SocketAddr};
use core::ptr::NonNull;
use fallible::Arc;
use ndk_abi::ndk::{NDK_LISTENER, NDK_OBJECT_TYPE};
use ndk_abi::nt::{STATUS_INVALID_ADDRESS, STATUS_INVALID_DEVICE_STATE};
use nt::SpinLock;
use roce::{ListenSpec, ListenerId};
use state_table::state_table;

/// Maximum number of connection requests that wait for the consumer's accept or reject. The engine refuses more.
//= R-CONN-62
const BACKLOG: u16 = 128;

state_table! {
    /// Life cycle of a listener.
    pub enum State {
        /// As created.
        Idle,
        Listening,
        /// The consumer has closed it: no new requests are accepted, connectors may still exist.
        Closed,
    }
    /// Events of the life cycle.
    pub enum Event {
        Listen: Idle => Listening;
        Close: Idle | Listening => Closed;
    }
}

/// The data of a listener object.
pub struct Listener {
    ticket: Ticket,
    connect_event: ConnectEvent,
    inner: SpinLock<Inner>,
    adapter: Ref<Adapter>,
}

struct Inner {
    state: State,
    paused: bool,
    listening: Option<ListenerId>,
    /// The reserved port, and the address reported to the consumer.
    endpoint: Option<(Endpoint, SocketAddr)>,
}

impl ObjectType for Listener {
    type Public = NDK_LISTENER;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeListener;

    fn close_later(&self) -> Option<&dyn CloseLater> {
        Some(&**self.adapter.provider())
    }

    //= R-CLOSE-16
    fn on_close(this: &Ref<Self>) {
        let mut inner = this.inner.lock();
        inner.state = inner.state.on(Event::Close).unwrap_or(inner.state);
        if let Some(listening) = inner.listening.take() {
            // Fails if the engine has dropped the listener already, which is as good.
            let _ = this.adapter.provider().engine.connections().unlisten(listening);
        }
    }

    //= R-CLOSE-17, R-CONN-55
    fn on_finish(&self) {
        let endpoint = self.inner.lock().endpoint.take();
        drop(endpoint);
    }

    fn checker(&self) -> Option<&Arc<Checker>> {
        self.adapter.provider().checker.as_ref()
    }

    fn depends_on(&self, antecedent: NonNull<c_void>) -> bool {
        self.adapter.as_ptr().cast() == antecedent
    }
}

impl Registered for Listener {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl Listener {
    /// `NdkCreateListener`.
    //= R-CREATE-45
    pub fn create(adapter: &Ref<Adapter>, connect_event: ConnectEvent) -> NtResult<Created<Self>> {
        let ticket = Registry::ticket(&adapter.provider().registry)?;
        let inner = Inner { state: State::Idle, paused: false, listening: None, endpoint: None };
        let body = Self { ticket, connect_event, inner: SpinLock::new(inner), adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), body)?;
        Ticket::enter(&created.reference());
        Ok(created)
    }

    /// `NdkListen`. A wildcard listens on all addresses of its family, including those added later.
    //= R-CREATE-46, R-CONN-50, R-CONN-51, R-CONN-52, R-CONN-53, R-CONN-54
    pub fn listen(&self, address: SocketAddr) -> NtResult {
        let provider = self.adapter.provider();
        let scope = provider.environment.link().scope;
        let address = normalize(address, scope).ok_or(STATUS_INVALID_ADDRESS)?;
        if !address.ip().is_unspecified() && !provider.environment.is_local(address.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        let mut inner = self.inner.lock();
        let listening = inner.state.on(Event::Listen).map_err(|_| STATUS_INVALID_DEVICE_STATE)?;
        let endpoint = PortSpace::reserve(&provider.ports, address, Purpose::Listener)?;
        let address = with_scope(address.ip(), endpoint.port(), scope);
        let spec = ListenSpec {
            ip: Some(address.ip()),
            port: address.port(),
            datagrams: false,
            backlog: BACKLOG,
            context: self.ticket.number(),
        };
        let id = provider.engine.connections().listen(&spec).map_err(status::connection)?;
        if inner.paused {
            provider.engine.connections().pause(id, true).map_err(status::connection)?;
        }
        *inner = Inner {
            state: listening,
            paused: inner.paused,
            listening: Some(id),
            endpoint: Some((endpoint, address)),
        };
        Ok(())
    }

    /// `NdkControlConnectEvents`.
    //= R-CONN-59, R-CONN-60, R-CONN-61
    pub fn pause(&self, pause: bool) {
        let mut inner = self.inner.lock();
        inner.paused = pause;
        if let Some(listening) = inner.listening {
            // Fails if the engine has dropped the listener, which accepts no requests either.
            let _ = self.adapter.provider().engine.connections().pause(listening, pause);
        }
    }

    /// `NdkGetLocalAddress`.
    //= R-CONN-51, R-CONN-79
    pub fn local_address(&self) -> NtResult<SocketAddr> {
        let inner = self.inner.lock();
        inner.endpoint.as_ref().map(|(_, address)| *address).ok_or(STATUS_INVALID_DEVICE_STATE)
    }

    /// Returns whether a connection request to the local address `ip` is reported to the consumer.
    //= R-CONN-101
    pub fn accepts(&self, ip: IpAddr) -> bool {
        let open = {
            let inner = self.inner.lock();
            inner.state == State::Listening && !inner.paused
        };
        open && self.adapter.provider().environment.is_local(ip)
    }

    /// Returns the callback that reports connection requests.
    pub fn connect_event(&self) -> ConnectEvent {
        self.connect_event
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn listener_lifecycle() {
        insta::assert_snapshot!(super::State::table());
    }
}
