// SPDX-License-Identifier: MIT OR Apache-2.0

//! An event of the harness: set from any thread at any IRQL, waited for by any thread.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{
    host::Host,
    irql::Irql,
    thread::{current::current, shared::ThreadShared},
    verifier::{codes::BugCheck, report::violation},
    world::World,
};

/// A notification event: stays set until [reset](Event::reset). Clones are the same event.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    world: Arc<World>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    set: bool,
    waiters: VecDeque<Arc<ThreadShared>>,
}

impl Event {
    #[must_use]
    pub fn new(world: &Arc<World>) -> Self {
        Self { inner: Arc::new(Inner { world: world.clone(), state: Mutex::default() }) }
    }

    /// Sets the event and wakes all waiting threads. Callable at any IRQL.
    pub fn set(&self) {
        let waiters = {
            let mut state = self.inner.state.lock();
            state.set = true;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            self.inner.world.clock.unpark(&waiter);
        }
    }

    pub fn reset(&self) {
        self.inner.state.lock().set = false;
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.inner.state.lock().set
    }

    /// Waits until the event is set; returns `false` when `timeout` has passed first. A zero timeout only checks
    /// the event.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline = self.inner.world.clock.now().saturating_add(nanos);
        while !self.is_set() {
            if self.inner.world.clock.now() >= deadline || self.inner.world.clock.is_stuck() {
                return false;
            }
            self.block(Some(deadline), &|| false);
        }
        true
    }

    /// Blocks until the event is set, a host dies, or the simulation can make no progress. May return early.
    pub fn wait_any(&self) {
        self.wait_unless(|| false);
    }

    /// Waits as [`Event::wait_any`] does, but does not block if `is_over`, which sees every host that has died before the thread can be
    /// woken by a death.
    pub fn wait_unless(&self, is_over: impl Fn() -> bool) {
        if !self.is_set() {
            self.block(None, &is_over);
        }
    }

    fn block(&self, deadline: Option<u64>, is_over: &dyn Fn() -> bool) {
        let me = current();
        if me.irql() >= Irql::DISPATCH_LEVEL {
            violation(BugCheck::ATTEMPTED_SWITCH_FROM_DPC, format!("waiting for an event at {}", me.irql()));
        }
        {
            let mut state = self.inner.state.lock();
            if state.set {
                return;
            }
            state.waiters.push_back(me.shared().clone());
        }
        self.inner.world.register_waiter(me.shared());
        // A host that dies from here on wakes the thread.
        if !is_over() {
            me.park(deadline);
        }
        self.inner.world.unregister_waiter(me.shared().id);
        self.inner.state.lock().waiters.retain(|waiter| waiter.id != me.shared().id);
    }
}

impl Host {
    /// Creates an event that callbacks of the image may set.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::new(self.world())
    }
}
