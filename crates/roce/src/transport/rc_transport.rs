// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transport state of one queue pair: life cycle, error state, completions.
//!
//! # Cache lines
//!
//! With many busy queue pairs, each packet finds the state of its queue pair in memory. What every packet uses is therefore
//! together, in the order of the fields, and loaded at once ([`RcTransport::prefetch`]):
//!
//! | fields | used by |
//! | --- | --- |
//! | to the start of `responder.reads` | received SENDs and WRITEs, acknowledgements to send; `link` by every packet |
//! | from the end of `rate` to the first part of `send_queue` | requests |
//! | from the end of `requester.gaps` to the start of `requester.recovery.retransmission` | requests, received acknowledgements |
//!
//! The rest is for READs, losses, paced queue pairs, and requests of several elements.

use core::mem::offset_of;
use core::ops::Range;
use core::time::Duration;

use alloc::vec::Vec;
use lock_api::RawMutex;

use state_table::TransitionError;

use super::env::Env;
use super::peer::{Link, Peer};
use super::state::{Event, State};
use crate::config::Config;
use crate::conn::ConnId;
use crate::error::{CreateError, PostError};
use crate::prefetch::prefetch_bytes;
use crate::qp_attributes::QpSpec;
use crate::recv_queue::{CurrentReceive, RecvQueue};
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::congestion::cnp::CnpState;
use crate::transport::congestion::rate::RateLimiter;
use crate::transport::packet::payload_copy::Copying;
use crate::transport::requester::Requester;
use crate::transport::requester::recovery::Recovery;
use crate::transport::requester::send_queue::SendQueue;
use crate::transport::responder::Responder;
use crate::transport::responder::inbound_reads::InboundReads;
use crate::work::{CompletionKind, CompletionStatus, RecvRequest, Sge};
use roce_wire::{ImmDt, MacAddr};

/// How long a peer counts as alive after a packet of it. Shorter than the time that a host takes to boot, which loses its
/// connections without a DREQ.
const ALIVE_TIME: Duration = Duration::from_secs(5);

/// The part of a queue pair that changes, under its lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RcTransport {
    pub(super) cnp: CnpState,
    pub(super) state: State,
    /// A payload is being copied, without the lock.
    pub(super) copying: Option<Copying>,
    /// When the last valid packet of the peer arrived.
    pub(super) last_received: Option<Instant>,
    /// The deadline scheduled in the timer wheel.
    pub(super) scheduled: Option<Instant>,
    pub(super) recv_queue: RecvQueue,
    pub(super) link: Option<Link>,
    /// The receive that the current message fills.
    pub(super) current_receive: CurrentReceive,
    pub(super) responder: Responder,
    /// The connection of the queue pair, until the queue pair's failure is reported to it.
    pub(super) conn: Option<ConnId>,
    /// It was reported that the path may have another next hop, and the driver does not know yet.
    path_suspected: bool,
    pub(super) rate: RateLimiter,
    pub(super) send_queue: SendQueue,
    pub(super) requester: Requester,
}

impl RcTransport {
    /// A constant, so that it is built in place: it is too large for a kernel stack.
    pub(crate) const RESET: Self = Self {
        state: State::Reset,
        conn: None,
        link: None,
        send_queue: SendQueue::EMPTY,
        requester: Requester::IDLE,
        recv_queue: RecvQueue::EMPTY,
        current_receive: CurrentReceive::NONE,
        responder: Responder::IDLE,
        cnp: CnpState::IDLE,
        rate: RateLimiter::UNLIMITED,
        scheduled: None,
        last_received: None,
        path_suspected: false,
        copying: None,
    };

    /// Allocates everything that the queue pair will ever need.
    pub(crate) fn initialize<R: RawMutex>(
        &mut self,
        spec: &QpSpec<R>,
        config: &Config,
    ) -> Result<(), CreateError> {
        let recv_sges = spec.srq.as_ref().map_or(spec.recv_sges, |srq| srq.sges());
        let recv_depth = if spec.srq.is_some() { 0 } else { spec.recv_depth };
        self.send_queue = SendQueue::try_new(spec.send_depth, spec.send_sges, spec.inline)?;
        self.send_queue.set_wide(config.read_sges);
        self.recv_queue = RecvQueue::try_new(recv_depth, spec.recv_sges)?;
        self.current_receive = CurrentReceive::try_new(recv_sges)?;
        self.requester.initialize(config)?;
        self.responder.initialize(config)?;
        self.state = self.state.on(Event::Initialize).map_err(|_| CreateError::Invalid)?;
        Ok(())
    }

