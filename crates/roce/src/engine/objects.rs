// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands that create and destroy objects, at the caller's IRQL, without blocking.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use crate::cq::{Cq, DestroyResult};
use crate::error::{CreateError, ModifyError};
use crate::qp::Qp;
use crate::qp_attributes::QpSpec;
use crate::region::access_rights::Pd;
use crate::srq::{Srq, SrqSpec};
use fallible::Arc;

impl<R: RawMutex> Engine<R> {
    /// Creates a protection domain. It is a number and needs no destruction.
    pub fn create_pd(&self) -> Pd {
        Pd(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a completion queue of `depth` entries, at least 1.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if `depth` is 0; [`CreateError::OutOfMemory`].
    pub fn create_cq(&self, depth: u32, context: u64) -> Result<Arc<Cq<R>>, CreateError> {
        self.create_cq_in(depth, context, None)
    }

    /// Creates a completion queue whose notices [`Engine::poll_notice`] returns from `notice_queue`, less than
    /// [`Config::notice_queues`](crate::Config::notice_queues), if there is one; else as [`Engine::create_cq`].
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if `depth` is 0 or there is no such notice queue; [`CreateError::OutOfMemory`].
    pub fn create_cq_in(
        &self,
        depth: u32,
        context: u64,
        notice_queue: Option<u32>,
    ) -> Result<Arc<Cq<R>>, CreateError> {
        self.qps.shared.notices.check(notice_queue)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let cq = Cq::try_new(depth, context, id, notice_queue)?;
        self.qps.shared.notices.add_cq(&cq)?;
        Ok(cq)
    }

    /// Destroys a completion queue, which no queue pair may use. No notice of it is returned after this; see
    /// [`DestroyResult`] for one that is being delivered.
    //= R-CQ-59
    pub fn destroy_cq(&self, cq: &Cq<R>) -> DestroyResult {
        self.qps.shared.notices.withdraw_cq(cq)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the depth is 0; [`CreateError::OutOfMemory`].
    pub fn create_srq(&self, spec: &SrqSpec) -> Result<Arc<Srq<R>>, CreateError> {
        self.create_srq_in(spec, None)
    }

    /// Creates a shared receive queue whose notices are polled by [`Engine::poll_notice`] from `notice_queue`, less than
    /// [`Config::notice_queues`](crate::Config::notice_queues), if there is one.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the depth is 0 or there is no such notice queue; [`CreateError::OutOfMemory`].
    pub fn create_srq_in(
        &self,
        spec: &SrqSpec,
        notice_queue: Option<u32>,
    ) -> Result<Arc<Srq<R>>, CreateError> {
        self.qps.shared.notices.check(notice_queue)?;
        let srq = Srq::try_new(spec, self.next_id.fetch_add(1, Ordering::Relaxed), notice_queue)?;
        self.qps.shared.notices.add_srq(&srq)?;
        Ok(srq)
    }

    /// Destroys a shared receive queue, which no queue pair may use. Its receives are dropped without
    /// completions.
    pub fn destroy_srq(&self, srq: &Srq<R>) -> DestroyResult {
        self.qps.shared.notices.withdraw_srq(srq)
    }

    /// Creates a queue pair. Receives can be posted to it at once.
    ///
    /// # Errors
    /// See [`CreateError`].
    #[allow(clippy::needless_pass_by_value, reason = "as it is built by callers, once")]
    pub fn create_qp(&self, spec: QpSpec<R>) -> Result<Arc<Qp<R>>, CreateError> {
        self.qps.create(&spec)
    }

    /// Destroys a queue pair: flushes it, aborts its connection, and frees its number. After the return no
    /// packet is processed for it. Its completions can still be polled. Spins until the packets being processed and the batches
    /// that use it are done: never with a [`Receiver`](crate::Receiver) on this thread. IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_qp(&self, qp: &Arc<Qp<R>>) {
        self.qps.destroy(qp);
    }

    /// Changes depth and threshold of a shared receive queue; 0 leaves either as it is. Notifies at once if
    /// it holds fewer receives than the new threshold.
    ///
    /// # Errors
    /// See [`ModifyError`].
    //= R-SRQ-8
    pub fn modify_srq(&self, srq: &Arc<Srq<R>>, depth: u32, threshold: u32) -> Result<(), ModifyError> {
        let action = srq.modify(depth, threshold)?;
        self.qps.shared.notices.apply_srq(srq, action);
        Ok(())
    }
}
