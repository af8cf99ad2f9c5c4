// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport of one queue pair: its life cycle, and the entry points of the engine.
//!
//! A packet goes to the [`Requester`] or the [`Responder`], and either gets its turn to send one. What they return as a
//! [`Failure`] becomes the error state here; `transmit` reports it to the connection instead, if a fatal NAK goes out first.

use alloc::boxed::Box;
use core::time::Duration;

use lock_api::RawMutex;

use state_table::TransitionError;

use super::congestion;
use super::congestion::cnp::CnpState;
use super::congestion::rate::RateLimiter;
use super::connection::Connection;
use super::drain::Drain;
use super::env::Env;
use super::failure::{Failure, PacketError};
use super::packet::placement::Placement;
use super::peer::{Link, Peer};
use super::requester::Requester;
use super::requester::send_queue::SendQueue;
use super::responder::Responder;
use super::responder::gaps::standstill;
use super::responder::receives::Receives;
use super::state::{Event, State};
use super::unreliable::{self, Unreliable};
use crate::config::Config;
use crate::conn::ConnId;
use crate::drop_reason::DropReason;
use crate::error::{CreateError, PostError};
use crate::qp_attributes::QpSpec;
use crate::qp_change::QpFault;
use crate::region::access_rights::AccessError;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::work::{SendOperation, SendRequest, Sge};
use roce_wire::{Class, MacAddr, Packet, PlainAck, PlainHeaders, PlainSend, Psn};

/// How long a peer counts as alive after a packet of it. Shorter than the time that a host takes to boot, which loses its
/// connections without a DREQ.
const ALIVE_TIME: Duration = Duration::from_secs(5);

/// The part of a queue pair that changes, under its lock. The order of the fields is that of [`cache_lines`](super::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RcTransport {
    pub(super) cnp: CnpState,
    pub(super) state: State,
    /// A payload is being copied, without the lock.
    pub(super) copying: bool,
    /// When the last valid packet of the peer arrived.
    last_received: Option<Instant>,
    /// The deadline scheduled in the timer wheel.
    scheduled: Option<Instant>,
    pub(super) link: Option<Link>,
    pub(super) responder: Responder,
    pub(crate) connection: Connection,
    pub(super) rate: RateLimiter,
    pub(super) requester: Requester,
    /// Of an unreliable service.
    pub(super) unreliable: Option<Box<Unreliable>>,
    pub(crate) drain: Drain,
}

/// Effect of a received packet beyond its queue pair.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Handled {
    /// The connection that this packet establishes: it arrived before the peer's RTU and stands for it.
    pub(crate) established: Option<ConnId>,
}

impl Handled {
    /// Returns the effect of a valid packet on the connection of a queue pair in `state`.
    #[inline]
    fn new(state: State, connection: &Connection) -> Self {
        //= rocev2 §12
        Self { established: connection.id().filter(|_| state == State::Rtr) }
    }
}

/// Life cycle.
impl RcTransport {
    /// A constant, so that it is built in place: it is too large for a kernel stack.
    pub(crate) const RESET: Self = Self {
        state: State::Reset,
        connection: Connection::NONE,
        link: None,
        requester: Requester::IDLE,
        responder: Responder::IDLE,
        cnp: CnpState::IDLE,
        rate: RateLimiter::UNLIMITED,
        scheduled: None,
        last_received: None,
        copying: false,
        unreliable: None,
        drain: Drain::None,
    };

    /// Allocates everything that the queue pair will ever need.
    pub(crate) fn initialize<R: RawMutex>(
        &mut self,
        spec: &QpSpec<R>,
        config: &Config,
    ) -> Result<(), CreateError> {
        self.requester.initialize(spec, config)?;
        self.responder.initialize(spec, config)?;
        self.state = self.state.on(Event::Initialize).map_err(|_| CreateError::Invalid)?;
        Ok(())
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns whether the payload of a packet is being copied without the lock.
    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
    }

