// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine of one adapter. Every method takes `&self`.
//!
//! [`Engine`] is the public face. Its methods check parameters and hand on to the type that does the work:
//!
//! | methods of `Engine` | file | by |
//! | --- | --- | --- |
//! | create and destroy CQs, SRQs, QPs | `objects` | [`QueuePairs`], the notices |
//! | work requests, arm, flush | `work_requests` | [`QueuePairs`] (`posts`) |
//! | changes without connection management | `modify` | `transport::change` |
//! | shards, events | `drive` | [`Shard`](shard::Shard), [`Receiver`](receive::Receiver), [`Connections`] |
//!
//! What it hands out has methods of its own: [`ConnectionCommands`] (file `connect`: listen, connect, accept, reject, disconnect, with
//! or without a queue pair, by [`Connections`]) and [`MemoryCommands`] (`memory`: regions, windows, logical addresses, by the region
//! table). `events` and `transmit` are types of its interface.

pub(crate) mod connect;
mod connections;
mod drive;
pub(crate) mod events;
pub(crate) mod memory;
mod modify;
mod objects;
mod posts;
mod queue_pairs;
pub(crate) mod receive;
pub(crate) mod shard;
pub(crate) mod transmit;
mod work_requests;

use core::sync::atomic::{AtomicU32, AtomicU64};

use lock_api::{Mutex, RawMutex};

use crate::config::{Config, StashLimits};
use crate::cq_faults::CqFaults;
use crate::error::CreateError;
use crate::notices::Notices;
use crate::object_table::ObjectTable;
use crate::random::{Random, key_of, siphash};
use crate::region::table::RegionTable;
use crate::reports::Reports;
use crate::shard::Shards;
use crate::shared::EngineShared;
use crate::stats::{Counter, Stats};
use crate::transport::responder::gaps::stash::StashMemory;
use connections::Connections;
use fallible::{Arc, RequestLargePages, Slab};
use queue_pairs::QueuePairs;

/// Numbers of objects of an engine that were created and not destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub queue_pairs: u32,
    /// Regions and windows.
    pub regions: u32,
    pub logical_ranges: u32,
    /// Connections and listeners' requests that were not released.
    pub connections: u32,
}

/// A RoCEv2 endpoint: queue pairs, memory regions, connections. The [crate docs](crate) tell how to drive it.
pub struct Engine<R: RawMutex> {
    qps: QueuePairs<R>,
    connections: Connections<R>,
    random: Mutex<R, Random>,
    next_pd: AtomicU32,
    next_id: AtomicU64,
}

impl<R: RawMutex> core::fmt::Debug for Engine<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("config", self.config())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<R: RawMutex> Engine<R> {
    /// Creates an engine. It is constructed in place, because kernel stacks are small.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    #[inline(never)]
    pub fn try_new(config: Config) -> Result<Arc<Self>, CreateError> {
        let mut random = Random::new(config.seed);
        let Config { max_regions, max_logical, relax, .. } = config;
        let regions = RegionTable::try_new(max_regions, max_logical, relax, &mut random)?;
        let table = ObjectTable::try_new(config.max_qps, config.number_prefix, relax, &mut random)?;
        let shards = Shards::try_new(config.shards)?;
        let stash = if config.early_placement { config.stash } else { StashLimits::NONE };
        let stash = StashMemory::try_new(stash, config.max_mtu, siphash(key_of(&config.seed), [1, 0, 0]))?;
        let notices = Notices::try_new(config.notice_queues)?;
        Ok(Arc::try_new_with(|| Self {
            // First: it takes from `random`, which moves below.
            connections: Connections::new(&config, &mut random),
            qps: QueuePairs {
                memory: const { Mutex::new(Slab::new()) },
                shared: EngineShared {
                    config,
                    regions,
                    stash,
                    notices,
                    cq_faults: CqFaults::default(),
                    failed_connections: Reports::new(),
                    qp_reports: Reports::new(),
                    suspect_paths: Reports::new(),
                },
                table,
                shards,
            },
            random: Mutex::new(random),
            next_pd: AtomicU32::new(1),
            next_id: AtomicU64::new(1),
        })?)
    }

    /// Has `request` called for memory of queue pairs that is of a large page's size and alignment, from now on. Otherwise that memory
    /// is as all other.
    pub fn use_large_pages(&self, request: RequestLargePages) {
        self.qps.memory.lock().use_large_pages(request);
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.qps.shared.config
    }

    /// Returns the statistics: the sums over all shards at some moment during the call.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let sum = Stats::default();
        for shard in self.qps.shards.iter() {
            sum.add(&shard.stats);
        }
        sum
    }

    /// Returns the sum of one counter over all shards, without the stack that all of them take.
    #[must_use]
    pub fn total(&self, counter: impl Fn(&Stats) -> &Counter) -> u64 {
        self.qps.shards.iter().fold(0, |sum: u64, shard| sum.wrapping_add(counter(&shard.stats).get()))
    }

    /// Returns the numbers of objects that were created and not destroyed. For tests that compare them: it takes locks.
    #[must_use]
    pub fn objects(&self) -> Objects {
        let [regions, logical_ranges] = self.qps.shared.regions.live();
        let (queue_pairs, connections) = (self.qps.live(), self.connections.live());
        Objects { queue_pairs, regions, logical_ranges, connections }
    }

    /// Calls `see` with the name of each counter and its sum over all shards.
    pub fn each_total(&self, mut see: impl FnMut(&'static str, u64)) {
        for &(name, counter) in Stats::COUNTERS {
            see(name, self.total(counter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    #[test]
    fn an_engine_fits_a_kernel_stack() {
        // It is moved to the heap through the stack; a kernel stack has 24 KiB.
        let size = size_of::<Engine<Lock>>();
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
