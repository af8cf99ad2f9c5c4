// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local requests: fast registrations, binds and invalidations.
//!
//! They stand in the send queue between other requests and take no sequence numbers. Each is executed
//! once, when the requester reaches it, however often the requester goes back.

use lock_api::RawMutex;

use super::send_queue::Wqe;
use crate::error::PostError;
use crate::region::binding_slot::Ticket;
use crate::transport::env::Env;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::work::{CompletionStatus, SendData, SendFlags, SendOperation, SendRequest};

impl RcTransport {
    /// Posts a local request, and executes it if everything before it is sent.
    pub(crate) fn post_local<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if self.state != State::Rts {
            return Err(PostError::NotConnected);
        }
        let regions = &env.shared.regions;
        let (key, ticket) = match (request.operation, request.data) {
            (SendOperation::FastRegister { key }, SendData::Registration(asked)) => {
                (key, regions.stage_registration(env.qp.pd, key, asked)?)
            }
            (SendOperation::Bind { key }, SendData::Binding(asked)) => {
                (key, regions.stage_binding(env.qp.scope(), key, asked)?)
            }
            (SendOperation::Invalidate { key }, SendData::Sges([])) => {
                regions.check_invalidation(key)?;
                (key, Ticket::NONE)
            }
            //= R-QP-34
            _ => return Err(PostError::NotAllowed),
        };
        let first = !self.send_queue.has_pending_local();
        let index = match self.send_queue.post_local(request, ticket) {
            Ok(index) => index,
            Err(error) => {
                regions.cancel(key, ticket);
                return Err(error);
            }
        };
        // Registering a free region early affects no earlier request, and lets the next registration of it be
        // staged.
        let early = first && !request.flags.contains(SendFlags::FENCE);
        if early && regions.register_early(key, ticket) {
            self.send_queue.mark_executed(index);
        }
        self.skip_finished(env);
        self.complete_local(env);
        Ok(())
    }

    /// Advances to the request of the next packet, and executes the local requests before it.
    #[inline]
    pub(crate) fn skip_finished<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while let Some(wqe) = self.send_queue.get(self.requester.index)
            && self.requester.next >= wqe.end()
        {
            if wqe.pending_ticket().is_some() {
                if !self.execute_local(env) {
                    return;
                }
            } else {
                self.requester.advance_request(wqe);
            }
        }
    }

    /// Executes the local request at the requester's position. Returns `false` when it must wait or has failed.
    #[inline(never)]
    fn execute_local<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        let requester = &mut self.requester;
        let Some(wqe) = self.send_queue.get(requester.index) else { return false };
        let Some(ticket) = wqe.pending_ticket() else { return false };
        //= R-QP-28
        if requester.failed_request.is_some()
            || (wqe.flags.contains(SendFlags::FENCE) && requester.reads_before > 0)
        {
            return false;
        }
        // Its key may be the one that a READ before it invalidates.
        if requester.index > 0 && self.send_queue.has_invalidating() {
            return false;
        }
        let regions = &env.shared.regions;
        let done = match wqe.operation {
            //= rocev2 §10
            //= R-QP-81
            SendOperation::FastRegister { key } | SendOperation::Bind { key } => {
                regions.activate(env.qp.scope(), key, ticket)
            }
            // Earlier requests may be sent again and would use the key.
            //= rocev2 §10
            SendOperation::Invalidate { .. } if requester.index > 0 => return false,
            //= R-MR-44
            SendOperation::Invalidate { key } => regions.invalidate(env.qp.scope(), key),
            _ => return false,
        };
        if done.is_err() {
            //= R-MR-41
            //= R-MR-45
            //= R-MR-46
            requester.failed_request = Some((wqe.first, CompletionStatus::MemoryManagement));
            self.finish_failed_request(env);
            return false;
        }
        let index = requester.index;
        self.send_queue.mark_executed(index);
        if index == 0 {
            self.complete_local(env);
        }
        true
    }

    /// Completes the oldest requests as long as they are executed local requests.
    #[inline(never)]
    pub(crate) fn complete_local<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while self.send_queue.front().is_some_and(Wqe::is_executed) {
            let Some(wqe) = self.send_queue.pop() else { return };
            self.requester.request_completed(&wqe);
            //= R-CQ-24
            //= R-QP-26
            if !wqe.flags.contains(SendFlags::SILENT) {
                env.complete_send(wqe.context, wqe.kind(), CompletionStatus::Success, 0);
            }
        }
    }
}
