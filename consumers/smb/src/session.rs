// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection of SMB Direct on a queue pair.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use ndk_abi::ndk::NDK_SGE;
use ndk_consumer::endpoint::{Endpoint, EndpointConfig, EndpointEvent, Received};
use ndk_consumer::stats::{Operation, RequestStats};
use ndk_consumer::{Access, Adapter, Connector, Error, FastMemory, Memory, Os, Pd, RemoteMemory, Status};
use smb_direct::{
    BufferDescriptor, Connection, CreateError, NEGOTIATION_RECEIVE_SIZE, Parameters, Reason, SendErrorKind,
    Token,
};

use crate::endings::{Ending, Endings, Side};
use crate::transfer::Options;

/// Ports of SMB Direct, in the order in which an initiator tries them: that of iWARP, and that of SMB over TCP, which
/// listeners on RoCE and InfiniBand use.
pub const PORTS: [u16; 2] = [5445, 445];

/// Sends that may be outstanding. A peer that grants more credits does not get more messages at a time.
const SENDS: u32 = 255;
/// Other requests that the consumer may have outstanding.
const OPERATIONS: u32 = 256;
/// Receives beyond [`smb_direct::Config::receive_credit_max`] that a connection posts.
const RESERVE: u32 = 2;
/// Longest wait without a deadline.
const IDLE: Duration = Duration::from_secs(1);

/// An event of a session for its consumer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// An upper-layer message, and the token of this side that the peer has invalidated with it.
    Message { bytes: Vec<u8>, invalidated: Option<Token> },
    /// A request with this tag succeeded.
    Done(u64),
}

/// A connection of SMB Direct, of either side.
///
/// Create it, then [`connect`](Self::connect) or [`accept`](Self::accept), use it, and finish in any state with
/// [`close`](Self::close). All methods run at `PASSIVE_LEVEL`.
pub struct Session<O: Os> {
    endpoint: Endpoint<O>,
    connection: Connection<Vec<u8>>,
    os: Arc<O>,
    events: VecDeque<Event>,
    /// The message that is being sent or received.
    buffer: Vec<u8>,
    parameters: Option<Parameters>,
    reason: Option<Reason>,
    /// The messages that are posted are to be sent before the connection ends.
    is_graceful: bool,
    side: Side,
    /// The RDMA connection was established.
    is_connected: bool,
    endings: Arc<Endings>,
}

