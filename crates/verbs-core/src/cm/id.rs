// SPDX-License-Identifier: MIT OR Apache-2.0

//! Identifiers of connection management.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use roce::{ConnEvent, ConnId, ConnRequest, ListenerId, PeerQp, PrivateData, ReadLimits};

use roce_wire::Path;

use super::event::{CmEvent, CmEventKind, Parameters};
use super::ports;
use crate::adapter::{Notice, Subscriber};
use crate::addresses::gid;
use crate::device::Device;
use crate::error::Error;
use crate::events::EventQueue;
use crate::host::Host;
use crate::qp::AddressVector;
use crate::sys;
use crate::users::Unacknowledged;

/// Code of the local ACK timeout unless the program sets another: 268 ms.
const ACK_TIMEOUT: u8 = 16;

/// A channel of events.
#[derive(Debug)]
pub struct EventChannel(EventQueue<CmEvent<CmId>>);

impl EventChannel {
    /// Creates a channel.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new() -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self(EventQueue::new()?)))
    }

    /// Takes the next event. Waits for one, unless the descriptor does not block.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take(&self) -> Result<CmEvent<CmId>, Error> {
        self.0.take_counted(|event| event.counted().unacknowledged.taken())
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Port space of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// State of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// A REQ was sent, or a REP.
    Connecting,
    RequestReceived,
    ReplyReceived,
    Established,
    /// The event of the disconnect was delivered.
    Disconnected,
    /// Refused or failed.
    Ended,
}

/// Addresses, objects and options of an identifier.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) device: Option<Arc<Device>>,
    /// Devices on which the local port is claimed.
    pub(super) claimed: Vec<Arc<Device>>,
    pub(super) listeners: Vec<(Arc<Device>, ListenerId)>,
    pub(super) connection: Option<ConnId>,
    /// In which the engines of all devices name the identifier.
    pub(super) contexts: Vec<(Arc<Device>, u64)>,
    pub(super) traffic_class: u8,
    pub(super) ack_timeout: u8,
    /// The unspecified address of IPv6 does not include IPv4.
    pub(super) one_family: bool,
}

/// An identifier: a listener, or one side of a connection.
pub struct CmId {
    pub(super) host: Arc<Host>,
    space: PortSpace,
    channel: Mutex<Arc<EventChannel>>,
    token: AtomicU64,
    /// PSN of the peer's first packet.
    pub(super) psn: u32,
    pub(super) state: Mutex<State>,
    unacknowledged: Unacknowledged,
    own: Weak<Self>,
}

impl core::fmt::Debug for CmId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CmId").field("space", &self.space).finish_non_exhaustive()
    }
}

impl CmId {
    /// Creates an identifier whose events go to `channel`.
    #[must_use]
    pub fn new(host: &Arc<Host>, space: PortSpace, channel: &Arc<EventChannel>) -> Arc<Self> {
        let state = State {
            phase: Phase::Idle,
            local: None,
            remote: None,
            device: None,
            claimed: Vec::new(),
            listeners: Vec::new(),
            connection: None,
            contexts: Vec::new(),
            traffic_class: 0,
            ack_timeout: ACK_TIMEOUT,
            one_family: false,
        };
        Self::with_state(host, space, channel, state)
    }

    fn with_state(
        host: &Arc<Host>,
        space: PortSpace,
        channel: &Arc<EventChannel>,
        state: State,
    ) -> Arc<Self> {
        let [a, b, c, ..] = sys::random_seed();
        Arc::new_cyclic(|own| Self {
            host: Arc::clone(host),
            space,
            channel: Mutex::new(Arc::clone(channel)),
            token: AtomicU64::new(0),
            psn: u32::from_le_bytes([a, b, c, 0]),
            state: Mutex::new(state),
            unacknowledged: Unacknowledged::default(),
            own: own.clone(),
        })
    }

    /// Returns the number that the program has given the identifier; 0 before that.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    /// Gives the identifier a number.
    pub fn set_token(&self, token: u64) {
        self.token.store(token, Ordering::Release);
    }

    /// Returns the port space.
    #[must_use]
    pub fn space(&self) -> PortSpace {
        self.space
    }

