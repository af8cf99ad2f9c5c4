// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues and shared receive queues whose notice waits for
//! [`Engine::poll_event`](crate::Engine::poll_event), or for [`Engine::poll_notice`](crate::Engine::poll_notice) if it has a
//! notice queue.

use core::sync::atomic::{AtomicBool, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::cq::Cq;
use crate::error::CreateError;
use crate::srq::Srq;
use fallible::Arc;
use fallible::Fifo;

/// Queues with a notice, each at most once.
pub(crate) struct EventQueue<R: RawMutex> {
    pub(crate) notices: Fifo<QueuedEvent<R>>,
    /// Completion queues and shared receive queues that exist, or whose last notice is with the driver.
    members: usize,
}

/// A queued event.
pub(crate) enum QueuedEvent<R: RawMutex> {
    Cq(Arc<Cq<R>>),
    Srq(Arc<Srq<R>>),
    /// A notice queue that is no longer empty.
    Due(u32),
    /// Context of a completion queue that was destroyed while its last notice was with the driver.
    CqGone(u64),
    SrqGone(u64),
}

impl<R: RawMutex> EventQueue<R> {
    pub(crate) const fn new() -> Self {
        Self { notices: Fifo::new(), members: 0 }
    }

    /// Makes room for the events of one more queue.
    pub(crate) fn add_member(&mut self) -> Result<(), CreateError> {
        self.add_members(1)
    }

    /// Makes room for the events of `count` more queues.
    pub(crate) fn add_members(&mut self, count: usize) -> Result<(), CreateError> {
        let members = self.members.saturating_add(count);
        self.notices.reserve_for(members)?;
        self.members = members;
        Ok(())
    }

    pub(crate) fn remove_member(&mut self) {
        self.members = self.members.saturating_sub(1);
    }
}

/// The events that [`Engine::poll_event`](crate::Engine::poll_event) returns. Whether there are any is read without the lock:
/// the driver asks after each post and each batch of frames.
pub(crate) struct Events<R: RawMutex> {
    queue: Mutex<R, EventQueue<R>>,
    /// Changes under the lock.
    has_any: AtomicBool,
}

impl<R: RawMutex> Events<R> {
    pub(crate) const fn new() -> Self {
        Self { queue: Mutex::new(EventQueue::new()), has_any: AtomicBool::new(false) }
    }

    /// Returns whether there is an event. Right unless other threads are at work: a thread sees the events that it has queued.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Runs `change` with the queue.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut EventQueue<R>) -> T) -> T {
        let mut queue = self.queue.lock();
        let result = change(&mut queue);
        self.has_any.store(!queue.notices.is_empty(), Ordering::Release);
        result
    }

    pub(crate) fn push(&self, entry: QueuedEvent<R>) {
        self.with(|queue| queue.notices.push(entry));
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&self) -> Option<QueuedEvent<R>> {
        if self.has_any() { self.with(|queue| queue.notices.pop()) } else { None }
    }
}

/// Notices of completion queues and shared receive queues that the driver serves in one place, a processor for example.
pub(crate) struct NoticeQueue<R: RawMutex>(Mutex<R, NoticeQueueState<R>>);

/// Entries of a notice queue, and whether the driver serves it.
struct NoticeQueueState<R: RawMutex> {
    events: EventQueue<R>,
    service: Service,
}

/// Service of a notice queue by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Nothing: the queue is empty.
    None,
    /// Nothing yet: a [`QueuedEvent::Due`] is on its way.
    Requested,
    /// It polls the queue until that is empty.
    Granted,
}

impl<R: RawMutex> NoticeQueue<R> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(NoticeQueueState { events: EventQueue::new(), service: Service::None }))
    }

    /// Runs `change` with the entries.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut EventQueue<R>) -> T) -> T {
        change(&mut self.0.lock().events)
    }

    /// Appends an entry. Returns `true` if the caller must queue a [`QueuedEvent::Due`]. There is never more than one.
    #[must_use]
    pub(crate) fn push(&self, entry: QueuedEvent<R>) -> bool {
        let mut notices = self.0.lock();
        notices.events.notices.push(entry);
        let first = notices.service == Service::None;
        if first {
            notices.service = Service::Requested;
        }
        first
    }

    /// Records that the [`QueuedEvent::Due`] was taken from its queue: the driver is about to poll this one.
    pub(crate) fn grant(&self) {
        self.0.lock().service = Service::Granted;
    }

    /// Takes the oldest entry. After `None`, the next [`NoticeQueue::push`] requests service again.
    pub(crate) fn pop(&self) -> Option<QueuedEvent<R>> {
        let mut notices = self.0.lock();
        let entry = notices.events.notices.pop();
        // An entry that is on its way makes the driver poll once more.
        if entry.is_none() && notices.service == Service::Granted {
            notices.service = Service::None;
        }
        entry
    }
}
