//! Connectors: one connection each, from either side.
//!
//! The state machine below is the consumer's view; the engine has its own, of messages. Commands to the
//! engine are given under the connector's lock, so that an event cannot overtake the command that caused it;
//! callbacks are made without it, in order, one at a time ([`Connector::deliver`]): first the completion of
//! the pending request, then the disconnect event (//= R-CONN-92).

use crate::adapter::Adapter;
use crate::address::{of_link, on_link};
use crate::dispatch;
use crate::host::Path;
use crate::info::LIMITS;
use crate::listener::Listener;
use crate::machine::machine;
use crate::object::{Body, Context, Created, Ref, Request};
use crate::ports::{Endpoint, PortSpace, Purpose};
use crate::provider::{Core, now};
use crate::qp::Qp;
use crate::registry::{Registry, Ticket};
use crate::shared_endpoint::SharedEndpoint;
use crate::status::{self, Answer};
use core::net::SocketAddr;
use kernel::{SpinLock, WorkItem};
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_TYPE,
};
use ndk_abi::nt::{
    NTSTATUS, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED,
    STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_ADDRESS, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_STATE,
    STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NETWORK_UNREACHABLE, STATUS_SUCCESS,
};
use roce::wire::{MacAddr, PathMtu};
use roce::{AcceptSpec, ConnEvent, ConnId, ConnectSpec, PrivateData, ReadLimits, RejectReason};

machine! {
    /// The life of a connector, as its consumer sees it.
    pub enum State {
        /// Made by the consumer, nothing asked yet.
        Idle,
        /// Connect pends: the way to the peer is being looked for.
        Resolving,
        /// Connect pends: the peer has been asked.
        Connecting,
        /// Connect is done: the peer has accepted, the consumer has to complete or to reject.
        Answered,
        /// Made by the provider: a peer asks, the consumer has to accept or to reject.
        Indicated,
        /// Accept pends: the peer has to complete.
        Accepting,
        /// Both sides may send.
        Connected,
        /// Disconnect pends.
        Disconnecting,
        /// The peer has gone, or the connection broke; the consumer has not answered yet.
        Parted,
        /// The peer has gone before the consumer completed or accepted.
        Lost,
        /// Over, one way or the other.
        Ended,
        /// The consumer has asked to close the connector.
        Closed,
    }
    /// What happens to it.
    pub enum Event {
        /// The consumer connects.
        Connect,
        /// The way to the peer is found.
        Resolve,
        /// The peer accepts.
        Reply,
        /// The consumer completes.
        Complete,
        /// The consumer accepts.
        Accept,
        /// The peer has completed.
        Establish,
        /// The consumer rejects.
        Reject,
        /// The network, the peer or the engine says no, or nothing.
        Fail,
        /// The peer disconnects, or the connection breaks.
        Part,
        /// The consumer disconnects.
        Disconnect,
        /// Both sides have disconnected.
        Finish,
        /// The consumer closes the connector.
        Close,
    }
    Idle + Connect => Resolving,
    Resolving + Resolve => Connecting,
    Resolving + Fail => Ended,
    Connecting + Reply => Answered,
    Connecting + Fail => Ended,
    Answered + Complete => Connected,
    Answered + Reject => Ended,
    Answered + Fail => Lost,
    Indicated + Accept => Accepting,
    Indicated + Reject => Ended,
    Indicated + Fail => Lost,
    Accepting + Establish => Connected,
    Accepting + Fail => Ended,
    Connected + Part => Parted,
    Connected + Disconnect => Disconnecting,
    Disconnecting + Finish => Ended,
    Disconnecting + Fail => Ended,
    Parted + Disconnect => Ended,
    Idle + Close => Closed,
    Resolving + Close => Closed,
    Connecting + Close => Closed,
    Answered + Close => Closed,
    Indicated + Close => Closed,
    Accepting + Close => Closed,
    Connected + Close => Closed,
    Disconnecting + Close => Closed,
    Parted + Close => Closed,
    Lost + Close => Closed,
    Ended + Close => Closed,
}

/// What is special to a connector.
pub struct Connector {
    pub(crate) ticket: Ticket,
    inner: SpinLock<Inner>,
    /// Whom an incoming request came to; the connector is its successor. //= R-CLOSE-15
    _listener: Option<Ref<Listener>>,
    adapter: Ref<Adapter>,
}

