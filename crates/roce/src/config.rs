// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of an engine.

use crate::congestion::CongestionConfig;
use crate::conn::{ReadLimits, Timing};
use crate::number_prefix::NumberPrefix;
use crate::trace::Trace;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

/// Bounds of the stash: bytes of frames that arrived after a gap and wait for the missing ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StashLimits {
    /// Bytes at most per queue pair, which gets no more than it leaves for others.
    pub per_qp: u32,
    /// Bytes at most of all queue pairs.
    pub total: u32,
}

/// Packets of a queue pair that may be unacknowledged, at most.
pub const MOST_PACKETS: u32 = 1 << 13;

impl StashLimits {
    /// Nothing is stored.
    pub const NONE: Self = Self { per_qp: 0, total: 0 };
}

/// Configuration of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Queue pairs at most, up to 2^18, divided by two for each bit of [`Config::number_prefix`].
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
    /// Scatter/gather elements that a READ may have, even if its queue pair was created with fewer. The first such READ
    /// allocates room for them.
    pub read_sges: u32,
    /// READs at most per queue pair, in either direction. A queue pair has room for as many.
    pub max_reads: ReadLimits,
    /// The largest path MTU that frames of this adapter can have.
    pub max_mtu: PathMtu,
    /// Whether packets after a gap are placed into memory when they arrive, or stored. Otherwise they are dropped, as by a
    /// responder of the specification, and the peer sends everything after a lost packet again.
    pub early_placement: bool,
    /// Bytes of packets after a gap that are stored because they cannot be placed yet.
    pub stash: StashLimits,
    /// Packets of a queue pair that may be unacknowledged, whatever the path.
    pub window: u32,
    /// Bytes of a queue pair that may be unacknowledged on a path of which a measured rate and round trip show that it holds
    /// as many, in packets of the path MTU; [`MOST_PACKETS`] packets at most.
    pub max_in_flight: u32,
    /// Every so many packets, the requester asks for an acknowledgement in the middle of a message.
    /// Rounded up to a power of two.
    pub ack_every: u32,
    pub timing: Timing,
    pub congestion: CongestionConfig,
    /// Number of shards, at least 1: one for each queue pair of the NIC, which is served by one processor.
    pub shards: u32,
    /// Number of notice queues, from which the driver polls the notices of some completion queues and shared receive queues
    /// apart from other events, as on one processor each.
    pub notice_queues: u32,
    /// Whether connections may be made at loopback addresses (127.0.0.0/8, `::1`), which no frame of a network has.
    pub loopback: bool,
    /// Upper bits of the numbers of queue pairs and of communication IDs, where several engines share an address.
    pub number_prefix: NumberPrefix,
    /// Called between looks at whether another thread is done that holds no lock: one that uses an object which is being destroyed, or
    /// copies payload. Where it can be preempted, this gives it the processor (`sched_yield`).
    pub relax: fn(),
    /// Names this side to connection management of peers: constant and unique, an EUI-64 of the adapter.
    pub ca_guid: u64,
    /// Where drops, retransmissions, failures and changes of state are reported, if anywhere.
    pub trace: Option<Trace>,
    /// How CRCs are computed.
    pub crc: Crc,
    /// For numbers that an attacker must not predict. The same seed and input give the same frames.
    pub seed: [u8; 32],
}

impl Config {
    /// Ordinary limits.
    #[must_use]
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
            read_sges: 0,
            max_reads: ReadLimits { inbound: 32, outbound: 32 },
            max_mtu: PathMtu::Bytes4096,
            early_placement: true,
            stash: StashLimits { per_qp: 6 << 20, total: 12 << 20 },
            window: 128,
            max_in_flight: 8 << 20,
            ack_every: 32,
            timing: Timing::default(),
            congestion: CongestionConfig::default(),
            shards: 1,
            notice_queues: 0,
            loopback: false,
            number_prefix: NumberPrefix::NONE,
            relax: core::hint::spin_loop,
            ca_guid,
            trace: None,
            crc: Crc::detect(),
            seed,
        }
    }

    /// Returns how many packets of `mtu` bytes a queue pair may have in flight at most.
    pub(crate) fn most_packets(&self, mtu: u32) -> u32 {
        (self.max_in_flight / mtu.max(1)).clamp(2, MOST_PACKETS)
    }

    /// Returns how many packets a queue pair may have in flight at most, whatever the path MTU.
    pub(crate) fn most_in_flight(&self) -> u32 {
        let smallest = PathMtu::Bytes256.bytes() as u32;
        self.most_packets(smallest).max(self.window.min(MOST_PACKETS))
    }
}
