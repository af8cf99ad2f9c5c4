// SPDX-License-Identifier: MIT OR Apache-2.0

//! Creates and destroys objects, at the caller's IRQL, without blocking.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use super::Engine;
use super::connections::Connections;
use crate::config::{Config, StashLimits};
use crate::cq::{Cq, DestroyResult};
use crate::error::{CreateError, ModifyError};
use crate::event_queue::{Entry, EventQueue, Events, NoticeQueue};
use crate::held_notices::HeldNotices;
use crate::memory::Backing;
use crate::object_table::ObjectTable;
use crate::qp::Qp;
use crate::qp_attributes::{QpAttributes, QpSpec};
use crate::random::{Random, key_of, siphash};
use crate::region::access_rights::{Access, Pd};
use crate::region::memory_region::{MemoryWindow, Region};
use crate::region::table::RegionTable;
use crate::shard::Shards;
use crate::shared::Shared;
use crate::srq::{Srq, SrqSpec};
use crate::stats::{Counter, Stats};
use crate::transport::rc_transport::RcTransport;
use crate::transport::responder::gaps::stash::StashMemory;
use crate::work::Sge;
use fallible::Arc;
use fallible::Fifo;
use fallible::vec;
use roce_wire::Qpn;

impl<R: RawMutex> Engine<R> {
    /// Creates an engine. It is constructed in place, because kernel stacks are small.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    #[inline(never)]
    pub fn try_new(config: Config) -> Result<Arc<Self>, CreateError> {
        let mut random = Random::new(config.seed);
        let regions = RegionTable::try_new(config.max_regions, config.max_logical, &mut random)?;
        let qps = ObjectTable::try_new(config.max_qps, &mut random)?;
        let shards = Shards::try_new(config.shards)?;
        let held = HeldNotices::try_new()?;
        let stash = if config.early_placement { config.stash } else { StashLimits::NONE };
        let stash = StashMemory::try_new(stash, config.max_mtu, siphash(key_of(&config.seed), [1, 0, 0]))?;
        let notice_queues = new_notice_queues(config.notice_queues)?;
        let engine = Arc::try_new_with(|| Self {
            // First: it takes from `random`, which moves below.
            connections: Connections::new(&config, &mut random),
            shared: Shared {
                stash,
                config,
                regions,
                events: Events::new(),
                notice_queues,
                held,
                cq_faults: AtomicU32::new(0),
                failed_connections: Mutex::new(Fifo::new()),
                has_failed_connections: AtomicBool::new(false),
                suspect_paths: Mutex::new(Fifo::new()),
                has_suspect_paths: AtomicBool::new(false),
            },
            qps,
            shards,
            random: Mutex::new(random),
            next_pd: AtomicU32::new(1),
            next_id: AtomicU64::new(1),
        })?;
        engine.reserve_notice_queues()?;
        Ok(engine)
    }

    /// Makes room for one event of each notice queue.
    #[inline(never)]
    fn reserve_notice_queues(&self) -> Result<(), CreateError> {
        self.shared.events.with(|events| events.add_members(self.shared.notice_queues.len()))
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the statistics: the sums over all shards at some moment during the call.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let sum = Stats::default();
        for shard in self.shards.iter() {
            sum.add(&shard.stats);
        }
        sum
    }

    /// Returns the sum of one counter over all shards, without the stack that all of them take.
    #[must_use]
    pub fn total(&self, counter: impl Fn(&Stats) -> &Counter) -> u64 {
        self.shards.iter().fold(0, |sum: u64, shard| sum.wrapping_add(counter(&shard.stats).get()))
    }

