// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps between the connections of a requester: flush, reset, drain, and what the owner of a queue pair sets that it connects itself.

use core::time::Duration;

use lock_api::RawMutex;

use super::Requester;
use super::barrier::Barrier;
use super::position::Position;
use super::recovery::Recovery;
use super::send_queue::Wqe;
use crate::config::Config;
use crate::qp_change::RequesterSpec;
use crate::transport::env::Env;
use crate::transport::sequence::{Sequence, SequenceSpace};
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
    set_requester(requester, spec, ack_timeout, config);
}

/// Stops before the first request of which nothing is sent. Returns where it begins.
pub(in crate::transport) fn drain(requester: &mut Requester) -> Sequence {
    let high = requester.high;
    let end = requester.send_queue.at(high).filter(|wqe| wqe.first < high).map_or(high, Wqe::end);
    requester.barrier.hold(end);
    end
}

/// Returns whether all requests before `end` are complete.
pub(in crate::transport) fn is_complete_before(requester: &Requester, end: Sequence) -> bool {
    requester.send_queue.front().is_none_or(|wqe| wqe.first >= end)
}

/// Goes on with the requests after those that were drained.
pub(in crate::transport) fn resume(requester: &mut Requester) {
    requester.barrier.release();
}

/// Sets the retry counts, the ACK timeout and the initiator depth anew.
pub(in crate::transport) fn set_requester(
    requester: &mut Requester,
    spec: RequesterSpec,
    ack_timeout: Duration,
    config: &Config,
) {
    requester.reads.set_limit(u32::from(spec.outbound_reads.min(config.max_reads.outbound)));
    requester.recovery.begin_sending(spec.retries, spec.rnr_retries, ack_timeout);
}

/// Removes the oldest request, a datagram or a message of an unreliable connection that is sent.
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
    requester.barrier = Barrier::NONE;
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
