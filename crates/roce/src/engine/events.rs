//! What the driver of the engine is told.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use crate::arc::Arc;
use crate::conn::{ConnEvent, ConnId};
use crate::cq::{Cq, CqFault, Destroyed, Follow};
use crate::error::{CreateError, PostError};
use crate::fifo::Fifo;
use crate::srq::Srq;

/// Something that happened.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Event<'a, R: RawMutex> {
    /// An armed completion queue has something to tell. Tell its consumer, then drop the notice.
    Cq(CqNotice<'a, R>),
    /// A shared receive queue runs short. Tell its consumer, then drop the notice.
    Srq(SrqNotice<'a, R>),
    /// The last notice of a completion queue destroyed meanwhile was dropped
    /// ([`Destroyed::AfterNotice`]): its context will not be seen again.
    CqGone { context: u64 },
    /// The same for a shared receive queue.
    SrqGone { context: u64 },
    /// A connection, by number and the context it was given.
    Conn { id: ConnId, context: u64, event: ConnEvent },
}

/// The right to call the consumer of a completion queue. There is one per queue at a time; the next one
/// comes after this is dropped (R-CQ-14).
#[derive(Debug)]
pub struct CqNotice<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    cq: Arc<Cq<R>>,
    fault: Option<CqFault>,
}

impl<R: RawMutex> CqNotice<'_, R> {
    /// What the queue was created with.
    pub fn context(&self) -> u64 {
        self.cq.context()
    }

    /// The fault that this notice tells of; `None` when there are completions to read.
    pub fn fault(&self) -> Option<CqFault> {
        self.fault
    }
}

impl<R: RawMutex> Drop for CqNotice<'_, R> {
    fn drop(&mut self) {
        let (follow, destroyed) = self.cq.end_notice();
        self.engine.follow_cq(&self.cq, follow);
        if destroyed {
            self.engine.events.lock().fifo.push(Entry::CqGone(self.cq.context()));
        }
    }
}

/// The right to call the consumer of a shared receive queue, one per queue at a time (R-SRQ-18).
#[derive(Debug)]
pub struct SrqNotice<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    srq: Arc<Srq<R>>,
}

impl<R: RawMutex> SrqNotice<'_, R> {
    /// What the queue was created with.
    pub fn context(&self) -> u64 {
        self.srq.context()
    }
}

impl<R: RawMutex> Drop for SrqNotice<'_, R> {
    fn drop(&mut self) {
        let (follow, destroyed) = self.srq.end_notice();
        self.engine.follow_srq(&self.srq, follow);
        if destroyed {
            self.engine.events.lock().fifo.push(Entry::SrqGone(self.srq.context()));
        }
    }
}

/// Queues with something to tell, each at most once.
pub(super) struct Queue<R: RawMutex> {
    fifo: Fifo<Entry<R>>,
    /// Completion queues and shared receive queues that exist, or whose last notice is out.
    members: usize,
}

enum Entry<R: RawMutex> {
    Cq(Arc<Cq<R>>),
    Srq(Arc<Srq<R>>),
    CqGone(u64),
    SrqGone(u64),
}

impl<R: RawMutex> Queue<R> {
    pub(super) const fn new() -> Self {
        Self { fifo: Fifo::new(), members: 0 }
    }

    /// Makes room for one more queue.
    pub(super) fn add_member(&mut self) -> Result<(), CreateError> {
        self.fifo.reserve_for(self.members.saturating_add(1))?;
        self.members = self.members.saturating_add(1);
        Ok(())
    }

    pub(super) fn remove_member(&mut self) {
        self.members = self.members.saturating_sub(1);
    }
}

impl<R: RawMutex> Engine<R> {
    /// The next thing that happened, if any. To be called, without any lock held, after every batch of
    /// frames, posts or time, until there is nothing more.
    #[inline(never)]
    pub fn poll_event(&self) -> Option<Event<'_, R>> {
        self.settle();
        loop {
            let entry = self.events.lock().fifo.pop();
            match entry {
                Some(Entry::Cq(cq)) => {
                    if let Ok(fault) = cq.begin_notice() {
                        return Some(Event::Cq(CqNotice { engine: self, cq, fault }));
                    }
                }
                Some(Entry::Srq(srq)) => {
                    if srq.begin_notice() {
                        return Some(Event::Srq(SrqNotice { engine: self, srq }));
                    }
                }
                Some(Entry::CqGone(context)) => {
                    self.events.lock().remove_member();
                    return Some(Event::CqGone { context });
                }
                Some(Entry::SrqGone(context)) => {
                    self.events.lock().remove_member();
                    return Some(Event::SrqGone { context });
                }
                None => return self.poll_conn_event(),
            }
        }
    }

    /// Whether [`Engine::poll_event`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn has_event(&self) -> bool {
        self.has_conn_event()
            || self.cq_fault.load(Ordering::Acquire)
            || self.is_broken.load(Ordering::Acquire)
            || !self.events.lock().fifo.is_empty()
    }

    pub(crate) fn follow_cq(&self, cq: &Arc<Cq<R>>, follow: Follow) {
        if follow == Follow::Queue {
            self.events.lock().fifo.push(Entry::Cq(cq.clone()));
        }
    }

    pub(crate) fn follow_srq(&self, srq: &Arc<Srq<R>>, follow: Follow) {
        if follow == Follow::Queue {
            self.events.lock().fifo.push(Entry::Srq(srq.clone()));
        }
    }

    /// Takes a completion queue's notice back. No new one begins.
    pub(super) fn withdraw_cq(&self, cq: &Cq<R>) -> Destroyed {
        let destroyed = cq.destroy();
        let mut events = self.events.lock();
        events.fifo.remove(|entry| matches!(entry, Entry::Cq(queued) if **queued == *cq));
        if destroyed == Destroyed::Now {
            events.remove_member();
        }
        destroyed
    }

    /// Takes a shared receive queue's notice back. No new one begins.
    pub(super) fn withdraw_srq(&self, srq: &Srq<R>) -> Destroyed {
        let destroyed = srq.destroy();
        let mut events = self.events.lock();
        events.fifo.remove(|entry| matches!(entry, Entry::Srq(queued) if **queued == *srq));
        if destroyed == Destroyed::Now {
            events.remove_member();
        }
        destroyed
    }
}

/// Posts to a shared receive queue, and what changes it.
impl<R: RawMutex> Engine<R> {
    /// Posts a receive to a shared receive queue. Posts of one queue are in the order of the calls.
    pub fn post_srq(&self, srq: &Srq<R>, request: &crate::RecvRequest<'_>) -> Result<(), PostError> {
        srq.post(request, self.config.max_message)
    }

    /// Changes depth and threshold of a shared receive queue; 0 leaves either as it is. Tells at once if
    /// it holds fewer receives than the new threshold (R-SRQ-8).
    pub fn modify_srq(
        &self,
        srq: &Arc<Srq<R>>,
        depth: u32,
        threshold: u32,
    ) -> Result<(), crate::ModifyError> {
        let follow = srq.modify(depth, threshold)?;
        self.follow_srq(srq, follow);
        Ok(())
    }
}
