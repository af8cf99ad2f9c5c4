// SPDX-License-Identifier: MIT OR Apache-2.0

//! The active side: `NdkConnect`, `NdkConnectWithSharedEndpoint`, `NdkCompleteConnect`.

use super::connection_data::{ConnectParameters, Exchanged};
use super::object::{Connector, Inner};
use super::state::{Event, State};
use crate::base::address::{normalize, with_scope};
use crate::base::calls::pended_call::PendedRequest;
use crate::base::environment::Path;
use crate::base::object::Ref;
use crate::base::object::callback::{DisconnectEvent, RequestCallback};
use crate::base::object::registry::Registered;
use crate::base::state::ports::{Endpoint, PortSpace, Purpose};
use crate::base::state::provider_state::{ProviderState, now};
use crate::base::status::{self, NtResult};
use crate::objects::adapter::Adapter;
use crate::objects::qp::Qp;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::net::{IpAddr, SocketAddr};
use ndk_abi::nt::{
    STATUS_ADDRESS_ALREADY_EXISTS, STATUS_CONNECTION_INVALID, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_ADDRESS, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
    STATUS_NETWORK_UNREACHABLE,
};
use nt::WorkItem;
use roce::{ConnId, ConnectSpec};
use roce_wire::{MacAddr, PathMtu};

/// The local address of a connect.
pub enum Source<'a> {
    /// An address of the adapter; port 0 selects an ephemeral port.
    Address(SocketAddr),
    ProviderState(&'a Ref<SharedEndpoint>),
}

/// The objects that a failed connect holds.
type FailedAttempt = (Option<Ref<Qp>>, Option<Endpoint>, Option<Ref<SharedEndpoint>>);

