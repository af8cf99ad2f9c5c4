// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of connection management.

use core::time::Duration;

use crate::conn::ReadLimits;
use crate::number_prefix::NumberPrefix;
use crate::trace::Trace;
use roce_wire::{PathMtu, ack_timeout};

/// Configuration of a connection manager.
#[derive(Clone, Debug)]
pub struct CmConfig {
    /// Whether connections may be made at loopback addresses.
    pub loopback: bool,
    /// Upper bits of communication IDs.
    pub number_prefix: NumberPrefix,
    /// Constant and globally unique: peers identify connections by it and the QPN.
    pub ca_guid: u64,
    /// Secret seed of communication IDs, transaction IDs and hashes.
    pub seed: [u8; 32],
    /// UDP source port of CM messages.
    pub source_port: u16,
    /// Maximum connections at a time, including those in TIMEWAIT; at most 65536, rounded up to a multiple of 16.
    pub max_connections: usize,
    /// Maximum connections with one peer address, not including those in TIMEWAIT. Connections that this side
    /// begins are counted but not limited.
    pub max_per_peer: usize,
    /// Maximum half-open connections: begun by peers and not established.
    pub max_half_open: usize,
    /// Maximum half-open connections from one peer address.
    pub max_half_open_per_peer: usize,
    /// Maximum listeners.
    pub max_listeners: usize,
    /// Read limits of this side; requests and grants are lowered to them.
    pub reads: ReadLimits,
    /// The largest path MTU that this side can use.
    pub max_mtu: PathMtu,
    /// CM response timeout of either side: 4.096 us * 2^code.
    pub response_timeout: u8,
    /// Packet lifetime, the maximum time a datagram is in flight: 4.096 us * 2^code.
    pub packet_life: u8,
    /// Maximum retries of a message, 0 to 15; of a DREQ at most 7.
    pub max_retries: u8,
    /// Service timeout in MRAs, the time a slow consumer may take: 4.096 us * 2^code.
    pub service_timeout: u8,
    /// Target ACK delay, the maximum time until this side acknowledges a packet: 4.096 us * 2^code.
    pub target_ack_delay: u8,
    /// Duration of TIMEWAIT.
    pub time_wait: Duration,
    /// Where changes of connections and refusals are reported, if anywhere.
    pub trace: Option<Trace>,
}

impl CmConfig {
    /// Returns defaults for a local network: messages are retried about every 1.1 s, for 18 s in total; a DREQ for
    /// 9 s.
    #[must_use]
    pub const fn new(ca_guid: u64, seed: [u8; 32]) -> Self {
        Self {
            loopback: false,
            number_prefix: NumberPrefix::NONE,
            ca_guid,
            seed,
            source_port: 0xD872,
            max_connections: 16384,
            max_per_peer: 12288,
            max_half_open: 1024,
            max_half_open_per_peer: 128,
            max_listeners: 256,
            reads: ReadLimits { inbound: 16, outbound: 16 },
            max_mtu: PathMtu::Bytes4096,
            response_timeout: 18,
            packet_life: 12,
            max_retries: 15,
            service_timeout: 22,
            target_ack_delay: 15,
            time_wait: Duration::from_millis(2200),
            trace: None,
        }
    }

    /// Returns the time between retries of a REQ or DREQ.
    pub(super) fn interval(&self) -> Duration {
        ack_timeout(self.response_timeout).saturating_add(ack_timeout(self.packet_life).saturating_mul(2))
    }
}
