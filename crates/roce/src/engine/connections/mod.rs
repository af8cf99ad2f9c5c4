// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections of an engine: connection management, which knows queue pair numbers only, and the queue pairs.
//!
//! Both are under one lock, which is taken before a queue pair's. A queue pair that fails reports its connection in a list,
//! which `failures` processes without a queue pair's lock.
//!
//! | file | of a connection |
//! | --- | --- |
//! | `commands` | connect, accept, complete, disconnect, release |
//! | `datagrams` | messages of connection management in and out, deadlines |
//! | `events` | events of connection management: effect on the queue pair, report to the driver |
//! | `failures` | failed queue pairs, completion queue overflow |
//! | `parameters` | of the local queue pair and of the peer |

mod commands;
mod datagrams;
pub(in crate::engine) mod events;
mod failures;
pub(in crate::engine) mod parameters;

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::cm::{AttachedQps, Cm, CmConfig, PeerQp};
use crate::config::Config;
use crate::conn::ConnId;
use crate::error::ConnError;
use crate::ignored::Ignored;
use crate::qp::Qp;
use crate::random::Random;
use crate::time::Instant;
use fallible::Arc;
use fallible::vec;
use roce_wire::{Packet, Psn};

/// All connections, and what they have to do, readable without their lock.
pub(in crate::engine) struct Connections<R: RawMutex> {
    table: Mutex<R, ConnTable<R>>,
    /// Whether there is a datagram to transmit.
    has_transmit: AtomicBool,
    /// Whether there may be an event.
    has_event: AtomicBool,
    /// In nanoseconds; `u64::MAX` for never.
    deadline: AtomicU64,
}

/// Connection management, and the queue pairs of connections.
pub(in crate::engine) struct ConnTable<R: RawMutex> {
    pub(in crate::engine) cm: Cm,
    /// Indexed by the lower half of a connection's id.
    entries: Vec<Option<ConnEntry<R>>>,
}

/// A connection of the consumer.
pub(in crate::engine) struct ConnEntry<R: RawMutex> {
    pub(super) id: ConnId,
    /// `None` before a request is accepted, for a queue pair that its owner changes, and once it was detached.
    pub(super) qp: Option<Arc<Qp<R>>>,
    /// Starting PSN of the peer, chosen by this side.
    pub(super) receive_psn: Psn,
    /// `None` until the peer's message has come. With the negotiated read limits once the connection is accepted.
    pub(super) peer: Option<PeerQp>,
    /// Set by [`ConnectionCommands::set_context`](crate::ConnectionCommands::set_context), until the connection is accepted.
    pub(super) context: Option<u64>,
}

impl<R: RawMutex> Connections<R> {
    /// Creates the connections of an engine, which are none. Not inlined, because kernel stacks are small.
    #[inline(never)]
    pub(in crate::engine) fn new(config: &Config, random: &mut Random) -> Self {
        Self {
            table: Mutex::new(ConnTable::new(config, random)),
            has_transmit: AtomicBool::new(false),
            has_event: AtomicBool::new(false),
            deadline: AtomicU64::new(u64::MAX),
        }
    }

    /// Runs `act` under the lock, then publishes what the connections have to do.
    pub(in crate::engine) fn with<T>(&self, act: impl FnOnce(&mut ConnTable<R>) -> T) -> T {
        let mut table = self.table.lock();
        let result = act(&mut table);
        self.publish(&table);
        result
    }

    /// Returns the number of connections that were not released.
    pub(in crate::engine) fn live(&self) -> u32 {
        self.lock().entries.iter().flatten().count() as u32
    }

    /// Returns whether `ip` is a local address.
    pub(in crate::engine) fn is_local(&self, ip: IpAddr) -> bool {
        self.lock().cm.is_local(ip)
    }

