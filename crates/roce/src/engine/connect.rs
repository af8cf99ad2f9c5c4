// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands for connections and listeners.
//!
//! Lock order: the lock of [`Connections`], then a queue pair's. A queue pair that fails reports its connection
//! in a list, which `failures` processes without a queue pair's lock.

use core::net::IpAddr;

use lock_api::RawMutex;

use super::Engine;
use super::connections::Entry;
use crate::cm::{LocalQp, PeerQp};
use crate::conn::{AcceptSpec, ConnId, ConnectSpec, ListenSpec, ListenerId, ReadLimits};
use crate::error::ConnError;
use crate::qp::Qp;
use crate::time::Instant;
use crate::transport::peer::Peer;
use crate::transport::state::State;
use fallible::Arc;
use roce_wire::{MacAddr, Path, Psn, Template, ack_timeout, ack_timeout_code, flow_source_port};

/// Maximum code of the ACK timeout, 1.07 s. Caps what the peer requests (0 means no timeout), so that a vanished
/// peer is detected within 10 s, after all eight attempts.
const MAX_ACK_TIMEOUT: u8 = 18;

impl<R: RawMutex> Engine<R> {
    /// Replaces the local addresses; initially there are none. Connections use only these. The next
    /// [`Engine::handle_timeout`] aborts connections at removed addresses and notifies each peer once.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new addresses were not added; all removed
    /// addresses are removed.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.set_addresses(addresses))
    }

    /// Returns whether `ip` is one of the addresses of [`set_addresses`](Self::set_addresses).
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.connections.lock().cm.is_local(ip)
    }

    /// Listens on a port. Each request becomes a [`ConnEvent::Request`] with a new connection.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`], [`ConnError::TooMany`], [`ConnError::OutOfMemory`].
    ///
    /// [`ConnEvent::Request`]: crate::ConnEvent::Request
    pub fn listen(&self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        self.connections.with(|conns| conns.cm.listen(spec))
    }

    /// Removes a listener. Requests that were reported stay; others are refused.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn unlisten(&self, listener: ListenerId) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.unlisten(self.now(), listener))
    }

    /// Pauses or resumes a listener. While paused, requests are refused as for a port without listener.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn pause(&self, listener: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.pause(self.now(), listener, paused))
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
        let local = self.local_qp(qp);
        self.connections.with(|conns| {
            let mut transport = qp.lock();
            //= R-QP-75
            if !transport.can_connect() {
                return Err(ConnError::QpBusy);
            }
            let id = conns.cm.connect(now, spec, local)?;
            let entry = Entry {
                id,
                qp: Some(qp.clone()),
                receive_psn: local.receive_psn,
                peer: None,
                reads: ReadLimits::default(),
                context: None,
            };
            if let Err(error) = conns.insert(entry) {
                conns.cm.release(now, id)?;
                return Err(error);
            }
            transport.attach(id);
            Ok(id)
        })
    }

    /// Completes a connection that the peer has accepted. Send requests may be posted afterwards.
    ///
    /// # Errors
    /// [`ConnError::Unknown`]; [`ConnError::State`] if no REP has arrived or the peer has given up.
    pub fn complete(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.connections.with(|conns| {
            let qp = conns.entry(conn).and_then(|entry| entry.qp.clone()).ok_or(ConnError::Unknown)?;
            let mut transport = qp.lock();
            if transport.state() != State::Rtr {
                return Err(ConnError::State);
            }
            conns.cm.complete(now, conn)?;
            //= R-CONN-33
            self.with_env(&qp, |env| transport.established(env)).map_err(|_| ConnError::State)?;
            self.shards.of(&qp).stats.connections.inc();
            Ok(())
        })
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
        let local = self.local_qp(qp);
        self.connections.with(|conns| {
            let peer = conns.entry(conn).and_then(|entry| entry.peer).ok_or(ConnError::Unknown)?;
            let mut transport = qp.lock();
            //= R-QP-75
            if !transport.can_connect() {
                return Err(ConnError::QpBusy);
            }
            let reads = conns.cm.accept(now, conn, spec, local)?;
            // The queue pair is ready before the REP is sent: that needs the lock held here.
            let params = self
                .peer_params(conn, qp, &PeerQp { reads, ..peer }, local.receive_psn)
                .ok_or(ConnError::Invalid)?;
            self.with_env(qp, |env| transport.peer_known(env, params)).map_err(|_| ConnError::QpBusy)?;
            if let Some(entry) = conns.entry(conn) {
                entry.qp = Some(qp.clone());
                entry.reads = reads;
                entry.context = None;
            }
            Ok(())
        })
    }

    /// Changes the MAC address of the next hop on a connection's path, to which later frames go: those of its queue pair, and
    /// messages of connection management.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn set_next_hop(&self, conn: ConnId, mac: MacAddr) -> Result<(), ConnError> {
        self.connections.with(|conns| {
            conns.cm.set_next_hop(conn, mac)?;
            if let Some(qp) = conns.entry(conn).and_then(|entry| entry.qp.as_ref()) {
                qp.transport.lock().set_next_hop(mac);
            }
            Ok(())
        })
    }

    /// Sets the context of a connection that arrived as a request, for its events until [`Engine::accept`] sets
    /// another.
    pub fn set_context(&self, conn: ConnId, context: u64) {
        if let Some(entry) = self.connections.lock().entry(conn) {
            entry.context = Some(context);
        }
    }

    /// Rejects a request, or a connection that the peer has accepted and this side has not completed.
    /// `private_data` has up to [`PrivateData::MAX_REJECT`](crate::PrivateData::MAX_REJECT) bytes. Afterwards the
    /// connection can only be [released](Engine::release).
    ///
    /// # Errors
    /// [`ConnError::Unknown`], [`ConnError::State`], [`ConnError::PrivateDataTooLong`].
    pub fn reject(&self, now: Instant, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.shards.first().stats.connections_refused.inc();
        self.connections.with(|conns| conns.cm.reject(now, conn, private_data))
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
        self.process_failures();
        self.connections.with(|conns| {
            // The fatal NAK goes out before the DREQ.
            //= R-QP-55
            if conns.is_failing(conn) {
                conns.cm.disconnect_failing(now, conn)
            } else {
                conns.cm.disconnect(now, conn)
            }
        })
    }

    /// Releases a connection in any state. The peer is notified if necessary, and the queue pair is
    /// flushed unless it was never used. No event of the connection follows.
    pub fn release(&self, now: Instant, conn: ConnId) {
        let entry = self.connections.with(|conns| {
            // Unknown only if it was released before.
            let _ = conns.cm.release(now, conn);
            conns.remove(conn)
        });
        if let Some(qp) = entry.and_then(|entry| entry.qp) {
            self.close(&qp);
        }
    }

    /// Detaches `qp` from its ended connection and flushes it if it was used.
    pub(super) fn close(&self, qp: &Arc<Qp<R>>) {
        let mut transport = qp.lock();
        //= R-QP-74
        if transport.connection_ended() {
            self.with_env(qp, |env| transport.abort(env));
        }
    }

    /// Returns the parameters of a queue pair for a REQ or REP.
    fn local_qp(&self, qp: &Qp<R>) -> LocalQp {
        let timing = &self.shared.config.timing;
        LocalQp {
            qpn: qp.attributes.qpn,
            receive_psn: Psn::new(self.random.lock().next_u32()),
            srq: qp.attributes.srq.is_some(),
            retry_count: timing.retries.min(7),
            rnr_retry_count: timing.rnr_retries.min(7),
            ack_timeout: ack_timeout_code(timing.ack_timeout),
        }
    }

    /// Returns the parameters of the peer for the queue pair's transport.
    #[inline(never)]
    pub(super) fn peer_params(
        &self,
        conn: ConnId,
        qp: &Qp<R>,
        peer: &PeerQp,
        receive_psn: Psn,
    ) -> Option<Peer> {
        let path = Path {
            source_port: flow_source_port(qp.attributes.qpn, peer.qpn),
            traffic_class: peer.path.traffic_class & !3 | self.shared.config.congestion.ecn(),
            ..peer.path
        };
        Some(Peer {
            conn,
            template: Template::new(&path, peer.qpn)?,
            mtu: peer.mtu,
            reads: peer.reads,
            send_psn: peer.send_psn,
            receive_psn,
            retries: peer.retry_count,
            rnr_retries: peer.rnr_retry_count,
            //= rocev2 §8
            //= R-QP-90
            ack_timeout: match peer.ack_timeout {
                code @ 1..=MAX_ACK_TIMEOUT => ack_timeout(code),
                _ => ack_timeout(MAX_ACK_TIMEOUT),
            },
        })
    }
}
