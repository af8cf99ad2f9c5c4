// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine of one adapter. Every method takes `&self`.
//!
//! | file | methods |
//! | --- | --- |
//! | `objects` | create and destroy CQs, SRQs, QPs, regions, windows |
//! | `posts` | work requests, arm, flush |
//! | `connect` | listen, connect, accept, reject, disconnect |
//! | `receive` | received frames |
//! | `frames` | what the driver does with each shard: transmit, timeouts |
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
pub(crate) mod receive;
pub(crate) mod transmit;

use core::sync::atomic::{AtomicU32, AtomicU64};

use lock_api::{Mutex, RawMutex};

use crate::object_table::ObjectTable;
use crate::qp::Qp;
use crate::random::Random;
use crate::shard::{ShardState, Shards};
use crate::shared::Shared;
use crate::time::Instant;
use crate::transport::env::{Batch, Env};
use connections::Connections;

/// A RoCEv2 endpoint: queue pairs, memory regions, connections. The [crate docs](crate) tell how to drive it.
pub struct Engine<R: RawMutex> {
    shared: Shared<R>,
    qps: ObjectTable<Qp<R>, R>,
    shards: Shards<R>,
    connections: Connections<R>,
    random: Mutex<R, Random>,
    next_pd: AtomicU32,
    next_id: AtomicU64,
}

impl<R: RawMutex> core::fmt::Debug for Engine<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.shared.config)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<R: RawMutex> Engine<R> {
    /// Calls `command` with the environment of a command for a queue pair. `command` looks up no region: the batch would keep it
    /// after the queue pair's lock is released, below `DISPATCH_LEVEL`.
    #[inline]
    fn with_env<T>(&self, qp: &Qp<R>, command: impl FnOnce(&Env<'_, R>) -> T) -> T {
        let shard = self.shards.of(qp);
        let batch = Batch::new(&self.shared, &shard.stats);
        command(&Env::new(&batch, &qp.attributes, shard.now()))
    }

    /// Returns the latest time that the driver passed, for commands without a time.
    fn now(&self) -> Instant {
        self.shards.iter().map(ShardState::now).max().unwrap_or_default()
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
