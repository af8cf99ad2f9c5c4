// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair whose owner connects it, without connection management.

use core::time::Duration;

use lock_api::RawMutex;

use super::congestion::cnp::CnpState;
use super::congestion::rate::RateLimiter;
use super::connection::Connection;
use super::datagrams::Destination;
use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester::life_cycle;
use super::responder;
use super::state::{Event, State};
use crate::error::{PostError, QpChangeError};
use crate::qp_change::{DatagramSpec, RequesterSpec};
use crate::work::{CompletionStatus, DatagramRequest, SendFlags, SendOperation, SendRequest};

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

/// Posts a datagram.
///
/// # Errors
/// [`PostError::NotConnected`] if the queue pair is not open for datagrams; [`PostError::TooLong`] above its MTU; else those of a
/// post.
pub(crate) fn post_datagram<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &DatagramRequest<'_>,
    destination: Destination,
) -> Result<(), PostError> {
    let flags = request.flags & (SendFlags::SILENT | SendFlags::SOLICITED | SendFlags::DEFER);
    let send =
        SendRequest { context: request.context, operation: SendOperation::Send, flags, data: request.data };
    if transport.state != State::Datagrams {
        return post_to_failed(transport, env, &send);
    }
    let mtu = transport.datagrams.mtu();
    let queue = &mut transport.requester.send_queue;
    match request.immediate {
        Some(immediate) => queue.post_immediate(&send, immediate, mtu, mtu)?,
        None => queue.post(&send, mtu, mtu)?,
    }
    transport.datagrams.push(destination);
    Ok(())
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
    let plain = SendRequest { operation: request.operation.split_immediate().0, ..*request };
    requester.send_queue.post(&plain, requester.mtu, env.shared.config.max_message)?;
    life_cycle::flush(requester, env, CompletionStatus::Flushed);
    Ok(())
}
