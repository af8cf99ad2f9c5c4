//! Reliable connection: one queue pair's transport, under its lock.
//!
//! Split by the field's own halves: `requester` sends what the consumer posted, `completer` hears what the
//! peer answers to it, `responder` serves what the peer asks for. `send` and `recv` are the queues, `state`
//! the life of it all. Nothing here allocates after [`Rc::initialize`], scans more than one request's
//! elements, or knows another queue pair.
//!
//! Sequence numbers are counted in 64 bits from 0 on in both directions; [`Stream`] translates.

mod ahead;
mod completer;
mod local;
mod notices;
mod reads;
mod recovery;
pub(crate) mod recv;
mod requester;
mod responder;
mod send;
mod sges;
mod state;

pub use state::{Event, InvalidTransition, State, TransitionTable};

use core::net::IpAddr;
use core::time::Duration;

use lock_api::RawMutex;

use crate::congestion::{NOTIFICATION_CLASS, Notifier, Rate};
use crate::conn::{ConnId, ReadLimits};
use crate::engine::{Config, Engine, Reason};
use crate::error::{CreateError, PostError};
use crate::qp::{Qp, QpSpec};
use crate::time::Instant;
use crate::work::{Completion, CompletionKind, Operation, RecvRequest, SendRequest, Status};
use recv::{Current, RecvQueue};
use requester::Requester;
use responder::Responder;
use roce_wire::{Class, Frame, Headers, Packet, PathMtu, Psn, Template};
use send::SendQueue;

/// What changes of a queue pair, under its lock.
#[derive(Debug)]
pub(crate) struct Rc {
    state: State,
    /// The connection it belongs to, until that has been told of its end.
    conn: Option<ConnId>,
    link: Option<Link>,
    send: SendQueue,
    requester: Requester,
    recv: RecvQueue,
    /// The receive that a message is going into.
    current: Current,
    responder: Responder,
    notifier: Notifier,
    rate: Rate,
    /// When the timer wheel wakes this queue pair, if it does.
    scheduled: Option<Instant>,
    /// When the peer's last packet came that was of use.
    heard: Option<Instant>,
}

/// The way to the peer.
#[derive(Debug)]
struct Link {
    template: Template,
    /// Packets are taken only if they come from here and go there.
    local_ip: IpAddr,
    remote_ip: IpAddr,
}

/// What a queue pair has to know of its connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) conn: ConnId,
    pub(crate) template: Template,
    pub(crate) local_ip: IpAddr,
    pub(crate) remote_ip: IpAddr,
    pub(crate) mtu: PathMtu,
    pub(crate) reads: ReadLimits,
    /// First PSN that this side sends with.
    pub(crate) send_psn: Psn,
    /// First PSN that the peer sends with.
    pub(crate) receive_psn: Psn,
    pub(crate) retries: u8,
    /// 7 for no limit.
    pub(crate) rnr_retries: u8,
    /// Zero for none.
    pub(crate) ack_timeout: Duration,
}

/// Whose queue pair it is and what time it is: what every step needs beside the machine itself.
pub(crate) struct Env<'a, R: RawMutex> {
    pub(crate) engine: &'a Engine<R>,
    pub(crate) qp: &'a Qp<R>,
    pub(crate) now: Instant,
}

/// What a packet leads to, beyond the queue pair.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Outcome {
    /// The first packet of a peer whose RTU has not come: it stands for that.
    pub(crate) established: Option<ConnId>,
}

/// Sequence numbers of one direction.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: Psn,
}

impl Stream {
    const ZERO: Self = Self { start: Psn::new(0) };

    /// What the wire sees.
    #[inline]
    fn psn(self, sequence: u64) -> Psn {
        self.start.add(sequence as u32)
    }

    /// The number that `psn` stands for, of those around `near`; `None` before the first.
    #[inline]
    fn sequence(self, psn: Psn, near: u64) -> Option<u64> {
        let distance = psn.distance_from(self.psn(near));
        near.checked_add_signed(i64::from(distance))
    }
}

/// Why a frame was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    /// There is nothing to send now.
    Idle,
    /// It cannot be built, which is a bug or a slot that is too small.
    Broken,
}

impl Rc {
    /// A constant, so that it comes to be where it will live: it is too large for a kernel stack.
    pub(crate) const RESET: Self = Self {
        state: State::Reset,
        conn: None,
        link: None,
        send: SendQueue::EMPTY,
        requester: Requester::IDLE,
        recv: RecvQueue::EMPTY,
        current: Current::NONE,
        responder: Responder::IDLE,
        notifier: Notifier::QUIET,
        rate: Rate::LINE,
        scheduled: None,
        heard: None,
    };

