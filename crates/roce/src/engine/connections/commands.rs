// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands for connections: what each does to connection management and to the queue pair.

use lock_api::RawMutex;

use super::parameters;
use super::{ConnEntry, ConnTable, Connections};
use crate::cm::{LocalQp, PeerQp};
use crate::conn::{AcceptSpec, ConnId, ConnectSpec, ReadLimits};
use crate::engine::queue_pairs::QueuePairs;
use crate::error::ConnError;
use crate::qp::Qp;
use crate::time::Instant;
use crate::transport::state::State;
use fallible::Arc;
use roce_wire::{MacAddr, Psn};

impl<R: RawMutex> Connections<R> {
    /// Requests a connection of `qp`, whose peer begins with `receive_psn`.
    ///
    /// # Errors
    /// Those of [`ConnectionCommands::connect`](crate::ConnectionCommands::connect).
    pub(in crate::engine) fn connect(
        &self,
        qps: &QueuePairs<R>,
        now: Instant,
        qp: &Arc<Qp<R>>,
        spec: &ConnectSpec<'_>,
        receive_psn: Psn,
    ) -> Result<ConnId, ConnError> {
        let local = parameters::of_local(qp, &qps.shared.config, receive_psn);
        self.with(|conns| {
            let mut transport = qp.lock();
            //= R-QP-75
            if !transport.can_connect() {
                return Err(ConnError::QpBusy);
            }
            let id = conns.begin(now, spec, local, Some(qp.clone()))?;
            transport.connection.attach(id);
            Ok(id)
        })
    }

    /// Completes a connection that the peer has accepted.
    ///
    /// # Errors
    /// Those of [`ConnectionCommands::complete`](crate::ConnectionCommands::complete).
    pub(in crate::engine) fn complete(
        &self,
        qps: &QueuePairs<R>,
        now: Instant,
        conn: ConnId,
    ) -> Result<(), ConnError> {
        self.with(|conns| {
            let Some(qp) = conns.entry(conn).ok_or(ConnError::Unknown)?.qp.clone() else {
                // The owner of the queue pair changes it.
                conns.cm.complete(now, conn)?;
                qps.shards.first().stats.connections.inc();
                return Ok(());
            };
            let mut transport = qp.lock();
            if transport.state() != State::Rtr {
                return Err(ConnError::State);
            }
            conns.cm.complete(now, conn)?;
            let round_trip = conns.cm.round_trip(conn);
            //= R-CONN-33
            qps.with_env(&qp, |env| transport.established(env, round_trip)).map_err(|_| ConnError::State)?;
            qps.shards.of(&qp).stats.connections.inc();
            Ok(())
        })
    }

    /// Accepts a connection with `qp`, whose peer begins with `receive_psn`.
    ///
    /// # Errors
    /// Those of [`ConnectionCommands::accept`](crate::ConnectionCommands::accept).
    pub(in crate::engine) fn accept(
        &self,
        qps: &QueuePairs<R>,
        now: Instant,
        conn: ConnId,
        qp: &Arc<Qp<R>>,
        spec: &AcceptSpec<'_>,
        receive_psn: Psn,
    ) -> Result<(), ConnError> {
        let config = &qps.shared.config;
        let local = parameters::of_local(qp, config, receive_psn);
        self.with(|conns| {
            let peer = conns.entry(conn).and_then(|entry| entry.peer).ok_or(ConnError::Unknown)?;
            let mut transport = qp.lock();
            //= R-QP-75
            if !transport.can_connect() {
                return Err(ConnError::QpBusy);
            }
            let reads = conns.cm.accept(now, conn, spec, local)?;
            // The queue pair is ready before the REP is sent: that needs the lock held here.
            let peer = PeerQp { reads, ..peer };
            let peer = parameters::of_peer(qp, config, conn, &peer, receive_psn).ok_or(ConnError::Invalid)?;
            qps.with_env(qp, |env| transport.peer_known(env, peer)).map_err(|_| ConnError::QpBusy)?;
            conns.accepted(conn, Some(qp.clone()), reads);
            Ok(())
        })
    }

    /// Returns the peer's queue pair of a connection, once its REQ or REP was reported.
    pub(in crate::engine) fn peer(&self, conn: ConnId) -> Option<PeerQp> {
        self.lock().entry(conn)?.peer
    }

    /// Changes the MAC address of the next hop on a connection's path.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub(in crate::engine) fn set_next_hop(&self, conn: ConnId, mac: MacAddr) -> Result<(), ConnError> {
        self.with(|conns| {
            conns.cm.set_next_hop(conn, mac)?;
            if let Some(qp) = conns.entry(conn).and_then(|entry| entry.qp.as_ref()) {
                qp.transport.lock().set_next_hop(mac);
            }
            Ok(())
        })
    }

    /// Sets the context of a connection that arrived as a request, until it is accepted.
    pub(in crate::engine) fn set_context(&self, conn: ConnId, context: u64) {
        if let Some(entry) = self.lock().entry(conn) {
            entry.context = Some(context);
        }
    }

    /// Disconnects, or answers the peer's disconnect. Failures found before are to be processed first.
    ///
    /// # Errors
    /// Those of [`ConnectionCommands::disconnect`](crate::ConnectionCommands::disconnect).
    pub(in crate::engine) fn disconnect(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.with(|conns| {
            // The fatal NAK goes out before the DREQ.
            //= R-QP-55
            if conns.is_failing(conn) {
                conns.cm.disconnect_failing(now, conn)
            } else {
                conns.cm.disconnect(now, conn)
            }
        })
    }

    /// Releases a connection in any state, and flushes its queue pair if it was used.
    pub(in crate::engine) fn release(&self, qps: &QueuePairs<R>, now: Instant, conn: ConnId) {
        let entry = self.with(|conns| {
            // Unknown only if it was released before.
            let _ = conns.cm.release(now, conn);
            conns.remove(conn)
        });
        if let Some(qp) = entry.and_then(|entry| entry.qp) {
            qps.close(&qp);
        }
    }
}

impl<R: RawMutex> ConnTable<R> {
    /// Sends a REQ, for a connection of `qp` or of a queue pair that its owner changes.
    pub(in crate::engine) fn begin(
        &mut self,
        now: Instant,
        spec: &ConnectSpec<'_>,
        local: LocalQp,
        qp: Option<Arc<Qp<R>>>,
    ) -> Result<ConnId, ConnError> {
        let id = self.cm.connect(now, spec, local)?;
        let entry = ConnEntry { id, qp, receive_psn: local.receive_psn, peer: None, context: None };
        if let Err(error) = self.insert(entry) {
            self.cm.release(now, id)?;
            return Err(error);
        }
        Ok(id)
    }

    /// Records that a connection was accepted with these read limits, with `qp` or with a queue pair that its owner changes.
    pub(in crate::engine) fn accepted(&mut self, conn: ConnId, qp: Option<Arc<Qp<R>>>, reads: ReadLimits) {
        if let Some(entry) = self.entry(conn) {
            entry.qp = qp;
            entry.peer = entry.peer.map(|peer| PeerQp { reads, ..peer });
            entry.context = None;
        }
    }
}