    /// Returns the local address.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.state.lock().local
    }

    /// Returns the address of the peer.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.state.lock().remote
    }

    /// Returns the device, once the identifier has one: not while it listens on all addresses.
    #[must_use]
    pub fn device(&self) -> Option<Arc<Device>> {
        self.state.lock().device.clone()
    }

    /// Moves the identifier and its events to another channel.
    pub fn migrate(&self, to: &Arc<EventChannel>) {
        // Held, so that an event goes to the new channel once the others have been moved.
        let mut channel = self.channel.lock();
        let from = core::mem::replace(&mut *channel, Arc::clone(to));
        for event in from.0.remove(|event| self.is_named_by(event)) {
            let id = Arc::clone(&event.id);
            to.0.push(event);
            if !core::ptr::eq(&raw const *id, self) {
                id.migrate(to);
            }
        }
    }

    /// Returns whether an event is about this identifier, or a request to it.
    fn is_named_by(&self, event: &CmEvent<Self>) -> bool {
        core::ptr::eq(&raw const *event.id, self)
            || event.listener.as_ref().is_some_and(|listener| core::ptr::eq(&raw const **listener, self))
    }

    /// Sets the traffic class of later frames.
    pub fn set_traffic_class(&self, class: u8) {
        self.state.lock().traffic_class = class;
    }

    /// Sets the code of the local ACK timeout.
    ///
    /// # Errors
    /// [`Error::Invalid`] above 31.
    pub fn set_ack_timeout(&self, code: u8) -> Result<(), Error> {
        if code > 31 {
            return Err(Error::Invalid);
        }
        self.state.lock().ack_timeout = code;
        Ok(())
    }

    /// Makes the unspecified address of IPv6 not include IPv4.
    pub fn set_one_family(&self, one_family: bool) {
        self.state.lock().one_family = one_family;
    }

    /// Returns the context in which a device's engine names this identifier.
    pub(super) fn context(&self, state: &mut State, device: &Arc<Device>) -> u64 {
        if let Some((_, context)) = state.contexts.iter().find(|(known, _)| Arc::ptr_eq(known, device)) {
            return *context;
        }
        let connections = &device.adapter().connections;
        let context = connections.context();
        if let Some(own) = self.own.upgrade() {
            let subscriber: Arc<dyn Subscriber> = own;
            connections.add(context, &subscriber);
        }
        state.contexts.push((Arc::clone(device), context));
        context
    }

    /// Goes to phase `to` if it is in one of `from`.
    pub(super) fn step(&self, from: &[Phase], to: Phase) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !from.contains(&state.phase) {
            return Err(Error::Invalid);
        }
        state.phase = to;
        Ok(())
    }

    /// Acknowledges an event that [`EventChannel::take`] has returned.
    pub fn acknowledge(&self) {
        self.unacknowledged.acknowledge(1);
    }

    /// Ends the use of the identifier: a connection is released, a listener removed. Waits until the program has acknowledged its events.
    pub fn destroy(&self) {
        for device in self.release() {
            device.adapter().finish_delivery();
        }
        let channel = Arc::clone(&self.channel.lock());
        channel.0.remove(|event| self.is_named_by(event));
        self.unacknowledged.wait();
    }

    /// Releases connection, listeners and port. Returns the devices whose engines have named the identifier.
    fn release(&self) -> Vec<Arc<Device>> {
        let mut state = self.state.lock();
        let contexts = core::mem::take(&mut state.contexts);
        let listeners = core::mem::take(&mut state.listeners);
        let claimed = core::mem::take(&mut state.claimed);
        let connection = state.connection.take();
        let port = state.local.map_or(0, |local| local.port());
        let device = state.device.take();
        drop(state);
        for (device, context) in &contexts {
            device.adapter().connections.remove(*context);
        }
        ports::unlisten(&listeners);
        ports::release(&claimed, port);
        if let (Some(device), Some(connection)) = (&device, connection) {
            let adapter = device.adapter();
            adapter.engine.connections().release(adapter.clock.now(), connection);
        }
        let devices: Vec<_> = contexts.into_iter().map(|(device, _)| device).chain(device).collect();
        for device in &devices {
            device.adapter().follow_up();
        }
        devices
    }

    /// Reports an event.
    pub(super) fn emit(&self, kind: CmEventKind, status: i32, parameters: &Parameters) {
        let Some(id) = self.own.upgrade() else { return };
        let parameters = *parameters;
        self.channel.lock().0.push(CmEvent { id, listener: None, kind, status, parameters });
    }

    /// Reports the end of a connection, once.
    fn ended(&self, kind: CmEventKind, status: i32) {
        let mut state = self.state.lock();
        let was_established = matches!(state.phase, Phase::Established | Phase::Disconnected);
        let reported = matches!(state.phase, Phase::Disconnected | Phase::Ended);
        state.phase = if was_established { Phase::Disconnected } else { Phase::Ended };
        drop(state);
        if !reported {
            let (kind, status) =
                if was_established { (CmEventKind::Disconnected, 0) } else { (kind, status) };
            self.emit(kind, status, &Parameters::default());
        }
    }

    /// Creates the identifier of a request, and reports it.
    fn requested(&self, connection: ConnId, request: &ConnRequest) {
        let Ok(device) = self.host.open(request.path.local_ip) else { return };
        let channel = self.channel.lock();
        let state = State {
            phase: Phase::RequestReceived,
            local: Some(SocketAddr::new(request.path.local_ip, request.local_port)),
            remote: Some(SocketAddr::new(request.path.remote_ip, request.remote_port)),
            device: Some(Arc::clone(&device)),
            claimed: Vec::new(),
            listeners: Vec::new(),
            connection: Some(connection),
            contexts: Vec::new(),
            traffic_class: self.state.lock().traffic_class,
            ack_timeout: ACK_TIMEOUT,
            one_family: false,
        };
        let id = Self::with_state(&self.host, self.space, &channel, state);
        let context = id.context(&mut id.state.lock(), &device);
        device.engine().connections().set_context(connection, context);
        let peer = device.engine().connections().peer(connection);
        let parameters = parameters(peer.as_ref(), request.reads, request.private_data);
        let listener = self.own.upgrade();
        let kind = CmEventKind::ConnectRequest;
        channel.0.push(CmEvent { id, listener, kind, status: 0, parameters });
    }

    fn peer(&self) -> Option<PeerQp> {
        let state = self.state.lock();
        state.device.as_ref()?.engine().connections().peer(state.connection?)
    }
}

