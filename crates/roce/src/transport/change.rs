// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair whose owner connects it, without connection management.

use alloc::boxed::Box;
use core::time::Duration;

use lock_api::RawMutex;

use super::congestion::cnp::CnpState;
use super::congestion::rate::RateLimiter;
use super::connection::Connection;
use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester::life_cycle;
use super::responder;
use super::state::{Event, State};
use super::unreliable::Unreliable;
use crate::error::QpChangeError;
use crate::qp_change::RequesterSpec;
use roce_wire::Psn;

/// Moves from RTR to RTS, with what the requester needs.
pub(crate) fn start_requester<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    spec: RequesterSpec,
    ack_timeout: Duration,
) -> Result<(), QpChangeError> {
    if transport.state != State::Rtr {
        return Err(QpChangeError::State);
    }
    life_cycle::begin_sending(&mut transport.requester, spec, ack_timeout, &env.shared.config);
    transport.established(env).map_err(|_| QpChangeError::State)
}

/// Moves to Reset: drops all requests and receives without completions.
pub(crate) fn reset<R: RawMutex>(transport: &mut RcTransport, env: &Env<'_, R>) -> Result<(), QpChangeError> {
    if transport.state != State::Reset {
        transport.enter(env, Event::Reset).map_err(|_| QpChangeError::State)?;
    }
    life_cycle::reset(&mut transport.requester, env);
    responder::life_cycle::reset(&mut transport.responder, env);
    transport.link = None;
    transport.unreliable = None;
    transport.cnp = CnpState::IDLE;
    transport.rate = RateLimiter::UNLIMITED;
    transport.connection = Connection::NONE;
    Ok(())
}

/// Moves from Reset to Init.
pub(crate) fn initialize<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
) -> Result<(), QpChangeError> {
    transport.enter(env, Event::Initialize).map_err(|_| QpChangeError::State)
}

/// Opens a queue pair for an unreliable service, of this state.
pub(crate) fn open_unreliable<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    unreliable: Box<Unreliable>,
) -> Result<(), QpChangeError> {
    transport.enter(env, Event::Open).map_err(|_| QpChangeError::State)?;
    transport.connection.attach_owner();
    transport.requester.mtu = unreliable.mtu();
    transport.unreliable = Some(unreliable);
    Ok(())
}

/// Lets a queue pair of an unreliable service send, with `psn` as the first one, or again after an error of its send queue.
pub(crate) fn send_unreliably<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    psn: Psn,
) -> Result<(), QpChangeError> {
    let is_new = transport.state == State::UnreliableRtr;
    transport.enter(env, Event::Send).map_err(|_| QpChangeError::State)?;
    if let Some(unreliable) = transport.unreliable.as_mut().filter(|_| is_new) {
        unreliable.begin_sending(psn);
    }
    Ok(())
}
