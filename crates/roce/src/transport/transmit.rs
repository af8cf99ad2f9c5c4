// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames to transmit: which half has its turn, and whether the rate allows it.

use lock_api::RawMutex;

use super::drain::Drain;
use super::env::Env;
use super::failure::Failure;
use super::packet::frame::Unsent;
use super::packet::payload_copy::PayloadCopy;
use super::rc_transport::RcTransport;
use super::state::{Event, State};
use super::unreliable;
use crate::qp_change::QpFault;
use crate::region::access_rights::AccessError;
use roce_wire::Frame;

/// The frames that [`RcTransport::transmit`] may send now.
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

/// Result of [`RcTransport::transmit`].
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

impl Transmitted {
    /// Returns the result of an attempt to write a frame.
    #[inline]
    const fn new(sent: Result<usize, Unsent>) -> Result<Self, Failure> {
        match sent {
            Ok(len) => Ok(Self::Frame(len)),
            Err(Unsent::Idle) => Ok(Self::Nothing),
            Err(Unsent::Copying) => Ok(Self::Copying),
            Err(Unsent::Fatal(failure)) => Err(failure),
        }
    }
}

impl RcTransport {
    /// Returns whether [`RcTransport::transmit`] may have a frame.
    #[inline]
    pub(crate) fn wants_to_transmit(&self) -> bool {
        self.responder.has_response() || self.requester.wants_to_send() || self.cnp.is_pending()
    }

    /// Returns what [`RcTransport::transmit`] may send now; `None` for nothing. A pause ends the turn of the responses.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next> {
        let next = Next {
            cnp: self.cnp.is_pending(),
            response: self.responder.has_response(),
            request: self.requester.wants_to_send(),
        };
        self.responder.responded &= next.any();
        next.any().then_some(next)
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
            self.link.as_ref().ok_or(Unsent::Idle).and_then(|link| Ok(self.cnp.transmit(link, env, slot)?))
        } else if self.rate.is_limited() {
            self.transmit_paced(env, next, slot, copy)
        } else {
            self.transmit_next(env, next, slot, copy)
        };
        Transmitted::new(sent).unwrap_or_else(|failure| self.transmit_after_failure(env, failure, slot, copy))
    }

    /// Moves to the error state, and writes a frame that is still to be sent: responses, and a NAK after them.
    #[cold]
    #[inline(never)]
    fn transmit_after_failure<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        failure: Failure,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Transmitted {
        self.fail(env, failure);
        let sent = self.transmit_response(env, slot, copy);
        Transmitted::new(sent).unwrap_or_else(|failure| {
            self.fail(env, failure);
            Transmitted::Nothing
        })
    }

    /// Writes the headers of the frame whose payload is to be copied, which holds the queue pair until [`RcTransport::finish_copy`].
    /// Returns `None` if that fails.
    pub(crate) fn begin_copy<'s, R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &'s mut [u8],
        copy: &PayloadCopy,
    ) -> Option<Frame<'s>> {
        let begun = copy.begin(self.link.as_ref()?, env, slot);
        match begun {
            Ok(_) => self.copying = true,
            Err(failure) => self.fail(env, failure),
        }
        begun.ok()
    }

    /// Accounts for the packet whose payload was copied: `copied` is the length of its frame. Returns that, or `None` if its
    /// memory could not be read.
    pub(crate) fn finish_copy<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copy: &PayloadCopy,
        copied: Result<usize, AccessError>,
    ) -> Option<usize> {
        self.copying = false;
        let (sent, serving) = match copy.request {
            Some(packet) => {
                (self.requester.finish_copy(env, copy, packet, copied), self.responder.reads.is_serving())
            }
            None => (self.responder.finish_copy(env, copy, copied), true),
        };
        // Before a failure, which leaves nothing to be paced and ends a wait for the rate.
        if self.rate.is_limited() {
            self.account_paced(env, sent, serving);
        }
        if let Err(Unsent::Fatal(failure)) = sent {
            self.fail(env, failure);
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
        let request_first = core::mem::take(&mut self.responder.responded);
        if next.response && !(request_first && next.request) {
            let sent = self.transmit_response(env, slot, copy);
            if sent != Err(Unsent::Idle) || request_first || !self.requester.wants_to_send() {
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
        let serving = self.responder.reads.is_serving();
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
        let idle = !self.responder.reads.is_serving() && !self.requester.wants_to_send();
        if idle || sent.is_err() {
            // The credit of READ responses is kept: the peer's next READ comes when it has these.
            self.rate.hold(env.now, idle && !serving);
        }
    }

    /// Writes the next request packet, or sets `copy`.
    #[inline]
    fn transmit_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        let Some(link) = self.link.as_ref() else {
            return transmit_unreliable(self, env, slot);
        };
        self.requester.transmit(env, link, &self.rate, slot, copy)
    }

    /// Writes the next READ response, NAK or ACK, or sets `copy`.
    #[inline]
    fn transmit_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        let link = self.link.as_ref().ok_or(Unsent::Idle)?;
        let nak = if self.state == State::Error { self.responder.fatal_nak() } else { None };
        let sent = self.responder.transmit(env, link, slot, copy);
        if self.state == State::Error && self.responder.fatal_nak().is_none() {
            self.connection.report_failure(env, QpFault::of(nak));
        }
        sent
    }
}

/// Writes the next frame of an unreliable service. If the memory of a request cannot be read, the send queue ends: requests are
/// flushed, and messages received as before.
///
/// Source: IBTA Volume 1, section 10.3.1 (send queue error).
#[cold]
#[inline(never)]
fn transmit_unreliable<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    slot: &mut [u8],
) -> Result<usize, Unsent> {
    let unreliable = transport.unreliable.as_mut().ok_or(Unsent::Idle)?;
    match transport.state {
        State::UnreliableRts => {}
        State::UnreliableSqd if unreliable.is_within_message() => {}
        _ => return Err(Unsent::Idle),
    }
    let sent = unreliable.transmit(&mut transport.requester, env, slot);
    if sent != Err(Unsent::Fatal(Failure::LocalProtection)) {
        if transport.drain.is_pending() && !unreliable.is_within_message() {
            transport.drain.finish(env);
        }
        return sent;
    }
    transport.drain = Drain::None;
    let status = Failure::LocalProtection.status();
    unreliable::flush_requests(&mut transport.requester, Some(unreliable), env, status);
    // Possible in this state.
    let _ = transport.enter(env, Event::FailSends);
    Err(Unsent::Idle)
}
