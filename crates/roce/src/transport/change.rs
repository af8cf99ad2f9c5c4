// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair whose owner connects it, without connection management.

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
use crate::error::QpChangeError;
use crate::qp_change::{DatagramSpec, RequesterSpec};

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
    transport.datagrams.close();
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

/// Opens a queue pair for datagrams.
pub(crate) fn open_datagrams<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    spec: &DatagramSpec,
) -> Result<(), QpChangeError> {
    let room = transport.requester.send_queue.depth();
    transport.datagrams.reserve_for(room).map_err(|_| QpChangeError::OutOfMemory)?;
    transport.enter(env, Event::Open).map_err(|_| QpChangeError::State)?;
    transport.connection.attach_owner();
    transport.datagrams.open(spec);
    Ok(())
}