    /// Calls `see` with the name of each counter and its sum over all shards.
    pub fn each_total(&self, mut see: impl FnMut(&'static str, u64)) {
        for &(name, counter) in Stats::COUNTERS {
            see(name, self.total(counter));
        }
    }

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

    /// As [`Engine::create_cq`]. The notices of the completion queue are polled by [`Engine::poll_notice`] from
    /// `notice_queue`, less than [`Config::notice_queues`], if there is one.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if `depth` is 0 or there is no such notice queue; [`CreateError::OutOfMemory`].
    pub fn create_cq_in(
        &self,
        depth: u32,
        context: u64,
        notice_queue: Option<u32>,
    ) -> Result<Arc<Cq<R>>, CreateError> {
        if notice_queue.is_some_and(|number| number >= self.shared.config.notice_queues) {
            return Err(CreateError::Invalid);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let cq = Cq::try_new(depth, context, id, notice_queue)?;
        self.shared.with_events_of(&cq, EventQueue::add_member)?;
        Ok(cq)
    }

    /// Destroys a completion queue, which no queue pair may use. No notice of it is returned after this; see
    /// [`DestroyResult`] for one that is being delivered.
    //= R-CQ-59
    pub fn destroy_cq(&self, cq: &Cq<R>) -> DestroyResult {
        self.withdraw_cq(cq)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the depth is 0; [`CreateError::OutOfMemory`].
    pub fn create_srq(&self, spec: &SrqSpec) -> Result<Arc<Srq<R>>, CreateError> {
        let srq = Srq::try_new(spec, self.next_id.fetch_add(1, Ordering::Relaxed))?;
        self.shared.events.with(EventQueue::add_member)?;
        Ok(srq)
    }

    /// Destroys a shared receive queue, which no queue pair may use. Its receives are dropped without
    /// completions.
    pub fn destroy_srq(&self, srq: &Srq<R>) -> DestroyResult {
        self.withdraw_srq(srq)
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
        self.shared.regions.register(pd, base, length, access, backing)
    }

    /// Deregisters a region. After the return its memory is no longer read or written through it, and its key is
    /// invalid: requests that name it fail. Returns `false` if it was deregistered before. Spins until the packets
    /// being processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn deregister(&self, region: &Region) -> bool {
        self.shared.regions.deregister(region)
    }

    /// Allocates a region for fast registration ([`crate::SendOperation::FastRegister`]) of up to `pages`
    /// pages of 4096 bytes, at most 65,536; with rights for peers only if `remote`. It is free and grants no access
    /// yet. [`Engine::deregister`] frees it in any state: registrations posted and not executed fail.
    ///
    /// # Errors
    /// [`CreateError::Invalid`], [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn allocate_region(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        self.shared.regions.allocate(pd, pages, remote)
    }

    /// Creates a memory window of type 2, bound by [`crate::SendOperation::Bind`]. It counts as a region.
    ///
    /// # Errors
    /// [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn create_window(&self, pd: Pd) -> Result<MemoryWindow, CreateError> {
        self.shared.regions.create_window(pd)
    }

