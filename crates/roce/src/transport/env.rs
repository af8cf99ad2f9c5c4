// SPDX-License-Identifier: MIT OR Apache-2.0

//! Environment of a step of the transport, besides its own state: the queue pair's attributes, what all queue pairs
//! share, and the time.

use core::ops::Deref;

use lock_api::RawMutex;

use crate::cq::{Cq, Due};
use crate::qp_attributes::QpAttributes;
use crate::region::access::RegionAccess;
use crate::shared::EngineShared;
use crate::stats::{Stats, StatsBatch};
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::work::{Completion, CompletionKind, CompletionStatus};
use fallible::Arc;
use roce_wire::Psn;

/// State that the steps of a batch share: for several packets received or sent in a row.
pub(crate) struct Batch<'a, R: RawMutex> {
    pub(crate) shared: &'a EngineShared<R>,
    /// Statistics of the shard.
    pub(crate) stats: StatsBatch<'a>,
    pub(crate) regions: RegionAccess<'a, R>,
}

impl<'a, R: RawMutex> Batch<'a, R> {
    #[inline]
    pub(crate) fn new(shared: &'a EngineShared<R>, stats: &'a Stats) -> Self {
        Self { shared, stats: StatsBatch::new(stats), regions: RegionAccess::new(&shared.regions) }
    }
}

/// The environment of one step of the transport.
pub(crate) struct Env<'a, R: RawMutex> {
    batch: &'a Batch<'a, R>,
    pub(crate) qp: &'a QpAttributes<R>,
    pub(crate) now: Instant,
}

impl<'a, R: RawMutex> Env<'a, R> {
    #[inline]
    pub(crate) fn new(batch: &'a Batch<'a, R>, qp: &'a QpAttributes<R>, now: Instant) -> Self {
        Self { batch, qp, now }
    }
}

/// Access to the state of the batch. One pointer: it is stored for every step.
impl<'a, R: RawMutex> Deref for Env<'a, R> {
    type Target = Batch<'a, R>;

    #[inline]
    fn deref(&self) -> &Batch<'a, R> {
        self.batch
    }
}

impl<R: RawMutex> Env<'_, R> {
    /// Counts a frame that was built.
    #[inline]
    pub(crate) fn built(&self, payload_len: usize) {
        self.stats.tx_frames.inc();
        self.stats.tx_bytes.add(payload_len as u64);
    }

    /// Reports an event of the queue pair, if it is wanted.
    #[inline]
    pub(crate) fn trace(&self, psn: Psn, event: TraceEvent) {
        self.shared.trace(self.qp.qpn, psn, event);
    }

    /// Completes a request of the send queue.
    #[inline(never)]
    pub(crate) fn complete_send(
        &self,
        context: u64,
        kind: CompletionKind,
        status: CompletionStatus,
        bytes: u32,
    ) {
        let completion = self.completion(context, kind, status, bytes);
        self.push_completion(&self.qp.send_cq, completion, false);
    }

    /// Completes a receive that failed.
    #[inline(never)]
    pub(crate) fn complete_receive(&self, context: u64, status: CompletionStatus) {
        //= R-CQ-27
        let completion = self.completion(context, CompletionKind::Receive, status, 0);
        self.push_completion(&self.qp.recv_cq, completion, false);
    }

    //= R-CQ-22
    //= R-SRQ-2
    #[inline]
    pub(crate) fn completion(
        &self,
        context: u64,
        kind: CompletionKind,
        status: CompletionStatus,
        bytes: u32,
    ) -> Completion {
        Completion { qp_context: self.qp.context, context, kind, status, bytes, immediate: None }
    }

    /// Adds a completion to `cq`, and queues its notice if one is due.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the completion is composed in the queue's entry")]
    pub(crate) fn push_completion(&self, cq: &Arc<Cq<R>>, completion: Completion, solicited: bool) {
        self.stats.completions.inc();
        match completion.status {
            CompletionStatus::Success => {}
            CompletionStatus::Flushed => self.stats.completions_flushed.inc(),
            _ => self.stats.completions_failed.inc(),
        }
        if let Some(due) = cq.push(completion, solicited, self.now) {
            self.notice(cq, due);
        }
    }

    /// Handles a completion that may have to be notified, or that the queue had no room for.
    #[inline(never)]
    fn notice(&self, cq: &Arc<Cq<R>>, due: Due<'_, R>) {
        if due.is_faulted() {
            self.stats.cq_overflows.inc();
            self.trace(Psn::default(), TraceEvent::CqOverflow);
            // With the queue locked: a consumer that is notified may disconnect at once.
            self.shared.cq_faults.report();
        }
        let action = due.notice(self.now);
        self.shared.notices.apply_cq(cq, action);
    }
}
