// SPDX-License-Identifier: MIT OR Apache-2.0

//! One connection: what happens to it, and what it wants to happen.

use core::fmt;
use core::time::Duration;

use fallible::AllocError;

use crate::config::{
    ACTIVE_NEGOTIATION_TIMEOUT, Config, NEGOTIATION_RECEIVE_SIZE, PASSIVE_NEGOTIATION_TIMEOUT, Parameters,
};
use crate::credits::Credits;
use crate::descriptor::Token;
use crate::keepalive::Keepalive;
use crate::negotiation::{self, Agreement, Refusal};
use crate::reason::Reason;
use crate::reassembly::{Reassembly, Received};
use crate::send_queue::SendQueue;
use crate::state::{Event as Input, State};
use crate::wire::{DATA_OFFSET, DataTransfer, MIN_RECEIVE_SIZE, NegotiateRequest, NegotiateResponse, status};

/// Why a connection cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// A value of the configuration is outside its limits.
    Config,
    /// There is no memory.
    Memory,
}

impl From<AllocError> for CreateError {
    fn from(_: AllocError) -> Self {
        Self::Memory
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "a value of the configuration is outside its limits",
            Self::Memory => "out of memory",
        })
    }
}

impl core::error::Error for CreateError {}

/// Why an upper-layer message is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendErrorKind {
    /// The connection is not established.
    NotEstablished,
    /// The message has no bytes.
    Empty,
    /// The peer cannot reassemble a message of this length.
    TooLong,
    /// [`Config::send_queue_length`] messages wait.
    QueueFull,
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEstablished => "the connection is not established",
            Self::Empty => "the message has no bytes",
            Self::TooLong => "the peer cannot reassemble a message of this length",
            Self::QueueFull => "too many messages wait",
        })
    }
}

impl core::error::Error for SendErrorKind {}

/// A message that is not accepted, and why.
#[derive(Debug)]
pub struct SendError<M> {
    pub kind: SendErrorKind,
    pub message: M,
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<M: fmt::Debug> core::error::Error for SendError<M> {}

/// A message to send on the RDMA connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Transmit<M> {
    /// Number of bytes of the buffer to send.
    pub length: usize,
    /// Token to invalidate: the message is sent with Send with Invalidate. A provider without that may ignore it.
    pub invalidate: Option<Token>,
    /// The upper-layer message of which this is the last piece. It is sent when this send completes.
    pub finished: Option<M>,
}

/// Notification to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The negotiation is complete.
    Established(Parameters),
    /// The RDMA connection must be ended now.
    Disconnect {
        reason: Reason,
        /// Sends that are under way may complete first.
        is_graceful: bool,
    },
    /// The RDMA connection has ended. The last event.
    Closed(Reason),
}

/// An SMB Direct connection, of either side. `M` is an upper-layer message to send.
///
/// The consumer makes the RDMA connection, posts receives ([`wanted_receives`](Self::wanted_receives)), passes in what is
/// received, and after each call sends what [`poll_transmit`](Self::poll_transmit) returns and handles what
/// [`poll_event`](Self::poll_event) returns, until both return `None`. Times are since an origin that the consumer
/// chooses; they never go back. Every method is bounded: it handles one message. Callable at any IRQL at which the global allocator
/// is; calls on one connection are serialized by the consumer.
pub struct Connection<M> {
    config: Config,
    state: State,
    agreement: Agreement,
    credits: Credits,
    queue: SendQueue<M>,
    reassembly: Reassembly,
    keepalive: Keepalive,
    /// The peer requested a message: `SendImmediate`.
    is_answer_wanted: bool,
    /// Status of the refusal to send.
    refusal: u32,
    negotiation_deadline: Option<Duration>,
    /// Nothing was granted yet.
    is_first: bool,
    /// Runs while a queued message waits for credits.
    credit_deadline: Option<Duration>,
    reason: Option<Reason>,
    event: PendingEvents,
}

/// Events that the consumer has not polled.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent events")]
struct PendingEvents {
    established: bool,
    disconnect: bool,
    is_graceful: bool,
    closed: bool,
}

