// SPDX-License-Identifier: MIT OR Apache-2.0

//! Creates and destroys objects, at the caller's IRQL, without waiting for other threads to run.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use super::Engine;
use super::connections::Connections;
use crate::config::Config;
use crate::cq::{Cq, DestroyResult};
use crate::error::{CreateError, ModifyError};
use crate::event_queue::Entry;
use crate::memory::Backing;
use crate::object_table::ObjectTable;
use crate::qp::Qp;
use crate::qp_attributes::{QpAttributes, QpSpec};
use crate::random::Random;
use crate::region::access_rights::{Access, Pd};
use crate::region::memory_region::{MemoryWindow, Region};
use crate::region::table::RegionTable;
use crate::shared::Shared;
use crate::srq::{Srq, SrqSpec};
use crate::stats::Stats;
use crate::timer_wheel::TimerWheel;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;
use fallible::Fifo;
use roce_wire::Qpn;

impl<R: RawMutex> Engine<R> {
    /// An engine with nothing in it. It is made where it stays: kernel stacks are short.
    #[inline(never)]
    pub fn try_new(config: Config) -> Result<Arc<Self>, CreateError> {
        let mut random = Random::new(config.seed);
        let regions = RegionTable::try_new(config.max_regions, config.max_logical, &mut random)?;
        let qps = ObjectTable::try_new(config.max_qps, &mut random)?;
        let connections = Connections::new(&config, &mut random);
        let wheel = TimerWheel::try_new()?;
        let engine = Arc::try_new_with(|| Self {
            shared: Shared::new(config, regions),
            qps,
            ready: Mutex::new(Fifo::new()),
            wheel: Mutex::new(wheel),
            connections,
            random: Mutex::new(random),
            clock: AtomicU64::new(0),
            next_pd: AtomicU32::new(1),
            next_id: AtomicU64::new(1),
        })?;
        Ok(engine)
    }

