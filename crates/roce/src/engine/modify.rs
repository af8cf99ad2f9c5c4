// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of queue pairs that their owner connects, without connection management.

use core::time::Duration;

use lock_api::RawMutex;

use super::Engine;
use super::connections::parameters::capped_ack_timeout;
use super::queue_pairs::QueuePairs;
use crate::conn::ReadLimits;
use crate::error::QpChangeError;
use crate::qp::Qp;
use crate::qp_change::{
    DatagramSpec, PeerSpec, QpChange, QpReport, QpReportKind, QpUpdate, RequesterSpec, UnreliableSpec,
};
use crate::region::access_rights::Access;
use crate::transport::change;
use crate::transport::env::Env;
use crate::transport::peer::{Link, Peer};
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::transport::unreliable::{Unreliable, UnreliablePeer};
use fallible::Arc;
use roce_wire::{Path, Psn, Qpn, Template, flow_source_port};

/// Maximum code of an RNR NAK timer.
const MAX_RNR_TIMER: u8 = 31;

/// Maximum retry count, and RNR retry count.
const MAX_RETRIES: u8 = 7;

/// Maximum code of an ACK timeout.
const MAX_TIMEOUT: u8 = 31;

impl<R: RawMutex> Engine<R> {
    /// Changes a queue pair whose peer is known from elsewhere, without connection management. A created queue pair is in Init.
    /// If it fails, [`EngineEvent::QpFailed`](crate::EngineEvent::QpFailed) follows.
    ///
    /// # Errors
    /// See [`QpChangeError`]; the queue pair is as before.
    pub fn modify_qp(&self, qp: &Arc<Qp<R>>, change: &QpChange) -> Result<(), QpChangeError> {
        match change {
            QpChange::ReadyToReceive(spec) if !self.connections().is_local(spec.path.local_ip) => {
                Err(QpChangeError::NotLocal)
            }
            QpChange::OpenUnreliable(spec) if !self.connections().is_local(spec.path.local_ip) => {
                Err(QpChangeError::NotLocal)
            }
            QpChange::ReadyToReceive(spec) => self.qps.meet_peer(qp, spec),
            QpChange::ReadyToSend(spec) => self.qps.start_requester(qp, *spec),
            QpChange::OpenDatagrams(spec) => self.qps.open_datagrams(qp, *spec),
            QpChange::OpenUnreliable(spec) => self.qps.open_connection(qp, spec),
            &QpChange::SendUnreliably(psn) => {
                self.qps.unmanaged(qp, |transport, env| change::send_unreliably(transport, env, psn))
            }
            &QpChange::Drain { notify } => self.qps.drain(qp, notify),
            QpChange::Resume => self.qps.resume(qp),
            QpChange::Update(update) => self.qps.update(qp, update),
            QpChange::Error => self.qps.unmanaged(qp, |transport, env| {
                transport.abort(env);
                Ok(())
            }),
            QpChange::Reset => self.qps.unmanaged(qp, change::reset),
            QpChange::Initialize => self.qps.unmanaged(qp, change::initialize),
        }
    }
}

/// Bits of the traffic class of a service that does not react to congestion.
const NO_ECN: u8 = 0;

/// Returns the headers of frames from `qp` over `path`.
fn template<R: RawMutex>(
    qp: &Qp<R>,
    path: &Path,
    destination: Qpn,
    ecn: u8,
) -> Result<Template, QpChangeError> {
    let path = Path {
        source_port: flow_source_port(qp.qpn(), destination),
        traffic_class: path.traffic_class & !3 | ecn,
        ..*path
    };
    Template::new(&path, destination).ok_or(QpChangeError::Invalid)
}

/// Checks the parameters of a requester, and returns its ACK timeout.
fn requester_timeout(spec: RequesterSpec) -> Result<Duration, QpChangeError> {
    let is_valid =
        spec.retries <= MAX_RETRIES && spec.rnr_retries <= MAX_RETRIES && spec.ack_timeout <= MAX_TIMEOUT;
    if is_valid { Ok(capped_ack_timeout(spec.ack_timeout)) } else { Err(QpChangeError::Invalid) }
}

