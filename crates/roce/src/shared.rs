// SPDX-License-Identifier: MIT OR Apache-2.0

//! What all queue pairs of an engine share: configuration, memory regions, events.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use alloc::vec::Vec;
use lock_api::{Mutex, RawMutex};

use crate::config::Config;
use crate::conn::ConnId;
use crate::cq::{Cq, NoticeAction};
use crate::event_queue::{Entry, EventQueue, Events, NoticeQueue};
use crate::held_notices::HeldNotices;
use crate::region::table::RegionTable;
use crate::srq::Srq;
use crate::trace::{TraceEvent, TraceRecord};
use crate::transport::responder::gaps::stash::StashMemory;
use fallible::Arc;
use fallible::Fifo;
use roce_wire::{Psn, Qpn};

/// State that every queue pair uses.
pub(crate) struct Shared<R: RawMutex> {
    pub(crate) config: Config,
    pub(crate) regions: RegionTable<R>,
    pub(crate) stash: Arc<StashMemory<R>>,
    pub(crate) events: Events<R>,
    /// Notices of the completion queues that have a notice queue; by its number.
    pub(crate) notice_queues: Vec<NoticeQueue<R>>,
    pub(crate) held: HeldNotices<R>,
    /// Overflows of completion queues. Bit 0: the queue pairs of one may not be in error yet. The rest counts them, so that the
    /// end of a scan of the queue pairs leaves the bit set if there was another one meanwhile.
    pub(crate) cq_faults: AtomicU32,
    /// Connections whose queue pair is in error, each once, that are not aborted yet.
    pub(crate) failed_connections: Mutex<R, Fifo<ConnId>>,
    pub(crate) has_failed_connections: AtomicBool,
    /// Connections whose path may have another next hop, each once, that the driver does not know yet.
    pub(crate) suspect_paths: Mutex<R, Fifo<ConnId>>,
    pub(crate) has_suspect_paths: AtomicBool,
}

impl<R: RawMutex> Shared<R> {
    /// Reports that a completion queue has overflowed, so that its queue pairs are put in error. Before its consumer can be
    /// notified.
    #[cold]
    pub(crate) fn report_cq_fault(&self) {
        // A scan sees the fault if it sees the count.
        self.cq_faults.fetch_add(2, Ordering::AcqRel);
        self.cq_faults.fetch_or(1, Ordering::AcqRel);
    }

    /// Returns whether the queue pairs of an overflowed completion queue may not be in error yet.
    #[inline]
    pub(crate) fn has_cq_fault(&self) -> bool {
        self.cq_faults.load(Ordering::Acquire) & 1 != 0
    }

    /// Reports that the queue pair of `conn` is in error, so that the connection is aborted.
    pub(crate) fn report_failed_connection(&self, conn: ConnId) {
        self.failed_connections.lock().push(conn);
        self.has_failed_connections.store(true, Ordering::Release);
    }

    /// Reports an event, if it is wanted.
    #[inline]
    pub(crate) fn trace(&self, qpn: Qpn, psn: Psn, event: TraceEvent) {
        if let Some(trace) = &self.config.trace {
            (trace.sink)(trace.context, &TraceRecord { qpn, psn, event });
        }
    }

    /// Reports that the path of `conn` may have another next hop.
    pub(crate) fn report_suspect_path(&self, conn: ConnId) {
        self.suspect_paths.lock().push(conn);
        self.has_suspect_paths.store(true, Ordering::Release);
    }

    pub(crate) fn queue_cq_notice(&self, cq: &Arc<Cq<R>>, action: NoticeAction) {
        match action {
            NoticeAction::None => {}
            NoticeAction::Queue => self.queue_cq_event(cq, Entry::Cq(cq.clone())),
            NoticeAction::Hold { timer, until } => self.held.schedule(timer, cq, until),
        }
    }

    /// Queues an event of `cq` where the driver polls those of this queue.
    pub(crate) fn queue_cq_event(&self, cq: &Cq<R>, event: Entry<R>) {
        match self.notice_queue(cq) {
            None => {
                self.events.push(event);
            }
            Some((number, queue)) => {
                if queue.push(event) {
                    self.events.push(Entry::Due(number));
                }
            }
        }
    }

    /// Returns the notice queue of `cq` and its number.
    fn notice_queue(&self, cq: &Cq<R>) -> Option<(u32, &NoticeQueue<R>)> {
        let number = cq.notice_queue()?;
        Some((number, self.notice_queues.get(number as usize)?))
    }

    /// Runs `change` with the queue of events that has those of `cq`.
    pub(crate) fn with_events_of<T>(&self, cq: &Cq<R>, change: impl FnOnce(&mut EventQueue<R>) -> T) -> T {
        match self.notice_queue(cq) {
            None => self.events.with(change),
            Some((_, queue)) => queue.with(change),
        }
    }

    pub(crate) fn queue_srq_notice(&self, srq: &Arc<Srq<R>>, action: NoticeAction) {
        if action == NoticeAction::Queue {
            self.events.push(Entry::Srq(srq.clone()));
        }
    }
}
