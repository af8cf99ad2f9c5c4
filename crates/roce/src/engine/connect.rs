// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`ConnectionCommands`]: commands for local addresses, listeners and connections.

use core::net::IpAddr;

use lock_api::RawMutex;

use super::Engine;
use crate::cm::{LocalQp, PeerQp};
use crate::conn::{AcceptSpec, ConnId, ConnectSpec, ListenSpec, ListenerId, ReadLimits};
use crate::error::ConnError;
use crate::qp::Qp;
use crate::time::Instant;
use fallible::Arc;
use roce_wire::{MacAddr, Psn};

impl<R: RawMutex> Engine<R> {
    /// Returns the commands for local addresses, listeners and connections.
    #[inline]
    #[must_use]
    pub fn connections(&self) -> ConnectionCommands<'_, R> {
        ConnectionCommands { engine: self }
    }
}

/// The commands of an engine for local addresses, listeners and connections: [`Engine::connections`].
#[derive(Clone, Copy, Debug)]
pub struct ConnectionCommands<'a, R: RawMutex> {
    engine: &'a Engine<R>,
}

#[allow(clippy::must_use_candidate, reason = "calls that do something, through a shared reference")]
impl<R: RawMutex> ConnectionCommands<'_, R> {
    /// Replaces the local addresses; initially there are none. Connections use only these. The next
    /// [`Shard::handle_timeout`](crate::Shard::handle_timeout) aborts connections at removed addresses and notifies each peer once.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new addresses were not added; all removed
    /// addresses are removed.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.engine.connections.with(|conns| conns.cm.set_addresses(addresses))
    }

    /// Returns whether `ip` is one of the addresses of [`set_addresses`](Self::set_addresses).
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.engine.connections.is_local(ip)
    }

    /// Listens on a port. Each request becomes a [`ConnEvent::Request`] with a new connection.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`], [`ConnError::TooMany`], [`ConnError::OutOfMemory`].
    ///
    /// [`ConnEvent::Request`]: crate::ConnEvent::Request
    pub fn listen(&self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        self.engine.connections.with(|conns| conns.cm.listen(spec))
    }

    /// Removes a listener. Requests that were reported stay; others are refused.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn unlisten(&self, listener: ListenerId) -> Result<(), ConnError> {
        self.engine.connections.with(|conns| conns.cm.unlisten(self.engine.qps.now(), listener))
    }

    /// Pauses or resumes a listener. While paused, requests are refused as for a port without listener.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn pause(&self, listener: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.engine.connections.with(|conns| conns.cm.pause(self.engine.qps.now(), listener, paused))
    }

    /// Requests a connection of `qp`. Ends with [`ConnEvent::Replied`], [`ConnEvent::Refused`] or
    /// [`ConnEvent::TimedOut`].
    ///
    /// # Errors
    /// [`ConnError::QpBusy`], [`ConnError::Invalid`], [`ConnError::NotLocal`],
    /// [`ConnError::PrivateDataTooLong`], [`ConnError::TooMany`], [`ConnError::OutOfMemory`].
    ///
    /// [`ConnEvent::Replied`]: crate::ConnEvent::Replied
    /// [`ConnEvent::Refused`]: crate::ConnEvent::Refused
    /// [`ConnEvent::TimedOut`]: crate::ConnEvent::TimedOut
    pub fn connect(
        &self,
        now: Instant,
        qp: &Arc<Qp<R>>,
        spec: &ConnectSpec<'_>,
    ) -> Result<ConnId, ConnError> {
        self.engine.connections.connect(&self.engine.qps, now, qp, spec, self.new_psn())
    }

    /// Completes a connection that the peer has accepted. Send requests may be posted afterwards.
    ///
    /// # Errors
    /// [`ConnError::Unknown`]; [`ConnError::State`] if no REP has arrived or the peer has given up.
    pub fn complete(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.engine.connections.complete(&self.engine.qps, now, conn)
    }

    /// Accepts a connection with `qp`, whose receives may be used from now on. Ends with
    /// [`ConnEvent::Established`], [`ConnEvent::Refused`], [`ConnEvent::Disconnected`],
    /// [`ConnEvent::Aborted`] or [`ConnEvent::TimedOut`]. Send requests may be posted once it is established.
    ///
    /// # Errors
    /// [`ConnError::Unknown`]; [`ConnError::QpBusy`]; [`ConnError::State`] if the peer has given up or the request
    /// was answered already; [`ConnError::PrivateDataTooLong`]; [`ConnError::Invalid`].
    ///
    /// [`ConnEvent::Established`]: crate::ConnEvent::Established
    /// [`ConnEvent::Refused`]: crate::ConnEvent::Refused
    /// [`ConnEvent::Disconnected`]: crate::ConnEvent::Disconnected
    /// [`ConnEvent::Aborted`]: crate::ConnEvent::Aborted
    /// [`ConnEvent::TimedOut`]: crate::ConnEvent::TimedOut
    pub fn accept(
        &self,
        now: Instant,
        conn: ConnId,
        qp: &Arc<Qp<R>>,
        spec: &AcceptSpec<'_>,
    ) -> Result<(), ConnError> {
        self.engine.connections.accept(&self.engine.qps, now, conn, qp, spec, self.new_psn())
    }

    /// Requests a connection of a queue pair that its owner changes by [`Engine::modify_qp`], or that this engine does not have:
    /// `local` is what the peer is sent of it. After [`ConnEvent::Replied`], [`Self::peer`] has what the queue pair needs; it is to be
    /// in RTS before [`Self::complete`]. No event changes it. Otherwise as [`Self::connect`].
    ///
    /// # Errors
    /// Those of [`Self::connect`], except [`ConnError::QpBusy`]. [`ConnError::Invalid`], too, for a number that no queue pair can
    /// have, a retry count above 7, and an ACK timeout above 31.
    ///
    /// [`ConnEvent::Replied`]: crate::ConnEvent::Replied
    pub fn connect_unbound(
        &self,
        now: Instant,
        local: LocalQp,
        spec: &ConnectSpec<'_>,
    ) -> Result<ConnId, ConnError> {
        self.engine.connections.with(|conns| conns.begin(now, spec, local, None))
    }

    /// Accepts a connection with a queue pair that its owner changes, see [`Self::connect_unbound`]: it is to be in RTR before.
    /// Returns the negotiated read limits, of which [`PeerQp::reads`] is the same. Otherwise as [`Self::accept`].
    ///
    /// # Errors
    /// Those of [`Self::accept`], except [`ConnError::QpBusy`]. [`ConnError::Invalid`] as by [`Self::connect_unbound`].
    pub fn accept_unbound(
        &self,
        now: Instant,
        conn: ConnId,
        local: LocalQp,
        spec: &AcceptSpec<'_>,
    ) -> Result<ReadLimits, ConnError> {
        self.engine.connections.with(|conns| {
            let reads = conns.cm.accept(now, conn, spec, local)?;
            conns.accepted(conn, None, reads);
            Ok(reads)
        })
    }

    /// Returns the peer's queue pair of a connection, once its REQ or REP was reported by an event. `None` for a connection that was
    /// released.
    pub fn peer(&self, conn: ConnId) -> Option<PeerQp> {
        self.engine.connections.peer(conn)
    }

    /// Establishes a connection that this side has accepted by [`Self::accept_unbound`]: a packet of the peer has arrived on its
    /// queue pair, which takes the place of a lost RTU. Has no effect on one that is established.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    //= rocev2 §12
    pub fn establish(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.engine.connections.with(|conns| conns.cm.traffic_seen(now, conn))
    }

    /// Changes the MAC address of the next hop on a connection's path, to which later frames go: those of its queue pair, and
    /// messages of connection management.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn set_next_hop(&self, conn: ConnId, mac: MacAddr) -> Result<(), ConnError> {
        self.engine.connections.set_next_hop(conn, mac)
    }

    /// Sets the context of a connection that arrived as a request, for its events until [`Self::accept`] sets
    /// another.
    pub fn set_context(&self, conn: ConnId, context: u64) {
        self.engine.connections.set_context(conn, context);
    }

    /// Rejects a request, or a connection that the peer has accepted and this side has not completed.
    /// `private_data` has up to [`PrivateData::MAX_REJECT`](crate::PrivateData::MAX_REJECT) bytes. Afterwards the
    /// connection can only be [released](Self::release).
    ///
    /// # Errors
    /// [`ConnError::Unknown`], [`ConnError::State`], [`ConnError::PrivateDataTooLong`].
    pub fn reject(&self, now: Instant, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.engine.qps.shards.first().stats.connections_refused.inc();
        self.engine.connections.with(|conns| conns.cm.reject(now, conn, private_data))
    }

    /// Disconnects, or answers the peer's disconnect. The queue pair is flushed, then
    /// [`ConnEvent::DisconnectDone`] follows; at once if the peer disconnected first or the connection was aborted.
    ///
    /// # Errors
    /// [`ConnError::Unknown`]; [`ConnError::State`] if the connection was never established or was disconnected
    /// before.
    ///
    /// [`ConnEvent::DisconnectDone`]: crate::ConnEvent::DisconnectDone
    pub fn disconnect(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        // A failed queue pair precedes the disconnect. The connection ends by what came first.
        //= R-CONN-81
        //= R-PERF-5
        self.engine.connections.process_failures(&self.engine.qps);
        self.engine.connections.disconnect(now, conn)
    }

    /// Releases a connection in any state. The peer is notified if necessary, and the queue pair is
    /// flushed unless it was never used. No event of the connection follows.
    pub fn release(&self, now: Instant, conn: ConnId) {
        self.engine.connections.release(&self.engine.qps, now, conn);
    }

    /// Returns the starting PSN of a peer, which this side chooses.
    fn new_psn(&self) -> Psn {
        Psn::new(self.engine.random.lock().next_u32())
    }
}
