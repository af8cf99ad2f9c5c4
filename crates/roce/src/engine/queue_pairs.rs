// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pairs of an engine: creation, lookup, flushes, and what they share.

use core::sync::atomic::{AtomicBool, AtomicU32};

use lock_api::{Mutex, RawMutex};

use crate::error::CreateError;
use crate::object_table::ObjectTable;
use crate::qp::Qp;
use crate::qp_attributes::{QpAttributes, QpSpec};
use crate::shard::{ShardState, Shards};
use crate::shared::EngineShared;
use crate::time::Instant;
use crate::transport::env::{Batch, Env};
use crate::transport::rc_transport::RcTransport;
use fallible::{Arc, Reserved, Slab};
use roce_wire::Qpn;

/// The queue pairs of an engine, the shards that they belong to, and the state that they share. Knows nothing of connection
/// management.
pub(super) struct QueuePairs<R: RawMutex> {
    pub(super) shared: EngineShared<R>,
    /// Memory of queue pairs.
    pub(super) memory: Mutex<R, Slab<Qp<R>>>,
    /// By number.
    pub(super) table: ObjectTable<Qp<R>, R>,
    pub(super) shards: Shards<R>,
}

impl<R: RawMutex> QueuePairs<R> {
    /// Returns the number of queue pairs.
    pub(super) fn live(&self) -> u32 {
        self.table.live()
    }

    /// Calls `command` with the environment of a command for a queue pair. `command` looks up no region: the batch would keep it
    /// after the queue pair's lock is released, below `DISPATCH_LEVEL`.
    #[inline]
    pub(super) fn with_env<T>(&self, qp: &Qp<R>, command: impl FnOnce(&Env<'_, R>) -> T) -> T {
        let shard = self.shards.of(qp);
        let batch = Batch::new(&self.shared, &shard.stats);
        command(&Env::new(&batch, &qp.attributes, shard.now()))
    }

    /// Returns the latest time that the driver passed, for commands without a time.
    pub(super) fn now(&self) -> Instant {
        self.shards.iter().map(ShardState::now).max().unwrap_or_default()
    }

    /// Creates a queue pair.
    ///
    /// # Errors
    /// See [`CreateError`].
    #[inline(never)]
    pub(super) fn create(&self, spec: &QpSpec<R>) -> Result<Arc<Qp<R>>, CreateError> {
        // 0 and 1 are QP0 and QP1, 0xFFFFFF is multicast, and small numbers are the first guesses of an attacker.
        let vacant = self.table.reserve(|qpn| qpn > 0xFF && qpn != 0x00FF_FFFF)?;
        let members = self.table.live() as usize;
        self.shared.failed_connections.reserve_for(members)?;
        self.shared.suspect_paths.reserve_for(members)?;
        self.shards.reserve_for(vacant.index())?;
        // Until packets arrive, whose shard it then becomes: spread evenly.
        let shard = vacant.index().checked_rem(self.shards.count()).unwrap_or(0);
        let number = (Qpn::new(vacant.code()), vacant.index());
        let reserved = self.memory.lock().reserve()?;
        let mut qp = Self::build(reserved, spec, number, shard, self.shared.config.relax);
        if let Some(qp) = Arc::get_mut(&mut qp) {
            qp.transport.get_mut().initialize(spec, &self.shared.config)?;
        }
        vacant.fill(qp.clone());
        Ok(qp)
    }

    /// Builds a queue pair in state Reset, in place.
    #[inline(never)]
    fn build(
        reserved: Reserved<Qp<R>>,
        spec: &QpSpec<R>,
        (qpn, index): (Qpn, u32),
        shard: u32,
        relax: fn(),
    ) -> Arc<Qp<R>> {
        reserved.store(|| Qp {
            attributes: QpAttributes {
                qpn,
                index,
                pd: spec.pd,
                context: spec.context,
                send_sges: spec.send_sges,
                send_cq: spec.send_cq.clone(),
                recv_cq: spec.recv_cq.clone(),
                srq: spec.srq.clone(),
                relax,
            },
            ready: AtomicBool::new(false),
            shard: AtomicU32::new(shard),
            transport: const { Mutex::new(RcTransport::RESET) },
        })
    }

    /// Flushes a queue pair, aborts its connection, and frees its number. Spins until no packet is being processed for it.
    pub(super) fn destroy(&self, qp: &Qp<R>) {
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
        self.table.remove(qp.attributes.qpn.value());
        // Chunks of queue pairs that were destroyed before: the caller still has this one.
        self.memory.lock().trim();
    }

    /// Flushes every request of both queues: the queue pair enters the error state and its connection is aborted.
    pub(super) fn flush(&self, qp: &Qp<R>) {
        //= R-QP-62
        //= R-QP-63
        //= R-QP-69
        //= R-CONSUMER-10
        self.with_env(qp, |env| qp.lock().abort(env));
    }

    /// Flushes the receives of a queue pair that is not connected and does not connect. Returns `false`, and does nothing, if it
    /// is or was connected, or connects.
    //= R-QP-68
    pub(super) fn flush_unconnected(&self, qp: &Qp<R>) -> bool {
        let mut transport = qp.lock();
        let unconnected = transport.can_connect();
        if unconnected {
            self.with_env(qp, |env| transport.receives().drain(env));
        }
        unconnected
    }

    /// Puts the queue pairs of overflowed completion queues in error. No lock is held.
    pub(super) fn flush_overflowed(&self) {
        self.shared.cq_faults.handle(|| {
            // Rare: a scan of all queue pairs is cheaper than a list per completion queue.
            //= R-CQ-32
            //= R-CQ-37
            self.table.for_each(|qp| {
                if qp.attributes.send_cq.fault().is_some() || qp.attributes.recv_cq.fault().is_some() {
                    self.flush(qp);
                }
            });
        });
    }

    /// Detaches a queue pair from its ended connection and flushes it if it was used.
    pub(super) fn close(&self, qp: &Qp<R>) {
        let mut transport = qp.lock();
        //= R-QP-74
        if transport.connection_ended() {
            self.with_env(qp, |env| transport.abort(env));
        }
    }

    /// Has the queue pair of an established connection ask the peer, by way of `shard`, whether it still has the connection.
    pub(super) fn challenge(&self, shard: &ShardState<R>, now: Instant, qp: &Arc<Qp<R>>) {
        let mut transport = qp.lock();
        if transport.challenge(now) {
            shard.stats.challenges.inc();
            // It goes out by the shard that is being served, whichever had the connection.
            if !shard.has(qp) {
                self.shards.move_to(shard, &mut transport, qp);
            }
            shard.follow_up(&mut transport, qp, || qp.clone());
        }
    }
}