    /// Destroys a window. After the return no memory is accessed through it, binds posted and not executed fail, and
    /// its region no longer counts it. Returns `false` if it was destroyed before. Spins until the packets being
    /// processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_window(&self, window: &MemoryWindow) -> bool {
        self.shared.regions.destroy_window(window)
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
        self.shared.regions.map_logical(offset, backing)
    }

    /// Unmaps logical addresses by the base that [`Engine::map_logical`] returned. After the return the memory is no
    /// longer accessed through them. Returns `false` if there are none at `base`.
    pub fn unmap_logical(&self, base: u64) -> bool {
        self.shared.regions.unmap_logical(base)
    }

    /// Returns whether a scatter/gather element of a local request can become valid: `write` if the request writes to
    /// it. For checks of the consumer; requests are checked when they are executed.
    pub fn is_known_local(&self, pd: Pd, sge: &Sge, write: bool) -> bool {
        self.shared.regions.is_known_local(pd, sge, write)
    }

    /// Creates a queue pair. Receives can be posted to it at once.
    ///
    /// # Errors
    /// See [`CreateError`].
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value, reason = "as it is built by callers, once")]
    pub fn create_qp(&self, spec: QpSpec<R>) -> Result<Arc<Qp<R>>, CreateError> {
        // 0 and 1 are QP0 and QP1, 0xFFFFFF is multicast, and small numbers are the first guesses of an attacker.
        let vacant = self.qps.reserve(|qpn| qpn > 0xFF && qpn != 0x00FF_FFFF)?;
        let members = self.qps.live() as usize;
        {
            let mut broken = self.shared.failed_connections.lock();
            let waiting = broken.len();
            broken.reserve_for(waiting.saturating_add(members))?;
        }
        {
            let mut suspect = self.shared.suspect_paths.lock();
            let waiting = suspect.len();
            suspect.reserve_for(waiting.saturating_add(members))?;
        }
        self.shards.reserve_for(vacant.index())?;
        // Until packets arrive, whose shard it then becomes: spread evenly.
        let shard = vacant.index().checked_rem(self.shards.count()).unwrap_or(0);
        let mut qp = Self::new_qp(&spec, Qpn::new(vacant.code()), vacant.index(), shard)?;
        if let Some(qp) = Arc::get_mut(&mut qp) {
            qp.transport.get_mut().initialize(&spec, &self.shared.config)?;
        }
        vacant.fill(qp.clone());
        Ok(qp)
    }

    /// Allocates a queue pair in state Reset, in place.
    #[inline(never)]
    fn new_qp(spec: &QpSpec<R>, qpn: Qpn, index: u32, shard: u32) -> Result<Arc<Qp<R>>, CreateError> {
        Ok(Arc::try_new_with(|| Qp {
            attributes: QpAttributes {
                qpn,
                index,
                pd: spec.pd,
                context: spec.context,
                send_sges: spec.send_sges,
                send_cq: spec.send_cq.clone(),
                recv_cq: spec.recv_cq.clone(),
                srq: spec.srq.clone(),
            },
            ready: AtomicBool::new(false),
            shard: AtomicU32::new(shard),
            transport: const { Mutex::new(RcTransport::RESET) },
        })?)
    }

    /// Destroys a queue pair: flushes it, aborts its connection, and frees its number. After the return no
    /// packet is processed for it. Its completions can still be polled. Spins until the packets being processed and the batches
    /// that use it are done: never with a [`Receiver`](crate::Receiver) on this thread. IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_qp(&self, qp: &Arc<Qp<R>>) {
        {
            let mut transport = qp.lock();
            self.with_env(qp, |env| transport.abort(env));
            // In the error state and without a pending frame it does not become ready, and no timer is scheduled. Before its
            // slot is free: the next queue pair there has the same index.
            if qp.shard() != Qp::<R>::NO_SHARD {
                self.shards.of(qp).withdraw(qp);
                qp.set_shard(Qp::<R>::NO_SHARD);
            }
        }
        self.qps.remove(qp.attributes.qpn.value());
    }

    /// Changes depth and threshold of a shared receive queue; 0 leaves either as it is. Notifies at once if
    /// it holds fewer receives than the new threshold.
    ///
    /// # Errors
    /// See [`ModifyError`].
    //= R-SRQ-8
    pub fn modify_srq(&self, srq: &Arc<Srq<R>>, depth: u32, threshold: u32) -> Result<(), ModifyError> {
        let action = srq.modify(depth, threshold)?;
        self.shared.queue_srq_notice(srq, action);
        Ok(())
    }

    /// Withdraws a completion queue's notice and prevents new ones.
    fn withdraw_cq(&self, cq: &Cq<R>) -> DestroyResult {
        let destroyed = cq.destroy();
        self.shared.held.remove(cq);
        self.shared.with_events_of(cq, |events| {
            events.notices.remove(|entry| matches!(entry, Entry::Cq(queued) if **queued == *cq));
            if destroyed == DestroyResult::Now {
                events.remove_member();
            }
        });
        destroyed
    }

    /// Withdraws a shared receive queue's notice and prevents new ones.
    fn withdraw_srq(&self, srq: &Srq<R>) -> DestroyResult {
        let destroyed = srq.destroy();
        self.shared.events.with(|events| {
            events.notices.remove(|entry| matches!(entry, Entry::Srq(queued) if **queued == *srq));
            if destroyed == DestroyResult::Now {
                events.remove_member();
            }
        });
        destroyed
    }
}

/// Returns empty notice queues.
#[inline(never)]
fn new_notice_queues<R: RawMutex>(count: u32) -> Result<Vec<NoticeQueue<R>>, CreateError> {
    let mut queues = vec::with_capacity(count as usize)?;
    for _ in 0..count {
        vec::push_within_capacity(&mut queues, NoticeQueue::new())?;
    }
    Ok(queues)
}
