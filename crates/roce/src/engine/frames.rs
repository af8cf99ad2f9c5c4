// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames to transmit, timeouts, and [`Shard`], the interface by which the driver serves each of them.

use core::sync::atomic::Ordering;

use lock_api::{MutexGuard, RawMutex};

use super::Engine;
use super::receive::{Receiver, Verdict};
use super::transmit::Transmit;
use crate::object_table::Pinned;
use crate::qp::Qp;
use crate::shard::ShardState;
use crate::stats::Stats;
use crate::time::Instant;
use crate::transport::dispatch::Transmitted;
use crate::transport::env::{Batch, Env};
use crate::transport::packet::payload_copy::PayloadCopy;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;

/// Frames of one queue pair before the next one transmits.
const TURN: usize = 32;

/// Deadlines that one call handles: bounds its duration.
const TIMEOUT_BUDGET: usize = 256;

/// Of these, deadlines whose queue pairs are loaded at the same time.
const EXPIRED_TOGETHER: usize = 8;

/// A shard of an engine: the connections whose packets arrive by one queue pair of the NIC. The driver calls it from the
/// processor that serves that queue pair, and after posts; other threads may call it at the same time.
#[derive(Debug)]
pub struct Shard<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    state: &'a ShardState<R>,
}

#[allow(clippy::must_use_candidate, reason = "calls that do something, through a shared reference")]
impl<'a, R: RawMutex> Shard<'a, R> {
    /// As [`Engine::handle_frame`], of a frame that was received by this shard's queue pair.
    #[inline]
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        self.receiver().handle_frame(now, frame)
    }

    /// Begins a batch of received frames.
    #[inline]
    #[must_use]
    pub fn receiver(&self) -> Receiver<'a, R> {
        Receiver::new(self.engine, self.state)
    }

    /// As [`Engine::poll_transmit`], of the frames to be transmitted by this shard's queue pair.
    #[inline]
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.engine.poll_transmit_on(self.state, now, tx, budget)
    }

    /// As [`Engine::wants_transmit`].
    #[inline]
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.engine.wants_transmit_on(self.state)
    }

    /// As [`Engine::poll_timeout`]. Deadlines that belong to no queue pair are reported by every shard; whichever is first
    /// handles them.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout_on(self.state)
    }

    /// As [`Engine::handle_timeout`].
    pub fn handle_timeout(&self, now: Instant) {
        self.engine.handle_timeout_on(self.state, now);
    }

    /// Returns the shard's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.state.number()
    }

    /// Returns the statistics of this shard.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.state.stats
    }
}

