// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polls events.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use super::events::{CqNotice, EngineEvent, SrqNotice};
use crate::event_queue::Entry;

impl<R: RawMutex> Engine<R> {
    /// The next thing that happened, if any. To be called, without any lock held, after every batch of
    /// frames, posts or time, until there is nothing more.
    #[inline(never)]
    pub fn poll_event(&self) -> Option<EngineEvent<'_, R>> {
        self.process_failures();
        loop {
            let entry = self.shared.events.lock().notices.pop();
            match entry {
                Some(Entry::Cq(cq)) => {
                    if let Ok(fault) = cq.begin_notice() {
                        return Some(EngineEvent::Cq(CqNotice { engine: self, cq, fault }));
                    }
                }
                Some(Entry::Srq(srq)) => {
                    if srq.begin_notice() {
                        return Some(EngineEvent::Srq(SrqNotice { engine: self, srq }));
                    }
                }
                Some(Entry::CqGone(context)) => {
                    self.shared.events.lock().remove_member();
                    return Some(EngineEvent::CqGone { context });
                }
                Some(Entry::SrqGone(context)) => {
                    self.shared.events.lock().remove_member();
                    return Some(EngineEvent::SrqGone { context });
                }
                None => return self.poll_conn_event(),
            }
        }
    }

    /// Whether [`Engine::poll_event`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn has_event(&self) -> bool {
        self.connections.has_event()
            || self.shared.cq_fault.load(Ordering::Acquire)
            || self.shared.has_failed_connections.load(Ordering::Acquire)
            || !self.shared.events.lock().notices.is_empty()
    }
}