    /// Returns whether no request is outstanding and no receive is posted.
    pub(crate) fn is_drained(&self) -> bool {
        self.requester.send_queue.is_empty() && self.responder.receives.is_empty()
    }

    /// Returns whether an element of an outstanding request is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.requester.send_queue.has_element(wanted) || self.responder.receives.has_element(wanted)
    }

    /// Returns whether the queue pair is in error and its connection is not notified, because the fatal NAK is not sent yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.state == State::Error && self.connection.id().is_some()
    }

    /// Returns whether a connection can be started with this queue pair.
    pub(crate) fn can_connect(&self) -> bool {
        self.state == State::Init && self.connection.id().is_none()
    }

    /// Detaches the queue pair from a connection that was not established. Returns whether another one can be
    /// started.
    //= R-QP-74
    pub(crate) fn detach(&mut self) -> bool {
        if self.state == State::Init {
            self.connection.detach();
        }
        self.can_connect()
    }

    /// Detaches the queue pair from a connection that has ended. Returns whether the queue pair left `Init`.
    pub(crate) fn connection_ended(&mut self) -> bool {
        self.connection.detach();
        self.state != State::Init
    }

    /// Moves to RTR: requests of the peer are executed from now on.
    pub(crate) fn peer_known<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        peer: Peer,
    ) -> Result<(), TransitionError<State>> {
        self.enter(env, Event::PeerKnown)?;
        match peer.conn {
            Some(conn) => self.connection.attach(conn),
            None => self.connection.attach_owner(),
        }
        self.requester.begin(&peer, &env.shared.config);
        self.responder.begin(&peer);
        self.link = Some(Link { template: peer.template });
        Ok(())
    }

    /// Moves to RTS: requests may be posted from now on. `round_trip` is that of connection management, in nanoseconds, if it has
    /// measured one.
    pub(crate) fn established<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        round_trip: Option<u64>,
    ) -> Result<(), TransitionError<State>> {
        self.enter(env, Event::Established)?;
        if let Some(round_trip) = round_trip {
            self.requester.recovery.expect_round_trip(round_trip);
        }
        Ok(())
    }

    /// Makes a transition.
    pub(super) fn enter<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        event: Event,
    ) -> Result<(), TransitionError<State>> {
        let from = self.state;
        self.state = from.on(event)?;
        env.trace(oldest_psn(&self.requester), TraceEvent::State { from, to: self.state });
        Ok(())
    }

    /// Moves to the error state and drops pending responses: the owner or the connection has ended.
    pub(crate) fn abort<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.fail(env, Failure::Aborted);
    }

    /// Moves to the error state. All requests and receives are flushed. A pending NAK is still sent, unless the connection has
    /// ended or no frame can be built.
    #[inline(never)]
    pub(super) fn fail<R: RawMutex>(&mut self, env: &Env<'_, R>, failure: Failure) {
        if failure.is_silent() {
            self.responder.stop();
        }
        if failure == Failure::Aborted {
            self.connection.end_direct();
        }
        if self.enter(env, Event::Fail).is_ok() {
            env.stats.qp_errors.inc();
            env.trace(oldest_psn(&self.requester), TraceEvent::Flushed(failure.text()));
        }
        // A fatal NAK goes out before the DREQ: after a DREQ the peer ignores it.
        //= R-QP-55
        if self.responder.fatal_nak().is_none() {
            self.connection.report_failure(env, QpFault::of(None));
        }
        self.cnp.clear();
        self.rate.wake();
        self.drain = Drain::None;
        //= R-QP-59
        //= R-QP-27
        //= R-QP-39
        //= R-QP-2
        let unreliable = self.unreliable.as_deref_mut();
        unreliable::flush_requests(&mut self.requester, unreliable, env, failure.status());
        self.responder.flush(env);
    }

    /// Moves to the error state if a step of one of the halves has failed.
    #[inline]
    fn settle<R: RawMutex>(&mut self, env: &Env<'_, R>, step: Result<(), Failure>) {
        if let Err(failure) = step {
            self.fail(env, failure);
        }
    }

    /// Changes the MAC address of the next hop, to which later frames go.
    pub(crate) fn set_next_hop(&mut self, mac: MacAddr) {
        if let Some(link) = &mut self.link {
            link.template.set_destination(mac);
        }
    }
}