impl<O: Os> Session<O> {
    /// Connects to a server and negotiates. If the port of `remote` is 0, tries [`PORTS`] in turn as long as connections are refused.
    ///
    /// # Errors
    /// As [`active`](Self::active) and [`connect`](Self::connect).
    pub fn reach(
        adapter: &Arc<Adapter<O>>,
        options: &Options,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(Self, Parameters), Error> {
        let [first, second] = if remote.port() == 0 { PORTS.map(Some) } else { [Some(remote.port()), None] };
        let attempt = |port| {
            let mut session = Self::active(adapter, options)?;
            match session.connect(local, SocketAddr::new(remote.ip(), port)) {
                Ok(parameters) => Ok((session, parameters)),
                Err(error) => session.close(Err(error)).0,
            }
        };
        match (attempt(first.unwrap_or(remote.port())), second) {
            (Err(Error::Connect(Status::CONNECTION_REFUSED)), Some(second)) => attempt(second),
            (outcome, _) => outcome,
        }
    }

    /// Creates the side that connects.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails; [`Error::Protocol`] if the configuration is invalid.
    pub fn active(adapter: &Arc<Adapter<O>>, options: &Options) -> Result<Self, Error> {
        Self::new(adapter, options, Side::Active)
    }

    /// Creates the side that accepts. Its negotiation timer starts now.
    ///
    /// # Errors
    /// As [`active`](Self::active).
    pub fn passive(adapter: &Arc<Adapter<O>>, options: &Options) -> Result<Self, Error> {
        Self::new(adapter, options, Side::Passive)
    }

    fn new(adapter: &Arc<Adapter<O>>, options: &Options, side: Side) -> Result<Self, Error> {
        let config = &options.config;
        let os = Arc::clone(adapter.os());
        let connection = match side {
            Side::Active => Connection::active(*config, os.now()),
            Side::Passive => Connection::passive(*config, os.now()),
        };
        let connection = connection.map_err(|error| {
            Error::Protocol(match error {
                CreateError::Config => "invalid configuration",
                CreateError::Memory => "out of memory",
            })
        })?;
        let message =
            config.max_send_size.max(config.max_receive_size).max(NEGOTIATION_RECEIVE_SIZE) as usize;
        let endpoint = EndpointConfig {
            requests: SENDS + OPERATIONS,
            receives: u32::from(config.receive_credit_max) + RESERVE,
            message,
        };
        let endpoint = Endpoint::moderated(adapter, endpoint, options.moderation)?;
        let mut session = Self {
            endpoint,
            connection,
            os,
            events: VecDeque::new(),
            buffer: vec![0; message],
            parameters: None,
            reason: None,
            is_graceful: false,
            side,
            is_connected: false,
            endings: Arc::clone(&options.endings),
        };
        // The peer may send as soon as it is connected, and with an RNR retry count of 0.
        session.post_receives()?;
        Ok(session)
    }

    /// Connects to `remote` and negotiates.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer rejects or cannot be reached; others as [`next_event`](Self::next_event).
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Parameters, Error> {
        self.endpoint.connect(local, remote, &[])?;
        self.is_connected = true;
        self.connection.connected();
        self.establish()
    }

    /// Accepts the connection request of `connector` and negotiates.
    ///
    /// # Errors
    /// [`Error::Connect`] if the connection fails; others as [`next_event`](Self::next_event).
    pub fn accept(&mut self, connector: Connector<O>) -> Result<Parameters, Error> {
        self.endpoint.accept(connector, &[])?;
        self.is_connected = true;
        self.establish()
    }

    fn establish(&mut self) -> Result<Parameters, Error> {
        loop {
            self.process()?;
            if let Some(parameters) = self.parameters {
                return Ok(parameters);
            }
            self.check()?;
            self.wait(IDLE)?;
        }
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd<O>> {
        self.endpoint.pd()
    }

    /// Returns the reason for the end of the connection, if it has ended or is to end.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Sends an upper-layer message, and invalidates the peer's token with it.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the message is empty or longer than the peer can reassemble; others as [`next_event`](Self::next_event).
    pub fn send(&mut self, message: Vec<u8>, invalidate: Option<Token>) -> Result<(), Error> {
        let mut message = message;
        loop {
            let Err(refused) = self.connection.send(message, invalidate) else { return self.process() };
            match refused.kind {
                SendErrorKind::QueueFull => self.wait(IDLE)?,
                SendErrorKind::Empty => return Err(Error::Protocol("empty message")),
                SendErrorKind::TooLong => {
                    return Err(Error::Protocol("message longer than the peer accepts"));
                }
                SendErrorKind::NotEstablished => {
                    return Err(self.reason.map_or(Error::PeerDisconnected, error_of));
                }
            }
            self.process()?;
            message = refused.message;
        }
    }

    /// Posts the registration of `memory` for the peer. It precedes all later messages, and may be deferred until the next one.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection has failed, as for all requests.
    pub fn register(&mut self, memory: &FastMemory<O>, access: Access, tag: u64) -> Result<(), Error> {
        self.endpoint.defer(true);
        let posted = self.endpoint.fast_register(memory, access, tag);
        self.endpoint.defer(false);
        posted
    }

    /// Posts the invalidation of a registration that the peer has not invalidated.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn invalidate(&mut self, memory: &FastMemory<O>, tag: u64) -> Result<(), Error> {
        self.endpoint.invalidate(memory, tag)
    }

    /// Reads the peer's `segments` into `memory` from `at` on. Returns the number of requests posted, each of which
    /// completes with `tag`.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn read(
        &mut self,
        memory: &Memory<O>,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error> {
        self.transfer(memory, at, segments, |endpoint, sge, remote| endpoint.read(sge, remote, 0, tag))
    }

    /// Writes `memory` from `at` on to the peer's `segments`. As [`read`](Self::read).
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn write(
        &mut self,
        memory: &Memory<O>,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error> {
        self.transfer(memory, at, segments, |endpoint, sge, remote| endpoint.write(sge, remote, 0, tag))
    }

    fn transfer(
        &mut self,
        memory: &Memory<O>,
        mut at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        post: impl Fn(&mut Endpoint<O>, NDK_SGE, &RemoteMemory) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let (mut segments, mut posted) = (segments.peekable(), 0);
        while let Some(BufferDescriptor { offset, token, length }) = segments.next() {
            let remote = RemoteMemory { address: offset, token, length: length.into() };
            self.endpoint.defer(segments.peek().is_some());
            let outcome = post(&mut self.endpoint, memory.sge(at, length as usize), &remote);
            self.endpoint.defer(false);
            outcome?;
            at += length as usize;
            posted += 1;
        }
        Ok(posted)
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`Error::Connection`] if a request failed, [`Error::PeerDisconnected`], [`Error::PeerSilent`] if a keepalive was not
    /// answered, [`Error::Protocol`] with the text of a [`Reason`] if the connection ended for another one.
    pub fn next_event(&mut self) -> Result<Event, Error> {
        loop {
            let processed = self.process();
            // What arrived before the end comes first.
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            processed?;
            self.check()?;
            self.wait(IDLE)?;
        }
    }

    /// Returns the next event, or `None` after `timeout`, or earlier.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub fn next_event_within(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        for is_last in [false, true] {
            let processed = self.process();
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            processed?;
            self.check()?;
            if !is_last {
                self.wait(timeout)?;
            }
        }
        Ok(None)
    }

