// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posts of work requests.

use lock_api::RawMutex;

use super::Engine;
use crate::cq::{Arm, Cq};
use crate::error::{ModifyError, PostError};
use crate::moderation::Moderation;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::transport::state::State;
use crate::work::{RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge};
use fallible::{AllocError, Arc, vec};

impl<R: RawMutex> Engine<R> {
    /// Posts a request to the send queue. An accepted request completes exactly once (not at all if it is
    /// silent and succeeds), in the order of posting.
    ///
    /// The next [`Shard::poll_transmit`](crate::Shard::poll_transmit) of [`Engine::shard_of`] the queue pair builds its
    /// frames.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    pub fn post_send(&self, qp: &Arc<Qp<R>>, request: &SendRequest<'_>) -> Result<(), PostError> {
        if let (SendOperation::Read { .. }, SendData::Sges(sges)) = (request.operation, request.data)
            && sges.len() > qp.attributes.send_sges as usize
        {
            Self::make_room(qp, sges.len())?;
        }
        // The frames are built next.
        qp.prefetch();
        //= R-QP-4
        //= R-QP-70
        let mut transport = qp.transport.lock();
        let shard = self.shards.of(qp);
        //= R-QP-3
        if request.operation.is_local() {
            self.with_env(qp, |env| transport.post_local(env, request))?;
        } else {
            transport.post_send(request, &self.shared.config)?;
        }
        // Accepted, deferred or not: it is in the send queue, and completes.
        //= R-QP-35
        //= R-QP-36
        //= R-QP-40
        //= R-QP-37
        if !request.flags.contains(SendFlags::DEFER) {
            shard.make_ready(qp, || qp.clone());
        }
        Ok(())
    }

    /// Allocates room for READs with more elements than the queue pair was created with, unless it has it.
    //= R-CREATE-38
    #[cold]
    #[inline(never)]
    fn make_room(qp: &Qp<R>, elements: usize) -> Result<(), PostError> {
        let wanted = qp.transport.lock().room_for(elements);
        if wanted > 0 {
            // Not under the lock. The room of a post that is faster elsewhere is kept instead of this one.
            let room = vec::filled(wanted, Sge::default()).map_err(|AllocError| PostError::QueueFull)?;
            let unused = qp.transport.lock().widen(room);
            drop(unused);
        }
        Ok(())
    }

    /// Starts requests that were posted with [`SendFlags::DEFER`].
    pub fn undefer(&self, qp: &Arc<Qp<R>>) {
        //= R-QP-38
        let transport = qp.transport.lock();
        if transport.wants_to_transmit() {
            self.shards.of(qp).make_ready(qp, || qp.clone());
        }
    }

    /// Posts a receive to a queue pair without shared receive queue, connected or not. On a queue pair in the
    /// error state it is accepted and completes as flushed at once.
    ///
    /// # Errors
    /// [`PostError::NotAllowed`] if the queue pair has a shared receive queue; else see [`PostError`].
    pub fn post_recv(&self, qp: &Arc<Qp<R>>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        qp.prefetch_receives();
        //= R-QP-84
        if qp.attributes.srq.is_some() {
            return Err(PostError::NotAllowed);
        }
        let mut transport = qp.transport.lock();
        //= R-QP-5
        transport.post_recv(request, &self.shared.config)?;
        if transport.state() == State::Error {
            self.with_env(qp, |env| transport.drain_receives(env));
        }
        Ok(())
    }

    /// Requests a completion notification, see [`Arm`]. [`Engine::poll_event`] returns the notice, at
    /// once if the arm is satisfied already and the queue is not moderated.
    pub fn arm_cq(&self, cq: &Arc<Cq<R>>, arm: Arm) {
        let action = cq.arm(arm, self.now());
        self.shared.queue_cq_notice(cq, action);
    }

    /// Sets the moderation of a completion queue's notices, or ends it with `None`. It applies at once. Delays count
    /// from the time that the engine knew when the completion was added.
    ///
    /// # Errors
    /// [`ModifyError::OutOfMemory`]; the queue is unchanged.
    pub fn moderate_cq(&self, cq: &Arc<Cq<R>>, moderation: Option<Moderation>) -> Result<(), ModifyError> {
        //= R-CQ-50
        if moderation.is_some_and(|moderation| moderation.interval.is_some()) {
            self.shared.held.add(cq)?;
        }
        let action = cq.moderate(moderation, self.now());
        self.shared.queue_cq_notice(cq, action);
        Ok(())
    }

    /// Changes the depth of a completion queue, at any time. No completion is lost.
    ///
    /// # Errors
    /// [`ModifyError::Occupied`] if it holds more unread completions, [`ModifyError::Invalid`] if `depth` is 0,
    /// [`ModifyError::OutOfMemory`]; the queue is unchanged.
    pub fn resize_cq(&self, cq: &Arc<Cq<R>>, depth: u32) -> Result<(), ModifyError> {
        if depth == 0 {
            return Err(ModifyError::Invalid);
        }
        let action = cq.resize(depth, self.now())?;
        self.shared.queue_cq_notice(cq, action);
        Ok(())
    }

    /// Flushes every request of both queues: the queue pair enters the error state and its connection is aborted.
    /// Idempotent. Unused receives of a shared receive queue stay there.
    pub fn flush(&self, qp: &Arc<Qp<R>>) {
        //= R-QP-62
        //= R-QP-63
        //= R-QP-69
        //= R-CONSUMER-10
        self.with_env(qp, |env| qp.lock().abort(env));
    }

    /// Flushes the receives of a queue pair that is not connected and does not connect. It can still connect. Returns
    /// `false`, and does nothing, if it is or was connected, or connects.
    //= R-QP-68
    pub fn flush_unconnected(&self, qp: &Arc<Qp<R>>) -> bool {
        let mut transport = qp.lock();
        let unconnected = transport.can_connect();
        if unconnected {
            self.with_env(qp, |env| transport.drain_receives(env));
        }
        unconnected
    }

    /// Posts a receive to a shared receive queue. Receives are used in the order of the calls.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_srq(&self, srq: &Srq<R>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        srq.post(request, self.shared.config.max_message)
    }
}