struct Inner {
    state: State,
    connection: Option<ConnId>,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    said: Said,
    /// Held from connect or accept on. //= R-CLOSE-14
    qp: Option<Ref<Qp>>,
    /// The port of a plain connect. //= R-CONN-56, R-CONN-58
    endpoint: Option<Endpoint>,
    /// The endpoint it shares with others.
    shared: Option<Ref<SharedEndpoint>>,
    pending: Option<Request<Connector>>,
    /// The pending request is over, with this.
    outcome: Option<NTSTATUS>,
    disconnect: Option<DisconnectEvent>,
    /// The disconnect event is to be raised.
    disconnect_due: bool,
    /// Somebody is making callbacks.
    delivering: bool,
    /// Counted as an active connection.
    active: bool,
}

/// What one side tells the other while connecting.
#[derive(Clone, Copy)]
enum Said {
    Nothing,
    /// By this side, while the way to the peer is being looked for.
    Here(Terms),
    /// By the peer; the limits as they stand.
    There(Terms),
}

/// Whom to tell that the peer has gone.
#[derive(Clone, Copy)]
pub enum DisconnectEvent {
    Plain(NDK_FN_DISCONNECT_EVENT_CALLBACK, Context),
    /// From 2.1 on. //= R-CONN-98
    Ex(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, Context),
}

/// Read limits and private data, checked and copied. //= R-CONN-13
#[derive(Clone, Copy)]
pub struct Terms {
    reads: ReadLimits,
    private_data: PrivateData,
}

impl Terms {
    /// The limits are lowered to the adapter's silently (//= R-CONN-20, R-CONN-23); private data may have
    /// `room` bytes (//= R-CONN-14, R-CONN-15).
    pub fn new(inbound: u32, outbound: u32, private_data: &[u8], room: u32) -> Answer<Self> {
        if private_data.len() > room as usize {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let lowered = |asked: u32, limit: u32| u8::try_from(asked.min(limit)).unwrap_or(u8::MAX);
        let reads = ReadLimits {
            inbound: lowered(inbound, LIMITS.inbound_reads),
            outbound: lowered(outbound, LIMITS.outbound_reads),
        };
        let private_data = PrivateData::new(private_data).ok_or(STATUS_INVALID_BUFFER_SIZE)?;
        Ok(Self { reads, private_data })
    }
}

/// Where a connect starts from.
pub enum Source<'a> {
    /// An address of the adapter; port 0 asks for any.
    Address(SocketAddr),
    Shared(&'a Ref<SharedEndpoint>),
}

/// What the consumer is shown of the peer's side.
pub struct ConnectionData {
    pub inbound: u32,
    pub outbound: u32,
    pub private_data: PrivateData,
}

impl Body for Connector {
    type Public = NDK_CONNECTOR;
    type Dispatch = NDK_CONNECTOR_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeConnector;
    const DISPATCH: &'static NDK_CONNECTOR_DISPATCH = &dispatch::connector::TABLE;

    /// Abortive: the queue pair is flushed, a peer that waits for an answer is refused, one that is
    /// connected is told; the consumer gets no disconnect event.
    ///
    /// //= R-CLOSE-6, R-CLOSE-7, R-CLOSE-30, R-CLOSE-31, R-CLOSE-32, R-CONN-89, R-CONN-96
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
    /// //= R-CREATE-45
    pub fn create(adapter: &Ref<Adapter>) -> Answer<Created<Self>> {
        Self::make(adapter, None, State::Idle)
    }

    /// For a request that has come in. //= R-CONN-24, R-CONN-47, R-CONN-78
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

