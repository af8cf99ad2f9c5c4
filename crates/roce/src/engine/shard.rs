// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Shard`], the interface by which the driver serves a queue pair of the NIC: frames to transmit, timeouts.

use lock_api::{MutexGuard, RawMutex};

use super::Engine;
use super::receive::{Receiver, Verdict};
use super::transmit::Transmit;
use crate::object_table::Pinned;
use crate::qp::Qp;
use crate::shard::ShardState;
use crate::stats::Stats;
use crate::time::Instant;
use crate::transport::env::{Batch, Env};
use crate::transport::packet::payload_copy::PayloadCopy;
use crate::transport::rc_transport::RcTransport;
use crate::transport::transmit::Transmitted;

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
    #[inline]
    pub(super) fn new(engine: &'a Engine<R>, state: &'a ShardState<R>) -> Self {
        Self { engine, state }
    }

    /// Processes a frame that this shard's queue pair received, from its Ethernet header on, with or without padding. The frame is
    /// not used after the call. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a copy of payload.
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

    /// Writes up to `budget` frames of this shard's queue pair into slots of `tx`, and returns their number. Fewer than `budget`
    /// means that there is nothing more to send, or no free slot. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a
    /// copy of payload.
    #[inline]
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        Self::transmit(self.engine, self.state, now, tx, budget)
    }

    /// Writes frames into slots of `tx`, see [`Shard::poll_transmit`]. Not by way of `self`: that would be stored for each call.
    fn transmit(
        engine: &Engine<R>,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        shard.advance_clock(now);
        engine.connections.process_failures(&engine.qps);
        let mut sent = engine.connections.transmit(&engine.qps, shard, now, tx, budget);
        let batch = Batch::new(&engine.qps.shared, &shard.stats);
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

    /// Returns whether [`Shard::poll_transmit`] may have something. Cheap, and right unless other threads are at work.
    #[inline]
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        let Self { engine, state: shard } = *self;
        engine.connections.has_transmit()
            || engine.qps.shared.failed_connections.has_any()
            || shard.has_ready()
    }

    /// Returns when to call [`Shard::handle_timeout`]: not later than the first deadline, possibly earlier. `None` as long as nothing
    /// is waited for. To be asked again after any other call. Every shard reports deadlines that belong to no queue pair; whichever
    /// is first handles them.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Self { engine, state: shard } = *self;
        let deadlines =
            [shard.deadline(), engine.connections.deadline(), engine.qps.shared.notices.held.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Handles deadlines that have passed: a bounded number of them, [`Shard::poll_timeout`] tells whether there are more.
    pub fn handle_timeout(&self, now: Instant) {
        let Self { engine, state: shard } = *self;
        shard.advance_clock(now);
        let batch = Batch::new(&engine.qps.shared, &shard.stats);
        for _ in 0..TIMEOUT_BUDGET / EXPIRED_TOGETHER {
            let mut expired = [const { None }; EXPIRED_TOGETHER];
            let mut count = 0usize;
            for qp in &mut expired {
                let Some(index) = shard.expire(now) else { break };
                count = count.saturating_add(1);
                *qp = engine.qps.table.at(index);
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
            let Some(cq) = engine.qps.shared.notices.held.expire(now) else { break };
            let action = cq.expire(now);
            engine.qps.shared.notices.apply_cq(&cq, action);
        }
        if engine.connections.deadline().is_some_and(|deadline| deadline <= now) {
            engine.connections.handle_timeout(now);
        }
    }

    /// Handles deadlines of queue pairs that have passed, if there are any. To be called after a batch of frames and before frames are
    /// transmitted, with the time of these: then what waits for a deadline waits no longer than until then, however late the
    /// timer of the driver. Cheap otherwise.
    #[inline]
    pub fn handle_due(&self, now: Instant) {
        if self.state.deadline().is_some_and(|deadline| deadline <= now) {
            self.handle_timeout(now);
        }
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
        transport.finish_copy(env, &copy, copied)
    }

    /// Handles a deadline of a queue pair.
    fn expired(shard: &ShardState<R>, batch: &Batch<'_, R>, now: Instant, qp: &Pinned<'_, Qp<R>>) {
        let env = Env::new(batch, &qp.attributes, now);
        let mut transport = qp.lock();
        // If it has moved meanwhile, its new shard has its timer.
        if shard.has(qp) {
            transport.handle_timeout(&env);
            shard.follow_up(&mut transport, qp, || qp.to_arc());
        }
    }
}
