// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands that create and destroy objects, at the caller's IRQL, without blocking.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use crate::cq::{Cq, DestroyResult};
use crate::error::{CreateError, ModifyError, ReregisterError};
use crate::memory::Backing;
use crate::qp::Qp;
use crate::qp_attributes::QpSpec;
use crate::region::access_rights::{Access, Pd};
use crate::region::memory_region::{MemoryWindow, Region};
use crate::region::window::WindowType;
use crate::srq::{Srq, SrqSpec};
use crate::work::Sge;
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
        self.check_notice_queue(notice_queue)?;
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
        self.check_notice_queue(notice_queue)?;
        let srq = Srq::try_new(spec, self.next_id.fetch_add(1, Ordering::Relaxed), notice_queue)?;
        self.qps.shared.notices.add_srq(&srq)?;
        Ok(srq)
    }

    fn check_notice_queue(&self, number: Option<u32>) -> Result<(), CreateError> {
        match number {
            Some(number) if number >= self.qps.shared.config.notice_queues => Err(CreateError::Invalid),
            _ => Ok(()),
        }
    }

    /// Destroys a shared receive queue, which no queue pair may use. Its receives are dropped without
    /// completions.
    pub fn destroy_srq(&self, srq: &Srq<R>) -> DestroyResult {
        self.qps.shared.notices.withdraw_srq(srq)
    }

    /// Registers memory: `length` bytes at the addresses from `base` on, as the consumer and its peers see them.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the range wraps or the backing is shorter; [`CreateError::TooMany`];
    /// [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Engine::deregister`] has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn register(
        &self,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, CreateError> {
        self.qps.shared.regions.register(pd, base, length, access, backing)
    }

    /// Registers other memory, rights or another protection domain for a region that [`Engine::register`] has returned, and returns the region
    /// that takes its place, with the same keys. After the return the former memory is no longer read or written. Meanwhile requests that
    /// name the keys fail. Waits as [`Engine::deregister`] does. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// See [`ReregisterError`]; the region is as before.
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Engine::deregister`] of the new region has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn reregister(
        &self,
        region: &Region,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, ReregisterError> {
        self.qps.shared.regions.reregister(region, pd, (base, length), access, backing)
    }

    /// Deregisters a region. After the return its memory is no longer read or written through it, and its key is
    /// invalid: requests that name it fail. Returns `false` if it was deregistered before. Spins until the packets
    /// being processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn deregister(&self, region: &Region) -> bool {
        self.qps.shared.regions.deregister(region)
    }

    /// Allocates a region for fast registration ([`crate::SendOperation::FastRegister`]) of up to `pages`
    /// pages of 4096 bytes, at most 65,536; with rights for peers only if `remote`. It is free and grants no access
    /// yet. [`Engine::deregister`] frees it in any state: registrations posted and not executed fail.
    ///
    /// # Errors
    /// [`CreateError::Invalid`], [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn allocate_region(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        self.qps.shared.regions.allocate(pd, pages, remote)
    }

    /// Creates a memory window, bound by [`crate::SendOperation::Bind`]. It counts as a region.
    ///
    /// # Errors
    /// [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn create_window(&self, pd: Pd, window_type: WindowType) -> Result<MemoryWindow, CreateError> {
        self.qps.shared.regions.create_window(pd, window_type)
    }

    /// Destroys a window. After the return no memory is accessed through it, binds posted and not executed fail, and
    /// its region no longer counts it. Returns `false` if it was destroyed before. Spins until the packets being
    /// processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_window(&self, window: &MemoryWindow) -> bool {
        self.qps.shared.regions.destroy_window(window)
    }

    /// Maps memory to contiguous logical addresses, for elements with [`crate::PRIVILEGED_KEY`]: it begins `offset`
    /// bytes after the returned base. The base is a multiple of 2^40, so that `offset` can preserve the memory's
    /// alignment in pages. `offset` plus the length must be less than 2^40.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the range is too long; [`CreateError::TooMany`]; [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Engine::unmap_logical`] has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn map_logical(&self, offset: u64, backing: Backing) -> Result<u64, CreateError> {
        self.qps.shared.regions.map_logical(offset, backing)
    }

    /// Unmaps logical addresses by the base that [`Engine::map_logical`] returned. After the return the memory is no
    /// longer accessed through them. Returns `false` if there are none at `base`.
    pub fn unmap_logical(&self, base: u64) -> bool {
        self.qps.shared.regions.unmap_logical(base)
    }

    /// Returns whether a scatter/gather element of a local request can become valid: `write` if the request writes to
    /// it. For checks of the consumer; requests are checked when they are executed.
    pub fn is_known_local(&self, pd: Pd, sge: &Sge, write: bool) -> bool {
        self.qps.shared.regions.is_known_local(pd, sge, write)
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
