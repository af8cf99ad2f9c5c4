// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands for connections.
//!
//! The lock of [`Connections`] is taken before a queue pair's. A queue pair that fails reports its connection
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
use roce_wire::{Path, Psn, Template, ack_timeout, ack_timeout_code, flow_source_port};

/// The longest ACK timeout that is kept to, whatever the peer asks for (0 would be for ever): 1.07 s, so that
/// with all eight attempts a peer that has vanished is given up within 10 s.
const MAX_ACK_TIMEOUT: u8 = 18;

impl<R: RawMutex> Engine<R> {
    /// Says which addresses are the adapter's from now on; at first it has none. Connections are made at
    /// these only. Those at addresses that have gone are aborted as soon as time is handled, and their peers
    /// are told once.
    ///
    /// An error when there is no memory for some of the new ones: they are not known then. Those that are
    /// not among `addresses` are gone all the same.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.set_addresses(addresses))
    }

    /// Lets peers ask for connections to a port. Each request becomes a [`ConnEvent::Request`] with a new
    /// connection.
    pub fn listen(&self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        self.connections.with(|conns| conns.cm.listen(spec))
    }

    /// Ends a listener. Requests that were told of stay; others are refused.
    pub fn unlisten(&self, listener: ListenerId) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.unlisten(self.now(), listener))
    }

    /// While paused, requests are refused as if nobody listened.
    pub fn pause(&self, listener: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.pause(self.now(), listener, paused))
    }

    /// Asks a peer for a connection of `qp`. Ends with [`ConnEvent::Replied`], [`ConnEvent::Refused`] or
    /// [`ConnEvent::TimedOut`].
    pub fn connect(
        &self,
        now: Instant,
        qp: &Arc<Qp<R>>,
        spec: &ConnectSpec<'_>,
    ) -> Result<ConnId, ConnError> {
        let local = self.local_qp(qp);
        self.connections.with(|conns| {
            let mut transport = qp.transport.lock();
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

    /// Completes a connection that the peer has accepted: from now on requests may be posted.
    pub fn complete(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.connections.with(|conns| {
            let qp = conns.entry(conn).and_then(|entry| entry.qp.clone()).ok_or(ConnError::Unknown)?;
            let mut transport = qp.transport.lock();
            if transport.state() != State::Rtr {
                return Err(ConnError::State);
            }
            conns.cm.complete(now, conn)?;
            //= R-CONN-33
            transport.established().map_err(|_| ConnError::State)?;
            self.shared.stats.connections.inc();
            Ok(())
        })
    }

    /// Accepts a connection with `qp`, whose receives are used from now on. Ends with
    /// [`ConnEvent::Established`], [`ConnEvent::Refused`], [`ConnEvent::Disconnected`],
    /// [`ConnEvent::Aborted`] or [`ConnEvent::TimedOut`]; requests may be posted once established.
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
            let mut transport = qp.transport.lock();
            //= R-QP-75
            if !transport.can_connect() {
                return Err(ConnError::QpBusy);
            }
            let reads = conns.cm.accept(now, conn, spec, local)?;
            // Served from the moment the REP is sent, which cannot be before the lock is free.
            let params = self
                .peer_params(conn, qp, &PeerQp { reads, ..peer }, local.receive_psn)
                .ok_or(ConnError::Invalid)?;
            transport.peer_known(params, &self.shared.config).map_err(|_| ConnError::QpBusy)?;
            if let Some(entry) = conns.entry(conn) {
                entry.qp = Some(qp.clone());
                entry.reads = reads;
                entry.context = None;
            }
            Ok(())
        })
    }

    /// Gives a connection that has come in as a request a context of its own, for what happens to it until
    /// [`Engine::accept`] gives it another.
    pub fn set_context(&self, conn: ConnId, context: u64) {
        if let Some(entry) = self.connections.lock().entry(conn) {
            entry.context = Some(context);
        }
    }

    /// Refuses: a request that has come in, or a connection that the peer has accepted and this side has
    /// not completed. Up to [`PrivateData::MAX_REJECT`](crate::PrivateData::MAX_REJECT) bytes. The
    /// connection is then good for [`Engine::release`] only.
    pub fn reject(&self, now: Instant, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.shared.stats.connections_refused.inc();
        self.connections.with(|conns| conns.cm.reject(now, conn, private_data))
    }

    /// Says goodbye, or answers the peer's. Ends with [`ConnEvent::DisconnectDone`], before which the
    /// queue pair is flushed; at once if the peer was first.
    pub fn disconnect(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.connections.with(|conns| conns.cm.disconnect(now, conn))
    }

    /// Forgets a connection in whatever state; the peer is told if it has to know, and the queue pair is
    /// flushed unless it was never used. No event of it comes after this.
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

    /// The connection of `qp` is over, and knows.
    pub(super) fn close(&self, qp: &Arc<Qp<R>>) {
        let mut transport = qp.transport.lock();
        //= R-QP-74
        if transport.connection_ended() {
            transport.abort(&self.env(qp));
        }
    }

    /// What the peer is told of a queue pair.
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

    /// What a queue pair has to know of its peer.
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
            local_ip: path.local_ip,
            remote_ip: path.remote_ip,
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