    /// Asks a peer; `STATUS_PENDING` follows from `Ok`.
    ///
    /// //= R-CONN-1, R-CONN-2, R-CONN-3, R-CONN-8, R-CONN-9, R-CONN-17, R-CONN-18, R-CONN-19, R-CONN-26,
    /// //= R-CONN-27, R-CREATE-52
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
        // There is no way from an adapter to itself. //= R-INFO-29
        if destination.ip().is_unspecified() || core.host.is_local(destination.ip()) {
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
            let way = core.host.resolve(local.ip(), destination.ip()).map_err(status::resolve);
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

    /// //= R-CONN-4
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
    ///
    /// //= R-CONN-28, R-CONN-29, R-CONN-32, R-CONN-33
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
    ///
    /// //= R-CONN-19, R-CONN-25, R-CONN-32, R-CONN-34, R-CONN-41, R-CONN-43, R-CONN-44
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

    /// //= R-CONN-36, R-CONN-37, R-CONN-40
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
    ///
    /// //= R-CONN-80, R-CONN-83, R-CONN-86, R-CONN-91, R-QP-71
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
            // Before a callback the engine flushes; an answer inline is given now. //= R-CONN-83, R-CONN-84
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

    /// What the engine tells of the connection.
    #[inline(never)]
    pub fn on_event(&self, event: &ConnEvent) {
        self.inner.lock().on_event(self.core(), event);
        self.deliver();
    }

    /// The device or the address has gone: as if the peer had.
    ///
    /// //= R-PNP-8, R-PNP-10, R-CONN-101
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

    /// //= R-CONN-22, R-CONN-72, R-CONN-73, R-CONN-74
    pub fn data(&self) -> Answer<ConnectionData> {
        let inner = self.inner.lock();
        let Said::There(Terms { reads, private_data }) = inner.said else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let (inbound, outbound) = (reads.inbound.into(), reads.outbound.into());
        Ok(ConnectionData { inbound, outbound, private_data })
    }

    /// //= R-CONN-77, R-CONN-79
    pub fn local_address(&self) -> Answer<SocketAddr> {
        self.inner.lock().local.ok_or(STATUS_CONNECTION_INVALID)
    }

    /// //= R-CONN-78, R-CONN-79
    pub fn peer_address(&self) -> Answer<SocketAddr> {
        self.inner.lock().remote.ok_or(STATUS_CONNECTION_INVALID)
    }

    /// Both ends, if it is an active connection. //= R-OIDNDK-27
    pub fn active_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
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
            said: Said::Nothing,
            qp: None,
            endpoint: None,
            shared: None,
            pending: None,
            outcome: None,
            disconnect: None,
            disconnect_due: false,
            delivering: false,
            active: false,
        }
    }

    /// Where a consumer's command leads, and the connection it is about.
    fn command(&self, event: Event) -> Answer<(State, ConnId)> {
        match (self.state.on(event), self.connection) {
            (Some(next), Some(connection)) => Ok((next, connection)),
            //= R-CONN-29, R-CONN-37, R-CONN-41
            _ if self.state == State::Lost => Err(STATUS_CONNECTION_ABORTED),
            _ => Err(STATUS_CONNECTION_INVALID),
        }
    }