impl Subscriber for CmId {
    fn handle(&self, notice: Notice) {
        let Notice::Connection(connection, event) = notice else { return };
        match event {
            ConnEvent::Request(request) => self.requested(connection, &request),
            ConnEvent::Replied { reads, private_data } if self.space == PortSpace::Udp => {
                if self.step(&[Phase::Connecting], Phase::Established).is_ok() {
                    let parameters = parameters(self.peer().as_ref(), reads, private_data);
                    self.emit(CmEventKind::Established, 0, &parameters);
                }
            }
            ConnEvent::Replied { reads, private_data } => {
                if self.step(&[Phase::Connecting], Phase::ReplyReceived).is_ok() {
                    let parameters = parameters(self.peer().as_ref(), reads, private_data);
                    self.emit(CmEventKind::ConnectResponse, 0, &parameters);
                }
            }
            ConnEvent::Refused { reason, private_data } => {
                if self.step(&[Phase::Connecting, Phase::ReplyReceived], Phase::Ended).is_ok() {
                    let parameters = parameters(None, ReadLimits::default(), private_data);
                    // As Linux reports that there is no such datagram service.
                    let kind = match self.space {
                        PortSpace::Tcp => CmEventKind::Rejected,
                        PortSpace::Udp => CmEventKind::Unreachable,
                    };
                    self.emit(kind, reason.0.into(), &parameters);
                }
            }
            ConnEvent::Established { reads } => {
                if self.step(&[Phase::Connecting], Phase::Established).is_ok() {
                    let parameters = parameters(self.peer().as_ref(), reads, PrivateData::EMPTY);
                    self.emit(CmEventKind::Established, 0, &parameters);
                }
            }
            ConnEvent::Disconnected | ConnEvent::DisconnectDone(_) => {
                self.ended(CmEventKind::Disconnected, 0);
            }
            ConnEvent::Aborted => self.ended(CmEventKind::ConnectError, -libc::ECONNRESET),
            ConnEvent::TimedOut => self.ended(CmEventKind::Unreachable, -libc::ETIMEDOUT),
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.release();
    }
}

fn parameters(peer: Option<&PeerQp>, reads: ReadLimits, private_data: PrivateData) -> Parameters {
    Parameters {
        private_data,
        reads,
        retries: peer.map_or(0, |peer| peer.retry_count),
        rnr_retries: peer.map_or(0, |peer| peer.rnr_retry_count),
        qpn: peer.map_or(0, |peer| peer.qpn.value()),
        q_key: peer.map_or(0, |peer| peer.q_key),
        path: peer.map_or_else(AddressVector::default, |peer| vector(&peer.path)),
    }
}

/// Returns the path to a peer as a program names it.
pub(super) fn vector(path: &Path) -> AddressVector {
    AddressVector {
        gid: gid(path.remote_ip),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        port: 1,
        is_global: true,
        ..AddressVector::default()
    }
}
