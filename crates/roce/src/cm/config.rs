// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of connection management.

use core::time::Duration;

use crate::conn::ReadLimits;
use roce_wire::{PathMtu, ack_timeout};

/// What a connection manager is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// Constant and unique: peers know connections by it and the queue pair's number.
    pub ca_guid: u64,
    /// Secret: identifiers and their distribution come from it alone.
    pub seed: [u8; 32],
    /// UDP source port of connection management.
    pub source_port: u16,
    /// At a time, those in TIMEWAIT included; at most 65536, rounded up to a multiple of 16.
    pub max_connections: usize,
    /// Connections with one peer address at most, those in TIMEWAIT not included. Counts what this side begins
    /// too, but limits only what the peer begins.
    pub max_per_peer: usize,
    /// Connections at most that peers have begun and that are not established.
    pub max_half_open: usize,
    /// Of those, from one peer address.
    pub max_half_open_per_peer: usize,
    pub max_listeners: usize,
    /// What this side can do; requests and grants are lowered to it.
    pub reads: ReadLimits,
    /// The largest path MTU that this side can use.
    pub max_mtu: PathMtu,
    /// How long either side may take for an answer: 4.096 us * 2^code.
    pub response_timeout: u8,
    /// How long a datagram is on its way at most: 4.096 us * 2^code.
    pub packet_life: u8,
    /// How often a message is repeated, 0 to 15; a DREQ at most 7 times.
    pub max_retries: u8,
    /// What a slow consumer of this side takes, as the peer is told: 4.096 us * 2^code.
    pub service_timeout: u8,
    /// What this side takes to acknowledge a packet at most: 4.096 us * 2^code.
    pub target_ack_delay: u8,
    /// How long late messages and packets of an ended connection are waited for.
    pub time_wait: Duration,
}

impl Config {
    /// Defaults for a local network: messages are repeated about every 1.1 s, for 18 s in all; a DREQ for
    /// 9 s.
    pub const fn new(ca_guid: u64, seed: [u8; 32]) -> Self {
        Self {
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
        }
    }

    /// Between repetitions of a REQ or a DREQ.
    pub(super) fn interval(&self) -> Duration {
        ack_timeout(self.response_timeout).saturating_add(ack_timeout(self.packet_life).saturating_mul(2))
    }
}
