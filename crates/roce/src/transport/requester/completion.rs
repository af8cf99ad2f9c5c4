// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completes requests in order (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Requester;
use super::send_queue::Wqe;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::sequence::Sequence;
use crate::work::{CompletionStatus, SendFlags};

impl Requester {
    /// [`Requester::advance_inline`] for what is rarer than an ACK.
    #[inline(never)]
    pub(super) fn advance<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
        self.advance_inline(env, end)
    }

    /// Completes requests that are acknowledged before `end`. Returns `false` when it stops at a READ whose
    /// responses are missing.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    pub(super) fn advance_inline<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
        let before = self.una;
        let mut reached = true;
        while self.una < end {
            let Some(wqe) = self.send_queue.front() else { break };
            if wqe.is_read() {
                reached = false;
                break;
            }
            self.una = wqe.end().min(end);
            if self.una < wqe.end() {
                break;
            }
            self.complete_oldest(env);
        }
        if self.una > before {
            self.handle_progress(env.now);
        }
        reached
    }

    /// Completes the oldest request with success.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every ACK")]
    pub(super) fn complete_oldest<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        // Its entry is free before its completion can be polled.
        //= R-QP-2
        //= R-QP-22
        let Some(wqe) = self.send_queue.pop() else { return };
        self.position.oldest_completed(&wqe);
        if wqe.is_read() {
            self.reads.cursor = SgeCursor::START;
        }
        //= R-CQ-30
        //= R-QP-26
        if !wqe.flags.contains(SendFlags::SILENT) {
            let done = env.completion(wqe.context, wqe.kind(), CompletionStatus::Success, wqe.length);
            env.push_completion(&env.qp.send_cq, done, false);
        }
        if self.send_queue.has_local() {
            self.complete_local(env);
        }
    }

    /// Completes the oldest requests as long as they are executed local requests.
    #[inline(never)]
    pub(super) fn complete_local<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while self.send_queue.front().is_some_and(Wqe::is_executed) {
            let Some(wqe) = self.send_queue.pop() else { return };
            self.position.oldest_completed(&wqe);
            //= R-CQ-24
            //= R-QP-26
            if !wqe.flags.contains(SendFlags::SILENT) {
                env.complete_send(wqe.context, wqe.kind(), CompletionStatus::Success, 0);
            }
        }
    }
}
