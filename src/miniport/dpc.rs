// SPDX-License-Identifier: MIT OR Apache-2.0

//! The DPCs of the device's interrupt messages. They handle received frames, free transmit slots and configuration
//! changes. `DISPATCH_LEVEL`.
//!
//! While frames are expected at once ([`Moderation`](super::moderation::Moderation)), the DPC re-polls the queue, up to
//! [`POLLS`](moderation::POLLS) times. While frames are left, NDIS calls the DPC again; if NDIS sets no limit, the driver queues it again.
//! When this has kept the processor at `DISPATCH_LEVEL` for too long, the deferred routine takes over in a work item until the queue is
//! empty. With poll objects, the DPC only requests a poll, and NDIS decides when and how often frames are received.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use core::time::Duration;

use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
    NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
};
use ndk_provider::Batch;
use nt::Deferred;
use roce::Verdict;
use virtio_net::{Error, FrameInfo, Polled, Wait};

use super::adapter::{Adapter, Backlog, Passing};
use super::moderation;
use super::power;
use super::receive::{Checked, Indication};
use super::send;
use super::statistics::Cast;
use crate::events;
use crate::nic::dma::SharedMemory;
use crate::nic::interrupt::MessageHandler;
use crate::nic::pair::{Pair, Progress};
use crate::nic::poll::{PollHandler, PollObjects};
use crate::nic::state::DeviceEvent;
use crate::nic::tag;

/// Frames per DPC when NDIS sets no limit, and per batch of the deferred routine.
const RECEIVE_BUDGET: u32 = 128;
/// `MaxNblsToIndicate` without a limit.
const INDICATE_ALL: u32 = u32::MAX;
/// Longest time that [`Adapter::indicate_received`] waits.
const INDICATION_LIMIT: Duration = Duration::from_secs(1);

