// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls that drive an engine: shards, frames, timeouts, events. The methods without a shard are those of the first one, for
//! a driver with one queue pair of the NIC.

use lock_api::RawMutex;

use super::Engine;
use super::connections::events::Report;
use super::events::{CqNotice, EngineEvent, SrqNotice};
use super::receive::{Receiver, Verdict};
use super::shard::Shard;
use super::transmit::Transmit;
use crate::cq::Cq;
use crate::event_queue::{EventQueue, QueuedEvent};
use crate::qp::Qp;
use crate::qp_change::{QpReport, QpReportKind};
use crate::srq::Srq;
use crate::time::Instant;
use fallible::Arc;

impl<R: RawMutex> Engine<R> {
    /// Returns the shard `number`, less than [`Config::shards`](crate::Config::shards).
    #[must_use]
    pub fn shard(&self, number: u32) -> Option<Shard<'_, R>> {
        Some(Shard::new(self, self.qps.shards.get(number)?))
    }

    /// Returns all shards, in the order of their numbers.
    pub fn shards(&self) -> impl Iterator<Item = Shard<'_, R>> {
        self.qps.shards.iter().map(|state| Shard::new(self, state))
    }

    /// Returns the shard that a queue pair belongs to now: the one by which its packets arrive. After a post, this is the
    /// shard that transmits. Queue pairs that have received nothing are spread over the shards.
    #[must_use]
    pub fn shard_of(&self, qp: &Qp<R>) -> Shard<'_, R> {
        Shard::new(self, self.qps.shards.of(qp))
    }

    #[inline]
    fn first_shard(&self) -> Shard<'_, R> {
        Shard::new(self, self.qps.shards.first())
    }

    /// Processes a received frame, from its Ethernet header on, with or without padding. The frame is not used
    /// after the call. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a copy of payload.
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        self.receiver().handle_frame(now, frame)
    }

    /// Begins a batch of received frames of the first shard, see [`Shard::receiver`].
    #[inline]
    #[must_use]
    pub fn receiver(&self) -> Receiver<'_, R> {
        Receiver::new(self, self.qps.shards.first())
    }

    /// Writes up to `budget` frames into slots of `tx`, and returns their number. Fewer than `budget` means that
    /// there is nothing more to send, or no free slot. IRQL == `DISPATCH_LEVEL`: other processors wait for the end of a copy
    /// of payload.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.first_shard().poll_transmit(now, tx, budget)
    }

    /// Returns whether [`Engine::poll_transmit`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn wants_transmit(&self) -> bool {
        self.first_shard().wants_transmit()
    }

    /// Returns when to call [`Engine::handle_timeout`]: not later than the first deadline, possibly earlier.
    /// `None` as long as nothing is waited for. To be asked again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.first_shard().poll_timeout()
    }

    /// Handles deadlines that have passed: a bounded number of them, [`Engine::poll_timeout`] tells whether
    /// there are more.
    pub fn handle_timeout(&self, now: Instant) {
        self.first_shard().handle_timeout(now);
    }

    /// Returns the next thing that happened, if any. To be called, without any lock held, after every batch of
    /// frames, posts or time, until there is nothing more.
    #[inline(never)]
    pub fn poll_event(&self) -> Option<EngineEvent<'_, R>> {
        self.connections.process_failures(&self.qps);
        loop {
            let entry = self.qps.shared.notices.events.pop();
            match entry {
                Some(QueuedEvent::Cq(cq)) => {
                    if let Some(event) = self.begin_notice(cq) {
                        return Some(event);
                    }
                }
                Some(QueuedEvent::Due(queue)) => {
                    if let Some(notices) = self.qps.shared.notices.queue(queue) {
                        notices.grant();
                        return Some(EngineEvent::NoticesDue { queue });
                    }
                }
                Some(QueuedEvent::Srq(srq)) => {
                    if let Some(event) = self.begin_srq_notice(srq) {
                        return Some(event);
                    }
                }
                Some(QueuedEvent::CqGone(context)) => {
                    self.qps.shared.notices.events.with(EventQueue::remove_member);
                    return Some(EngineEvent::CqGone { context });
                }
                Some(QueuedEvent::SrqGone(context)) => {
                    self.qps.shared.notices.events.with(EventQueue::remove_member);
                    return Some(EngineEvent::SrqGone { context });
                }
                None => {
                    if let Some(QpReport { qpn, context, kind }) = self.qps.poll_report() {
                        return Some(match kind {
                            QpReportKind::Failed(fault) => EngineEvent::QpFailed { qpn, context, fault },
                            QpReportKind::Drained => EngineEvent::QpDrained { qpn, context },
                        });
                    }
                    return self.poll_suspect_path().or_else(|| self.poll_connection());
                }
            }
        }
    }

    /// Returns the next event of a notice queue: the notice of a completion queue or shared receive queue, or that the last
    /// notice of a destroyed one was dropped. To be called after [`EngineEvent::NoticesDue`], without any lock held, until it returns `None`.
    #[inline(never)]
    pub fn poll_notice(&self, queue: u32) -> Option<EngineEvent<'_, R>> {
        let notices = self.qps.shared.notices.queue(queue)?;
        loop {
            match notices.pop()? {
                QueuedEvent::Cq(cq) => {
                    if let Some(event) = self.begin_notice(cq) {
                        return Some(event);
                    }
                }
                QueuedEvent::CqGone(context) => {
                    notices.with(EventQueue::remove_member);
                    return Some(EngineEvent::CqGone { context });
                }
                QueuedEvent::Srq(srq) => {
                    if let Some(event) = self.begin_srq_notice(srq) {
                        return Some(event);
                    }
                }
                QueuedEvent::SrqGone(context) => {
                    notices.with(EventQueue::remove_member);
                    return Some(EngineEvent::SrqGone { context });
                }
                // Queued with the events of the engine only.
                QueuedEvent::Due(_) => {}
            }
        }
    }

    fn begin_notice(&self, cq: Arc<Cq<R>>) -> Option<EngineEvent<'_, R>> {
        let fault = cq.begin_notice().ok()?;
        Some(EngineEvent::Cq(CqNotice { engine: self, cq, fault }))
    }

    fn begin_srq_notice(&self, srq: Arc<Srq<R>>) -> Option<EngineEvent<'_, R>> {
        srq.begin_notice().then(|| EngineEvent::Srq(SrqNotice { engine: self, srq }))
    }

    /// Returns the next connection whose path may have another next hop.
    fn poll_suspect_path(&self) -> Option<EngineEvent<'_, R>> {
        let (id, context) = self.connections.poll_suspect_path(&self.qps)?;
        Some(EngineEvent::PathSuspect { id, context })
    }

    /// Returns the next event of a connection.
    #[inline(never)]
    fn poll_connection(&self) -> Option<EngineEvent<'_, R>> {
        let Report { id, context, event } = self.connections.poll_event(&self.qps)?;
        Some(EngineEvent::Conn { id, context, event })
    }

    /// Returns whether [`Engine::poll_event`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn has_event(&self) -> bool {
        let shared = &self.qps.shared;
        self.connections.has_event()
            || shared.cq_faults.are_pending()
            || shared.failed_connections.has_any()
            || shared.suspect_paths.has_any()
            || shared.qp_reports.has_any()
            || shared.notices.events.has_any()
    }
}