    /// Makes room for everything that the queue pair will ever hold.
    pub(crate) fn initialize<R: RawMutex>(
        &mut self,
        spec: &QpSpec<R>,
        config: &Config,
    ) -> Result<(), CreateError> {
        let recv_sges = spec.srq.as_ref().map_or(spec.recv_sges, |srq| srq.sges());
        let recv_depth = if spec.srq.is_some() { 0 } else { spec.recv_depth };
        self.send = SendQueue::try_new(spec.send_depth, spec.send_sges, spec.inline)?;
        self.recv = RecvQueue::try_new(recv_depth, spec.recv_sges)?;
        self.current = Current::try_new(recv_sges)?;
        self.responder.initialize(config)?;
        self.state = self.state.on(Event::Initialize).map_err(|_| CreateError::Invalid)?;
        Ok(())
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// When the peer's last packet came that was of use.
    pub(crate) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.send.is_empty() && self.recv.is_empty() && !self.current.active
    }

    /// Whether a connection can be begun with it.
    pub(crate) fn is_free(&self) -> bool {
        self.state == State::Init && self.conn.is_none()
    }

    /// Binds it to a connection that is being made.
    pub(crate) fn attach(&mut self, conn: ConnId) {
        self.conn = Some(conn);
    }

    /// The connection was not made. Whether another one may be begun (R-QP-74).
    pub(crate) fn detach(&mut self) -> bool {
        if self.state == State::Init {
            self.conn = None;
        }
        self.is_free()
    }

    /// The connection is over and knows. Whether the queue pair has seen anything of it.
    pub(crate) fn leave(&mut self) -> bool {
        self.conn = None;
        self.state != State::Init
    }

    /// The peer's requests are served from now on.
    pub(crate) fn peer_known(&mut self, peer: Peer, config: &Config) -> Result<(), InvalidTransition> {
        self.state = self.state.on(Event::PeerKnown)?;
        self.conn = Some(peer.conn);
        self.requester.begin(&peer, config);
        self.responder.begin(&peer);
        self.link =
            Some(Link { template: peer.template, local_ip: peer.local_ip, remote_ip: peer.remote_ip });
        Ok(())
    }

    /// Requests may be posted from now on.
    pub(crate) fn established(&mut self) -> Result<(), InvalidTransition> {
        self.state = self.state.on(Event::Established)?;
        Ok(())
    }

