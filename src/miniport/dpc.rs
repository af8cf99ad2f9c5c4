// SPDX-License-Identifier: MIT OR Apache-2.0

//! The DPCs of the device's interrupt messages, or of its line: they receive frames, resume senders when transmit slots are free, and handle configuration
//! changes. `DISPATCH_LEVEL`.
//!
//! While frames are expected at once ([`Moderation`](super::interrupt_moderation::Moderation)), the DPC waits for them and polls the queue
//! again, for [`WAITS`](interrupt_moderation::WAITS) microseconds. While frames are left, NDIS calls the DPC again; if NDIS sets no limit,
//! the driver queues it again.
//! When this has kept the processor at `DISPATCH_LEVEL` for too long, the deferred routine takes over in a work item until the queue is
//! empty. With poll objects, the DPC only requests a poll, and NDIS decides when and how often frames are received.

use core::sync::atomic::Ordering;
use core::time::Duration;

use nt::Deferred;
use virtio_net::{Causes, Polled, Wait};

use super::adapter::Adapter;
use super::demultiplexer::Demultiplexer;
use super::failure::{receive_failed, transmit_has_failed};
use super::receive::Indication;
use super::receive_backlog::Backlog;
use super::{configuration_change, device_interrupts, device_rss, interrupt_moderation, send};
use crate::nic::dma::SharedMemory;
use crate::nic::interrupt::InterruptHandler;
use crate::nic::poll_objects::{PollHandler, PollObjects};
use crate::nic::queue_pair::Pair;

/// Frames per DPC when NDIS sets no limit, and per batch of the deferred routine.
const RECEIVE_BUDGET: u32 = 128;
/// `MaxNblsToIndicate` without a limit.
const INDICATE_ALL: u32 = u32::MAX;
/// Longest time that [`indicate_received`] waits.
const INDICATION_LIMIT: Duration = Duration::from_secs(1);

impl InterruptHandler for Adapter {
    fn take_causes(&self) -> Causes {
        self.port().interrupt_status.take()
    }

    fn line(&self, causes: Causes, limit: u32) -> bool {
        let vectors = self.port().vectors;
        if causes.contains(Causes::CONFIG) {
            self.message(vectors.config.into(), limit);
        }
        // Without a cause, too: NDIS calls again if frames are left.
        self.message(vectors.receive.into(), limit)
    }

    fn message(&self, message: u32, limit: u32) -> bool {
        let vectors = self.port().vectors;
        if u32::from(vectors.config) == message {
            configuration_change::handle(self);
        }
        // Both queues of a pair share a message, unless there is only one pair.
        let pair_of = |first: u16| message.checked_sub(first.into()).and_then(|pair| Served::new(self, pair));
        if let Some(served) = pair_of(vectors.transmit) {
            if nt::irql::ticks_at_dispatch() == 0 {
                served.resume_senders();
            } else {
                served.deferred.queue_worker();
            }
        }
        pair_of(vectors.receive).is_some_and(|served| served.receive_message(limit))
    }

    fn deferred(&self, pair: u32) -> bool {
        Served::new(self, pair).is_some_and(|served| served.run_deferred())
    }
}

impl PollHandler for Adapter {
    fn poll(&self, object: u32, limit: u32) -> bool {
        let Some(polls) = &self.polls else { return false };
        let mut more = false;
        for served in polls.pairs_of(object).filter_map(|pair| Served::new(self, pair)) {
            more |= served.poll(polls, object, limit);
        }
        more
    }

    fn set_receive_interrupt(&self, object: u32, is_enabled: bool) -> bool {
        let Some(polls) = &self.polls else { return false };
        let mut more = false;
        for pair in polls.pairs_of(object).filter_map(|pair| self.port().pairs().get(pair as usize)) {
            if is_enabled {
                more |= pair.request_receive_interrupt();
            } else {
                pair.suppress_receive_interrupts();
            }
        }
        more
    }
}

/// A queue pair, as its DPC and its deferred routine serve it.
struct Served<'a> {
    adapter: &'a Adapter,
    number: u32,
    pair: &'a Pair,
    backlog: &'a Backlog,
    deferred: &'a Deferred,
}

impl<'a> Served<'a> {
    /// Returns the pair with this number, if there is one.
    fn new(adapter: &'a Adapter, number: u32) -> Option<Self> {
        let pair = adapter.port().pairs().get(number as usize)?;
        let backlog = adapter.backlog(number)?;
        let deferred = adapter.interrupt.deferred().get(number as usize)?;
        Some(Self { adapter, number, pair, backlog, deferred })
    }

    /// Runs a batch of deferred work. Returns whether work is left.
    fn run_deferred(&self) -> bool {
        self.resume_senders();
        // Cleared before the interrupt is requested: the interrupt's DPC may defer work again.
        if !self.backlog.receive.swap(false, Ordering::AcqRel) {
            return false;
        }
        let more = self.receive(RECEIVE_BUDGET);
        if more {
            self.backlog.receive.store(true, Ordering::Release);
        }
        more
    }

    /// Handles received frames. Returns whether NDIS must call the DPC again.
    fn receive_message(&self, limit: u32) -> bool {
        if let Some(polls) = &self.adapter.polls {
            polls.request_for(self.number);
            return false;
        }
        let more = self.receive(RECEIVE_BUDGET.min(limit));
        if self.backlog.streak.is_over(more) {
            self.pair.suppress_receive_interrupts();
            self.backlog.receive.store(true, Ordering::Release);
            self.deferred.queue_worker();
            return false;
        }
        if more && limit == INDICATE_ALL {
            self.backlog.receive.store(true, Ordering::Release);
            self.deferred.queue();
            return false;
        }
        more
    }