impl<M> fmt::Debug for Connection<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("state", &self.state)
            .field("agreement", &self.agreement)
            .field("credits", &self.credits)
            .field("keepalive", &self.keepalive)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<M: AsRef<[u8]>> Connection<M> {
    /// Returns the side of a connection that is to be made: the initiator, an SMB2 client.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn active(config: Config, now: Duration) -> Result<Self, CreateError> {
        Self::new(config, State::Connecting, now.saturating_add(ACTIVE_NEGOTIATION_TIMEOUT))
    }

    /// Returns the side of a connection that is being accepted: the listener, an SMB2 server.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn passive(config: Config, now: Duration) -> Result<Self, CreateError> {
        Self::new(config, State::AwaitingRequest, now.saturating_add(PASSIVE_NEGOTIATION_TIMEOUT))
    }

    //= R-SMBD-8, R-SMBD-10
    fn new(config: Config, state: State, deadline: Duration) -> Result<Self, CreateError> {
        if !config.is_valid() {
            return Err(CreateError::Config);
        }
        Ok(Self {
            config,
            state,
            agreement: Agreement::default(),
            credits: Credits::new(config.receive_credit_max),
            queue: SendQueue::new(config.send_queue_length)?,
            reassembly: Reassembly::default(),
            keepalive: Keepalive::new(config.keepalive_interval, config.keepalive_timeout),
            is_answer_wanted: false,
            refusal: status::SUCCESS,
            negotiation_deadline: Some(deadline),
            is_first: true,
            credit_deadline: None,
            reason: None,
            event: PendingEvents::default(),
        })
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the negotiated parameters of an established connection.
    //= R-SMBD-81
    #[must_use]
    pub fn parameters(&self) -> Option<Parameters> {
        (self.state == State::Established).then_some(Parameters {
            max_send_size: self.agreement.max_send_size,
            max_receive_size: self.agreement.max_receive_size,
            max_fragmented_send_size: self.agreement.max_fragmented_send_size,
            max_fragmented_receive_size: self.config.max_fragmented_receive_size,
            max_read_write_size: self.agreement.max_read_write_size,
            keepalive_interval: self.config.keepalive_interval,
        })
    }

    /// Returns the number of receives to post now and the size of their buffers in bytes.
    ///
    /// One is posted before the RDMA connection is made, which is for the negotiation. The peer gets credits
    /// for the others; two are in reserve.
    #[must_use]
    pub fn wanted_receives(&self) -> (u32, u32) {
        match self.state {
            //= R-SMBD-9
            State::Connecting | State::Requesting | State::AwaitingResponse | State::AwaitingRequest => (
                1u32.saturating_sub(self.credits.posted()),
                self.config.max_receive_size.max(NEGOTIATION_RECEIVE_SIZE),
            ),
            State::Responding | State::Established => {
                (self.credits.wanted(), self.agreement.max_receive_size)
            }
            State::Refusing | State::Closing | State::Closed => (0, 0),
        }
    }

    /// The consumer posted `receives` receives.
    pub const fn receives_posted(&mut self, receives: u32) {
        self.credits.post(receives);
    }

    /// The RDMA connection is made. Only for the active side: a passive one is created when its connection is accepted.
    //= R-SMBD-8
    pub fn connected(&mut self) {
        self.step(Input::Connect);
    }

    /// The RDMA connection has ended, or could not be made.
    //= R-SMBD-35
    pub fn disconnected(&mut self) {
        if self.step(Input::Disconnect) {
            self.reason.get_or_insert(Reason::Disconnected);
            self.stop_timers();
            self.reassembly.clear();
            self.event = PendingEvents { closed: true, ..PendingEvents::default() };
        }
    }

    /// The consumer wants to end the connection. Messages that were not sent remain for [`take_unsent`](Self::take_unsent).
    pub fn close(&mut self) {
        self.end(Reason::Closed, true);
    }

    /// A send or a receive failed. The RDMA connection is unusable.
    pub fn transport_failed(&mut self) {
        self.end(Reason::Transport, false);
    }

    /// Queues an upper-layer message. `invalidate` is a token of the peer to invalidate with it.
    ///
    /// # Errors
    /// [`SendError`], with the message.
    pub fn send(&mut self, message: M, invalidate: Option<Token>) -> Result<(), SendError<M>> {
        let length = message.as_ref().len();
        let refused = |kind, message| Err(SendError { kind, message });
        if self.state != State::Established {
            return refused(SendErrorKind::NotEstablished, message);
        }
        if length == 0 {
            return refused(SendErrorKind::Empty, message);
        }
        //= R-SMBD-56
        let Some(length) =
            u32::try_from(length).ok().filter(|&length| length <= self.agreement.max_fragmented_send_size)
        else {
            return refused(SendErrorKind::TooLong, message);
        };
        if self.queue.is_full() {
            return refused(SendErrorKind::QueueFull, message);
        }
        self.queue.push(message, length, invalidate);
        Ok(())
    }

    /// Returns the oldest message that will not be sent, or not be sent to its end, because the connection ended.
    //= R-SMBD-63
    pub fn take_unsent(&mut self) -> Option<M> {
        if !matches!(self.state, State::Closing | State::Closed) {
            return None;
        }
        self.queue.pop()
    }

    /// A receive completed with `message`; the provider has invalidated `invalidated` with it. Returns an upper-layer message if
    /// one is complete.
    pub fn receive<'a>(
        &mut self,
        now: Duration,
        message: &'a [u8],
        invalidated: Option<Token>,
    ) -> Option<Received<'a>> {
        let result = match self.state {
            State::AwaitingRequest => self.receive_request(message),
            State::AwaitingResponse => self.receive_response(now, message),
            State::Established => match self.receive_data(now, message, invalidated) {
                Ok(received) => return received,
                Err(reason) => Err(reason),
            },
            // Receives complete with what was on its way.
            State::Closing | State::Closed => Ok(()),
            //= R-SMBD-43
            State::Connecting | State::Requesting | State::Responding | State::Refusing => Err(Reason::Early),
        };
        if let Err(reason) = result {
            self.end(reason, false);
        }
        None
    }

    fn receive_request(&mut self, message: &[u8]) -> Result<(), Reason> {
        self.credits.consume_receive();
        match negotiation::accept_request(&self.config, message) {
            Ok(agreement) => {
                self.agreement = agreement;
                self.credits.set_target(agreement.receive_credit_target);
                self.step(Input::AcceptRequest);
                Ok(())
            }
            Err(Refusal { reason, status: Some(status) }) => {
                self.refuse(reason, status);
                Ok(())
            }
            Err(Refusal { reason, status: None }) => Err(reason),
        }
    }

    fn receive_response(&mut self, now: Duration, message: &[u8]) -> Result<(), Reason> {
        self.credits.consume_receive();
        let agreement = negotiation::accept_response(&self.config, message)?;
        self.agreement = agreement;
        self.credits.set_target(agreement.receive_credit_target);
        self.credits.add_send(agreement.send_credits);
        self.establish(Input::AcceptResponse, now);
        Ok(())
    }

    fn receive_data<'a>(
        &mut self,
        now: Duration,
        message: &'a [u8],
        invalidated: Option<Token>,
    ) -> Result<Option<Received<'a>>, Reason> {
        self.keepalive.restart(now);
        if !self.credits.consume_credit() {
            return Err(Reason::CreditsOverdrawn);
        }
        //= R-SMBD-42
        if message.len() > self.agreement.max_receive_size as usize {
            return Err(Reason::TooLong);
        }
        let (header, payload) = DataTransfer::parse(message)?;
        //= R-SMBD-37
        if header.credits_requested == 0 {
            return Err(Reason::ZeroCredits);
        }
        self.credits.set_target(header.credits_requested);
        self.credits.add_send(header.credits_granted);
        if header.credits_granted > 0 {
            self.credit_deadline = None;
        }
        //= R-SMBD-53
        if header.flags & DataTransfer::RESPONSE_REQUESTED != 0 {
            self.is_answer_wanted = true;
        }
        let max = self.config.max_fragmented_receive_size;
        self.reassembly.push(payload, header.remaining_data_length, invalidated, max)
    }

    /// Writes the next message to send to `buffer`, whose length is at least [`Config::max_send_size`] bytes. Returns `None` if
    /// there is nothing to send, or nothing may be sent before a message is received, a receive is posted or time passes.
    ///
    /// Sends are posted in the order in which they are returned.
    pub fn poll_transmit(&mut self, now: Duration, buffer: &mut [u8]) -> Option<Transmit<M>> {
        match self.state {
            State::Requesting => {
                let bytes = buffer.first_chunk_mut::<{ NegotiateRequest::LEN }>()?;
                negotiation::request(&self.config).emit(bytes);
                self.step(Input::SendRequest);
                Some(Transmit { length: bytes.len(), invalidate: None, finished: None })
            }
            State::Responding => self.transmit_response(now, buffer),
            State::Refusing => self.transmit_refusal(buffer),
            State::Established => self.transmit_data(now, buffer),
            State::Connecting
            | State::AwaitingResponse
            | State::AwaitingRequest
            | State::Closing
            | State::Closed => None,
        }
    }

    fn transmit_response(&mut self, now: Duration, buffer: &mut [u8]) -> Option<Transmit<M>> {
        let credits = self.credits.initial();
        //= R-SMBD-23
        if credits == 0 {
            self.refuse(Reason::NoReceives, status::INSUFFICIENT_RESOURCES);
            return self.transmit_refusal(buffer);
        }
        let bytes = buffer.first_chunk_mut::<{ NegotiateResponse::LEN }>()?;
        negotiation::response(&self.config, &self.agreement, credits).emit(bytes);
        self.credits.grant(credits);
        self.is_first = false;
        self.establish(Input::SendResponse, now);
        Some(Transmit { length: bytes.len(), invalidate: None, finished: None })
    }

    //= R-SMBD-13
    fn transmit_refusal(&mut self, buffer: &mut [u8]) -> Option<Transmit<M>> {
        let bytes = buffer.first_chunk_mut::<{ NegotiateResponse::LEN }>()?;
        negotiation::refusal(self.refusal).emit(bytes);
        self.step(Input::SendRefusal);
        self.stop_timers();
        self.event = PendingEvents { disconnect: true, is_graceful: true, ..PendingEvents::default() };
        Some(Transmit { length: bytes.len(), invalidate: None, finished: None })
    }

    fn transmit_data(&mut self, now: Duration, buffer: &mut [u8]) -> Option<Transmit<M>> {
        //= R-SMBD-34
        if self.is_first && self.credits.posted() == 0 {
            self.end(Reason::NoReceives, false);
            return None;
        }
        let has_message = !self.queue.is_empty() || self.is_answer_wanted || self.keepalive.is_pending();
        //= R-SMBD-68
        if !has_message && !self.credits.is_peer_low() {
            return None;
        }
        let length = buffer.len().min(self.agreement.max_send_size as usize);
        let buffer = buffer.get_mut(..length).filter(|_| length >= MIN_RECEIVE_SIZE as usize)?;
        let credits_granted = self.credits.grantable(has_message);
        if !self.credits.take(credits_granted) {
            //= R-SMBD-71
            if has_message && self.credit_deadline.is_none() {
                self.credit_deadline = Some(now.saturating_add(self.config.credit_timeout));
            }
            return None;
        }
        self.credit_deadline = None;
        self.is_first = false;
        //= R-SMBD-4, R-SMBD-54
        let flags = if self.keepalive.send(now) { DataTransfer::RESPONSE_REQUESTED } else { 0 };
        self.is_answer_wanted = false;
        //= R-SMBD-61
        let mut header = DataTransfer {
            credits_requested: self.config.send_credit_target,
            credits_granted,
            flags,
            ..DataTransfer::default()
        };
        let mut transmit = Transmit { length: DataTransfer::LEN, invalidate: None, finished: None };
        //= R-SMBD-5, R-SMBD-6
        let (head, body) = buffer.split_at_mut_checked(DATA_OFFSET as usize)?;
        if let Some(fragment) = self.queue.copy_fragment(body) {
            header.data_offset = DATA_OFFSET;
            header.data_length = fragment.length;
            header.remaining_data_length = fragment.remaining;
            transmit.length = DATA_OFFSET as usize + fragment.length as usize;
            transmit.invalidate = fragment.invalidate;
            if fragment.remaining == 0 {
                //= R-SMBD-63
                transmit.finished = self.queue.pop();
            }
        }
        //= R-SMBD-3
        head.fill(0);
        header.emit(head.first_chunk_mut()?);
        Some(transmit)
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is to be called, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let keepalive = (self.state == State::Established).then(|| self.keepalive.deadline());
        [self.negotiation_deadline, self.credit_deadline, keepalive].into_iter().flatten().min()
    }

    /// Handles the deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        let is_over = |deadline: Option<Duration>| deadline.is_some_and(|deadline| deadline <= now);
        //= R-SMBD-10
        if is_over(self.negotiation_deadline) {
            self.end(Reason::NegotiationTimeout, false);
        }
        if self.state != State::Established {
            return;
        }
        if is_over(self.credit_deadline) {
            //= R-SMBD-71
            self.end(Reason::CreditTimeout, false);
        } else if !self.keepalive.expire(now) {
            self.end(Reason::KeepaliveTimeout, false);
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if core::mem::take(&mut self.event.established)
            && let Some(parameters) = self.parameters()
        {
            return Some(Event::Established(parameters));
        }
        let reason = self.reason?;
        if core::mem::take(&mut self.event.disconnect) {
            return Some(Event::Disconnect { reason, is_graceful: self.event.is_graceful });
        }
        core::mem::take(&mut self.event.closed).then_some(Event::Closed(reason))
    }

    //= R-SMBD-24
    fn establish(&mut self, input: Input, now: Duration) {
        if self.step(input) {
            self.stop_timers();
            self.keepalive.restart(now);
            self.event.established = true;
        }
    }

    fn refuse(&mut self, reason: Reason, status: u32) {
        if self.step(Input::Refuse) {
            self.reason = Some(reason);
            self.refusal = status;
        }
    }

    fn end(&mut self, reason: Reason, is_graceful: bool) {
        if self.step(Input::End) {
            self.reason.get_or_insert(reason);
            self.stop_timers();
            self.reassembly.clear();
            self.event.disconnect = true;
            self.event.is_graceful = is_graceful;
        }
    }

    const fn stop_timers(&mut self) {
        self.negotiation_deadline = None;
        self.credit_deadline = None;
    }

    /// Makes a transition. Returns whether there was one.
    fn step(&mut self, input: Input) -> bool {
        let Ok(next) = self.state.on(input) else { return false };
        self.state = next;
        true
    }
}