impl MessageHandler for Adapter {
    fn message(&self, message: u32, limit: u32) -> bool {
        let vectors = self.port().vectors;
        if u32::from(vectors.config) == message {
            self.configuration_message();
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

    /// As [`receive`](Self::receive), while the caller holds the turn. Returns an error if the device has failed.
    fn receive_batches(&self, mut budget: u32) -> Result<bool, ()> {
        for _ in 0..moderation::POLLS {
            self.backlog.drain.begin();
            let polled = self.receive_batch(budget, Indication::indicate);
            self.backlog.drain.end(polled.is_ok_and(|polled| !polled.more));
            let Polled { taken, more } = polled?;
            budget = budget.saturating_sub(taken);
            if more {
                if budget == 0 {
                    return Ok(true);
                }
                // There was no NBL for another frame. Some are free again if the stack has returned them, or could not keep them.
                continue;
            }
            if taken == 0 || !self.backlog.moderation.found() {
                return Ok(self.pair.request_receive_interrupt());
            }
            nt::time::stall(moderation::INTERVAL);
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
        polled.is_ok_and(|polled| polled.more)
    }

    /// Handles up to `budget` received frames: RDMA frames go to the provider, others are passed to `deliver`. Then the provider ends the
    /// batch: it sends pending acknowledgments and notifies CQs. Returns an error if the device has failed.
    fn receive_batch(&self, budget: u32, deliver: impl FnOnce(Indication<'a>)) -> Result<Polled, ()> {
        // Set up when the first frame is found: a re-poll often finds none.
        let mut batch = None;
        let polled = self.pair.poll(budget, |frame, info| {
            batch.get_or_insert_with(|| ReceiveBatch::new(self)).add(frame, info)
        });
        if let Some(batch) = &mut batch {
            batch.end(deliver);
        }
        match polled {
            Ok(polled) => Ok(polled),
            Err(error) => {
                self.adapter.device_failed(error);
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
        if let Some(error) = self.pair.transmit_fault() {
            adapter.device_failed(error);
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

/// Received frames that are processed together.
struct ReceiveBatch<'a> {
    adapter: &'a Adapter,
    /// `None` if the pair has no shard; each pair has one.
    rdma: Option<Batch<'a>>,
    /// The frames for NDIS, and permission to indicate them; `None` unless the adapter runs.
    others: Option<(Indication<'a>, Passing<'a>)>,
}

impl<'a> ReceiveBatch<'a> {
    fn new(served: &Served<'a>) -> Self {
        let adapter = served.adapter;
        let rdma = adapter.ndk().provider().batch(served.number);
        let others = adapter.pass().map(|passing| (Indication::new(adapter), passing));
        Self { adapter, rdma, others }
    }

    /// Processes an RDMA frame; adds any other frame to those for NDIS. Breaks if there is no NBL for the next one until these have been
    /// indicated.
    fn add(&mut self, frame: &mut [u8], info: FrameInfo) -> ControlFlow<()> {
        let Self { adapter, rdma, others } = self;
        let len = frame.len();
        let (frame, tag) = tag::remove(frame);
        let Some(checked) = check(adapter, frame, info) else { return ControlFlow::Continue(()) };
        let frame = &*frame;
        let is_rdma = adapter.vlan.has_frame(tag)
            && rdma.as_mut().is_some_and(|rdma| rdma.receive(frame) != Verdict::NotOurs);
        if is_rdma {
            return ControlFlow::Continue(());
        }
        adapter.statistics().received(Cast::of(frame), len);
        let Some((indication, _)) = others else { return ControlFlow::Continue(()) };
        if !adapter.vlan.admits(tag, frame) || !adapter.wants(frame) {
            return ControlFlow::Continue(());
        }
        match indication.add(frame, tag, checked, info.hash) {
            Some(0) => return ControlFlow::Break(()),
            Some(_) => {}
            None => adapter.statistics().received_without_buffer(),
        }
        ControlFlow::Continue(())
    }

    /// Passes the frames for NDIS to `deliver`; then has the provider send pending acknowledgments and notify CQs. No lock is held.
    ///
    /// Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
    #[inline(never)]
    fn end(&mut self, deliver: impl FnOnce(Indication<'a>)) {
        if let Some(rdma) = &mut self.rdma {
            rdma.pause();
        }
        if let Some((indication, _passing)) = self.others.take() {
            deliver(indication);
        }
        if let Some(rdma) = self.rdma.take() {
            rdma.end();
        }
    }
}

/// If the device reports that an untagged frame consists of several segments, checks the frame and completes its checksum. `None` if the
/// frame must be dropped.
fn check(adapter: &Adapter, frame: &mut [u8], info: FrameInfo) -> Option<Checked> {
    let Some(header) = info.coalesced else { return Some(Checked::Verified(info.is_verified)) };
    Some(match adapter.coalescing.complete(frame, header, adapter.max_frame)? {
        1 => Checked::Verified(true),
        segments => Checked::Coalesced(segments),
    })
}

impl Adapter {
    /// Handles a configuration interrupt: a change of the link, a request for an announcement, or a failure of the
    /// device.
    pub(super) fn configuration_message(&self) {
        let changed = self.port().configuration_changed();
        power::announce_if_asked(self);
        match changed {
            Ok(true) => {
                if !self.port().link_up() {
                    send::abandon(self);
                }
                self.indicate_link();
            }
            Ok(false) => {}
            Err(error) => self.device_failed(error),
        }
    }

    /// Has the device coalesce for the IP versions in force; see
    /// [`Coalescing::program`](super::coalescing::Coalescing::program).
    pub(super) fn program_coalescing(&self) -> Result<(), Error> {
        self.coalescing.program(self.port(), &self.offloads, || self.indicate_received())
    }

    /// Indicates all frames that are in the receive queues now, and waits until that is done: at most [`INDICATION_LIMIT`], because a
    /// processor may be busy, and only while the device runs. `PASSIVE_LEVEL`, one caller at a time.
    fn indicate_received(&self) {
        let platform = SharedMemory::new(self.handle());
        let mut wait = Wait::new(&platform, INDICATION_LIMIT);
        let mut go_on = || self.port().is_running() && wait.go_on();
        if let Some(polls) = &self.polls {
            // Twice: the first drain may queue frames for objects that were drained before.
            polls.drain(&mut go_on);
            polls.drain(&mut go_on);
            return;
        }
        let pairs = || (0..).map_while(|pair| Served::new(self, pair));
        pairs().for_each(|served| served.drain());
        while !pairs().all(|served| served.backlog.drain.is_done()) && go_on() {}
        self.lanes.drain(&mut go_on);
    }

    /// Handles a failed device: logs an event once, aborts all pending work, and reports that the link is down. Then a work item resets the
    /// device, or, if the device is gone, NDIS removes the adapter. IRQL <= `DISPATCH_LEVEL`.
    //= R-PNP-8
    pub(super) fn device_failed(&self, error: Error) {
        let gone = error == Error::Removed;
        if !self.port().step(if gone { DeviceEvent::Remove } else { DeviceEvent::Fail }) {
            return;
        }
        events::device_failed(self.handle(), error);
        self.ndk().provider().remove();
        send::abandon(self);
        self.indicate_link();
        if gone {
            power::remove(self);
        } else {
            power::recover(self);
        }
    }

    /// Checks whether the device returns transmit slots while its link is up. `DISPATCH_LEVEL`.
    pub(super) fn check_transmission(&self) {
        let port = self.port();
        for (number, pair) in (0..).zip(port.pairs()) {
            if let Some(error) = pair.transmit_fault() {
                self.device_failed(error);
                return;
            }
            match pair.check_progress(port.link_up()) {
                Progress::Fine => {}
                Progress::Stalled => power::recover_queue(self, number),
                Progress::Hung => self.device_failed(Error::TransmitStalled),
            }
        }
    }

    /// Whether the packet filter and the multicast list admit the frame.
    fn wants(&self, frame: &[u8]) -> bool {
        let types = self.filter.packet_types.load(Ordering::Relaxed);
        let has = |kind: u32| types & kind != 0;
        let Some(destination) = frame.first_chunk::<6>() else { return false };
        has(NDIS_PACKET_TYPE_PROMISCUOUS)
            || match Cast::of(frame) {
                Cast::Directed => has(NDIS_PACKET_TYPE_DIRECTED) && *destination == self.addresses.current,
                Cast::Broadcast => has(NDIS_PACKET_TYPE_BROADCAST),
                Cast::Multicast => {
                    has(NDIS_PACKET_TYPE_ALL_MULTICAST)
                        || (has(NDIS_PACKET_TYPE_MULTICAST) && self.is_member(*destination))
                }
            }
    }

    fn is_member(&self, group: [u8; 6]) -> bool {
        let multicast = self.filter.multicast.lock();
        let (addresses, count) = &*multicast;
        addresses.iter().take(*count).any(|address| *address == group)
    }
}