    /// What the engine was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What happened so far, in numbers.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// A new protection domain. It is a number and needs no destruction.
    pub fn create_pd(&self) -> Pd {
        Pd(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// A completion queue for `depth` entries, at least 1.
    pub fn create_cq(&self, depth: u32, context: u64) -> Result<Arc<Cq<R>>, CreateError> {
        let cq = Cq::try_new(depth, context, self.next_id.fetch_add(1, Ordering::Relaxed))?;
        self.shared.events.lock().add_member()?;
        Ok(cq)
    }

    /// Ends a completion queue that no queue pair uses any more. No notice of it begins after this; one that is out
    /// already comes to its end, see [`DestroyResult`].
    //= R-CQ-59
    pub fn destroy_cq(&self, cq: &Cq<R>) -> DestroyResult {
        self.withdraw_cq(cq)
    }

    /// A shared receive queue.
    pub fn create_srq(&self, spec: &SrqSpec) -> Result<Arc<Srq<R>>, CreateError> {
        let srq = Srq::try_new(spec, self.next_id.fetch_add(1, Ordering::Relaxed))?;
        self.shared.events.lock().add_member()?;
        Ok(srq)
    }

    /// Ends a shared receive queue that no queue pair uses any more. Its receives vanish without
    /// completions.
    pub fn destroy_srq(&self, srq: &Srq<R>) -> DestroyResult {
        self.withdraw_srq(srq)
    }

    /// Registers memory: `length` bytes that the consumer and its peers know as addresses from `base`
    /// on.
    ///
    /// # Safety
    /// What [`Backing::push`] asks for holds until [`Engine::deregister`] has returned.
    #[allow(unsafe_code, reason = "hands the contract of a backing on to the caller")]
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

    /// Ends a registration. When this returns, nothing reads or writes the memory through it any more,
    /// and its key is dead: requests that still name it fail. `false` when it was ended before. Waits for the
    /// packets of the moment. IRQL <= `DISPATCH_LEVEL`.
    pub fn deregister(&self, region: &Region) -> bool {
        self.shared.regions.deregister(region)
    }

    /// A region for fast registration by requests ([`crate::SendOperation::FastRegister`]) of up to `pages`
    /// pages of 4096 bytes, at most 65,536; with rights for peers only if `remote`. It is free: it grants
    /// nothing yet. [`Engine::deregister`] ends it, whatever its state: registrations that wait in send
    /// queues fail.
    pub fn allocate_region(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        self.shared.regions.allocate(pd, pages, remote)
    }

    /// A memory window of type 2, bound by requests ([`crate::SendOperation::Bind`]). It counts as a region.
    pub fn create_window(&self, pd: Pd) -> Result<MemoryWindow, CreateError> {
        self.shared.regions.create_window(pd)
    }

    /// Ends a window: nobody accesses memory through it any more when this returns, binds of it that wait in
    /// send queues fail, and its region counts it no more. `false` when it was ended before. Waits for the
    /// packets of the moment. IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_window(&self, window: &MemoryWindow) -> bool {
        self.shared.regions.destroy_window(window)
    }

    /// Gives memory logical addresses for elements with [`crate::PRIVILEGED_KEY`]: `offset` bytes after
    /// the base that is returned, contiguous. The base is a multiple of 2^40, so that `offset` can place
    /// the memory in its pages as it lies; together with the length it is below 2^40.
    ///
    /// # Safety
    /// What [`Backing::push`] asks for holds until [`Engine::unmap_logical`] has returned.
    #[allow(unsafe_code, reason = "hands the contract of a backing on to the caller")]
    pub unsafe fn map_logical(&self, offset: u64, backing: Backing) -> Result<u64, CreateError> {
        self.shared.regions.map_logical(offset, backing)
    }

    /// Takes logical addresses back, by the base that [`Engine::map_logical`] returned. When this returns,
    /// nothing accesses the memory through them any more. `false` when there are no such.
    pub fn unmap_logical(&self, base: u64) -> bool {
        self.shared.regions.unmap_logical(base)
    }

    /// A queue pair, to which receives can be posted at once.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value, reason = "as it is built by callers, once")]
    pub fn create_qp(&self, spec: QpSpec<R>) -> Result<Arc<Qp<R>>, CreateError> {
        // 0 and 1 are special, small numbers are what strangers try first, all ones is multicast.
        let vacant = self.qps.reserve(|qpn| qpn > 0xFF && qpn != 0x00FF_FFFF)?;
        let members = self.qps.live() as usize;
        self.ready.lock().reserve_for(members)?;
        {
            let mut broken = self.shared.failed_connections.lock();
            let waiting = broken.len();
            broken.reserve_for(waiting.saturating_add(members))?;
        }
        self.wheel.lock().reserve_for(vacant.index())?;
        let mut qp = Self::new_qp(&spec, Qpn::new(vacant.code()), vacant.index())?;
        if let Some(qp) = Arc::get_mut(&mut qp) {
            qp.transport.get_mut().initialize(&spec, &self.shared.config)?;
        }
        vacant.fill(qp.clone());
        Ok(qp)
    }

    /// A queue pair with nothing in it, made where it will live.
    #[inline(never)]
    fn new_qp(spec: &QpSpec<R>, qpn: Qpn, index: u32) -> Result<Arc<Qp<R>>, CreateError> {
        Ok(Arc::try_new_with(|| Qp {
            attributes: QpAttributes {
                qpn,
                index,
                pd: spec.pd,
                context: spec.context,
                send_cq: spec.send_cq.clone(),
                recv_cq: spec.recv_cq.clone(),
                srq: spec.srq.clone(),
            },
            ready: AtomicBool::new(false),
            transport: Mutex::new(RcTransport::RESET),
        })?)
    }

    /// Ends a queue pair: flushes it, aborts its connection, and forgets its number. When this returns, no
    /// packet is being processed for it, and none will be. Its completions can still be read.
    pub fn destroy_qp(&self, qp: &Arc<Qp<R>>) {
        self.flush(qp);
        if self.qps.remove(qp.attributes.qpn.value()).is_none() {
            return;
        }
        self.wheel.lock().cancel(qp.attributes.index);
        self.ready.lock().remove(|ready| Arc::ptr_eq(ready, qp));
    }

    /// Changes depth and threshold of a shared receive queue; 0 leaves either as it is. Tells at once if
    /// it holds fewer receives than the new threshold.
    //= R-SRQ-8
    pub fn modify_srq(&self, srq: &Arc<Srq<R>>, depth: u32, threshold: u32) -> Result<(), ModifyError> {
        let action = srq.modify(depth, threshold)?;
        self.shared.queue_srq_notice(srq, action);
        Ok(())
    }

    /// Takes a completion queue's notice back. No new one begins.
    fn withdraw_cq(&self, cq: &Cq<R>) -> DestroyResult {
        let destroyed = cq.destroy();
        let mut events = self.shared.events.lock();
        events.notices.remove(|entry| matches!(entry, Entry::Cq(queued) if **queued == *cq));
        if destroyed == DestroyResult::Now {
            events.remove_member();
        }
        destroyed
    }

    /// Takes a shared receive queue's notice back. No new one begins.
    fn withdraw_srq(&self, srq: &Srq<R>) -> DestroyResult {
        let destroyed = srq.destroy();
        let mut events = self.shared.events.lock();
        events.notices.remove(|entry| matches!(entry, Entry::Srq(queued) if **queued == *srq));
        if destroyed == DestroyResult::Now {
            events.remove_member();
        }
        destroyed
    }
}
