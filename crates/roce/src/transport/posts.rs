// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posts that NDKPI does not have: immediate data, atomic operations, unreliable services, and requests to a queue pair in error.

use lock_api::RawMutex;

use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester::{life_cycle, local_requests};
use super::state::State;
use super::unreliable::{self, Destination};
use crate::error::PostError;
use crate::work::{AtomicRequest, CompletionStatus, DatagramRequest, SendFlags, SendOperation, SendRequest};

/// Posts a SEND or WRITE with immediate data.
///
/// # Errors
/// [`PostError::NotAllowed`] if it is another operation; else those of a post.
pub(crate) fn post_immediate<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
    immediate: [u8; 4],
) -> Result<(), PostError> {
    if !matches!(request.operation, SendOperation::Send | SendOperation::Write { .. }) {
        return Err(PostError::NotAllowed);
    }
    if transport.state != State::Rts {
        return post_otherwise(transport, env, request, Some(immediate));
    }
    append(transport, env, request, Some(immediate))
}

/// Posts an atomic operation.
///
/// # Errors
/// [`PostError::NotAllowed`] if the peer serves none; [`PostError::Invalid`] if its memory has not 8 bytes; else those of a post.
pub(crate) fn post_atomic<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &AtomicRequest,
) -> Result<(), PostError> {
    if transport.state == State::Error && transport.connection.is_direct() {
        transport.requester.send_queue.post_atomic(request)?;
        life_cycle::flush(&mut transport.requester, env, CompletionStatus::Flushed);
        return Ok(());
    }
    if !matches!(transport.state, State::Rts | State::Sqd) {
        return Err(PostError::NotConnected);
    }
    if !transport.requester.reads.are_allowed() {
        return Err(PostError::NotAllowed);
    }
    transport.requester.send_queue.post_atomic(request)
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
    let (State::UnreliableRts | State::UnreliableSqd) = transport.state else {
        let is_datagrams =
            transport.unreliable.as_ref().is_some_and(|unreliable| !unreliable.is_connection());
        // In error its service is not known any longer.
        let takes = is_datagrams || transport.state == State::Error;
        return if takes { post_to_failed(transport, env, &send) } else { Err(PostError::NotConnected) };
    };
    let unreliable = transport.unreliable.as_mut().filter(|unreliable| !unreliable.is_connection());
    let unreliable = unreliable.ok_or(PostError::NotConnected)?;
    let mtu = unreliable.mtu();
    let queue = &mut transport.requester.send_queue;
    match request.immediate {
        Some(immediate) => queue.post_immediate(&send, immediate, mtu, mtu)?,
        None => queue.post(&send, mtu, mtu)?,
    }
    unreliable.push(destination);
    Ok(())
}

/// Posts a request that is no datagram to a queue pair that is not in RTS: over an unreliable connection, in SQD, or in error.
///
/// # Errors
/// [`PostError::NotConnected`] if it is another queue pair; [`PostError::NotAllowed`] if the service does not have the operation;
/// else those of a post.
#[cold]
#[inline(never)]
pub(crate) fn post_otherwise<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
    immediate: Option<[u8; 4]>,
) -> Result<(), PostError> {
    if transport.state == State::Sqd {
        return if request.operation.is_local() {
            local_requests::stage(&mut transport.requester, env, request).map(|_| ())
        } else {
            append(transport, env, request, immediate)
        };
    }
    if let Some(unreliable) = &transport.unreliable
        && transport.state != State::Error
    {
        if !unreliable.is_connection() {
            return Err(PostError::NotConnected);
        }
        if !matches!(request.operation, SendOperation::Send | SendOperation::Write { .. }) {
            return Err(PostError::NotAllowed);
        }
        if matches!(transport.state, State::UnreliableRts | State::UnreliableSqd) {
            return append(transport, env, request, immediate);
        }
    }
    post_to_failed(transport, env, request)
}

/// Appends a request that sends something to the send queue.
fn append<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
    immediate: Option<[u8; 4]>,
) -> Result<(), PostError> {
    let requester = &mut transport.requester;
    //= R-QP-53
    if matches!(request.operation, SendOperation::Read { .. })
        && transport.state != State::Error
        && !requester.reads.are_allowed()
    {
        return Err(PostError::NotAllowed);
    }
    let max_message = env.shared.config.max_message;
    match immediate {
        Some(immediate) => {
            requester.send_queue.post_immediate(request, immediate, requester.mtu, max_message)
        }
        None => requester.send_queue.post(request, requester.mtu, max_message),
    }
}

/// Posts a request to a queue pair in error, or with its send queue in error, that its owner has connected: it completes as
/// flushed at once.
///
/// # Errors
/// [`PostError::NotConnected`] if it is another queue pair, or not in error; else those of a post.
#[cold]
#[inline(never)]
fn post_to_failed<R: RawMutex>(
    transport: &mut RcTransport,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
) -> Result<(), PostError> {
    let is_failed = matches!(transport.state, State::Error | State::UnreliableSqe);
    if !is_failed || !transport.connection.is_direct() {
        return Err(PostError::NotConnected);
    }
    if request.operation.is_local() {
        // Not even staged: what it registers or binds is not used.
        env.complete_send(request.context, request.operation.kind(), CompletionStatus::Flushed, 0);
        return Ok(());
    }
    append(transport, env, request, None)?;
    let unreliable = transport.unreliable.as_deref_mut();
    unreliable::flush_requests(&mut transport.requester, unreliable, env, CompletionStatus::Flushed);
    Ok(())
}