    /// Starts to load what a packet uses of the transport at `this`, which other threads may use.
    #[inline]
    pub(crate) fn prefetch(this: *const Self) {
        prefetch_bytes(this.cast(), Self::RECEIVED);
        prefetch_bytes(this.cast(), Self::POSTED);
        prefetch_bytes(this.cast(), Self::REQUESTED);
    }

    /// [`RcTransport::prefetch`] of the receive queue.
    #[inline]
    pub(crate) fn prefetch_receives(this: *const Self) {
        prefetch_bytes(this.cast(), 0..offset_of!(Self, recv_queue) + size_of::<RecvQueue>());
    }

    /// Offsets of what the table above lists.
    const RECEIVED: Range<usize> = 0..offset_of!(Self, responder.reads) + InboundReads::USUAL;
    const POSTED: Range<usize> =
        offset_of!(Self, rate) + RateLimiter::USUAL..offset_of!(Self, send_queue) + SendQueue::USUAL;
    const REQUESTED: Range<usize> = offset_of!(Self, requester) + Requester::USUAL
        ..offset_of!(Self, requester.recovery) + Recovery::USUAL;

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns whether the payload of a packet is being copied without the lock.
    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Asks the peer for an answer, by a WRITE without data: its ACK shows that the peer still has the connection, and if
    /// there is none, the connection ends as with any other request. Returns `false` if nothing has to be sent, because the peer
    /// was heard of lately, or an answer is awaited already.
    //= rocev2 §12
    pub(crate) fn challenge(&mut self, now: Instant) -> bool {
        let requester = &self.requester;
        let is_alive = self.last_received.is_some_and(|last| now.duration_since(last) < ALIVE_TIME);
        self.state == State::Rts
            && !is_alive
            && requester.una >= requester.high
            && self.send_queue.post_challenge()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.send_queue.is_empty() && self.recv_queue.is_empty() && !self.current_receive.active
    }

