// SPDX-License-Identifier: MIT OR Apache-2.0

//! Drives the connection manager: datagrams in and out, deadlines, and events.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use super::connections::{ConnTable, Entry};
use super::events::EngineEvent;
use super::transmit::Transmit;
use crate::cm::{self, EventKind, PeerQp};
use crate::conn::{ConnEvent, ConnId, ReadLimits, RejectReason};
use crate::drop_reason::DropReason;
use crate::qp::Qp;
use crate::shard::ShardState;
use crate::time::Instant;
use crate::trace::TraceEvent;
use fallible::Arc;
use roce_wire::{Packet, Psn, Qpn};

impl<R: RawMutex> Engine<R> {
    #[inline(never)]
    pub(super) fn poll_conn_event(&self) -> Option<EngineEvent<'_, R>> {
        if !self.connections.has_event() {
            return None;
        }
        loop {
            let mut conns = self.connections.lock();
            let Some(event) = conns.cm.poll_event() else {
                self.connections.publish_no_event();
                return None;
            };
            let event = self.apply(&mut conns, self.now(), &event);
            self.connections.publish(&conns);
            if event.is_some() {
                return event;
            }
        }
    }

    /// Returns the next connection whose path may have another next hop.
    pub(super) fn poll_suspect_path(&self) -> Option<EngineEvent<'_, R>> {
        let shared = &self.shared;
        if !shared.has_suspect_paths.swap(false, Ordering::AcqRel) {
            return None;
        }
        loop {
            let id = {
                let mut paths = shared.suspect_paths.lock();
                let id = paths.pop()?;
                shared.has_suspect_paths.store(!paths.is_empty(), Ordering::Release);
                id
            };
            let mut conns = self.connections.lock();
            // Unknown when it was released meanwhile.
            let Some(context) = conns.cm.context(id) else { continue };
            if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.as_ref()) {
                qp.transport.lock().take_suspect_path();
            }
            return Some(EngineEvent::PathSuspect { id, context });
        }
    }

    /// Applies an event of the connection manager to the queue pair. Returns the event for the driver, if any.
    #[inline(never)]
    fn apply(&self, conns: &mut ConnTable<R>, now: Instant, event: &cm::Event) -> Option<EngineEvent<'_, R>> {
        let id = event.conn;
        let context = conns.entry(id).and_then(|entry| entry.context).unwrap_or(event.context);
        let event = match &event.kind {
            EventKind::Request { request, peer } => {
                let entry = Entry {
                    id,
                    qp: None,
                    receive_psn: Psn::default(),
                    peer: Some(*peer),
                    reads: ReadLimits::default(),
                    context: None,
                };
                if conns.insert(entry).is_err() {
                    // The driver is not notified: the peer is refused.
                    let _ = conns.cm.release(now, id);
                    return None;
                }
                ConnEvent::Request(*request)
            }
            EventKind::Replied { peer, private_data } => {
                let entry = conns.entry(id)?;
                entry.reads = peer.reads;
                let (qp, receive_psn) = (entry.qp.clone()?, entry.receive_psn);
                let known = self.reach_peer(id, &qp, peer, receive_psn);
                if !known {
                    // The queue pair was flushed meanwhile.
                    let _ = conns.cm.abort(now, id);
                    return None;
                }
                ConnEvent::Replied { reads: peer.reads, private_data: *private_data }
            }
            EventKind::Established => {
                let entry = conns.entry(id)?;
                let (qp, reads) = (entry.qp.clone()?, entry.reads);
                //= R-CONN-34
                if self.with_env(&qp, |env| qp.lock().established(env)).is_err() {
                    let _ = conns.cm.abort(now, id);
                    return None;
                }
                self.shards.first().stats.connections.inc();
                ConnEvent::Established { reads }
            }
            EventKind::Refused { reason, private_data } => {
                self.shards.first().stats.connections_refused.inc();
                conns.free_qp(id);
                ConnEvent::Refused { reason: RejectReason(reason.0), private_data: *private_data }
            }
            EventKind::TimedOut => {
                conns.free_qp(id);
                ConnEvent::TimedOut
            }
            //= R-QP-72
            //= R-CONN-90
            EventKind::Disconnected => ConnEvent::Disconnected,
            EventKind::Aborted => {
                self.shards.first().stats.connections_aborted.inc();
                if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.clone()) {
                    self.close(&qp);
                }
                ConnEvent::Aborted
            }
            EventKind::DisconnectDone(outcome) => {
                //= R-QP-71
                //= R-CONN-83
                //= R-CONN-84
                if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.clone()) {
                    self.close(&qp);
                }
                ConnEvent::DisconnectDone(*outcome)
            }
        };
        Some(EngineEvent::Conn { id, context, event })
    }

    /// Gives the parameters of the peer to the queue pair. Returns `false` if that was flushed meanwhile.
    //= R-CONN-35
    #[inline(never)]
    fn reach_peer(&self, id: ConnId, qp: &Qp<R>, peer: &PeerQp, receive_psn: Psn) -> bool {
        let params = self.peer_params(id, qp, peer, receive_psn);
        params.is_some_and(|params| self.with_env(qp, |env| qp.lock().peer_known(env, params)).is_ok())
    }

    /// Reports a packet for a connection that waits for the RTU.
    pub(super) fn traffic_seen(&self, now: Instant, conn: ConnId) {
        // Unknown when it was released meanwhile.
        let _ = self.connections.with(|conns| conns.cm.traffic_seen(now, conn));
    }

    #[inline(never)]
    /// Handles a management datagram.
    ///
    /// # Errors
    /// [`DropReason::Address`] if it is not to a local address.
    pub(super) fn handle_datagram(
        &self,
        shard: &ShardState<R>,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        // A fatal NAK precedes the peer's DREQ. The connection ends by what came first.
        //= R-QP-60
        //= R-PERF-5
        self.process_failures();
        let handled =
            self.connections.with(|conns| conns.handle(now, packet, |qp| self.challenge(shard, now, qp)));
        if handled == Err(cm::Ignored::NotLocal) {
            // For the network stack, so that it does not count.
            return Err(DropReason::Address);
        }
        shard.stats.count_datagram(handled);
        if let Err(reason) = handled {
            self.shared.trace(Qpn::GSI, packet.bth().psn(), TraceEvent::Ignored(reason));
        }
        Ok(())
    }

    /// Has the queue pair of an established connection ask the peer whether it still has the connection.
    fn challenge(&self, shard: &ShardState<R>, now: Instant, qp: &Arc<Qp<R>>) {
        let mut transport = qp.lock();
        if transport.challenge(now) {
            shard.stats.challenges.inc();
            // It goes out by the shard that is being served, whichever had the connection.
            if !shard.has(qp) {
                self.shards.move_to(shard, &mut transport, qp);
            }
            Self::after(shard, &mut transport, qp, || qp.clone());
        }
    }

    #[inline]
    pub(super) fn transmit_datagrams(
        &self,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        if !self.connections.has_transmit() {
            return 0;
        }
        self.transmit_waiting_datagrams(shard, now, tx, budget)
    }

    #[inline(never)]
    fn transmit_waiting_datagrams(
        &self,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        self.connections.with(|conns| {
            let mut sent = 0;
            while sent < budget {
                let Some(slot) = tx.slot() else { break };
                let Some(len) = conns.cm.poll_transmit(now, self.shared.config.crc, slot) else { break };
                tx.commit(len);
                shard.stats.tx_datagrams.inc();
                sent = sent.saturating_add(1);
            }
            sent
        })
    }

    #[inline(never)]
    pub(super) fn handle_conn_timeout(&self, now: Instant) {
        self.connections.with(|conns| conns.cm.handle_timeout(now));
    }
}