    pub(crate) fn post_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if self.state != State::Rts {
            return Err(PostError::NotConnected);
        }
        if request.operation.is_local() {
            return self.post_local(env, request);
        }
        //= R-QP-53
        if matches!(request.operation, Operation::Read { .. }) && self.requester.max_reads == 0 {
            return Err(PostError::NotAllowed);
        }
        self.send.post(request, self.requester.mtu, env.engine.config.max_message)
    }

    pub(crate) fn post_recv(&mut self, request: &RecvRequest<'_>, config: &Config) -> Result<(), PostError> {
        self.recv.post(request, config.max_message)
    }

    /// A packet for this queue pair, its ICRC checked.
    pub(crate) fn handle<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<Outcome, Reason> {
        let Some(link) = self.link.as_ref().filter(|_| self.state.serves()) else {
            return Err(Reason::State);
        };
        //= rocev2 §6
        if packet.source() != link.remote_ip || packet.destination() != link.local_ip {
            return Err(Reason::Address);
        }
        let handled = match packet.info().class {
            Class::Request => self.handle_request(env, packet),
            Class::Response => self.handle_response(env, packet),
            // No part of any sequence.
            Class::Congestion if packet.bth().becn() => {
                self.handle_notification(env);
                return Ok(Outcome::default());
            }
            Class::Datagram | Class::Congestion => return Err(Reason::Opcode),
        };
        if packet.congestion_experienced() && handled != Err(Reason::Opcode) {
            self.handle_mark(env);
        }
        handled?;
        self.heard = Some(env.now);
        //= rocev2 §12
        let established = self.conn.filter(|_| self.state == State::Rtr);
        Ok(Outcome { established })
    }

    /// Writes the next frame, if there is one, to the slot; its length.
    pub(crate) fn transmit<R: RawMutex>(&mut self, env: &Env<'_, R>, slot: &mut [u8]) -> Option<usize> {
        let sent = if self.notifier.owes() {
            self.transmit_notification(env, slot)
        } else if self.rate.is_limited() {
            self.transmit_paced(env, slot)
        } else {
            self.transmit_next(env, slot)
        };
        if sent == Err(Unsent::Broken) {
            // Never of use again: better told than stuck.
            self.responder.stop();
            self.fail(env, Some(Status::LocalOperation));
        }
        sent.ok()
    }

    #[inline]
    fn transmit_next<R: RawMutex>(&mut self, env: &Env<'_, R>, slot: &mut [u8]) -> Result<usize, Unsent> {
        // What is owed to the peer goes first, but never twice in a row while there are own requests.
        let own_first = self.responder.yield_turn();
        let sent =
            if own_first { self.transmit_request(env, slot) } else { self.transmit_response(env, slot) };
        match sent {
            Err(Unsent::Idle) if own_first => self.transmit_response(env, slot),
            Err(Unsent::Idle) => self.transmit_request(env, slot),
            sent => sent,
        }
    }

    /// The time has come for something.
    pub(crate) fn handle_timeout<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.scheduled = None;
        if self.rate.wake_at().is_some_and(|at| at <= env.now) {
            self.rate.wake();
        }
        self.check_deadline(env);
    }

    /// Has the wheel wake this queue pair in time. To be called after every step.
    pub(crate) fn rearm(&mut self, index: u32, mut schedule: impl FnMut(u32, Instant)) {
        // Lazily: a wake-up that is too early looks at the clock and is set again, which is cheaper than to
        // move it with every acknowledgement.
        let deadline = match (self.deadline(), self.rate.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let Some(deadline) = deadline
            && self.scheduled.is_none_or(|scheduled| scheduled > deadline)
        {
            self.scheduled = Some(deadline);
            schedule(index, deadline);
        }
    }

    /// Goes into error: `failed`, if given, is how the oldest request of the send queue ends; everything
    /// else is flushed. What the peer has to be told still goes out, unless the owner gives up.
    fn fail<R: RawMutex>(&mut self, env: &Env<'_, R>, failed: Option<Status>) {
        if let Ok(state) = self.state.on(Event::Fail) {
            self.state = state;
            env.engine.stats.qp_errors.inc();
        }
        // A refusal goes out before the connection's goodbye: that ends what would have heard of it.
        //= R-QP-55
        if !self.responder.owes_refusal() {
            self.report_broken(env);
        }
        self.requester.stop();
        self.notifier.paid();
        self.rate.wake();
        //= R-QP-59
        //= R-QP-27
        //= R-QP-39
        let mut status = failed.unwrap_or(Status::Flushed);
        while let Some(wqe) = self.send.pop() {
            env.forget(&wqe);
            env.complete_send(wqe.context, wqe.kind(), status, 0);
            status = Status::Flushed;
        }
        //= R-SRQ-20
        if core::mem::take(&mut self.current.active) {
            env.complete_receive(self.current.context, Status::Flushed);
        }
        self.drain_receives(env);
    }

    /// Tells the connection, if it has not been told, that its queue pair has failed.
    fn report_broken<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Some(conn) = self.conn.take() {
            env.engine.report_broken(conn);
        }
    }

    /// The owner, or its connection, gives up: nothing goes out any more, either.
    pub(crate) fn abandon<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.responder.stop();
        self.fail(env, None);
    }

    /// Completes waiting receives as flushed.
    pub(crate) fn drain_receives<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while let Some(context) = self.recv.pop() {
            env.complete_receive(context, Status::Flushed);
        }
    }

    /// Begins a frame, lets `fill` write the payload, ends it.
    fn build<R: RawMutex, E>(
        link: Option<&Link>,
        env: &Env<'_, R>,
        slot: &mut [u8],
        headers: &Headers,
        payload_len: usize,
        fill: impl FnOnce(&mut Frame<'_>) -> Result<(), E>,
    ) -> Result<Result<usize, E>, Unsent> {
        let link = link.ok_or(Unsent::Idle)?;
        let Ok(mut frame) = link.template.begin(env.engine.config.crc, slot, headers, payload_len) else {
            return Err(Unsent::Broken);
        };
        if let Err(error) = fill(&mut frame) {
            return Ok(Err(error));
        }
        let len = frame.finish();
        env.engine.stats.tx_frames.inc();
        if payload_len > 0 {
            env.engine.stats.tx_bytes.add(payload_len as u64);
        }
        Ok(Ok(len))
    }
}

impl<R: RawMutex> Env<'_, R> {
    fn complete_send(&self, context: u64, kind: CompletionKind, status: Status, bytes: u32) {
        let completion = self.completion(context, kind, status, bytes);
        self.engine.push_completion(&self.qp.send_cq, completion, false);
    }

    fn complete_receive(&self, context: u64, status: Status) {
        //= R-CQ-27
        let completion = self.completion(context, CompletionKind::Receive, status, 0);
        self.engine.push_completion(&self.qp.recv_cq, completion, false);
    }

    //= R-CQ-22
    //= R-SRQ-2
    fn completion(&self, context: u64, kind: CompletionKind, status: Status, bytes: u32) -> Completion {
        Completion { qp_context: self.qp.context, context, kind, status, bytes, immediate: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §5
    #[test]
    fn sequence_numbers_survive_the_wrap_of_24_bits() {
        let stream = Stream { start: Psn::new(0x00FF_FFFE) };
        assert_eq!(stream.psn(3), Psn::new(1));
        assert_eq!(stream.sequence(Psn::new(1), 0), Some(3));
        assert_eq!(stream.sequence(Psn::new(0x00FF_FFFD), 0), None, "before the first");
        let far = 0x0123_4567_89AB;
        for distance in [-0x0080_0000, -1, 0, 1, 0x007F_FFFF] {
            let sequence = u64::checked_add_signed(far, distance).unwrap();
            assert_eq!(stream.sequence(stream.psn(sequence), far), Some(sequence));
        }
    }
}