/// Shards. The methods without a shard are those of the first one, for a driver with one queue pair.
impl<R: RawMutex> Engine<R> {
    /// Returns the shard `number`, less than [`Config::shards`](crate::Config::shards).
    #[must_use]
    pub fn shard(&self, number: u32) -> Option<Shard<'_, R>> {
        Some(Shard { engine: self, state: self.shards.get(number)? })
    }

    /// Returns all shards, in the order of their numbers.
    pub fn shards(&self) -> impl Iterator<Item = Shard<'_, R>> {
        self.shards.iter().map(|state| Shard { engine: self, state })
    }

    /// Returns the shard that a queue pair belongs to now: the one by which its packets arrive. After a post, this is the
    /// shard that transmits. Queue pairs that have received nothing are spread over the shards.
    #[must_use]
    pub fn shard_of(&self, qp: &Qp<R>) -> Shard<'_, R> {
        Shard { engine: self, state: self.shards.of(qp) }
    }

    /// Processes a received frame, from its Ethernet header on, with or without padding. The frame is not used
    /// after the call. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a copy of payload.
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        self.receiver().handle_frame(now, frame)
    }

    /// As [`Shard::receiver`].
    #[must_use]
    pub fn receiver(&self) -> Receiver<'_, R> {
        Receiver::new(self, self.shards.first())
    }

    /// Writes up to `budget` frames into slots of `tx`, and returns their number. Fewer than `budget` means that
    /// there is nothing more to send, or no free slot. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a copy
    /// of payload.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.poll_transmit_on(self.shards.first(), now, tx, budget)
    }

    /// Whether [`Engine::poll_transmit`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn wants_transmit(&self) -> bool {
        self.wants_transmit_on(self.shards.first())
    }

    /// When to call [`Engine::handle_timeout`]: not later than the first deadline, possibly earlier.
    /// `None` as long as nothing is waited for. To be asked again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout_on(self.shards.first())
    }

    /// Handles deadlines that have passed: a bounded number of them, [`Engine::poll_timeout`] tells whether
    /// there are more.
    pub fn handle_timeout(&self, now: Instant) {
        self.handle_timeout_on(self.shards.first(), now);
    }

    fn poll_transmit_on(
        &self,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        shard.advance_clock(now);
        self.process_failures();
        let mut sent = self.transmit_datagrams(shard, now, tx, budget);
        let batch = Batch::new(&self.shared, &shard.stats);
        while sent < budget {
            let Some(qp) = shard.pop_ready() else { break };
            let env = Env::new(&batch, &qp.attributes, now);
            let mut transport = qp.transport.lock();
            if !shard.has(&qp) || transport.is_copying() {
                // It has moved meanwhile, and is in the ready list of its new shard if it has frames. Or another thread
                // transmits its frames now, and sees what was posted before.
                continue;
            }
            let mut full = false;
            let turn = TURN.min(budget.saturating_sub(sent));
            let mut more = true;
            for _ in 0..turn {
                let Some(next) = transport.next() else {
                    more = false;
                    break;
                };
                let Some(slot) = tx.slot() else {
                    full = true;
                    break;
                };
                let mut copy = None;
                let len = match transport.transmit(&env, next, slot, &mut copy) {
                    Transmitted::Frame(len) => len,
                    Transmitted::Copying => {
                        let Some(len) = Self::copy_payload(&mut transport, &env, slot, copy) else {
                            continue;
                        };
                        len
                    }
                    Transmitted::Nothing => {
                        more = false;
                        break;
                    }
                };
                tx.commit(len);
                sent = sent.saturating_add(1);
            }
            transport.rearm(qp.attributes.index, |index, at| shard.schedule(index, at));
            if more && transport.wants_to_transmit() {
                shard.make_ready(&qp, || qp.clone());
            }
            if full {
                break;
            }
        }
        sent
    }

    /// Copies the payload of a frame without the lock. Returns the length of the frame, or `None` if the request has failed. Out
    /// of line: it would take registers from short frames.
    #[inline(never)]
    fn copy_payload(
        transport: &mut MutexGuard<'_, R, RcTransport>,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: Option<PayloadCopy>,
    ) -> Option<usize> {
        let copy = copy?;
        let frame = transport.begin_copy(env, slot, &copy)?;
        // Before the lock is released, so that the batch keeps no other region during the copy than that of the copy.
        env.regions.release();
        let copied = MutexGuard::unlocked(transport, || copy.run(env, frame));
        transport.finish_copy(env, copied)
    }

    fn wants_transmit_on(&self, shard: &ShardState<R>) -> bool {
        self.connections.has_transmit()
            || self.shared.has_failed_connections.load(Ordering::Acquire)
            || shard.has_ready()
    }

    fn poll_timeout_on(&self, shard: &ShardState<R>) -> Option<Instant> {
        let deadlines = [shard.deadline(), self.connections.deadline(), self.shared.held.deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn handle_timeout_on(&self, shard: &ShardState<R>, now: Instant) {
        shard.advance_clock(now);
        let batch = Batch::new(&self.shared, &shard.stats);
        for _ in 0..TIMEOUT_BUDGET / EXPIRED_TOGETHER {
            let mut expired = [const { None }; EXPIRED_TOGETHER];
            let mut count = 0usize;
            for qp in &mut expired {
                let Some(index) = shard.expire(now) else { break };
                count = count.saturating_add(1);
                *qp = self.qps.at(index);
                if let Some(qp) = qp {
                    qp.prefetch();
                }
            }
            for qp in expired.into_iter().flatten() {
                Self::expired(shard, &batch, now, &qp);
            }
            if count < EXPIRED_TOGETHER {
                break;
            }
        }
        drop(batch);
        for _ in 0..TIMEOUT_BUDGET {
            let Some(cq) = self.shared.held.expire(now) else { break };
            let action = cq.expire(now);
            self.shared.queue_cq_notice(&cq, action);
        }
        if self.connections.deadline().is_some_and(|deadline| deadline <= now) {
            self.handle_conn_timeout(now);
        }
    }

    /// Handles a deadline of a queue pair.
    fn expired(shard: &ShardState<R>, batch: &Batch<'_, R>, now: Instant, qp: &Pinned<'_, Qp<R>>) {
        let env = Env::new(batch, &qp.attributes, now);
        let mut transport = qp.lock();
        // If it has moved meanwhile, its new shard has its timer.
        if shard.has(qp) {
            transport.handle_timeout(&env);
            Self::after(shard, &mut transport, qp, || qp.to_arc());
        }
    }

    /// Ends a step of a queue pair of `shard`: schedules its timer, and puts it into the ready list.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    pub(super) fn after(
        shard: &ShardState<R>,
        transport: &mut RcTransport,
        qp: &Qp<R>,
        arc: impl FnOnce() -> Arc<Qp<R>>,
    ) {
        transport.rearm(qp.attributes.index, |index, at| shard.schedule(index, at));
        if transport.wants_to_transmit() {
            shard.make_ready(qp, arc);
        }
    }
}
