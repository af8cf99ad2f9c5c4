// SPDX-License-Identifier: MIT OR Apache-2.0

//! Translates events of connection management: applies each to the queue pair, and reports it to the driver.

use lock_api::RawMutex;

use super::parameters;
use super::{ConnEntry, ConnTable, Connections};
use crate::cm::{CmEvent, CmEventKind, PeerQp};
use crate::conn::{ConnEvent, ConnId, RejectReason};
use crate::engine::queue_pairs::QueuePairs;
use crate::qp::Qp;
use crate::time::Instant;
use roce_wire::Psn;

/// An event of a connection for the driver.
pub(in crate::engine) struct Report {
    pub(in crate::engine) id: ConnId,
    /// The context that the consumer gave to the connection.
    pub(in crate::engine) context: u64,
    pub(in crate::engine) event: ConnEvent,
}

impl<R: RawMutex> Connections<R> {
    /// Returns the next event of a connection.
    #[inline(never)]
    pub(in crate::engine) fn poll_event(&self, qps: &QueuePairs<R>) -> Option<Report> {
        if !self.has_event() {
            return None;
        }
        loop {
            let mut conns = self.lock();
            let Some(event) = conns.cm.poll_event() else {
                self.publish_no_event();
                return None;
            };
            let report = conns.apply(qps, qps.now(), &event);
            self.publish(&conns);
            if report.is_some() {
                return report;
            }
        }
    }

    /// Returns the next connection whose path may have another next hop, and its context.
    pub(in crate::engine) fn poll_suspect_path(&self, qps: &QueuePairs<R>) -> Option<(ConnId, u64)> {
        if !qps.shared.suspect_paths.has_any() {
            return None;
        }
        loop {
            let id = qps.shared.suspect_paths.take()?;
            let mut conns = self.lock();
            // Unknown when it was released meanwhile.
            let Some(context) = conns.cm.context(id) else { continue };
            if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.as_ref()) {
                qp.transport.lock().connection.take_suspect_path();
            }
            return Some((id, context));
        }
    }
}

impl<R: RawMutex> ConnTable<R> {
    /// Applies an event of connection management to the queue pair. Returns the event for the driver, if any.
    #[inline(never)]
    fn apply(&mut self, qps: &QueuePairs<R>, now: Instant, event: &CmEvent) -> Option<Report> {
        let id = event.conn;
        let context = self.entry(id).and_then(|entry| entry.context).unwrap_or(event.context);
        let event = match &event.kind {
            CmEventKind::Request { request, peer } => {
                let entry =
                    ConnEntry { id, qp: None, receive_psn: Psn::default(), peer: Some(*peer), context: None };
                if self.insert(entry).is_err() {
                    // The driver is not notified: the peer is refused.
                    let _ = self.cm.release(now, id);
                    return None;
                }
                ConnEvent::Request(*request)
            }
            CmEventKind::Replied { peer, private_data } => {
                let entry = self.entry(id)?;
                entry.peer = Some(*peer);
                // The owner of another queue pair changes it.
                if let Some(qp) = entry.qp.clone()
                    && !reach_peer(qps, id, &qp, peer, entry.receive_psn)
                {
                    // The queue pair was flushed meanwhile.
                    let _ = self.cm.abort(now, id);
                    return None;
                }
                ConnEvent::Replied { reads: peer.reads, private_data: *private_data }
            }
            CmEventKind::Established => {
                let round_trip = self.cm.round_trip(id);
                let entry = self.entry(id)?;
                let (qp, reads) = (entry.qp.clone(), entry.peer?.reads);
                //= R-CONN-34
                if let Some(qp) = qp
                    && qps.with_env(&qp, |env| qp.lock().established(env, round_trip)).is_err()
                {
                    let _ = self.cm.abort(now, id);
                    return None;
                }
                qps.shards.first().stats.connections.inc();
                ConnEvent::Established { reads }
            }
            CmEventKind::Refused { reason, private_data } => {
                qps.shards.first().stats.connections_refused.inc();
                self.free_qp(id);
                ConnEvent::Refused { reason: RejectReason(reason.0), private_data: *private_data }
            }
            CmEventKind::TimedOut => {
                self.free_qp(id);
                ConnEvent::TimedOut
            }
            //= R-QP-72
            //= R-CONN-90
            CmEventKind::Disconnected => ConnEvent::Disconnected,
            CmEventKind::Aborted => {
                qps.shards.first().stats.connections_aborted.inc();
                self.close_qp(qps, id);
                ConnEvent::Aborted
            }
            CmEventKind::DisconnectDone(outcome) => {
                //= R-QP-71
                //= R-CONN-83
                //= R-CONN-84
                self.close_qp(qps, id);
                ConnEvent::DisconnectDone(*outcome)
            }
        };
        Some(Report { id, context, event })
    }

    /// Detaches the queue pair of an ended connection, and flushes it if it was used.
    fn close_qp(&mut self, qps: &QueuePairs<R>, id: ConnId) {
        if let Some(qp) = self.entry(id).and_then(|entry| entry.qp.clone()) {
            qps.close(&qp);
        }
    }
}

/// Gives the parameters of the peer to the queue pair. Returns `false` if that was flushed meanwhile.
//= R-CONN-35
#[inline(never)]
fn reach_peer<R: RawMutex>(
    qps: &QueuePairs<R>,
    id: ConnId,
    qp: &Qp<R>,
    peer: &PeerQp,
    receive_psn: Psn,
) -> bool {
    let peer = parameters::of_peer(qp, &qps.shared.config, id, peer, receive_psn);
    peer.is_some_and(|peer| qps.with_env(qp, |env| qp.lock().peer_known(env, peer)).is_ok())
}