impl<R: RawMutex> QueuePairs<R> {
    /// Runs `change` with the queue pair locked, unless it belongs to a connection.
    fn unmanaged(
        &self,
        qp: &Arc<Qp<R>>,
        change: impl FnOnce(&mut RcTransport, &Env<'_, R>) -> Result<(), QpChangeError>,
    ) -> Result<(), QpChangeError> {
        let mut transport = qp.lock();
        if transport.connection.id().is_some() {
            return Err(QpChangeError::Connected);
        }
        self.with_env(qp, |env| change(&mut transport, env))
    }

    /// Makes room for the reports of queue pairs: of each that its send queue is drained, and that it has failed after that.
    fn reserve_report(&self) -> Result<(), QpChangeError> {
        let reports = (self.table.live() as usize).saturating_mul(2);
        self.shared.qp_reports.reserve_for(reports).map_err(|_| QpChangeError::OutOfMemory)
    }

    fn meet_peer(&self, qp: &Arc<Qp<R>>, spec: &PeerSpec) -> Result<(), QpChangeError> {
        let config = &self.shared.config;
        if spec.rnr_timer > MAX_RNR_TIMER || spec.mtu > config.max_mtu {
            return Err(QpChangeError::Invalid);
        }
        let peer = Peer {
            conn: None,
            template: template(qp, &spec.path, spec.qpn, config.congestion.ecn())?,
            mtu: spec.mtu,
            reads: ReadLimits { inbound: spec.inbound_reads.min(config.max_reads.inbound), outbound: 0 },
            access: spec.access & Access::OF_PEERS,
            rnr_timer: Some(spec.rnr_timer),
            // Set with RTS.
            send_psn: Psn::default(),
            receive_psn: spec.receive_psn,
            retries: 0,
            rnr_retries: 0,
            ack_timeout: capped_ack_timeout(0),
        };
        self.reserve_report()?;
        self.unmanaged(qp, |transport, env| transport.peer_known(env, peer).map_err(|_| QpChangeError::State))
    }

    fn start_requester(&self, qp: &Arc<Qp<R>>, spec: RequesterSpec) -> Result<(), QpChangeError> {
        let ack_timeout = requester_timeout(spec)?;
        self.unmanaged(qp, |transport, env| change::start_requester(transport, env, spec, ack_timeout))
    }

    fn open_datagrams(&self, qp: &Arc<Qp<R>>, spec: DatagramSpec) -> Result<(), QpChangeError> {
        if spec.mtu > self.shared.config.max_mtu {
            return Err(QpChangeError::Invalid);
        }
        self.reserve_report()?;
        let requests = qp.transport.lock().send_queue().depth();
        let opened = Unreliable::datagrams(spec, requests).map_err(|_| QpChangeError::OutOfMemory)?;
        self.unmanaged(qp, |transport, env| change::open_unreliable(transport, env, opened))
    }

    fn open_connection(&self, qp: &Arc<Qp<R>>, spec: &UnreliableSpec) -> Result<(), QpChangeError> {
        if spec.mtu > self.shared.config.max_mtu {
            return Err(QpChangeError::Invalid);
        }
        let template = template(qp, &spec.path, spec.qpn, NO_ECN)?;
        let access = spec.access & Access::OF_PEERS;
        let peer =
            UnreliablePeer { link: Link { template }, mtu: spec.mtu, receive_psn: spec.receive_psn, access };
        self.reserve_report()?;
        let opened = Unreliable::connection(peer).map_err(|_| QpChangeError::OutOfMemory)?;
        self.unmanaged(qp, |transport, env| change::open_unreliable(transport, env, opened))
    }

    fn drain(&self, qp: &Arc<Qp<R>>, notify: bool) -> Result<(), QpChangeError> {
        self.reserve_report()?;
        self.unmanaged(qp, |transport, env| change::drain(transport, env, notify))
    }

    fn resume(&self, qp: &Arc<Qp<R>>) -> Result<(), QpChangeError> {
        self.unmanaged(qp, change::resume)?;
        self.undefer(qp);
        Ok(())
    }

    fn update(&self, qp: &Arc<Qp<R>>, update: &QpUpdate) -> Result<(), QpChangeError> {
        let requester = update.requester.map(|spec| Ok((spec, requester_timeout(spec)?))).transpose()?;
        if update.rnr_timer.is_some_and(|code| code > MAX_RNR_TIMER) {
            return Err(QpChangeError::Invalid);
        }
        let is_unreliable = qp.state().serves_unreliably();
        let ecn = if is_unreliable { NO_ECN } else { self.shared.config.congestion.ecn() };
        let template = update.path.map(|(path, qpn)| template(qp, &path, qpn, ecn)).transpose()?;
        self.unmanaged(qp, |transport, env| change::update(transport, env, update, (template, requester)))
    }

    /// Returns the next report of a queue pair that connection management does not know, unless it was destroyed or left the
    /// state meanwhile.
    pub(super) fn poll_report(&self) -> Option<QpReport> {
        while self.shared.qp_reports.has_any() {
            let report = self.shared.qp_reports.take()?;
            let shown = self.table.show(report.qpn.value(), |qp| (qp.state(), qp.is_draining()));
            let Some((state, is_draining)) = shown else { continue };
            let is_current = match report.kind {
                QpReportKind::Failed(_) => state == State::Error,
                // Not one of before it was resumed and drained again.
                QpReportKind::Drained => state.drains() && !is_draining,
            };
            if is_current {
                return Some(report);
            }
        }
        None
    }
}
