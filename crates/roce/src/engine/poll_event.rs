// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polls events.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use super::events::{CqNotice, EngineEvent, SrqNotice};
use crate::cq::Cq;
use crate::event_queue::{Entry, EventQueue};
use fallible::Arc;

impl<R: RawMutex> Engine<R> {
    /// The next thing that happened, if any. To be called, without any lock held, after every batch of
    /// frames, posts or time, until there is nothing more.
    #[inline(never)]
    pub fn poll_event(&self) -> Option<EngineEvent<'_, R>> {
        self.process_failures();
        loop {
            let entry = self.shared.events.pop();
            match entry {
                Some(Entry::Cq(cq)) => {
                    if let Some(event) = self.begin_notice(cq) {
                        return Some(event);
                    }
                }
                Some(Entry::Due(queue)) => {
                    if let Some(notices) = self.shared.notice_queues.get(queue as usize) {
                        notices.grant();
                        return Some(EngineEvent::NoticesDue { queue });
                    }
                }
                Some(Entry::Srq(srq)) => {
                    if srq.begin_notice() {
                        return Some(EngineEvent::Srq(SrqNotice { engine: self, srq }));
                    }
                }
                Some(Entry::CqGone(context)) => {
                    self.shared.events.with(EventQueue::remove_member);
                    return Some(EngineEvent::CqGone { context });
                }
                Some(Entry::SrqGone(context)) => {
                    self.shared.events.with(EventQueue::remove_member);
                    return Some(EngineEvent::SrqGone { context });
                }
                None => return self.poll_suspect_path().or_else(|| self.poll_conn_event()),
            }
        }
    }

    /// Returns the next notice of a notice queue, or that the last notice of one of its completion queues was dropped. To be
    /// called after [`EngineEvent::NoticesDue`], without any lock held, until it returns `None`.
    #[inline(never)]
    pub fn poll_notice(&self, queue: u32) -> Option<EngineEvent<'_, R>> {
        let notices = self.shared.notice_queues.get(queue as usize)?;
        loop {
            match notices.pop()? {
                Entry::Cq(cq) => {
                    if let Some(event) = self.begin_notice(cq) {
                        return Some(event);
                    }
                }
                Entry::CqGone(context) => {
                    notices.with(EventQueue::remove_member);
                    return Some(EngineEvent::CqGone { context });
                }
                // Only completion queues have a notice queue.
                Entry::Srq(_) | Entry::SrqGone(_) | Entry::Due(_) => {}
            }
        }
    }

    fn begin_notice(&self, cq: Arc<Cq<R>>) -> Option<EngineEvent<'_, R>> {
        let fault = cq.begin_notice().ok()?;
        Some(EngineEvent::Cq(CqNotice { engine: self, cq, fault }))
    }

    /// Whether [`Engine::poll_event`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn has_event(&self) -> bool {
        self.connections.has_event()
            || self.shared.has_cq_fault()
            || self.shared.has_failed_connections.load(Ordering::Acquire)
            || self.shared.has_suspect_paths.load(Ordering::Acquire)
            || self.shared.events.has_any()
    }
}