    /// Receives and indicates frames in batches, unless another processor is doing so: frames of a flow must stay in order. If no frame is
    /// left or expected at once, requests the receive interrupt. Returns whether frames may remain for which no interrupt will arrive.
    fn receive(&self, budget: u32) -> bool {
        let turn = &self.backlog.turn;
        if !turn.take() {
            return false;
        }
        let more = self.receive_batches(budget);
        // The interrupt may have occurred on another processor, whose DPC returned, before the turn ended.
        let asked = turn.end();
        more == Ok(true) || asked && more.is_ok()
    }

    /// Receives and indicates frames while the caller holds the turn. Returns whether frames may remain for which no interrupt will arrive,
    /// or an error if the device has failed.
    fn receive_batches(&self, mut budget: u32) -> Result<bool, ()> {
        let mut waits = interrupt_moderation::WAITS;
        while waits != 0 {
            self.backlog.drain.begin();
            let received = self.receive_batch(budget, Indication::indicate);
            self.backlog.drain.end(received.is_ok_and(|(polled, _)| !polled.more));
            let (Polled { taken, more, .. }, frames) = received?;
            budget = budget.saturating_sub(taken);
            if more {
                if budget == 0 {
                    return Ok(true);
                }
                // There was no NBL for another frame. Some are free again if the stack has returned them, or could not keep them.
                waits = waits.saturating_sub(1);
                continue;
            }
            let next = self.backlog.moderation.polled(frames);
            if next.is_changed {
                device_interrupts::changed(self.adapter);
            }
            if next.wait == 0 {
                return Ok(self.pair.request_receive_interrupt());
            }
            let wait = next.wait.min(waits);
            waits = waits.wrapping_sub(wait);
            nt::time::stall(wait);
        }
        Ok(true)
    }

    /// Has the deferred routine poll the receive queue until it is empty.
    fn drain(&self) {
        self.backlog.drain.request();
        self.backlog.receive.store(true, Ordering::Release);
        self.deferred.queue();
    }

    /// Handles received frames for the poll object that is being polled. Returns whether frames are left.
    fn poll(&self, polls: &PollObjects<Adapter>, object: u32, limit: u32) -> bool {
        let polled = self.receive_batch(RECEIVE_BUDGET.min(limit), |indication: Indication<'_>| {
            indication.queue(polls, object);
        });
        polled.is_ok_and(|(polled, _)| polled.more)
    }

    /// Handles up to `budget` received frames: RDMA frames go to the provider, others are passed to `deliver`. Then the provider ends the
    /// batch: it sends pending acknowledgments and notifies CQs. Returns also the number of frames, or an error if the device has failed.
    fn receive_batch(&self, budget: u32, deliver: impl FnOnce(Indication<'a>)) -> Result<(Polled, u32), ()> {
        // Set up when the first frame is found: a re-poll often finds none.
        let (mut batch, mut frames) = (None, 0_u32);
        let polled = self.pair.poll(budget, |frame, info| {
            frames = frames.wrapping_add(1);
            batch.get_or_insert_with(|| Demultiplexer::new(self.adapter, self.number)).add(frame, info)
        });
        if let Some(batch) = &mut batch {
            batch.end(deliver);
        }
        match polled {
            Ok(polled) => {
                if polled.is_notified {
                    device_rss::buffers_returned(self.adapter, self.number);
                }
                Ok((polled, frames))
            }
            Err(error) => {
                receive_failed(self.adapter, self.number, self.pair, error);
                Err(())
            }
        }
    }

    /// Handles free transmit slots: resumes sends. Ethernet and RDMA take turns at being resumed first.
    fn resume_senders(&self) {
        if !self.pair.take_starved() {
            return;
        }
        let adapter = self.adapter;
        if transmit_has_failed(adapter, self.number, self.pair) {
            return;
        }
        let rdma_first = self.pair.take_turn();
        if rdma_first {
            self.resume_rdma();
        }
        send::resume(adapter, self.pair);
        if !rdma_first {
            self.resume_rdma();
        }
    }

    fn resume_rdma(&self) {
        for shard in self.adapter.port().shards_of(self.number) {
            self.adapter.ndk().provider().shard_ready(shard);
        }
    }
}

/// Indicates all frames that are in the receive queues now, and waits until that is done: at most [`INDICATION_LIMIT`], because a
/// processor may be busy, and only while the device runs. `PASSIVE_LEVEL`, one caller at a time.
pub fn indicate_received(adapter: &Adapter) {
    let platform = SharedMemory::new(adapter.handle());
    let mut wait = Wait::new(&platform, INDICATION_LIMIT);
    let mut go_on = || adapter.port().is_running() && wait.go_on();
    if let Some(polls) = &adapter.polls {
        // Twice: the first drain may queue frames for objects that were drained before.
        polls.drain(&mut go_on);
        polls.drain(&mut go_on);
        return;
    }
    let pairs = || (0..).map_while(|pair| Served::new(adapter, pair));
    pairs().for_each(|served| served.drain());
    while !pairs().all(|served| served.backlog.drain.is_done()) && go_on() {}
    adapter.lanes.drain(&mut go_on);
}
