//! What consumers ask of a connector.

use super::state::{Event, State};
use super::terms::{Said, Terms};
use super::{Connector, DisconnectEvent};
use crate::address::{of_link, on_link};
use crate::host::Path;
use crate::info::LIMITS;
use crate::object::{Context, Ref, Request};
use crate::ports::{Endpoint, PortSpace, Purpose};
use crate::provider::{Core, now};
use crate::qp::Qp;
use crate::shared_endpoint::SharedEndpoint;
use crate::status::{self, Answer};
use core::net::{IpAddr, SocketAddr};
use ndk_abi::ndk::NDK_FN_REQUEST_COMPLETION;
use ndk_abi::nt::{
    STATUS_ADDRESS_ALREADY_EXISTS, STATUS_CONNECTION_INVALID, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_ADDRESS, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_STATE,
    STATUS_INVALID_PARAMETER, STATUS_NETWORK_UNREACHABLE,
};
use nt::WorkItem;
use roce::AcceptSpec;

/// Where a connect starts from.
pub enum Source<'a> {
    /// An address of the adapter; port 0 asks for any.
    Address(SocketAddr),
    Shared(&'a Ref<SharedEndpoint>),
}

impl Connector {
    /// Asks a peer; `STATUS_PENDING` follows from `Ok`.
    //= R-CONN-1, R-CONN-2, R-CONN-3, R-CONN-8, R-CONN-9, R-CONN-17, R-CONN-18, R-CONN-19, R-CONN-26
    //= R-CONN-27, R-CREATE-52
    #[inline(never)]
    pub fn connect(
        this: &Ref<Self>,
        qp: &Ref<Qp>,
        source: &Source<'_>,
        destination: SocketAddr,
        terms: &Terms,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: Context,
    ) -> Answer {
        let core = this.core();
        let scope = core.host.link().scope;
        let local = match *source {
            Source::Address(address) => on_link(address, scope).ok_or(STATUS_INVALID_ADDRESS)?,
            Source::Shared(shared) => shared.address(),
        };
        let destination = on_link(destination, scope).ok_or(STATUS_NETWORK_UNREACHABLE)?;
        let kin = qp.pd().adapter().is(&this.adapter)
            && match source {
                Source::Address(_) => true,
                Source::Shared(shared) => shared.adapter().is(&this.adapter),
            };
        if !kin || local.is_ipv4() != destination.is_ipv4() || destination.port() == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if !core.host.is_local(local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        if destination.ip().is_unspecified() {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        let endpoint = match source {
            Source::Address(_) => Some(PortSpace::reserve(&core.ports, local, Purpose::Connector)?),
            Source::Shared(_) => {
                Self::check_unique(core, local, destination)?;
                None
            }
        };
        let port = endpoint.as_ref().map_or(local.port(), Endpoint::port);
        let local = of_link(local.ip(), port, scope);
        // The adapter, not the connector, waits for the search: a connector closes without it.
        let (number, adapter) = (this.ticket.number(), this.adapter.clone());
        let item = WorkItem::try_new(core.host.owner(), move || {
            let core = adapter.core();
            let way = Self::resolve(core, local.ip(), destination.ip());
            if let Some(connector) = core.registry.find::<Self>(number) {
                Self::on_resolved(&connector, way);
            }
        });
        let item = item.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        {
            let mut inner = this.inner.lock();
            let next = inner.state.on(Event::Connect).ok_or(STATUS_INVALID_DEVICE_STATE)?;
            qp.attach()?;
            inner.state = next;
            inner.qp = Some(qp.clone());
            inner.local = Some(local);
            inner.remote = Some(destination);
            inner.endpoint = endpoint;
            if let Source::Shared(shared) = source {
                inner.shared = Some((*shared).clone());
            }
            inner.said = Said::Here(*terms);
            inner.pending = Some(Request::new(this.clone(), completion, context));
        }
        item.queue();
        Ok(())
    }

    /// The way to the peer, which may be this adapter itself. `PASSIVE_LEVEL`.
    //= R-INFO-29
    fn resolve(core: &Core, local: IpAddr, destination: IpAddr) -> Answer<Path> {
        if !core.host.is_local(destination) {
            return core.host.resolve(local, destination).map_err(status::resolve);
        }
        core.loopback.open()?;
        let link = core.host.link();
        Ok(Path { remote_mac: link.mac, mtu: link.mtu })
    }

    //= R-CONN-4
    fn check_unique(core: &Core, local: SocketAddr, remote: SocketAddr) -> Answer {
        let mut taken = false;
        core.registry.connectors(|connector| {
            let inner = connector.inner.lock();
            let live = !matches!(inner.state, State::Ended | State::Closed | State::Idle);
            taken |= live && inner.local == Some(local) && inner.remote == Some(remote);
        });
        if taken { Err(STATUS_ADDRESS_ALREADY_EXISTS) } else { Ok(()) }
    }

    /// The search for the way to the peer is over. `PASSIVE_LEVEL`.
    #[inline(never)]
    fn on_resolved(this: &Ref<Self>, way: Answer<Path>) {
        let core = this.core();
        let mut inner = this.inner.lock();
        if let Some(next) = inner.state.on(Event::Resolve) {
            match way.and_then(|way| inner.ask(core, &way, this.ticket.number())) {
                Ok(connection) => {
                    inner.connection = Some(connection);
                    inner.state = next;
                }
                Err(status) => inner.fail(core, status),
            }
        }
        drop(inner);
        this.deliver();
        core.after_call();
    }

    /// The second half of connect. Answers inline: the engine sends and does not wait.
    //= R-CONN-28, R-CONN-29, R-CONN-32, R-CONN-33
    pub fn complete_connect(&self, disconnect: Option<DisconnectEvent>) -> Answer {
        let core = self.core();
        let mut inner = self.inner.lock();
        let (next, connection) = inner.command(Event::Complete)?;
        core.engine.complete(now(), connection).map_err(status::answer)?;
        inner.state = next;
        inner.disconnect = disconnect;
        inner.set_active(core, true);
        core.counters.connect.add();
        drop(inner);
        core.after_call();
        Ok(())
    }

    /// Says yes to an incoming request; `STATUS_PENDING` follows from `Ok`.
    //= R-CONN-19, R-CONN-25, R-CONN-32, R-CONN-34, R-CONN-41, R-CONN-43, R-CONN-44
    #[inline(never)]
    pub fn accept(
        this: &Ref<Self>,
        qp: &Ref<Qp>,
        terms: &Terms,
        disconnect: Option<DisconnectEvent>,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: Context,
    ) -> Answer {
        if !qp.pd().adapter().is(&this.adapter) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let core = this.core();
        let mut inner = this.inner.lock();
        let (next, connection) = inner.command(Event::Accept)?;
        qp.attach()?;
        let spec = AcceptSpec {
            reads: terms.reads,
            private_data: terms.private_data.as_slice(),
            context: this.ticket.number(),
        };
        if let Err(error) = core.engine.accept(now(), connection, qp.pair(), &spec) {
            qp.detach();
            return Err(status::answer(error));
        }
        inner.state = next;
        inner.qp = Some(qp.clone());
        inner.disconnect = disconnect;
        inner.pending = Some(Request::new(this.clone(), completion, context));
        drop(inner);
        core.after_call();
        Ok(())
    }

    //= R-CONN-36, R-CONN-37, R-CONN-40
    pub fn reject(&self, private_data: &[u8]) -> Answer {
        if private_data.len() > LIMITS.callee_data as usize {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let core = self.core();
        let mut inner = self.inner.lock();
        let (next, connection) = inner.command(Event::Reject)?;
        core.engine.reject(now(), connection, private_data).map_err(status::answer)?;
        inner.state = next;
        inner.let_qp_go();
        core.counters.connect_failure.add();
        drop(inner);
        core.after_call();
        Ok(())
    }

    /// Says goodbye: `Ok(true)` when the callback will tell, `Ok(false)` when it is over already.
    //= R-CONN-80, R-CONN-83, R-CONN-86, R-CONN-91, R-QP-71
    pub fn disconnect(&self, request: impl FnOnce() -> Request<Self>) -> Answer<bool> {
        let core = self.core();
        let mut inner = self.inner.lock();
        let next = inner.state.on(Event::Disconnect).ok_or(STATUS_CONNECTION_INVALID)?;
        let connection = inner.connection.ok_or(STATUS_CONNECTION_INVALID)?;
        // The peer may have left a moment ago: then there is nothing to wait for.
        let waits = core.engine.disconnect(now(), connection).is_ok() && next == State::Disconnecting;
        //= R-CONN-88
        inner.disconnect = None;
        inner.state = if waits { next } else { State::Ended };
        inner.set_active(core, false);
        if let Some(qp) = &inner.qp {
            qp.spend();
            // Before a callback the engine flushes; an answer inline is given now.
            //= R-CONN-83, R-CONN-84
            if !waits {
                core.engine.flush(qp.pair());
            }
        }
        if waits {
            inner.pending = Some(request());
        }
        drop(inner);
        core.after_call();
        Ok(waits)
    }
}
