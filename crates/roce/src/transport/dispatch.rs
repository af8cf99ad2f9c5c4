// SPDX-License-Identifier: MIT OR Apache-2.0

//! Entry points of the transport: posts, received packets, frames to transmit, timeouts.

use lock_api::RawMutex;

use super::env::Env;
use super::rc_transport::RcTransport;
use super::state::State;
use crate::config::Config;
use crate::conn::ConnId;
use crate::drop_reason::DropReason;
use crate::error::PostError;
use crate::region::access_rights::AccessError;
use crate::time::Instant;
use crate::transport::packet::frame::Unsent;
use crate::transport::packet::payload_copy::{Copying, PayloadCopy};
use crate::transport::packet::placement::Placement;
use crate::work::{CompletionStatus, SendOperation, SendRequest};
use roce_wire::{Class, Frame, Packet};

/// Effect of a received packet beyond its queue pair.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Handled {
    /// The connection that this packet establishes: it arrived before the peer's RTU and stands for it.
    pub(crate) established: Option<ConnId>,
}

/// What [`RcTransport::transmit`] may send now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    cnp: bool,
    response: bool,
    request: bool,
}

impl Next {
    #[inline]
    const fn any(self) -> bool {
        self.response | self.request | self.cnp
    }
}

/// What [`RcTransport::transmit`] did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transmitted {
    /// It wrote a frame of this length, in bytes.
    Frame(usize),
    /// The payload is to be copied. The caller calls [`RcTransport::begin_copy`], releases the lock, runs the copy, acquires the
    /// lock and calls [`RcTransport::finish_copy`].
    Copying,
    /// There is nothing to send now.
    Nothing,
}

impl RcTransport {
    /// Returns whether [`RcTransport::transmit`] may have a frame.
    #[inline]
    pub(crate) fn wants_to_transmit(&self) -> bool {
        self.responder.has_response() || self.wants_to_request() || self.cnp.is_pending()
    }

