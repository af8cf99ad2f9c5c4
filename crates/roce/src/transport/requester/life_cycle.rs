// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps between the connections of a requester: flush, reset, and what the owner of a queue pair sets that it connects itself.

use core::time::Duration;

use lock_api::RawMutex;

use super::Requester;
use super::failed_request::FailedRequest;
use super::position::Position;
use super::recovery::Recovery;
use super::send_queue::Wqe;
use crate::config::Config;
use crate::qp_change::RequesterSpec;
use crate::transport::env::Env;
use crate::transport::sequence::SequenceSpace;
use crate::work::{CompletionStatus, SendOperation};

/// Completes the oldest request with `status` and flushes all others. Nothing is sent or awaited afterwards.
pub(in crate::transport) fn flush<R: RawMutex>(
    requester: &mut Requester,
    env: &Env<'_, R>,
    mut status: CompletionStatus,
) {
    stop(requester);
    while let Some(wqe) = take_ended(requester, env) {
        if wqe.is_challenge() {
            // The request after it has waited for the same answer. A NAK is about the challenge alone.
            if status != CompletionStatus::RetryExceeded {
                status = CompletionStatus::Flushed;
            }
            continue;
        }
        env.complete_send(wqe.context, wqe.kind(), status, 0);
        status = CompletionStatus::Flushed;
    }
}

/// Drops all requests without completions. The next connection continues with these sequence numbers.
pub(in crate::transport) fn reset<R: RawMutex>(requester: &mut Requester, env: &Env<'_, R>) {
    stop(requester);
    while take_ended(requester, env).is_some() {}
    requester.position = Position::OLDEST;
    requester.recovery = Recovery::IDLE;
    requester.reads.reset(requester.una);
}

/// Sets what the owner gives with RTS, after [`Requester::begin`].
pub(in crate::transport) fn begin_sending(
    requester: &mut Requester,
    spec: RequesterSpec,
    ack_timeout: Duration,
    config: &Config,
) {
    requester.psns = SequenceSpace::with(spec.send_psn, requester.una);
    requester.reads.set_limit(u32::from(spec.outbound_reads.min(config.max_reads.outbound)));
    requester.recovery.begin_sending(spec.retries, spec.rnr_retries, ack_timeout);
}

/// Removes the oldest request, a datagram that is sent.
pub(in crate::transport) fn take_sent(requester: &mut Requester) {
    if let Some(wqe) = requester.send_queue.pop() {
        let end = wqe.end();
        (requester.una, requester.next, requester.high) = (end, end, end);
    }
}

/// Stops: nothing is sent or awaited.
fn stop(requester: &mut Requester) {
    let end = requester.send_queue.end();
    (requester.una, requester.next, requester.high) = (end, end, end);
    requester.failed_request = FailedRequest::NONE;
    requester.reads.gaps.clear();
    requester.recovery.stop();
}

/// Removes the oldest request, which is not executed.
fn take_ended<R: RawMutex>(requester: &mut Requester, env: &Env<'_, R>) -> Option<Wqe> {
    let wqe = requester.send_queue.pop()?;
    // The staged parameters of a local request will not be used.
    if let (Some(ticket), SendOperation::FastRegister { key } | SendOperation::Bind { key }) =
        (wqe.pending_ticket(), wqe.operation)
    {
        env.shared.regions.cancel(key, ticket);
    }
    Some(wqe)
}
