// SPDX-License-Identifier: MIT OR Apache-2.0

//! State that all objects of one provider share: the engine, its environment, and the timer and the
//! deferred routines that drive it.
//!
//! A consumer's call makes no callbacks, because the consumer may hold locks or be inside a callback itself.
//! After the call, [`Shared::after_call`] transmits what became ready and defers callbacks. So callbacks never
//! nest.
//= R-CQ-14, R-CQ-15, R-IRQL-4, R-IRQL-11

use super::affinity::Affinity;
use super::closed::{CloseLater, Closed, ClosedObjects};
use super::config::CreateCompletion;
use super::counters::Counters;
use super::environment::Environment;
use super::limits::BUDGET;
use super::loopback::Loopback;
use super::ports::PortSpace;
use super::quota::Quotas;
use super::registry::Registry;
use super::removal::Removal;
use super::strict::Checker;
use super::strict::CreateFaults;
use super::strict::HeldCallbacks;
use super::transmit::Outgoing;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use fallible::Arc;
use nt::{Deferred, RawSpinLock, SpinLock, Timer};
use roce::{Instant, Qp};

/// The engine with the kernel's lock.
pub type Engine = roce::Engine<RawSpinLock>;

/// One of the engine's shards.
pub type Shard<'a> = roce::Shard<'a, RawSpinLock>;

/// What the objects of one provider share.
pub struct Shared {
    pub engine: Arc<Engine>,
    pub environment: Box<dyn Environment>,
    pub ports: Arc<PortSpace>,
    pub registry: Arc<Registry>,
    pub counters: Counters,
    pub quotas: Quotas,
    pub loopback: Loopback,
    pub create_completion: CreateCompletion,
    pub create_faults: CreateFaults,
    pub held_callbacks: HeldCallbacks,
    /// Present if mistakes of consumers are reported.
    pub checker: Option<Arc<Checker>>,
    pub scheduler: Scheduler,
    /// Counts choices among the processors of an affinity.
    pub next_processor: AtomicU32,
    pub removal: Removal,
    pub closed: ClosedObjects,
}

/// The timer and the deferred routines that drive the engine. Absent before the provider has started and after it has
/// stopped.
pub struct Scheduler {
    running: SpinLock<Option<Routines>>,
    /// When the timer expires, in nanoseconds; `u64::MAX` if it is not set.
    due: AtomicU64,
}

/// What drives the engine. Dropped in this order: the timer and the events queue the others.
pub struct Routines {
    pub timer: Timer,
    pub events: Deferred,
    /// Notifications of queues with an affinity: one routine for each processor, by its index. Empty if there is
    /// one processor only.
    pub processors: Vec<Deferred>,
}

/// Returns the engine's clock.
pub fn now() -> Instant {
    Instant::from_nanos(nt::time::now())
}

impl Shared {
    /// Transmits what a consumer's call made ready, and defers its events.
    pub fn after_call(&self) {
        self.transmit();
        self.defer_events();
        self.set_timer();
    }

    /// As [`Shared::after_call`], of a call that concerns this queue pair alone.
    pub fn after_post(&self, qp: &Qp<RawSpinLock>) {
        self.after_call_of(&self.engine.shard_of(qp));
    }

    /// As [`Shared::after_call`], of a call that makes frames ready in one shard only.
    pub fn after_call_of(&self, shard: &Shard<'_>) {
        self.transmit_of(shard);
        self.defer_events();
        self.set_timer_of(shard);
    }

    fn defer_events(&self) {
        if self.engine.has_event() || self.registry.has_deferred() || self.loopback.has_frames() {
            self.defer();
        }
    }

    /// As [`Shared::after_call`], after a call that makes nothing ready to transmit.
    pub fn after_receive(&self) {
        if self.engine.has_event() {
            self.defer();
        }
    }

    /// Lets the engine fill the transmit queues.
    pub fn transmit(&self) {
        for shard in self.engine.shards() {
            self.transmit_of(&shard);
        }
    }

