//! Requests that need no peer: registrations, binds, invalidations. They stand in the send queue between the
//! others, take no sequence numbers, and are done when the requester comes to them, once each, however often
//! it goes back.

use lock_api::RawMutex;

use super::send::Wqe;
use super::{Env, Rc};
use crate::error::PostError;
use crate::region::Ticket;
use crate::work::{Data, Operation, SendFlags, SendRequest, Status};

impl Rc {
    /// Posts a local request, and does it if its turn has come already.
    pub(super) fn post_local<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let regions = &env.engine.regions;
        let (key, ticket) = match (request.operation, request.data) {
            (Operation::FastRegister { key }, Data::Registration(asked)) => {
                (key, regions.note_registration(env.qp.pd, key, asked)?)
            }
            (Operation::Bind { key }, Data::Binding(asked)) => {
                (key, regions.note_binding(env.qp.scope(), key, asked)?)
            }
            (Operation::Invalidate { key }, Data::Sges([])) => {
                regions.check_invalidation(key)?;
                (key, Ticket::NONE)
            }
            //= R-QP-34
            _ => return Err(PostError::NotAllowed),
        };
        let first = !self.send.has_noted();
        let index = match self.send.post_local(request, ticket) {
            Ok(index) => index,
            Err(error) => {
                regions.forget(key, ticket);
                return Err(error);
            }
        };
        // Nobody before it can mind that a free region is registered early, and there is room for the note of
        // the next one then.
        let early = first && !request.flags.contains(SendFlags::FENCE);
        if early && regions.register_if_free(key, ticket) {
            self.send.set_done(index);
        }
        self.step_over(env);
        self.complete_done(env);
        Ok(())
    }

    /// Goes on to the request that the next packet belongs to, and does what is to be done on the way.
    #[inline]
    pub(super) fn step_over<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while let Some(wqe) = self.send.get(self.requester.index)
            && self.requester.next >= wqe.end()
        {
            if wqe.noted().is_some() {
                if !self.do_local(env) {
                    return;
                }
            } else {
                self.requester.step(wqe);
            }
        }
    }

    /// Does the local request that the requester has come to; `false` when it has to wait, or has failed.
    #[inline(never)]
    fn do_local<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        let requester = &mut self.requester;
        let Some(wqe) = self.send.get(requester.index) else { return false };
        let Some(ticket) = wqe.noted() else { return false };
        //= R-QP-28
        if requester.poisoned.is_some()
            || (wqe.flags.contains(SendFlags::FENCE) && requester.reads_before > 0)
        {
            return false;
        }
        let regions = &env.engine.regions;
        let done = match wqe.operation {
            //= rocev2 §10
            //= R-QP-81
            Operation::FastRegister { key } | Operation::Bind { key } => {
                regions.turn_on(env.qp.scope(), key, ticket)
            }
            // Those before it may be sent again, and use the key then.
            //= rocev2 §10
            Operation::Invalidate { .. } if requester.index > 0 => return false,
            //= R-MR-44
            Operation::Invalidate { key } => regions.invalidate(env.qp.scope(), key),
            _ => return false,
        };
        if done.is_err() {
            //= R-MR-41
            //= R-MR-45
            //= R-MR-46
            requester.poisoned = Some((wqe.first, Status::MemoryManagement));
            self.check_poison(env);
            return false;
        }
        let index = requester.index;
        self.send.set_done(index);
        if index == 0 {
            self.complete_done(env);
        }
        true
    }

    /// Completes local requests that are done and the oldest.
    #[inline(never)]
    pub(super) fn complete_done<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        while self.send.front().is_some_and(Wqe::is_done) {
            let Some(wqe) = self.send.pop() else { return };
            self.requester.popped(&wqe);
            //= R-CQ-24
            //= R-QP-26
            if !wqe.flags.contains(SendFlags::SILENT) {
                env.complete_send(wqe.context, wqe.kind(), Status::Success, 0);
            }
        }
    }
}

impl<R: RawMutex> Env<'_, R> {
    /// The request will not have its turn any more.
    pub(super) fn forget(&self, wqe: &Wqe) {
        if let (Some(ticket), Operation::FastRegister { key } | Operation::Bind { key }) =
            (wqe.noted(), wqe.operation)
        {
            self.engine.regions.forget(key, ticket);
        }
    }
}
