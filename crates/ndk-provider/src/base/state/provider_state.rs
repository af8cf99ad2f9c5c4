// SPDX-License-Identifier: MIT OR Apache-2.0

//! State that all objects of one provider share: the engine, its environment, and what drives the engine.
//!
//! A consumer's call makes no callbacks, because the consumer may hold locks or be inside a callback itself.
//! After the call, [`ProviderState::after_call`] transmits what became ready and defers callbacks. So callbacks never
//! nest.
//= R-CQ-14, R-CQ-15, R-IRQL-4, R-IRQL-11

use super::affinity::{Affinity, Turns};
use super::config::CreateCompletion;
use super::counters::Counters;
use super::loopback::Loopback;
use super::ports::PortSpace;
use super::quota::Quotas;
use super::scheduler::Scheduler;
use super::transmit::Outgoing;
use crate::base::environment::{Environment, ObjectChange};
use crate::base::limits::BUDGET;
use crate::base::object::closed::{CloseLater, Closed, ClosedObjects};
use crate::base::object::registry::Registry;
use crate::base::object::removal::Removal;
use crate::base::strict::Checker;
use crate::base::strict::CreateFaults;
use crate::base::strict::HeldCallbacks;
use alloc::boxed::Box;
use fallible::Arc;
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use nt::RawSpinLock;
use roce::{Instant, Qp};

/// The engine with the kernel's lock.
pub type Engine = roce::Engine<RawSpinLock>;

/// One of the engine's shards.
pub type Shard<'a> = roce::Shard<'a, RawSpinLock>;

/// The state that the objects of one provider share.
pub struct ProviderState {
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
    pub turns: Turns,
    pub removal: Removal,
    pub closed: ClosedObjects,
}

/// Returns the engine's clock.
pub fn now() -> Instant {
    Instant::from_nanos(nt::time::now())
}

impl ProviderState {
    /// Transmits what a consumer's call made ready, and defers its events.
    pub fn after_call(&self) {
        self.transmit();
        self.defer_events();
        self.set_timer();
    }

    /// Does the work of [`ProviderState::after_call`] for a call that concerns this queue pair alone.
    pub fn after_post(&self, qp: &Qp<RawSpinLock>) {
        self.after_call_of(&self.engine.shard_of(qp));
    }

    /// Does the work of [`ProviderState::after_call`] for a call that makes frames ready in one shard only.
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

    /// Does the work of [`ProviderState::after_call`] for a call that makes nothing ready to transmit.
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
                let now = now();
                // Posts advance the deadlines of queue pairs, whose timer may be a tick of the clock late.
                shard.handle_due(now);
                let frames = shard.poll_transmit(now, &mut outgoing, BUDGET);
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
        self.turns.choose(affinity, self.engine.config().notice_queues)
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

    /// Sets the timer as [`ProviderState::set_timer`] does, after something that concerns one shard only.
    pub fn set_timer_of(&self, shard: &Shard<'_>) {
        if let Some(timeout) = shard.poll_timeout() {
            self.scheduler.set_timer(timeout.as_nanos());
        }
    }
}

impl CloseLater for ProviderState {
    fn trace_object(&self, kind: NDK_OBJECT_TYPE, object: usize, change: ObjectChange) {
        self.environment.trace_object(kind, object, change);
    }

    fn close_later(&self, closed: Closed) {
        self.closed.push(closed, || self.defer());
    }
}