impl Connector {
    /// `NdkConnect` and `NdkConnectWithSharedEndpoint`. `Ok` means that the call pends. A connect that failed may be
    /// repeated.
    //= R-CONN-10, R-CONN-1, R-CONN-2, R-CONN-3, R-CONN-8, R-CONN-9, R-CONN-17, R-CONN-18, R-CONN-19, R-CONN-26
    //= R-CONN-27, R-CREATE-52
    #[inline(never)]
    pub fn connect(
        this: &Ref<Self>,
        qp: &Ref<Qp>,
        source: &Source<'_>,
        destination: SocketAddr,
        parameters: &ConnectParameters,
        completion: Option<RequestCallback>,
    ) -> NtResult {
        let provider = this.provider();
        let scope = provider.environment.link().scope;
        let local = match *source {
            Source::Address(address) => normalize(address, scope).ok_or(STATUS_INVALID_ADDRESS)?,
            Source::ProviderState(endpoint) => endpoint.address(),
        };
        let destination = normalize(destination, scope).ok_or(STATUS_NETWORK_UNREACHABLE)?;
        let same_miniport = qp.pd().adapter().is_sibling_of(this.adapter())
            && match source {
                Source::Address(_) => true,
                Source::ProviderState(endpoint) => endpoint.adapter().is_sibling_of(this.adapter()),
            };
        if !same_miniport || local.is_ipv4() != destination.is_ipv4() || destination.port() == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if !provider.environment.is_local(local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        if destination.ip().is_unspecified() {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        drop(this.take_failed_attempt()?);
        let endpoint = match source {
            Source::Address(_) => Some(PortSpace::reserve(&provider.ports, local, Purpose::Connector)?),
            Source::ProviderState(_) => {
                Self::check_unique(provider, local, destination)?;
                None
            }
        };
        let port = endpoint.as_ref().map_or(local.port(), Endpoint::port);
        let local = with_scope(local.ip(), port, scope);
        // The work item holds the adapter, not the connector: a connector closes without waiting for it.
        let (number, adapter) = (this.ticket().number(), this.adapter().clone());
        let item = WorkItem::try_new(provider.environment.owner(), move || {
            Self::find_path(&adapter, number, local.ip(), destination.ip());
        });
        let item = item.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        {
            let mut inner = this.inner.lock();
            let next = inner.state.on(Event::Connect).map_err(|_| STATUS_INVALID_DEVICE_STATE)?;
            qp.attach()?;
            inner.state = next;
            inner.qp = Some(qp.clone());
            inner.local = Some(local);
            inner.remote = Some(destination);
            inner.endpoint = endpoint;
            if let Source::ProviderState(endpoint) = source {
                inner.shared_endpoint = Some((*endpoint).clone());
            }
            inner.exchanged = Exchanged::Local(*parameters);
            inner.pending = Some(PendedRequest::new(this.clone(), completion));
        }
        item.queue();
        Ok(())
    }

    /// Ends the use of what a failed connect holds, so that its port can be reserved again. The caller drops that
    /// without a lock.
    ///
    /// # Errors
    /// `STATUS_INVALID_DEVICE_STATE` if the connector cannot connect, or the failure is not reported yet.
    //= R-CONN-10, R-CONN-58
    fn take_failed_attempt(&self) -> NtResult<FailedAttempt> {
        let mut inner = self.inner.lock();
        if inner.state.on(Event::Connect).is_err() || inner.pending.is_some() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        if let Some(connection) = inner.connection.take() {
            self.provider().engine.connections().release(now(), connection);
        }
        Ok((inner.qp.take(), inner.endpoint.take(), inner.shared_endpoint.take()))
    }

    /// Finds the path from `local` to `destination` for the connector `number`: at once if the system knows it, otherwise on a
    /// thread that waits for the network, of which there are a limited number. In a work item, which does not wait, because
    /// worker threads are shared.
    //= R-CONN-9
    fn find_path(adapter: &Ref<Adapter>, number: u64, local: IpAddr, destination: IpAddr) {
        let provider = adapter.provider();
        if let Some(path) = Self::known_path(provider, local, destination).transpose() {
            return Self::resolved(provider, number, path);
        }
        let admission = match provider.quotas.resolutions.admit() {
            Ok(admission) => admission,
            Err(status) => return Self::resolved(provider, number, Err(status)),
        };
        // It holds the adapter, too: closing that waits for it.
        let holds = adapter.clone();
        let waits = move || {
            let provider = holds.provider();
            let path = provider.environment.resolve(local, destination).map_err(status::resolve);
            provider.quotas.resolutions.give_back();
            Self::resolved(provider, number, path);
        };
        if nt::start_thread(provider.environment.driver(), waits).is_ok() {
            admission.keep();
        } else {
            Self::resolved(provider, number, Err(STATUS_INSUFFICIENT_RESOURCES));
        }
    }

    /// Returns the path to the peer, which may be this adapter; `None` if it is not known. `PASSIVE_LEVEL`.
    //= R-INFO-29
    fn known_path(provider: &ProviderState, local: IpAddr, destination: IpAddr) -> NtResult<Option<Path>> {
        if !provider.environment.is_local(destination) {
            return provider.environment.known_path(local, destination).map_err(status::resolve);
        }
        provider.loopback.open()?;
        let link = provider.environment.link();
        Ok(Some(Path { remote_mac: link.mac, mtu: link.mtu }))
    }

    /// Continues the connect of the connector `number`, unless it was closed.
    fn resolved(provider: &ProviderState, number: u64, path: NtResult<Path>) {
        if let Some(connector) = provider.registry.find::<Self>(number) {
            Self::on_resolved(&connector, path);
        }
    }

    /// Checks that no other connection from a shared endpoint has the same local and remote address.
    //= R-CONN-4
    fn check_unique(provider: &ProviderState, local: SocketAddr, remote: SocketAddr) -> NtResult {
        let mut in_use = false;
        provider.registry.for_each(|connector: &Self| {
            let inner = connector.inner.lock();
            let live = !matches!(inner.state, State::Failed | State::Ended | State::Closed | State::Idle);
            in_use |= live && inner.local == Some(local) && inner.remote == Some(remote);
        });
        if in_use { Err(STATUS_ADDRESS_ALREADY_EXISTS) } else { Ok(()) }
    }

    /// Sends the connection request once the path is resolved. `PASSIVE_LEVEL`.
    #[inline(never)]
    fn on_resolved(this: &Ref<Self>, path: NtResult<Path>) {
        let provider = this.provider();
        let mut inner = this.inner.lock();
        if let Ok(next) = inner.state.on(Event::Resolve) {
            match path.and_then(|path| inner.send_request(provider, &path, this.ticket().number())) {
                Ok(connection) => {
                    inner.connection = Some(connection);
                    inner.state = next;
                }
                Err(status) => inner.fail(provider, status),
            }
        }
        drop(inner);
        if provider.held_callbacks.is_on() {
            this.defer_callbacks();
        } else {
            this.make_callbacks();
        }
        provider.after_call();
    }

    /// `NdkCompleteConnect`. Completes inline: the engine sends the CM RTU and does not wait.
    //= R-CONN-28, R-CONN-29, R-CONN-32, R-CONN-33
    pub fn complete_connect(&self, disconnect_event: Option<DisconnectEvent>) -> NtResult {
        let provider = self.provider();
        let mut inner = self.inner.lock();
        let (next, connection) = inner.command(Event::Complete)?;
        provider.engine.connections().complete(now(), connection).map_err(status::respond)?;
        inner.state = next;
        inner.disconnect_event = disconnect_event;
        inner.set_active(provider, true);
        provider.counters.connect.add();
        drop(inner);
        provider.after_call();
        Ok(())
    }
}

impl Inner {
    /// Sends the connection request (CM REQ).
    fn send_request(&self, provider: &ProviderState, path: &Path, context: u64) -> NtResult<ConnId> {
        let (Some(local), Some(remote), Some(qp), Exchanged::Local(parameters)) =
            (self.local, self.remote, &self.qp, &self.exchanged)
        else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let link = provider.environment.link();
        let macs = (MacAddr(link.mac), MacAddr(path.remote_mac));
        let spec = ConnectSpec {
            path: roce_wire::Path::new(macs.0, macs.1, local.ip(), remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
            mtu: PathMtu::largest_for(path.mtu.min(link.mtu) as usize).ok_or(STATUS_NETWORK_UNREACHABLE)?,
            reads: parameters.reads,
            private_data: parameters.private_data.as_slice(),
            context,
        };
        provider.engine.connections().connect(now(), qp.pair(), &spec).map_err(status::connection)
    }
}
