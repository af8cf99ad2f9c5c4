// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posts that NDKPI does not have: immediate data, atomic operations, datagrams, and requests to a queue pair in error.

use lock_api::RawMutex;

use super::datagrams::Destination;
use super::env::Env;
use super::rc_transport::RcTransport;
use super::requester::life_cycle;
use super::state::State;
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
        return post_to_failed(transport, env, request);
    }
    let requester = &mut transport.requester;
    let max_message = env.shared.config.max_message;
    requester.send_queue.post_immediate(request, immediate, requester.mtu, max_message)
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
    if transport.state != State::Rts {
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
    requester.send_queue.post(request, requester.mtu, env.shared.config.max_message)?;
    life_cycle::flush(requester, env, CompletionStatus::Flushed);
    Ok(())
}
