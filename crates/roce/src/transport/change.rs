// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair whose owner connects it, without connection management.

use core::time::Duration;

use lock_api::RawMutex;

use super::congestion::cnp::CnpState;
use super::congestion::rate::RateLimiter;
use super::connection::Connection;
use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester;
use super::responder;
use super::state::{Event, State};
use crate::error::{PostError, QpChangeError};
use crate::qp_change::RequesterSpec;
use crate::work::{CompletionStatus, SendRequest};

/// Moves from RTR to RTS, with what the requester needs.
pub(crate) fn start_requester<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    spec: &RequesterSpec,
    ack_timeout: Duration,
) -> Result<(), QpChangeError> {
    if transport.state != State::Rtr {
        return Err(QpChangeError::State);
    }
    requester::life_cycle::begin_sending(&mut transport.requester, spec, ack_timeout, &env.shared.config);
    transport.established(env).map_err(|_| QpChangeError::State)
}

/// Moves to Reset: drops all requests and receives without completions.
pub(crate) fn reset<R: RawMutex>(transport: &mut RcTransport, env: &Env<'_, R>) -> Result<(), QpChangeError> {
    if transport.state != State::Reset {
        transport.enter(env, Event::Reset).map_err(|_| QpChangeError::State)?;
    }
    requester::life_cycle::reset(&mut transport.requester, env);
    responder::life_cycle::reset(&mut transport.responder, env);
    transport.link = None;
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

/// Posts a request to a queue pair in error that its owner has connected: it completes as flushed at once.
///
/// # Errors
/// [`PostError::NotConnected`] if it is another queue pair, or not in error; else those of a post.
#[cold]
#[inline(never)]
pub(crate) fn post_to_failed<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
) -> Result<(), PostError> {
    if transport.state != State::Error || !transport.connection.is_direct() {
        return Err(PostError::NotConnected);
    }
    let requester = &mut transport.requester;
    if request.operation.is_local() {
        // Not even staged: what it registers or binds is not used.
        env.complete_send(request.context, request.operation.kind(), CompletionStatus::Flushed, 0);
        return Ok(());
    }
    requester.send_queue.post(request, requester.mtu, env.shared.config.max_message)?;
    requester.flush(env, CompletionStatus::Flushed);
    Ok(())
}
