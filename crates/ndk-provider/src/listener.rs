//! Listeners.

use crate::adapter::Adapter;
use crate::address::{of_link, on_link};
use crate::connector::Connector;
use crate::dispatch;
use crate::machine::machine;
use crate::object::{Body, Context, Created, Ref};
use crate::ports::{Endpoint, PortSpace, Purpose};
use crate::provider::now;
use crate::registry::{Registry, Ticket};
use crate::status::{self, Answer};
use core::net::SocketAddr;
use ndk_abi::ndk::{NDK_FN_CONNECT_EVENT_CALLBACK, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_OBJECT_TYPE};
use ndk_abi::nt::{STATUS_INVALID_ADDRESS, STATUS_INVALID_DEVICE_STATE};
use nt::SpinLock;
use roce::{ConnId, ListenSpec, ListenerId, Request};

/// Requests that may wait for the consumer's answer; more are refused.
//= R-CONN-62
const BACKLOG: u16 = 128;

machine! {
    /// The life of a listener.
    pub enum State {
        /// As created.
        Idle,
        Listening,
        /// Close has been asked for: nobody is let in any more, connectors may still live.
        Closed,
    }
    /// What happens in it.
    pub enum Event {
        Listen,
        Close,
    }
    Idle + Listen => Listening,
    Idle + Close => Closed,
    Listening + Close => Closed,
}

/// What is special to a listener.
pub struct Listener {
    pub(crate) ticket: Ticket,
    notification: Notification,
    inner: SpinLock<Inner>,
    adapter: Ref<Adapter>,
}

/// Whom to tell of requests.
#[derive(Clone, Copy)]
pub struct Notification {
    pub callback: NDK_FN_CONNECT_EVENT_CALLBACK,
    pub context: Context,
}

struct Inner {
    state: State,
    paused: bool,
    listening: Option<ListenerId>,
    /// The port, and the address that the consumer is shown.
    endpoint: Option<(Endpoint, SocketAddr)>,
}

impl Body for Listener {
    type Public = NDK_LISTENER;
    type Dispatch = NDK_LISTENER_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeListener;
    const DISPATCH: &'static NDK_LISTENER_DISPATCH = &dispatch::listener::TABLE;

    //= R-CLOSE-16
    fn closing(this: &Ref<Self>) {
        let mut inner = this.inner.lock();
        inner.state = inner.state.on(Event::Close).unwrap_or(inner.state);
        if let Some(listening) = inner.listening.take() {
            // The engine knows it, or has forgotten it already: either is what is wanted.
            let _ = this.adapter.core().engine.unlisten(listening);
        }
    }

    //= R-CLOSE-17, R-CONN-55
    fn finish(&self) {
        self.ticket.leave();
        let endpoint = self.inner.lock().endpoint.take();
        drop(endpoint);
    }
}

impl Listener {
    //= R-CREATE-45
    pub fn create(adapter: &Ref<Adapter>, notification: Notification) -> Answer<Created<Self>> {
        let ticket = Registry::ticket(&adapter.core().registry)?;
        let inner = Inner { state: State::Idle, paused: false, listening: None, endpoint: None };
        let body = Self { ticket, notification, inner: SpinLock::new(inner), adapter: adapter.clone() };
        let created = Created::try_new(adapter.version(), body)?;
        Ticket::enter(&created.hold());
        Ok(created)
    }

    /// A wildcard listens on all addresses of its family, now and later.
    //= R-CREATE-46, R-CONN-50, R-CONN-51, R-CONN-52, R-CONN-53, R-CONN-54
    pub fn listen(&self, address: SocketAddr) -> Answer {
        let core = self.adapter.core();
        let scope = core.host.link().scope;
        let address = on_link(address, scope).ok_or(STATUS_INVALID_ADDRESS)?;
        if !address.ip().is_unspecified() && !core.host.is_local(address.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        let mut inner = self.inner.lock();
        let listening = inner.state.on(Event::Listen).ok_or(STATUS_INVALID_DEVICE_STATE)?;
        let endpoint = PortSpace::reserve(&core.ports, address, Purpose::Listener)?;
        let address = of_link(address.ip(), endpoint.port(), scope);
        let spec = ListenSpec {
            ip: Some(address.ip()),
            port: address.port(),
            backlog: BACKLOG,
            context: self.ticket.number(),
        };
        let id = core.engine.listen(&spec).map_err(status::connection)?;
        if inner.paused {
            core.engine.pause(id, true).map_err(status::connection)?;
        }
        *inner = Inner {
            state: listening,
            paused: inner.paused,
            listening: Some(id),
            endpoint: Some((endpoint, address)),
        };
        Ok(())
    }

    //= R-CONN-59, R-CONN-60, R-CONN-61
    pub fn pause(&self, pause: bool) {
        let mut inner = self.inner.lock();
        inner.paused = pause;
        if let Some(listening) = inner.listening {
            // Fails for a listener that is gone, which lets nobody in either.
            let _ = self.adapter.core().engine.pause(listening, pause);
        }
    }

    //= R-CONN-51, R-CONN-79
    pub fn local_address(&self) -> Answer<SocketAddr> {
        let inner = self.inner.lock();
        inner.endpoint.as_ref().map(|(_, address)| *address).ok_or(STATUS_INVALID_DEVICE_STATE)
    }

    /// A request has come in: makes its connector and tells the consumer.
    //= R-CONN-45, R-CONN-46, R-CONN-47, R-CONN-48, R-CONN-49, R-CLOSE-15
    #[inline(never)]
    pub fn on_request(this: &Ref<Self>, connection: ConnId, request: &Request) {
        let open = {
            let inner = this.inner.lock();
            inner.state == State::Listening && !inner.paused
        };
        let core = this.adapter.core();
        //= R-CONN-101
        let open = open && core.host.is_local(request.path.local_ip);
        let created = if open { Connector::indicated(this, connection, request).ok() } else { None };
        match created {
            Some(created) => dispatch::callback::connect_event(this.notification, created),
            // Nobody is asked: as if nobody listened.
            None => core.engine.release(now(), connection),
        }
    }

    pub fn adapter(&self) -> &Ref<Adapter> {
        &self.adapter
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_life_of_a_listener() {
        insta::assert_snapshot!(crate::machine::print(super::State::TABLE));
    }
}