/// Posts.
impl RcTransport {
    /// Posts a request that is not local.
    #[inline]
    pub(crate) fn post_send(&mut self, request: &SendRequest<'_>, config: &Config) -> Result<(), PostError> {
        if self.state != State::Rts {
            return Err(PostError::NotConnected);
        }
        let requester = &mut self.requester;
        //= R-QP-53
        if matches!(request.operation, SendOperation::Read { .. }) && !requester.reads.are_allowed() {
            return Err(PostError::NotAllowed);
        }
        requester.send_queue.post(request, requester.mtu, config.max_message)
    }

    /// Posts a local request, and executes it if everything before it is sent.
    pub(crate) fn post_local<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if self.state != State::Rts {
            return Err(PostError::NotConnected);
        }
        let executed = self.requester.post_local(env, request)?;
        self.settle(env, executed);
        Ok(())
    }

    /// Asks the peer for an answer, by a WRITE without data: its ACK shows that the peer still has the connection, and if
    /// there is none, the connection ends as with any other request. Returns `false` if nothing has to be sent, because the peer
    /// was heard of lately, or an answer is awaited already.
    //= rocev2 §12
    pub(crate) fn challenge(&mut self, now: Instant) -> bool {
        let is_alive = self.last_received.is_some_and(|last| now.duration_since(last) < ALIVE_TIME);
        self.state == State::Rts
            && !is_alive
            && self.requester.una >= self.requester.high
            && self.requester.send_queue.post_challenge()
    }

    /// Returns the send queue, to give it memory.
    pub(crate) fn send_queue(&mut self) -> &mut SendQueue {
        &mut self.requester.send_queue
    }

    /// Returns the receives, to post to them or to flush them.
    pub(crate) fn receives(&mut self) -> &mut Receives {
        &mut self.responder.receives
    }
}

