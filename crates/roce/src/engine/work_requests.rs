// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands for work requests: posts, arm, flush.

use lock_api::RawMutex;

use super::Engine;
use crate::cq::{Arm, Cq};
use crate::error::{ModifyError, PostError};
use crate::moderation::Moderation;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::work::{AtomicRequest, DatagramRequest, RecvRequest, SendRequest};
use fallible::Arc;

impl<R: RawMutex> Engine<R> {
    /// Posts a request to the send queue. An accepted request completes exactly once (not at all if it is
    /// silent and succeeds), in the order of posting.
    ///
    /// The next [`Shard::poll_transmit`](crate::Shard::poll_transmit) of [`Engine::shard_of`] the queue pair builds its
    /// frames.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    #[inline]
    pub fn post_send(&self, qp: &Arc<Qp<R>>, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qps.post_send(qp, request)
    }

    /// Posts a SEND or WRITE with immediate data, which the completion of the peer's receive reports. A WRITE then uses a receive
    /// of the peer.
    ///
    /// # Errors
    /// [`PostError::NotAllowed`] if it is another operation; else as [`Engine::post_send`].
    pub fn post_send_immediate(
        &self,
        qp: &Arc<Qp<R>>,
        request: &SendRequest<'_>,
        immediate: [u8; 4],
    ) -> Result<(), PostError> {
        self.qps.post_send_immediate(qp, request, immediate)
    }

    /// Posts an atomic operation on memory of the peer, which serves it as one of the READs that it has granted. Of a queue pair that
    /// its owner has connected, and whose peer allows it ([`Access::REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC)); another peer
    /// refuses it as invalid.
    ///
    /// # Errors
    /// [`PostError::Invalid`] if the local memory has not 8 bytes; else as [`Engine::post_send`].
    pub fn post_atomic(&self, qp: &Arc<Qp<R>>, request: &AtomicRequest) -> Result<(), PostError> {
        self.qps.post_atomic(qp, request)
    }

    /// Posts a datagram to the send queue of a queue pair that is [open for datagrams](crate::QpChange::OpenDatagrams). It completes
    /// when its frame is built, in the order of posting.
    ///
    /// # Errors
    /// [`PostError::Invalid`] if no frame can be built for the path; [`PostError::NotConnected`] if the queue pair is not open;
    /// else see [`PostError`]. A refused request has no completion.
    pub fn post_datagram(&self, qp: &Arc<Qp<R>>, request: &DatagramRequest<'_>) -> Result<(), PostError> {
        self.qps.post_datagram(qp, request)
    }

    /// Starts requests that were posted with [`SendFlags::DEFER`](crate::SendFlags::DEFER).
    pub fn undefer(&self, qp: &Arc<Qp<R>>) {
        self.qps.undefer(qp);
    }

    /// Posts a receive to a queue pair without shared receive queue, connected or not. On a queue pair in the
    /// error state it is accepted and completes as flushed at once.
    ///
    /// # Errors
    /// [`PostError::NotAllowed`] if the queue pair has a shared receive queue; else see [`PostError`].
    #[inline]
    pub fn post_recv(&self, qp: &Arc<Qp<R>>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.qps.post_recv(qp, request)
    }

    /// Requests a completion notification, see [`Arm`]. [`Engine::poll_event`] returns the notice, at
    /// once if the arm is satisfied already and the queue is not moderated.
    pub fn arm_cq(&self, cq: &Arc<Cq<R>>, arm: Arm) {
        let action = cq.arm(arm, self.qps.now());
        self.qps.shared.notices.apply_cq(cq, action);
    }

    /// Sets the moderation of a completion queue's notices, or ends it with `None`. It applies at once. Delays count
    /// from the time that the engine knew when the completion was added.
    ///
    /// # Errors
    /// [`ModifyError::OutOfMemory`]; the queue is unchanged.
    pub fn moderate_cq(&self, cq: &Arc<Cq<R>>, moderation: Option<Moderation>) -> Result<(), ModifyError> {
        let notices = &self.qps.shared.notices;
        //= R-CQ-50
        if moderation.is_some_and(|moderation| moderation.interval.is_some()) {
            notices.held.add(cq)?;
        }
        let action = cq.moderate(moderation, self.qps.now());
        notices.apply_cq(cq, action);
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
        let action = cq.resize(depth, self.qps.now())?;
        self.qps.shared.notices.apply_cq(cq, action);
        Ok(())
    }

    /// Flushes every request of both queues: the queue pair enters the error state and its connection is aborted.
    /// Idempotent. Unused receives of a shared receive queue stay there.
    pub fn flush(&self, qp: &Arc<Qp<R>>) {
        self.qps.flush(qp);
    }

    /// Flushes the receives of a queue pair that is not connected and does not connect. It can still connect. Returns
    /// `false`, and does nothing, if it is or was connected, or connects.
    pub fn flush_unconnected(&self, qp: &Arc<Qp<R>>) -> bool {
        self.qps.flush_unconnected(qp)
    }

    /// Posts a receive to a shared receive queue. Receives are used in the order of the calls.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_srq(&self, srq: &Srq<R>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        srq.post(request, self.qps.shared.config.max_message)
    }
}
