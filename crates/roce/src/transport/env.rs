// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a step of the transport uses besides its own state: the queue pair's attributes, what all queue pairs
//! share, and the time.

use lock_api::RawMutex;

use super::send_queue::Wqe;
use crate::qp_attributes::QpAttributes;
use crate::shared::Shared;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::work::{Completion, CompletionKind, CompletionStatus, SendOperation};
use roce_wire::Psn;

/// The environment of one step of the transport.
pub(crate) struct Env<'a, R: RawMutex> {
    pub(crate) shared: &'a Shared<R>,
    pub(crate) qp: &'a QpAttributes<R>,
    pub(crate) now: Instant,
}

impl<R: RawMutex> Env<'_, R> {
    /// Reports an event of the queue pair, if it is wanted.
    #[inline]
    pub(super) fn trace(&self, psn: Psn, event: TraceEvent) {
        self.shared.trace(self.qp.qpn, psn, event);
    }

    /// Completes a request of the send queue.
    pub(super) fn complete_send(
        &self,
        context: u64,
        kind: CompletionKind,
        status: CompletionStatus,
        bytes: u32,
    ) {
        let completion = self.completion(context, kind, status, bytes);
        self.shared.push_completion(&self.qp.send_cq, completion, false, self.now);
    }

    /// Completes a receive that failed.
    pub(super) fn complete_receive(&self, context: u64, status: CompletionStatus) {
        //= R-CQ-27
        let completion = self.completion(context, CompletionKind::Receive, status, 0);
        self.shared.push_completion(&self.qp.recv_cq, completion, false, self.now);
    }

    //= R-CQ-22
    //= R-SRQ-2
    pub(super) fn completion(
        &self,
        context: u64,
        kind: CompletionKind,
        status: CompletionStatus,
        bytes: u32,
    ) -> Completion {
        Completion { qp_context: self.qp.context, context, kind, status, bytes, immediate: None }
    }

    /// Drops the staged parameters of a local request that will not be executed.
    pub(super) fn cancel(&self, wqe: &Wqe) {
        if let (Some(ticket), SendOperation::FastRegister { key } | SendOperation::Bind { key }) =
            (wqe.pending_ticket(), wqe.operation)
        {
            self.shared.regions.cancel(key, ticket);
        }
    }
}