/// Received packets.
impl RcTransport {
    /// Handles a packet for this queue pair. Its ICRC was checked. If it sets `placement`, the caller releases the lock, runs that,
    /// acquires the lock and calls [`RcTransport::finish_placement`].
    #[inline]
    pub(crate) fn handle<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
    ) -> Result<Handled, DropReason> {
        let handled = match self.link.as_ref().filter(|_| self.state.serves()) {
            None => {
                let unreliable = self.unreliable.as_deref_mut();
                unreliable::handle(self.state, unreliable, &mut self.responder.receives, env, packet)
            }
            //= rocev2 §6
            Some(link) if !link.template.is_reverse_of(packet) => return Err(DropReason::Address),
            Some(_) => match packet.info().class {
                Class::Request => self.responder.handle_request(env, packet, placement),
                Class::Response => self.requester.handle_response(env, packet, placement),
                // A CNP has no PSN of the connection.
                Class::Congestion if packet.bth().becn() => {
                    congestion::handle_cnp(env, &mut self.rate);
                    return Ok(Handled::default());
                }
                Class::Datagram | Class::Unreliable | Class::Congestion => return Err(DropReason::Opcode),
            },
        };
        self.copying = placement.is_some();
        let handled = match handled {
            Ok(()) => Ok(()),
            Err(PacketError::Dropped(reason)) => Err(reason),
            Err(PacketError::Fatal(failure)) => {
                self.fail(env, failure);
                Ok(())
            }
        };
        if packet.congestion_experienced() && handled != Err(DropReason::Opcode) {
            // If the packet has put the queue pair in error, nothing more is sent.
            congestion::handle_mark(env, &mut self.cnp, self.state.serves());
        }
        handled?;
        if self.state == State::Sqd {
            self.drain.advance(env, &self.requester);
        }
        self.last_received = Some(env.now);
        Ok(Handled::new(self.state, &self.connection))
    }

    /// Handles a SEND of the usual form, with less than [`MIN_LENGTH`](super::packet::payload_copy::MIN_LENGTH) bytes. Its ICRC
    /// was checked. Returns `false`, and has changed nothing, if [`RcTransport::handle`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every small SEND")]
    pub(crate) fn handle_plain_send<R: RawMutex>(&mut self, env: &Env<'_, R>, send: &PlainSend<'_>) -> bool {
        if !self.accepts_plain(send.headers) {
            return false;
        }
        let Some(handled) = self.responder.handle_plain_send(env, send) else { return false };
        self.settle(env, handled);
        self.last_received = Some(env.now);
        true
    }

    /// Handles an acknowledgement of the usual form. Its ICRC was checked. Returns `false`, and has changed nothing, if
    /// [`RcTransport::handle`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every ACK")]
    pub(crate) fn handle_plain_ack<R: RawMutex>(&mut self, env: &Env<'_, R>, ack: PlainAck<'_>) -> bool {
        if !self.accepts_plain(ack.headers) {
            return false;
        }
        let Some(handled) = self.requester.handle_plain_ack(env, ack) else { return false };
        self.settle(env, handled);
        self.last_received = Some(env.now);
        true
    }

    /// Returns whether a packet of the usual form is from the peer, and the queue pair in the usual state: in other states, the
    /// packet may establish the connection, or is of no use.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small message")]
    fn accepts_plain(&self, headers: PlainHeaders<'_>) -> bool {
        //= rocev2 §6
        self.state == State::Rts
            && self.link.as_ref().is_some_and(|link| link.template.is_reverse_of_plain(headers))
    }

    /// Accounts for the packet whose payload was copied.
    pub(crate) fn finish_placement<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &Placement,
        placed: Result<(), AccessError>,
    ) -> Handled {
        self.copying = false;
        let finished = match placement {
            Placement::Receive { end, .. } => self.responder.finish_send(env, packet, *end, placed),
            Placement::Write(write) => self.responder.finish_write(env, packet, *write, placed),
            Placement::Response { end, .. } => self.requester.finish_response(env, packet, *end, placed),
        };
        self.settle(env, finished);
        if self.state == State::Sqd {
            self.drain.advance(env, &self.requester);
        }
        Handled::new(self.state, &self.connection)
    }
}

/// Deadlines.
impl RcTransport {
    /// Handles the deadline that [`RcTransport::rearm`] scheduled.
    pub(crate) fn handle_timeout<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.scheduled = None;
        if self.rate.wake_at().is_some_and(|at| at <= env.now) {
            self.rate.wake();
        }
        standstill::handle(&mut self.responder, env);
        match self.requester.handle_timeout(env) {
            Ok(true) => self.connection.report_suspect_path(env.shared),
            Ok(false) => {}
            Err(failure) => self.fail(env, failure),
        }
    }

    /// Schedules the next deadline of this queue pair, if it is earlier than the scheduled one. To be called
    /// after every step.
    #[inline]
    pub(crate) fn rearm(&mut self, index: u32, mut schedule: impl FnMut(u32, Instant)) {
        // A later deadline leaves the scheduled one in place: a wake-up that is too early schedules again,
        // which costs less than moving the entry with every ACK.
        let deadline = earlier(self.requester.deadline(), self.rate.wake_at());
        let deadline = earlier(deadline, standstill::deadline(&self.responder));
        if let Some(deadline) = deadline
            && self.scheduled.is_none_or(|scheduled| scheduled > deadline)
        {
            self.scheduled = Some(deadline);
            schedule(index, deadline);
        }
    }

    /// The scheduled deadline was canceled; the next [`RcTransport::rearm`] schedules it again.
    pub(crate) fn unschedule(&mut self) {
        self.scheduled = None;
    }
}

/// Returns the PSN of the oldest request packet that is not acknowledged.
fn oldest_psn(requester: &Requester) -> Psn {
    requester.psns.psn(requester.una)
}

/// Returns the earlier of two deadlines.
#[inline]
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}