    /// Sends the request to the peer.
    fn ask(&self, core: &Core, way: &Path, context: u64) -> Answer<ConnId> {
        let (Some(local), Some(remote), Some(qp), Said::Here(terms)) =
            (self.local, self.remote, &self.qp, &self.said)
        else {
            return Err(STATUS_CONNECTION_INVALID);
        };
        let link = core.host.link();
        let macs = (MacAddr(link.mac), MacAddr(way.remote_mac));
        let spec = ConnectSpec {
            path: roce::wire::Path::new(macs.0, macs.1, local.ip(), remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
            mtu: PathMtu::largest_for(way.mtu.min(link.mtu) as usize).ok_or(STATUS_NETWORK_UNREACHABLE)?,
            reads: terms.reads,
            private_data: terms.private_data.as_slice(),
            context,
        };
        core.engine.connect(now(), qp.pair(), &spec).map_err(status::connection)
    }

    fn on_event(&mut self, core: &Core, event: &ConnEvent) {
        match *event {
            // A listener's affair.
            ConnEvent::Request(_) => {}
            //= R-CONN-11
            ConnEvent::Replied { reads, private_data } => {
                if self.enter(core, Event::Reply) {
                    self.said = Said::There(Terms { reads, private_data });
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-6, R-CONN-38, R-CONN-39
            ConnEvent::Refused { reason, private_data } => {
                if self.state == State::Connecting {
                    let reads = ReadLimits::default();
                    self.said = Said::There(Terms { reads, private_data });
                }
                let explicit = self.state == State::Connecting || reason == RejectReason::CONSUMER;
                let status = if explicit { STATUS_CONNECTION_REFUSED } else { STATUS_CONNECTION_ABORTED };
                self.fail(core, status);
            }
            //= R-CONN-11, R-CONN-22, R-CONN-25
            ConnEvent::Established { reads } => {
                if self.enter(core, Event::Establish) {
                    if let Said::There(terms) = &mut self.said {
                        terms.reads = reads;
                    }
                    self.set_active(core, true);
                    core.counters.accept.add();
                    self.finish_pending(STATUS_SUCCESS);
                }
            }
            //= R-CONN-87, R-CONN-90, R-QP-72
            ConnEvent::Disconnected => {
                // A consumer that is saying goodbye itself hears by `DisconnectDone`, which always follows
                // and comes after the flush. //= R-CONN-84, R-CONN-94
                if self.state != State::Disconnecting && !self.part(core) {
                    self.fail(core, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-80, R-CONN-81, R-CONN-94, R-CONN-95
            ConnEvent::DisconnectDone { graceful } => {
                if self.enter(core, Event::Finish) {
                    self.finish_pending(if graceful { STATUS_SUCCESS } else { STATUS_IO_TIMEOUT });
                }
            }
            //= R-QP-60, R-QP-69, R-CONN-81, R-CONN-87
            ConnEvent::Aborted => {
                if self.part(core) {
                    core.counters.connection_error.add();
                } else {
                    self.fail(core, STATUS_CONNECTION_ABORTED);
                }
            }
            //= R-CONN-7, R-CONN-30, R-CONN-42
            ConnEvent::TimedOut => self.fail(core, STATUS_IO_TIMEOUT),
        }
    }

    /// Takes a transition, if it is in the table.
    fn enter(&mut self, core: &Core, event: Event) -> bool {
        let Some(next) = self.state.on(event) else { return false };
        self.state = next;
        if !matches!(next, State::Connected) {
            self.set_active(core, false);
        }
        true
    }

    /// The connection is gone without the consumer's doing.
    fn part(&mut self, core: &Core) -> bool {
        let parted = self.enter(core, Event::Part);
        self.disconnect_due |= parted;
        parted
    }

    /// Connecting, accepting or disconnecting came to nothing. //= R-CONN-10, R-PERF-4, R-PERF-13
    fn fail(&mut self, core: &Core, status: NTSTATUS) {
        let disconnecting = self.state == State::Disconnecting;
        if self.enter(core, Event::Fail) {
            if !disconnecting {
                core.counters.connect_failure.add();
                self.let_qp_go();
            }
            self.finish_pending(status);
        }
    }

    /// The queue pair may be used for another attempt. //= R-QP-74
    fn let_qp_go(&self) {
        if let Some(qp) = &self.qp {
            qp.detach();
        }
    }

    fn finish_pending(&mut self, status: NTSTATUS) {
        if self.pending.is_some() {
            self.outcome.get_or_insert(status);
        }
    }

    fn take_finished(&mut self) -> Option<(Request<Connector>, NTSTATUS)> {
        let status = self.outcome.take()?;
        self.pending.take().map(|request| (request, status))
    }

    fn take_disconnect(&mut self) -> Option<DisconnectEvent> {
        core::mem::take(&mut self.disconnect_due).then(|| self.disconnect.take()).flatten()
    }

    /// //= R-PERF-6
    fn set_active(&mut self, core: &Core, active: bool) {
        if core::mem::replace(&mut self.active, active) != active {
            if active {
                core.counters.active.add();
            } else {
                core.counters.active.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_connector() {
        insta::assert_snapshot!(crate::machine::print(State::TABLE));
    }

    //= R-CONN-15, R-CONN-20
    #[test]
    fn limits_are_lowered_and_private_data_is_not() {
        let terms = Terms::new(65535, 3, &[1; 56], 56).ok().unwrap();
        assert_eq!(terms.reads, ReadLimits { inbound: 16, outbound: 3 });
        assert_eq!(Terms::new(0, 0, &[1; 57], 56).err(), Some(STATUS_INVALID_BUFFER_SIZE));
    }
}