    /// Lets a shard fill its transmit queue.
    pub fn transmit_of(&self, shard: &Shard<'_>) {
        if shard.wants_transmit() {
            let link = self.environment.link();
            self.environment.transmit(shard.number(), &mut |queue| {
                let mut outgoing = Outgoing::new(queue, &self.loopback, link);
                let frames = shard.poll_transmit(now(), &mut outgoing, BUDGET);
                self.counters.frames_out.add_many(frames);
                self.counters.octets_out.add_many(outgoing.octets());
                frames
            });
        }
    }

    /// Returns the engine's notice queue for a queue with this affinity: that of one of its processors, in turn. `None`: its
    /// notifications are made on any processor.
    //= R-CREATE-23, R-SRQ-19
    pub fn notice_queue(&self, affinity: Option<Affinity>) -> Option<u32> {
        let turn = self.next_processor.fetch_add(1, Ordering::Relaxed);
        affinity?.choose(turn, self.engine.config().notice_queues)
    }

    /// Queues the deferred routine, which makes the callbacks that are due.
    pub fn defer(&self) {
        self.scheduler.defer();
    }

    /// Runs `action` now, or later if callbacks are held back.
    pub fn run_or_hold(&self, action: impl FnOnce() + Send + 'static) {
        if let Some(due) = self.held_callbacks.run_later(nt::time::now(), action) {
            self.scheduler.set_timer(due);
        }
    }

    /// Returns whether the waiting events are to be delivered later.
    pub fn holds_events(&self) -> bool {
        self.held_callbacks.is_on()
            && self
                .held_callbacks
                .holds_events(nt::time::now(), self.engine.has_event() || self.registry.has_deferred())
    }

    /// Ends the delay of the callbacks that are due, and sets the timer for the next one.
    pub fn run_held(&self) {
        if self.held_callbacks.is_on()
            && let Some(due) = self.held_callbacks.run_due(nt::time::now())
        {
            self.scheduler.set_timer(due);
        }
    }

    /// Sets the timer if the engine's next timeout is earlier than the timer's.
    pub fn set_timer(&self) {
        for shard in self.engine.shards() {
            self.set_timer_of(&shard);
        }
    }

    /// As [`Shared::set_timer`], after something that concerns one shard only.
    pub fn set_timer_of(&self, shard: &Shard<'_>) {
        if let Some(timeout) = shard.poll_timeout() {
            self.scheduler.set_timer(timeout.as_nanos());
        }
    }
}

impl CloseLater for Shared {
    fn close_later(&self, closed: Closed) {
        self.closed.push(closed, || self.defer());
    }
}

impl Scheduler {
    pub const fn new() -> Self {
        Self { running: SpinLock::new(None), due: AtomicU64::new(u64::MAX) }
    }

    /// Puts the timer and the deferred routines in place. From now on they can be set and queued.
    pub fn start(&self, routines: Routines) {
        *self.running.lock() = Some(routines);
    }

    /// Stops the timer and the deferred routines and waits until they no longer run. `PASSIVE_LEVEL`.
    pub fn stop(&self) {
        let running = self.running.lock().take();
        drop(running);
    }

    /// The timer has expired and may be set again.
    pub fn timer_expired(&self) {
        self.due.store(u64::MAX, Ordering::Release);
    }

    fn defer(&self) {
        if let Some(routines) = &*self.running.lock() {
            routines.events.queue();
        }
    }

    /// Queues the routine that makes notifications on a processor. IRQL <= `DISPATCH_LEVEL`.
    pub fn defer_on(&self, processor: u32) {
        if let Some(routines) = &*self.running.lock()
            && let Some(routine) = routines.processors.get(processor as usize)
        {
            routine.queue();
        }
    }

    fn set_timer(&self, timeout: u64) {
        if self.due.load(Ordering::Acquire) <= timeout {
            return;
        }
        // Under the lock, so that the timer is set to the time in `due` when two threads set it.
        if let Some(routines) = &*self.running.lock()
            && self.due.fetch_min(timeout, Ordering::AcqRel) > timeout
        {
            let after = Duration::from_nanos(timeout.saturating_sub(nt::time::now()));
            routines.timer.set(after);
        }
    }
}
