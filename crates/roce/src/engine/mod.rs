// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine of one adapter. Every method takes `&self`.
//!
//! | file | methods |
//! | --- | --- |
//! | `objects` | create and destroy CQs, SRQs, QPs, regions, windows |
//! | `posts` | work requests, arm, flush |
//! | `connect` | listen, connect, accept, reject, disconnect |
//! | `frames` | received frames, transmit, timeouts |
//! | `poll_event` | notices and connection events for the driver |
//! | `cm_events` | connection management: datagrams, deadlines, events |
//! | `failures` | CQ overflow and failed queue pairs |
//!
//! `connections` is the state that the engine keeps for connections; `events` and `transmit` are types of its interface.

mod cm_events;
mod connect;
mod connections;
pub(crate) mod events;
mod failures;
pub(crate) mod frames;
mod objects;
mod poll_event;
mod posts;
pub(crate) mod transmit;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::object_table::ObjectTable;
use crate::qp::Qp;
use crate::random::Random;
use crate::shared::Shared;
use crate::time::Instant;
use crate::timer_wheel::TimerWheel;
use crate::transport::env::Env;
use connections::Connections;
use fallible::Arc;
use fallible::Fifo;

/// A RoCEv2 endpoint: queue pairs, memory regions, connections. The [crate docs](crate) tell how to drive it.
pub struct Engine<R: RawMutex> {
    shared: Shared<R>,
    qps: ObjectTable<Qp<R>, R>,
    /// The ready list: queue pairs with something to transmit, each once.
    ready: Mutex<R, Fifo<Arc<Qp<R>>>>,
    wheel: Mutex<R, TimerWheel>,
    connections: Connections<R>,
    random: Mutex<R, Random>,
    /// The latest time that the driver passed, in nanoseconds, for commands without a time.
    clock: AtomicU64,
    next_pd: AtomicU32,
    next_id: AtomicU64,
}

impl<R: RawMutex> core::fmt::Debug for Engine<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.shared.config)
            .field("stats", &self.shared.stats)
            .finish_non_exhaustive()
    }
}

impl<R: RawMutex> Engine<R> {
    /// Returns the environment of a command.
    fn env<'a>(&'a self, qp: &'a Qp<R>) -> Env<'a, R> {
        Env { shared: &self.shared, qp: &qp.attributes, now: self.now() }
    }

    /// Returns the latest time that the driver passed.
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    /// Adds a queue pair to the ready list, unless it is there.
    fn make_ready(&self, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        if !qp.ready.swap(true, Ordering::AcqRel) {
            self.ready.lock().push(arc());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    #[test]
    fn an_engine_fits_a_kernel_stack() {
        // It is moved to the heap through the stack; a kernel stack has 24 KiB.
        let size = size_of::<Engine<Lock>>();
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
