// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local requests: fast registrations, binds and invalidations.
//!
//! They stand in the send queue between other requests and take no sequence numbers. Each is executed
//! once, when the requester reaches it, however often the requester goes back.

use lock_api::RawMutex;

use super::Requester;
use crate::error::PostError;
use crate::region::binding_slot::Ticket;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::work::{SendData, SendFlags, SendOperation, SendRequest};

impl Requester {
    /// Posts a local request, and executes it if everything before it is sent. The request is posted even if a failure is
    /// returned.
    pub(crate) fn post_local<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        request: &SendRequest<'_>,
    ) -> Result<Result<(), Failure>, PostError> {
        let first = !self.send_queue.has_pending_local();
        let (index, key, ticket) = stage(self, env, request)?;
        // Registering a free region early affects no earlier request, and lets the next registration of it be
        // staged.
        let early = first && !request.flags.contains(SendFlags::FENCE);
        if early && env.shared.regions.register_early(key, ticket) {
            self.send_queue.mark_executed(index);
        }
        let skipped = self.skip_finished(env);
        if skipped.is_ok() {
            self.complete_local(env);
        }
        Ok(skipped)
    }

    /// Advances to the request of the next packet, and executes the local requests before it.
    #[inline]
    pub(super) fn skip_finished<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        while let Some(wqe) = self.send_queue.get(self.position.index)
            && self.next >= wqe.end()
        {
            if wqe.pending_ticket().is_some() {
                if !self.execute_local(env)? {
                    break;
                }
            } else {
                self.position.advance(wqe);
            }
        }
        Ok(())
    }

    /// Executes the local request at the requester's position. Returns `false` when it must wait, or has failed before it is
    /// the oldest request.
    #[inline(never)]
    fn execute_local<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<bool, Failure> {
        let index = self.position.index;
        let Some(wqe) = self.send_queue.get(index) else { return Ok(false) };
        let Some(ticket) = wqe.pending_ticket() else { return Ok(false) };
        //= R-QP-28
        if self.barrier.is_some() || (wqe.flags.contains(SendFlags::FENCE) && self.position.reads_before > 0)
        {
            return Ok(false);
        }
        // Its key may be the one that a READ before it invalidates.
        if index > 0 && self.send_queue.has_invalidating() {
            return Ok(false);
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
            SendOperation::Invalidate { .. } if index > 0 => return Ok(false),
            //= R-MR-44
            SendOperation::Invalidate { key } => regions.invalidate(env.qp.scope(), key),
            _ => return Ok(false),
        };
        if done.is_err() {
            //= R-MR-41
            //= R-MR-45
            //= R-MR-46
            self.barrier.record(wqe.first, Failure::MemoryManagement, &self.send_queue)?;
            return Ok(false);
        }
        self.send_queue.mark_executed(index);
        if index == 0 {
            self.complete_local(env);
        }
        Ok(true)
    }
}

/// Posts a local request without executing it. Returns its index, its key and its ticket.
#[inline]
pub(crate) fn stage<R: RawMutex>(
    requester: &mut Requester,
    env: &Env<'_, R>,
    request: &SendRequest<'_>,
) -> Result<(u32, u32, Ticket), PostError> {
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
    let index = match requester.send_queue.post_local(request, ticket) {
        Ok(index) => index,
        Err(error) => {
            regions.cancel(key, ticket);
            return Err(error);
        }
    };
    Ok((index, key, ticket))
}