    /// Fails if the connection has ended or is to end.
    fn check(&self) -> Result<(), Error> {
        self.reason.map_or(Ok(()), |reason| Err(error_of(reason)))
    }

    /// Closes the session: if `outcome` is good, completes the outstanding requests and disconnects. Records the reason of the end.
    /// Returns `outcome`, or the error that occurred after it, and the request statistics.
    pub fn close<T>(mut self, outcome: Result<T, Error>) -> (Result<T, Error>, RequestStats) {
        // A refusal is sent before the end, too.
        let completed = if outcome.is_ok() || self.is_graceful { self.complete() } else { Ok(()) };
        self.connection.close();
        let outcome = outcome.and_then(|value| completed.map(|()| value));
        if self.is_connected {
            let reason = self.reason.unwrap_or(match &outcome {
                // The reason is set where the connection itself ends or fails: by then the requests alone failed.
                Err(Error::Connection(_)) => Reason::Transport,
                _ => Reason::Closed,
            });
            self.endings.record(Ending { at: self.os.now(), side: self.side, reason });
        }
        self.endpoint.close(outcome)
    }

    /// Waits until all requests have completed, so that a disconnect does not flush them.
    fn complete(&mut self) -> Result<(), Error> {
        self.endpoint.start_deferred()?;
        while self.endpoint.outstanding_requests() != 0 {
            if let Some(EndpointEvent::Message(received)) = self.endpoint.wait_for(IDLE)? {
                self.endpoint.release(received);
            }
        }
        Ok(())
    }

    /// Posts receives, sends messages and handles timers and events until nothing is left to do now.
    fn process(&mut self) -> Result<(), Error> {
        let now = self.os.now();
        if self.connection.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.connection.handle_timeout(now);
        }
        self.post_receives()?;
        while self.endpoint.outstanding_requests() < u64::from(SENDS) {
            let Some(transmit) = self.connection.poll_transmit(now, &mut self.buffer) else { break };
            let message = &self.buffer[..transmit.length];
            match transmit.invalidate {
                None => self.endpoint.send(message, 0)?,
                Some(token) => self.endpoint.send_and_invalidate(message, token, 0)?,
            }
            self.post_receives()?;
        }
        while let Some(event) = self.connection.poll_event() {
            match event {
                smb_direct::Event::Established(parameters) => self.parameters = Some(parameters),
                smb_direct::Event::Disconnect { reason, is_graceful } => {
                    self.is_graceful = is_graceful;
                    self.reason.get_or_insert(reason);
                }
                smb_direct::Event::Closed(reason) => {
                    self.reason.get_or_insert(reason);
                }
            }
        }
        Ok(())
    }

    fn post_receives(&mut self) -> Result<(), Error> {
        let (receives, _) = self.connection.wanted_receives();
        for _ in 0..receives {
            if !self.endpoint.post_receive()? {
                break;
            }
            self.connection.receives_posted(1);
        }
        Ok(())
    }

    /// Waits for the next completion or deadline, up to `timeout` if there is no deadline before.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let left = |deadline: Duration| deadline.saturating_sub(self.os.now());
        let timeout = self.connection.next_deadline().map_or(timeout, |deadline| left(deadline).min(timeout));
        match self.endpoint.wait_for(timeout) {
            Ok(Some(EndpointEvent::Message(received))) => self.receive(received),
            Ok(Some(EndpointEvent::Done(Operation::Send, _)) | None) => {}
            Ok(Some(EndpointEvent::Done(_, tag))) => self.events.push_back(Event::Done(tag)),
            Err(error) => {
                match error {
                    Error::PeerDisconnected => self.connection.disconnected(),
                    _ => self.connection.transport_failed(),
                }
                self.reason.get_or_insert(match error {
                    Error::PeerDisconnected => Reason::Disconnected,
                    _ => Reason::Transport,
                });
                return Err(error);
            }
        }
        Ok(())
    }

    fn receive(&mut self, received: Received) {
        let mut bytes = Vec::new();
        self.endpoint.copy_message(&received, &mut bytes);
        let invalidated = received.invalidated;
        self.endpoint.release(received);
        if let Some(received) = self.connection.receive(self.os.now(), &bytes, invalidated) {
            let (bytes, invalidated) = (received.payload.bytes().to_vec(), received.invalidated);
            self.events.push_back(Event::Message { bytes, invalidated });
        }
    }
}

/// Returns the error of a connection that ended for `reason`.
fn error_of(reason: Reason) -> Error {
    match reason {
        Reason::Disconnected => Error::PeerDisconnected,
        Reason::KeepaliveTimeout => Error::PeerSilent,
        reason => Error::Protocol(reason.text()),
    }
}
