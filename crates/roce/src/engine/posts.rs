// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posts of work requests to queue pairs.

use lock_api::RawMutex;

use super::queue_pairs::QueuePairs;
use crate::error::PostError;
use crate::qp::Qp;
use crate::transport::peer::Link;
use crate::transport::posts;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::transport::unreliable::Destination;
use crate::work::{
    AtomicOperation, AtomicRequest, DatagramRequest, RecvRequest, SendData, SendFlags, SendOperation,
    SendRequest, Sge,
};
use fallible::{AllocError, Arc, vec};
use roce_wire::{Path, Template, flow_source_port};

impl<R: RawMutex> QueuePairs<R> {
    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    #[inline]
    pub(super) fn post_send(&self, qp: &Arc<Qp<R>>, request: &SendRequest<'_>) -> Result<(), PostError> {
        if let (SendOperation::Read { .. }, SendData::Sges(sges)) = (request.operation, request.data)
            && sges.len() > qp.attributes.send_sges as usize
        {
            Self::make_room(qp, sges.len())?;
        }
        // The frames are built next.
        qp.prefetch();
        //= R-QP-4
        //= R-QP-70
        //= R-QP-3
        let is_local = request.operation.is_local();
        // A local request is executed by its post: it may complete, or fail and flush a receive that is being filled.
        let mut transport = if is_local { qp.lock() } else { qp.transport.lock() };
        let shard = self.shards.of(qp);
        let posted = if is_local {
            self.with_env(qp, |env| transport.post_local(env, request))
        } else {
            transport.post_send(request, &self.shared.config)
        };
        if let Err(error) = posted {
            return self.refused(qp, &mut transport, request, error);
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

    /// Posts a datagram.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    pub(super) fn post_datagram(
        &self,
        qp: &Arc<Qp<R>>,
        request: &DatagramRequest<'_>,
    ) -> Result<(), PostError> {
        let path = Path {
            source_port: flow_source_port(qp.attributes.qpn, request.qpn),
            // No queue pair would react to congestion.
            traffic_class: request.path.traffic_class & !3,
            ..*request.path
        };
        let template = Template::new(&path, request.qpn).ok_or(PostError::Invalid)?;
        let destination = Destination::new(Link { template }, request.q_key);
        if request.immediate.is_some() {
            Self::make_room_for_immediates(qp)?;
        }
        let mut transport = qp.lock();
        self.with_env(qp, |env| posts::post_datagram(&mut transport, env, request, destination))?;
        self.start(qp, &transport, request.flags);
        Ok(())
    }

    /// Posts a SEND or WRITE with immediate data.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    pub(super) fn post_send_immediate(
        &self,
        qp: &Arc<Qp<R>>,
        request: &SendRequest<'_>,
        immediate: [u8; 4],
    ) -> Result<(), PostError> {
        Self::make_room_for_immediates(qp)?;
        let mut transport = qp.lock();
        self.with_env(qp, |env| posts::post_immediate(&mut transport, env, request, immediate))?;
        self.start(qp, &transport, request.flags);
        Ok(())
    }

    /// Posts an atomic operation.
    ///
    /// # Errors
    /// See [`PostError`]. A refused request has no completion.
    pub(super) fn post_atomic(&self, qp: &Arc<Qp<R>>, request: &AtomicRequest) -> Result<(), PostError> {
        Self::make_room_for_atomics(qp)?;
        let mut transport = qp.lock();
        self.with_env(qp, |env| posts::post_atomic(&mut transport, env, request))?;
        self.start(qp, &transport, request.flags);
        Ok(())
    }

    /// Starts an accepted request, unless it is deferred or has completed.
    fn start(&self, qp: &Arc<Qp<R>>, transport: &RcTransport, flags: SendFlags) {
        if !flags.contains(SendFlags::DEFER) && transport.wants_to_transmit() {
            self.shards.of(qp).make_ready(qp, || qp.clone());
        }
    }

    /// Returns the error of a post, unless the queue pair's owner has connected it and its state or service takes the request.
    #[cold]
    #[inline(never)]
    fn refused(
        &self,
        qp: &Arc<Qp<R>>,
        transport: &mut RcTransport,
        request: &SendRequest<'_>,
        error: PostError,
    ) -> Result<(), PostError> {
        if error != PostError::NotConnected {
            return Err(error);
        }
        self.with_env(qp, |env| posts::post_otherwise(transport, env, request, None))?;
        self.start(qp, transport, request.flags);
        Ok(())
    }

    /// Allocates room for immediate data.
    #[cold]
    #[inline(never)]
    fn make_room_for_immediates(qp: &Qp<R>) -> Result<(), PostError> {
        let wanted = qp.transport.lock().send_queue().room_for_immediates();
        if wanted > 0 {
            // Not under the lock, as for READs.
            let room = vec::filled(wanted, [0; 4]).map_err(|AllocError| PostError::QueueFull)?;
            let unused = qp.transport.lock().send_queue().give_immediates(room);
            drop(unused);
        }
        Ok(())
    }

    /// Allocates room for the operands of atomic operations.
    fn make_room_for_atomics(qp: &Qp<R>) -> Result<(), PostError> {
        let wanted = qp.transport.lock().send_queue().room_for_atomics();
        if wanted > 0 {
            // Not under the lock, as for READs.
            let none = AtomicOperation::FetchAdd { add: 0 };
            let room = vec::filled(wanted, none).map_err(|AllocError| PostError::QueueFull)?;
            let unused = qp.transport.lock().send_queue().give_atomics(room);
            drop(unused);
        }
        Ok(())
    }

    /// Allocates room for READs with more elements than the queue pair was created with, unless it has it.
    //= R-CREATE-38
    #[cold]
    #[inline(never)]
    fn make_room(qp: &Qp<R>, elements: usize) -> Result<(), PostError> {
        let wanted = qp.transport.lock().send_queue().room_for(elements);
        if wanted > 0 {
            // Not under the lock. The room of a post that is faster elsewhere is kept instead of this one.
            let room = vec::filled(wanted, Sge::default()).map_err(|AllocError| PostError::QueueFull)?;
            let unused = qp.transport.lock().send_queue().widen(room);
            drop(unused);
        }
        Ok(())
    }

    /// Starts requests that were posted with [`SendFlags::DEFER`].
    pub(super) fn undefer(&self, qp: &Arc<Qp<R>>) {
        //= R-QP-38
        let transport = qp.transport.lock();
        if transport.wants_to_transmit() {
            self.shards.of(qp).make_ready(qp, || qp.clone());
        }
    }

    /// Posts a receive to a queue pair without shared receive queue. In the error state it completes as flushed at once.
    ///
    /// # Errors
    /// [`PostError::NotAllowed`] if the queue pair has a shared receive queue; else see [`PostError`].
    #[inline]
    pub(super) fn post_recv(&self, qp: &Qp<R>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        qp.prefetch_receives();
        //= R-QP-84
        if qp.attributes.srq.is_some() {
            return Err(PostError::NotAllowed);
        }
        let mut transport = qp.transport.lock();
        if transport.state() == State::Reset {
            return Err(PostError::NotConnected);
        }
        //= R-QP-5
        transport.receives().queue.post(request, self.shared.config.max_message)?;
        if transport.state() == State::Error {
            self.with_env(qp, |env| transport.receives().drain(env));
        }
        Ok(())
    }
}
