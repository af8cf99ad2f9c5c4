// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events for the driver of the engine, and notices of completion and shared receive queues.

use lock_api::RawMutex;

use super::Engine;
use crate::conn::{ConnEvent, ConnId};
use crate::cq::{Cq, CqFault};
use crate::event_queue::QueuedEvent;
use crate::qp_change::QpFault;
use crate::srq::Srq;
use fallible::Arc;
use roce_wire::Qpn;

/// An event for the driver of the engine.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum EngineEvent<'a, R: RawMutex> {
    /// A notice of an armed completion queue. Notify its consumer, then drop the notice.
    Cq(CqNotice<'a, R>),
    /// A shared receive queue fell below its threshold. Notify its consumer, then drop the notice.
    Srq(SrqNotice<'a, R>),
    /// A notice queue has notices. Call [`Engine::poll_notice`] for it, where the consumers of its queues are to be notified, until
    /// there are none. This event is returned again for notices after that.
    NoticesDue { queue: u32 },
    /// The last notice of a completion queue destroyed meanwhile was dropped
    /// ([`DestroyResult::AfterNotice`](crate::DestroyResult::AfterNotice)): its context will not be seen again.
    CqGone { context: u64 },
    /// The same for a shared receive queue.
    SrqGone { context: u64 },
    /// The peer of a connection has not answered for an ACK timeout: the next hop of its path may have another MAC address.
    /// Resolve it anew and call [`ConnectionCommands::set_next_hop`]. Returned again for each further timeout.
    ///
    /// [`ConnectionCommands::set_next_hop`]: crate::ConnectionCommands::set_next_hop
    PathSuspect { id: ConnId, context: u64 },
    /// A queue pair that was connected by [`Engine::modify_qp`] is in error, by number and the context it was created with. Not
    /// returned for one that its owner has put in error or destroyed.
    QpFailed { qpn: Qpn, context: u64, fault: QpFault },
    /// All requests are complete that were begun before a change to SQD ([`QpChange::Drain`](crate::QpChange::Drain)) that asked for
    /// this event.
    QpDrained { qpn: Qpn, context: u64 },
    /// A connection, by number and the context it was given.
    Conn { id: ConnId, context: u64, event: ConnEvent },
}

/// The right to call the consumer of a completion queue. There is one per queue at a time; the next one
/// comes after this is dropped.
//= R-CQ-14
#[derive(Debug)]
pub struct CqNotice<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    cq: Arc<Cq<R>>,
    fault: Option<CqFault>,
}

impl<'a, R: RawMutex> CqNotice<'a, R> {
    /// Begins the notice that was queued for a completion queue. `None` if it was destroyed meanwhile.
    pub(super) fn begin(engine: &'a Engine<R>, cq: Arc<Cq<R>>) -> Option<EngineEvent<'a, R>> {
        let fault = cq.begin_notice().ok()?;
        Some(EngineEvent::Cq(Self { engine, cq, fault }))
    }

    /// Returns the context that the queue was created with.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.cq.context()
    }

    /// Returns the fault that this notice reports; `None` when there are completions to read.
    #[must_use]
    pub fn fault(&self) -> Option<CqFault> {
        self.fault
    }
}

impl<R: RawMutex> Drop for CqNotice<'_, R> {
    fn drop(&mut self) {
        let (action, destroyed) = self.cq.end_notice(self.engine.qps.now());
        self.engine.qps.shared.notices.apply_cq(&self.cq, action);
        if destroyed {
            self.engine
                .qps
                .shared
                .notices
                .push(self.cq.notice_queue(), QueuedEvent::CqGone(self.cq.context()));
        }
    }
}

/// The right to call the consumer of a shared receive queue, one per queue at a time.
//= R-SRQ-18
#[derive(Debug)]
pub struct SrqNotice<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    srq: Arc<Srq<R>>,
}

impl<'a, R: RawMutex> SrqNotice<'a, R> {
    /// Begins the notice that was queued for a shared receive queue. `None` if it was destroyed meanwhile.
    pub(super) fn begin(engine: &'a Engine<R>, srq: Arc<Srq<R>>) -> Option<EngineEvent<'a, R>> {
        srq.begin_notice().then(|| EngineEvent::Srq(Self { engine, srq }))
    }

    /// Returns the context that the queue was created with.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.srq.context()
    }
}

impl<R: RawMutex> Drop for SrqNotice<'_, R> {
    fn drop(&mut self) {
        let (action, destroyed) = self.srq.end_notice();
        self.engine.qps.shared.notices.apply_srq(&self.srq, action);
        if destroyed {
            self.engine
                .qps
                .shared
                .notices
                .push(self.srq.notice_queue(), QueuedEvent::SrqGone(self.srq.context()));
        }
    }
}