    /// Returns what [`RcTransport::transmit`] may send now; `None` for nothing. A pause ends the turn of the responses.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next> {
        let next = Next {
            cnp: self.cnp.is_pending(),
            response: self.responder.has_response(),
            request: self.wants_to_request(),
        };
        self.responder.responded &= next.any();
        next.any().then_some(next)
    }

    /// Posts a request that is not local.
    #[inline]
    pub(crate) fn post_send(&mut self, request: &SendRequest<'_>, config: &Config) -> Result<(), PostError> {
        if self.state != State::Rts {
            return Err(PostError::NotConnected);
        }
        //= R-QP-53
        if matches!(request.operation, SendOperation::Read { .. }) && self.requester.max_reads == 0 {
            return Err(PostError::NotAllowed);
        }
        self.send_queue.post(request, self.requester.mtu, config.max_message)
    }

    /// Handles a packet for this queue pair. Its ICRC was checked. If it sets `placement`, the caller releases the lock, runs that,
    /// acquires the lock and calls [`RcTransport::finish_placement`].
    #[inline]
    pub(crate) fn handle<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
    ) -> Result<Handled, DropReason> {
        let Some(link) = self.link.as_ref().filter(|_| self.state.serves()) else {
            return Err(DropReason::State);
        };
        //= rocev2 §6
        if !link.template.is_reverse_of(packet) {
            return Err(DropReason::Address);
        }
        let handled = match packet.info().class {
            Class::Request => self.handle_request(env, packet, Some(placement)),
            Class::Response => self.handle_response(env, packet, placement),
            // A CNP has no PSN of the connection.
            Class::Congestion if packet.bth().becn() => {
                self.handle_cnp(env);
                return Ok(Handled::default());
            }
            Class::Datagram | Class::Congestion => return Err(DropReason::Opcode),
        };
        if packet.congestion_experienced() && handled != Err(DropReason::Opcode) {
            self.handle_mark(env);
        }
        handled?;
        self.last_received = Some(env.now);
        Ok(self.handled())
    }

    /// Accounts for the packet whose payload was copied.
    pub(crate) fn finish_placement<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &Placement,
        placed: Result<(), AccessError>,
    ) -> Handled {
        self.copying = None;
        match placement {
            Placement::Receive { end, .. } => self.finish_send(env, packet, *end, placed),
            Placement::Write(write) => self.finish_write(env, packet, *write, placed),
            Placement::Response { end, .. } => self.finish_response_packet(env, packet, *end, placed),
        }
        self.handled()
    }

    #[inline]
    fn handled(&self) -> Handled {
        //= rocev2 §12
        Handled { established: self.conn.filter(|_| self.state == State::Rtr) }
    }

    /// Writes the next frame to `slot`, or sets `copy`. `next` is what [`RcTransport::next`] has returned.
    #[inline]
    pub(crate) fn transmit<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        next: Next,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Transmitted {
        let sent = if next.cnp {
            self.cnp.transmit(self.link.as_ref(), env, slot)
        } else if self.rate.is_limited() {
            self.transmit_paced(env, next, slot, copy)
        } else {
            self.transmit_next(env, next, slot, copy)
        };
        match sent {
            Ok(len) => Transmitted::Frame(len),
            Err(Unsent::Idle) => Transmitted::Nothing,
            Err(Unsent::Copying) => Transmitted::Copying,
            Err(Unsent::Failed) => {
                self.fail_to_build(env);
                Transmitted::Nothing
            }
        }
    }

    /// Writes the headers of the frame whose payload is to be copied. Returns `None` if that fails.
    pub(crate) fn begin_copy<'s, R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &'s mut [u8],
        copy: &PayloadCopy,
    ) -> Option<Frame<'s>> {
        let length = self.copying.and_then(Copying::frame_payload)?;
        let frame = copy.begin(self.link.as_ref(), env, slot, length);
        if frame.is_err() {
            self.fail_to_build(env);
        }
        frame.ok()
    }

    /// Reports the error: retrying would fail again, and the queue pair would stall.
    #[inline(never)]
    fn fail_to_build<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.copying = None;
        self.responder.stop();
        self.fail(env, Some(CompletionStatus::LocalOperation));
    }

    /// Accounts for the packet whose payload was copied: `copied` is the length of its frame. Returns that, or `None` if its
    /// memory could not be read.
    pub(crate) fn finish_copy<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copied: Result<usize, AccessError>,
    ) -> Option<usize> {
        let (sent, paced, serving) = match self.copying.take()? {
            Copying::Request(copying) => {
                (self.finish_request(env, copying, copied), copying.paced, self.responder.is_serving())
            }
            Copying::Response(copying) => {
                let sent = self.finish_response(env, copying, copied).ok_or(Unsent::Idle);
                (sent, copying.paced, true)
            }
            Copying::Packet => return None,
        };
        if paced {
            self.account_paced(env, sent, serving);
        }
        sent.ok()
    }

    #[inline]
    fn transmit_next<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        next: Next,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        // Responses go first, but not twice in a row while there are requests to send.
        let request_first = self.responder.take_responded();
        if next.response && !(request_first && next.request) {
            let sent = self.transmit_response(env, slot, copy);
            // What is executed for a response may end the connection.
            if sent != Err(Unsent::Idle) || request_first || !self.wants_to_request() {
                return sent;
            }
            return self.transmit_request(env, slot, copy);
        }
        if next.request {
            let sent = self.transmit_request(env, slot, copy);
            if sent != Err(Unsent::Idle) {
                return sent;
            }
        }
        // It waited for the request.
        if self.responder.has_response() {
            return self.transmit_response(env, slot, copy);
        }
        Err(Unsent::Idle)
    }

    /// Writes the next frame if the rate allows it, or one that is not paced. Requests and READ responses are
    /// paced; acknowledgements are not.
    #[inline(never)]
    fn transmit_paced<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        next: Next,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        let reaction = &env.shared.config.congestion.reaction;
        let serving = self.responder.is_serving();
        if self.rate.may_send(env.now, !serving, reaction) {
            let sent = self.transmit_next(env, next, slot, copy);
            if sent != Err(Unsent::Copying) {
                self.account_paced(env, sent, serving);
            }
            return sent;
        }
        if serving || next.request {
            self.rate.wait();
        }
        // An ACK must not overtake READ responses.
        if serving { Err(Unsent::Idle) } else { self.transmit_response(env, slot, copy) }
    }

    /// Accounts for a frame that the rate allowed. `serving` tells whether the next response was a READ response before.
    fn account_paced<R: RawMutex>(&mut self, env: &Env<'_, R>, sent: Result<usize, Unsent>, serving: bool) {
        if let Ok(len) = sent {
            self.rate.sent(env.now, len, &env.shared.config.congestion.reaction);
        }
        let idle = !self.responder.is_serving() && !self.wants_to_request();
        if idle || sent.is_err() {
            // The credit of READ responses is kept: the peer's next READ comes when it has these.
            self.rate.hold(env.now, idle && !serving);
        }
    }

    /// Handles the deadline that [`RcTransport::rearm`] scheduled.
    pub(crate) fn handle_timeout<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        self.scheduled = None;
        if self.rate.wake_at().is_some_and(|at| at <= env.now) {
            self.rate.wake();
        }
        self.check_deadline(env);
    }

    /// Schedules the next deadline of this queue pair, if it is earlier than the scheduled one. To be called
    /// after every step.
    #[inline]
    pub(crate) fn rearm(&mut self, index: u32, mut schedule: impl FnMut(u32, Instant)) {
        // A later deadline leaves the scheduled one in place: a wake-up that is too early schedules again,
        // which costs less than moving the entry with every ACK.
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

    /// The scheduled deadline was canceled; the next [`RcTransport::rearm`] schedules it again.
    pub(crate) fn unschedule(&mut self) {
        self.scheduled = None;
    }

    /// Handles the CE mark of a request or response, whether or not the packet was of use.
    #[inline(never)]
    fn handle_mark<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        //= rocev2 §14
        env.stats.rx_congestion_marked.inc();
        // Not if the packet has put the queue pair in error: then nothing more is sent.
        if self.state.serves() {
            self.cnp.handle_mark(env.now, &env.shared.config.congestion);
        }
    }

    /// Handles a CNP of the peer.
    #[inline(never)]
    fn handle_cnp<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let stats = &env.stats;
        stats.rx_cnp.inc();
        if self.rate.handle_cnp(env.now, &env.shared.config.congestion) {
            stats.rate_reductions.inc();
        }
    }
}
