//! The engine: everything of one adapter, behind one `&self`.
//!
//! Split by what drives it: `objects` (creating and destroying), `posts` (work requests), `frames` (packets
//! in and out, time), `events` (what happened), `conns` (connections).

mod conns;
mod events;
mod frames;
mod objects;
mod posts;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use lock_api::{Mutex, RawMutex};

pub use events::{CqNotice, Event, SrqNotice};
pub use frames::{Reason, Transmit, Verdict};

use crate::arc::Arc;
use crate::congestion::Congestion;
use crate::conn::{ConnId, ReadLimits, Timing};
use crate::fifo::Fifo;
use crate::qp::Qp;
use crate::random::Random;
use crate::region::Regions;
use crate::slots::Slots;
use crate::stats::Stats;
use crate::timer::Wheel;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

/// What an engine is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Queue pairs at most, up to 2^18.
    pub max_qps: u32,
    /// Regions at most, up to 2^18.
    pub max_regions: u32,
    /// Logical ranges at most, up to 2^18.
    pub max_logical: u32,
    /// Connections at most, half-open ones included.
    pub max_connections: u32,
    /// Connections at most that one peer address gets: what it begins beyond that is refused.
    pub max_connections_per_peer: u32,
    /// Connections at most that peers have begun and that are not established. Old ones give way.
    pub max_half_open: u32,
    /// Of those, from one peer address.
    pub max_half_open_per_peer: u32,
    /// Bytes of the longest message.
    pub max_message: u32,
    /// READs at most per queue pair, in either direction. A queue pair has room for as many.
    pub max_reads: ReadLimits,
    /// The largest path MTU that frames of this adapter can have.
    pub max_mtu: PathMtu,
    /// Packets of a queue pair that may be unacknowledged.
    pub window: u32,
    /// Every so many packets, the requester asks for an acknowledgement in the middle of a message.
    /// Rounded up to a power of two.
    pub ack_every: u32,
    pub timing: Timing,
    pub congestion: Congestion,
    /// Names this side to connection management of peers: constant and unique, an EUI-64 of the adapter.
    pub ca_guid: u64,
    /// How CRCs are computed.
    pub crc: Crc,
    /// For numbers that strangers should not guess. The same seed and input give the same frames.
    pub seed: [u8; 32],
}

impl Config {
    /// Ordinary limits.
    pub fn new(ca_guid: u64, seed: [u8; 32]) -> Self {
        Self {
            max_qps: 1 << 14,
            max_regions: 1 << 17,
            max_logical: 1 << 17,
            max_connections: 1 << 14,
            max_connections_per_peer: 3 << 12,
            max_half_open: 1 << 10,
            max_half_open_per_peer: 1 << 7,
            max_message: 1 << 30,
            max_reads: ReadLimits { inbound: 32, outbound: 32 },
            max_mtu: PathMtu::Bytes4096,
            window: 128,
            ack_every: 32,
            timing: Timing::default(),
            congestion: Congestion::default(),
            ca_guid,
            crc: Crc::detect(),
            seed,
        }
    }
}

/// A RoCEv2 endpoint: queue pairs, memory, connections. See the [crate](crate) for how to drive it.
pub struct Engine<R: RawMutex> {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    pub(crate) regions: Regions<R>,
    pub(crate) qps: Slots<Qp<R>, R>,
    /// Queue pairs with something to send, each once.
    ready: Mutex<R, Fifo<Arc<Qp<R>>>>,
    wheel: Mutex<R, Wheel>,
    events: Mutex<R, events::Queue<R>>,
    conns: Mutex<R, conns::Conns<R>>,
    /// What the connections have to do, readable without their lock.
    conns_due: conns::Due,
    random: Mutex<R, Random>,
    /// The latest time that was told, in nanoseconds, for what comes without one.
    clock: AtomicU64,
    next_pd: AtomicU32,
    next_id: AtomicU64,
    /// A completion queue has overflowed, and its queue pairs do not know yet.
    cq_fault: AtomicBool,
    /// Connections whose queue pair is in error, each once, and they do not know yet.
    broken: Mutex<R, Fifo<ConnId>>,
    is_broken: AtomicBool,
}

impl<R: RawMutex> core::fmt::Debug for Engine<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.config)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
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
