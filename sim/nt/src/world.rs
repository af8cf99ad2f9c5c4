// SPDX-License-Identifier: MIT OR Apache-2.0

//! State that all parts of a simulation share: its clock, its random generators, the violations reported.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{
    clock::{Clock, ClockKind},
    event_queue::{EventId, EventQueue},
    thread::shared::{ThreadId, ThreadShared},
    verifier::verdict::{Verdict, Violation},
};

/// State that all parts of a simulation share.
pub struct World {
    pub clock: Clock,
    /// Events of the links between hosts.
    events: EventQueue,
    kind: ClockKind,
    seed: u64,
    stopping: AtomicBool,
    threads: AtomicU32,
    violations: Mutex<Vec<Violation>>,
    tolerated: Mutex<Vec<Violation>>,
    /// Threads whose wait may never end once a host is dead.
    waiters: Mutex<BTreeMap<ThreadId, Arc<ThreadShared>>>,
}

impl World {
    pub(crate) fn new(kind: ClockKind, seed: u64) -> Self {
        Self {
            clock: Clock::new(kind),
            events: EventQueue::default(),
            kind,
            seed,
            stopping: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            violations: Mutex::default(),
            tolerated: Mutex::default(),
            waiters: Mutex::default(),
        }
    }

    #[must_use]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// Returns the nanoseconds since the simulation was built.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Runs `event` at `time` on the thread of the links between hosts.
    pub fn at(&self, time: u64, event: impl FnOnce() + Send + 'static) -> EventId {
        self.events.at(&self.clock, time, event)
    }

    /// Cancels an event of [`World::at`].
    pub fn cancel(&self, event: EventId) -> bool {
        self.events.cancel(event)
    }

    /// Returns a random generator for `purpose`, independent of those for other purposes.
    #[must_use]
    pub fn random(&self, purpose: &str) -> fastrand::Rng {
        // FNV-1a: stable across runs and machines, unlike the standard library's hasher.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        fastrand::Rng::with_seed(self.seed.rotate_left(32) ^ hash)
    }

    /// Returns whether the simulation is ending: service threads return from their loops then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub(crate) fn next_thread_id(&self) -> ThreadId {
        ThreadId(self.threads.fetch_add(1, Relaxed))
    }

    /// Makes service threads return from their loops.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.at(0, || {});
    }

    /// The body of the thread that runs the events between hosts.
    pub(crate) fn run_events(&self, me: &Arc<ThreadShared>) {
        self.events.run(&self.clock, me, || self.is_stopping());
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict { violations: self.violations.lock().clone(), tolerated: self.tolerated.lock().clone() }
    }

    pub(crate) fn record(&self, violation: Violation) {
        self.violations.lock().push(violation);
    }

    pub(crate) fn tolerate(&self, violation: Violation) {
        self.tolerated.lock().push(violation);
    }

    /// Returns whether a fault with this text is tolerated already, of a driver of this host.
    pub(crate) fn has_tolerated(&self, host: Option<&str>, text: &str) -> bool {
        let tolerated = self.tolerated.lock();
        tolerated.iter().any(|fault| host.is_none_or(|host| fault.host == host) && fault.text == text)
    }

    pub(crate) fn register_waiter(&self, thread: &Arc<ThreadShared>) {
        self.waiters.lock().insert(thread.id, thread.clone());
    }

    pub(crate) fn unregister_waiter(&self, thread: ThreadId) {
        self.waiters.lock().remove(&thread);
    }

    /// Wakes every waiting thread, so that it checks whether its wait can still end.
    pub(crate) fn wake_waiters(&self) {
        let waiters: Vec<_> = self.waiters.lock().values().cloned().collect();
        for waiter in waiters {
            self.clock.unpark(&waiter);
        }
    }
}