    /// Returns whether an element of an outstanding request is one that `wanted` accepts.
    pub(crate) fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        let current = &self.current_receive;
        self.send_queue.has_element(wanted)
            || self.recv_queue.has_element(wanted)
            || (current.active && current.sges().iter().any(wanted))
    }

    /// Returns whether the queue pair is in error and its connection is not notified, because the fatal NAK is not sent yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.state == State::Error && self.conn.is_some()
    }

    /// Returns whether a connection can be started with this queue pair.
    pub(crate) fn can_connect(&self) -> bool {
        self.state == State::Init && self.conn.is_none()
    }

    /// Attaches the queue pair to a connection that is being established.
    pub(crate) fn attach(&mut self, conn: ConnId) {
        self.conn = Some(conn);
    }

    /// Detaches the queue pair from a connection that was not established. Returns whether another one can be
    /// started.
    //= R-QP-74
    pub(crate) fn detach(&mut self) -> bool {
        if self.state == State::Init {
            self.conn = None;
        }
        self.can_connect()
    }

    /// Detaches the queue pair from a connection that has ended. Returns whether the queue pair left `Init`.
    pub(crate) fn connection_ended(&mut self) -> bool {
        self.conn = None;
        self.state != State::Init
    }

    /// Moves to RTR: requests of the peer are executed from now on.
    pub(crate) fn peer_known<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        peer: Peer,
    ) -> Result<(), TransitionError<State>> {
        self.enter(env, Event::PeerKnown)?;
        self.conn = Some(peer.conn);
        self.requester.begin(&peer, &env.shared.config);
        self.responder.begin(&peer);
        self.link = Some(Link { template: peer.template });
        Ok(())
    }

    /// Moves to RTS: requests may be posted from now on.
    pub(crate) fn established<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
    ) -> Result<(), TransitionError<State>> {
        self.enter(env, Event::Established)
    }

    /// Makes a transition.
    fn enter<R: RawMutex>(&mut self, env: &Env<'_, R>, event: Event) -> Result<(), TransitionError<State>> {
        let from = self.state;
        self.state = from.on(event)?;
        let psn = self.requester.psns.psn(self.requester.una);
        env.trace(psn, TraceEvent::State { from, to: self.state });
        Ok(())
    }

    /// See [`SendQueue::room_for`].
    pub(crate) fn room_for(&self, elements: usize) -> usize {
        self.send_queue.room_for(elements)
    }

    /// See [`SendQueue::widen`].
    pub(crate) fn widen(&mut self, room: Vec<Sge>) -> Vec<Sge> {
        self.send_queue.widen(room)
    }

    pub(crate) fn post_recv(&mut self, request: &RecvRequest<'_>, config: &Config) -> Result<(), PostError> {
        self.recv_queue.post(request, config.max_message)
    }

    /// Moves to the error state. The oldest request of the send queue completes with `failed`, if given; all
    /// others are flushed. A pending NAK is still sent.
    pub(super) fn fail<R: RawMutex>(&mut self, env: &Env<'_, R>, failed: Option<CompletionStatus>) {
        if self.enter(env, Event::Fail).is_ok() {
            env.stats.qp_errors.inc();
        }
        // A fatal NAK goes out before the DREQ: after a DREQ the peer ignores it.
        //= R-QP-55
        if !self.responder.is_fatal_nak_pending() {
            self.report_failure(env);
        }
        self.requester.stop();
        self.responder.stash.clear(&env.shared.stash);
        self.responder.nak_twice = false;
        self.cnp.clear();
        self.rate.wake();
        //= R-QP-59
        //= R-QP-27
        //= R-QP-39
        //= R-QP-2
        let mut status = failed.unwrap_or(CompletionStatus::Flushed);
        while let Some(wqe) = self.send_queue.pop() {
            if wqe.is_challenge() {
                // The request after it has waited for the same answer. A NAK is about the challenge alone.
                if status != CompletionStatus::RetryExceeded {
                    status = CompletionStatus::Flushed;
                }
                continue;
            }
            env.cancel(&wqe);
            env.complete_send(wqe.context, wqe.kind(), status, 0);
            status = CompletionStatus::Flushed;
        }
        //= R-SRQ-20
        if core::mem::take(&mut self.current_receive.active) {
            env.complete_receive(self.current_receive.context, CompletionStatus::Flushed);
        }
        //= R-QP-66
        self.drain_receives(env);
    }

    /// Reports the failure to the connection, once.
    pub(super) fn report_failure<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Some(conn) = self.conn.take() {
            env.shared.report_failed_connection(conn);
        }
    }

    /// Reports that the peer has not answered for an ACK timeout: frames may go to a next hop that is no longer the right one.
    pub(super) fn report_suspect_path<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Some(conn) = self.conn
            && !core::mem::replace(&mut self.path_suspected, true)
        {
            env.shared.report_suspect_path(conn);
        }
    }

    /// The driver takes the report: from now on there may be another one.
    pub(crate) fn take_suspect_path(&mut self) {
        self.path_suspected = false;
    }

    /// Changes the MAC address of the next hop, to which later frames go.
    pub(crate) fn set_next_hop(&mut self, mac: MacAddr) {
        if let Some(link) = &mut self.link {
            link.template.set_destination(mac);
        }
    }

    /// Moves to the error state and drops pending responses: the owner or the connection has ended.
    pub(crate) fn abort<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.responder.stop();
        self.fail(env, None);
    }

    /// Completes posted receives as flushed.
    pub(crate) fn drain_receives<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while let Some(context) = self.recv_queue.pop() {
            env.complete_receive(context, CompletionStatus::Flushed);
        }
    }

    /// Completes the current message and its receive, of this `context`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    pub(super) fn complete_message<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        context: u64,
        kind: CompletionKind,
        immediate: Option<ImmDt<'_>>,
        solicited: bool,
        bytes: u32,
    ) {
        self.current_receive.active = false;
        self.responder.end_message();
        //= R-CQ-23
        //= R-CQ-26
        let mut completion = env.completion(context, kind, CompletionStatus::Success, bytes);
        completion.immediate = immediate.map(|imm| imm.data());
        //= R-CQ-5
        env.push_completion(&env.qp.recv_cq, completion, solicited);
    }

    /// Completes a request that could not be sent, once it is the oldest.
    pub(super) fn finish_failed_request<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Some((first, status)) = self.requester.failed_request
            && self.send_queue.front().is_some_and(|wqe| wqe.first == first)
        {
            self.fail(env, Some(status));
        }
    }
}
