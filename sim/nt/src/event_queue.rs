// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event queues: threads that run the events of simulated hardware at their times.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{clock::Clock, thread::shared::ThreadShared};

type Job = Box<dyn FnOnce() + Send>;

/// Names a scheduled event of one queue, for [`EventQueue::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventId {
    time: u64,
    sequence: u64,
}

/// A queue of events, run in the order of (time, sequence) on a thread of its own.
///
/// Every host has one for its hardware, and the simulation has one for the links between hosts.
#[derive(Default)]
pub struct EventQueue {
    events: Mutex<BTreeMap<EventId, Job>>,
    sequence: AtomicU64,
    thread: Mutex<Option<Arc<ThreadShared>>>,
}

impl EventQueue {
    /// Runs `job` on the queue's thread at `time`, or as soon as possible after it.
    pub fn at(&self, clock: &Clock, time: u64, job: impl FnOnce() + Send + 'static) -> EventId {
        let id = EventId { time, sequence: self.sequence.fetch_add(1, Relaxed) };
        let first = {
            let mut events = self.events.lock();
            events.insert(id, Box::new(job));
            events.first_key_value().is_some_and(|(&first, _)| first == id)
        };
        if first && let Some(thread) = &*self.thread.lock() {
            clock.unpark(thread);
        }
        id
    }

    /// Cancels an event; returns `false` when it has run, is running, or was cancelled before.
    pub fn cancel(&self, id: EventId) -> bool {
        self.events.lock().remove(&id).is_some()
    }

    /// The body of the queue's thread: runs events until `stop` returns `true`.
    pub(crate) fn run(&self, clock: &Clock, me: &Arc<ThreadShared>, stop: impl Fn() -> bool) {
        *self.thread.lock() = Some(me.clone());
        while !stop() {
            let now = clock.now();
            let mut deadline = None;
            let job = {
                let mut events = self.events.lock();
                match events.first_entry() {
                    Some(first) if first.key().time <= now => Some(first.remove()),
                    Some(first) => {
                        deadline = Some(first.key().time);
                        None
                    }
                    None => None,
                }
            };
            match job {
                Some(job) => job(),
                None => clock.park(me, deadline),
            }
        }
        *self.thread.lock() = None;
        self.events.lock().clear();
    }
}
