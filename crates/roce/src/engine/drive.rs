// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls that drive an engine: its shards, which frames and timeouts go to, and events.

use lock_api::RawMutex;

use super::Engine;
use super::connections::events::Report;
use super::events::{CqNotice, EngineEvent, SrqNotice};
use super::shard::Shard;
use crate::event_queue::{EventQueue, QueuedEvent};
use crate::qp::Qp;
use crate::qp_change::{QpReport, QpReportKind};

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

    /// Returns the shard 0: the only one of a driver with one queue pair of the NIC.
    #[inline]
    #[must_use]
    pub fn first_shard(&self) -> Shard<'_, R> {
        Shard::new(self, self.qps.shards.first())
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
                    if let Some(event) = CqNotice::begin(self, cq) {
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
                    if let Some(event) = SrqNotice::begin(self, srq) {
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
                    if let Some((id, context)) = self.connections.poll_suspect_path(&self.qps) {
                        return Some(EngineEvent::PathSuspect { id, context });
                    }
                    return self.poll_connection();
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
                    if let Some(event) = CqNotice::begin(self, cq) {
                        return Some(event);
                    }
                }
                QueuedEvent::CqGone(context) => {
                    notices.with(EventQueue::remove_member);
                    return Some(EngineEvent::CqGone { context });
                }
                QueuedEvent::Srq(srq) => {
                    if let Some(event) = SrqNotice::begin(self, srq) {
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