    /// Takes the lock. The caller publishes changes, see [`Connections::publish`].
    pub(super) fn lock(&self) -> MutexGuard<'_, R, ConnTable<R>> {
        self.table.lock()
    }

    /// Publishes what the connections have to do. The lock is held.
    pub(super) fn publish(&self, table: &ConnTable<R>) {
        self.has_transmit.store(table.cm.has_transmit(), Ordering::Release);
        self.has_event.store(true, Ordering::Release);
        let deadline = table.cm.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
        self.deadline.store(deadline, Ordering::Release);
    }

    /// Publishes that there is no event. The lock is held.
    pub(super) fn publish_no_event(&self) {
        self.has_event.store(false, Ordering::Release);
    }

    pub(in crate::engine) fn has_event(&self) -> bool {
        self.has_event.load(Ordering::Acquire)
    }

    #[inline]
    pub(in crate::engine) fn has_transmit(&self) -> bool {
        self.has_transmit.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn deadline(&self) -> Option<Instant> {
        let deadline = self.deadline.load(Ordering::Acquire);
        (deadline != u64::MAX).then(|| Instant::from_nanos(deadline))
    }
}

impl<R: RawMutex> ConnTable<R> {
    fn new(config: &Config, random: &mut Random) -> Self {
        let mut seed = [0; 32];
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let cm = Cm::new(CmConfig {
            max_connections: config.max_connections as usize,
            max_per_peer: config.max_connections_per_peer as usize,
            max_half_open: config.max_half_open as usize,
            max_half_open_per_peer: config.max_half_open_per_peer as usize,
            reads: config.max_reads,
            max_mtu: config.max_mtu,
            loopback: config.loopback,
            number_prefix: config.number_prefix,
            trace: config.trace,
            ..CmConfig::new(config.ca_guid, seed)
        });
        Self { cm, entries: Vec::new() }
    }

    /// Handles a management datagram. Calls `challenge` for the queue pair of a connection that the peer may have lost.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        challenge: impl Fn(&Arc<Qp<R>>),
    ) -> Result<(), Ignored> {
        self.cm.handle(now, packet, &Attached { entries: &self.entries, challenge })
    }

    /// Returns whether the queue pair of a connection is in error, and its fatal NAK is not sent yet.
    pub(super) fn is_failing(&self, id: ConnId) -> bool {
        is_failing(&self.entries, id)
    }

    /// Adds a connection. Fails when there is no memory.
    pub(super) fn insert(&mut self, entry: ConnEntry<R>) -> Result<(), ConnError> {
        let index = index(entry.id);
        if index >= self.entries.len() {
            // Ids are dense.
            vec::grow_to(&mut self.entries, index.saturating_add(1).next_power_of_two(), || None)?;
        }
        if let Some(slot) = self.entries.get_mut(index) {
            *slot = Some(entry);
        }
        Ok(())
    }

    pub(super) fn entry(&mut self, id: ConnId) -> Option<&mut ConnEntry<R>> {
        self.entries.get_mut(index(id))?.as_mut().filter(|entry| entry.id == id)
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<ConnEntry<R>> {
        self.entries.get_mut(index(id))?.take_if(|entry| entry.id == id)
    }

    /// Detaches the queue pair of a connection that was not established, so that it can connect again.
    pub(super) fn free_qp(&mut self, id: ConnId) {
        if let Some(entry) = self.entry(id) {
            //= R-QP-74
            entry.qp.take_if(|qp| qp.lock().detach());
        }
    }
}

/// The queue pairs of connections, for connection management.
struct Attached<'a, R: RawMutex, F> {
    entries: &'a [Option<ConnEntry<R>>],
    challenge: F,
}

impl<R: RawMutex, F: Fn(&Arc<Qp<R>>)> AttachedQps for Attached<'_, R, F> {
    fn challenge(&self, conn: ConnId) {
        if let Some(qp) = qp_of(self.entries, conn) {
            (self.challenge)(qp);
        }
    }

    fn is_failing(&self, conn: ConnId) -> bool {
        is_failing(self.entries, conn)
    }
}

fn qp_of<R: RawMutex>(entries: &[Option<ConnEntry<R>>], id: ConnId) -> Option<&Arc<Qp<R>>> {
    let entry = entries.get(index(id)).and_then(Option::as_ref).filter(|entry| entry.id == id);
    entry.and_then(|entry| entry.qp.as_ref())
}

fn is_failing<R: RawMutex>(entries: &[Option<ConnEntry<R>>], id: ConnId) -> bool {
    qp_of(entries, id).is_some_and(|qp| qp.transport.lock().is_failing())
}

const fn index(id: ConnId) -> usize {
    id.0 as u32 as usize
}
