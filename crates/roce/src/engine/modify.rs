// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of queue pairs that their owner connects, without connection management.

use lock_api::RawMutex;

use super::Engine;
use super::connections::parameters::capped_ack_timeout;
use super::events::EngineEvent;
use crate::conn::ReadLimits;
use crate::error::QpChangeError;
use crate::qp::Qp;
use crate::qp_change::{FailedQp, PeerSpec, QpChange, RequesterSpec};
use crate::region::access_rights::Access;
use crate::transport::change;
use crate::transport::peer::Peer;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use fallible::Arc;
use roce_wire::{Path, Psn, Template, flow_source_port};

/// Maximum code of an RNR NAK timer.
const MAX_RNR_TIMER: u8 = 31;

/// Maximum retry count, and RNR retry count.
const MAX_RETRIES: u8 = 7;

/// Maximum code of an ACK timeout.
const MAX_TIMEOUT: u8 = 31;

impl<R: RawMutex> Engine<R> {
    /// Changes a queue pair whose peer is known from elsewhere, without connection management. A created queue pair is in Init.
    /// If it fails, [`EngineEvent::QpFailed`] follows.
    ///
    /// # Errors
    /// See [`QpChangeError`]; the queue pair is as before.
    pub fn modify_qp(&self, qp: &Arc<Qp<R>>, change: &QpChange) -> Result<(), QpChangeError> {
        match change {
            QpChange::ReadyToReceive(peer) => self.meet_peer(qp, peer),
            QpChange::ReadyToSend(spec) => self.start_requester(qp, spec),
            QpChange::Error => self.unmanaged(qp, |transport| {
                self.qps.with_env(qp, |env| transport.abort(env));
                Ok(())
            }),
            QpChange::Reset => {
                self.unmanaged(qp, |transport| self.qps.with_env(qp, |env| change::reset(transport, env)))
            }
            QpChange::Initialize => self
                .unmanaged(qp, |transport| self.qps.with_env(qp, |env| change::initialize(transport, env))),
        }
    }

    /// Runs `change` with the queue pair locked, unless it belongs to a connection.
    fn unmanaged(
        &self,
        qp: &Arc<Qp<R>>,
        change: impl FnOnce(&mut RcTransport) -> Result<(), QpChangeError>,
    ) -> Result<(), QpChangeError> {
        let mut transport = qp.lock();
        if transport.connection.id().is_some() {
            Err(QpChangeError::Connected)
        } else {
            change(&mut transport)
        }
    }

    fn meet_peer(&self, qp: &Arc<Qp<R>>, spec: &PeerSpec) -> Result<(), QpChangeError> {
        let config = self.config();
        if spec.rnr_timer > MAX_RNR_TIMER || spec.mtu > config.max_mtu {
            return Err(QpChangeError::Invalid);
        }
        if !self.is_local(spec.path.local_ip) {
            return Err(QpChangeError::NotLocal);
        }
        let path = Path {
            source_port: flow_source_port(qp.qpn(), spec.qpn),
            traffic_class: spec.path.traffic_class & !3 | config.congestion.ecn(),
            ..spec.path
        };
        let peer = Peer {
            conn: None,
            template: Template::new(&path, spec.qpn).ok_or(QpChangeError::Invalid)?,
            mtu: spec.mtu,
            reads: ReadLimits { inbound: spec.inbound_reads.min(config.max_reads.inbound), outbound: 0 },
            access: spec.access & Access::REMOTE,
            rnr_timer: Some(spec.rnr_timer),
            // Set with RTS.
            send_psn: Psn::default(),
            receive_psn: spec.receive_psn,
            retries: 0,
            rnr_retries: 0,
            ack_timeout: capped_ack_timeout(0),
        };
        // Room for the report of its failure.
        let members = self.qps.table.live() as usize;
        self.qps.shared.failed_qps.reserve_for(members).map_err(|_| QpChangeError::OutOfMemory)?;
        self.unmanaged(qp, |transport| {
            let met = self.qps.with_env(qp, |env| transport.peer_known(env, peer));
            met.map_err(|_| QpChangeError::State)
        })
    }

    fn start_requester(&self, qp: &Arc<Qp<R>>, spec: &RequesterSpec) -> Result<(), QpChangeError> {
        if spec.retries > MAX_RETRIES || spec.rnr_retries > MAX_RETRIES || spec.ack_timeout > MAX_TIMEOUT {
            return Err(QpChangeError::Invalid);
        }
        let ack_timeout = capped_ack_timeout(spec.ack_timeout);
        self.unmanaged(qp, |transport| {
            self.qps.with_env(qp, |env| change::start_requester(transport, env, spec, ack_timeout))
        })
    }

    /// Returns the next queue pair in error that connection management does not know, unless it was destroyed or reset meanwhile.
    pub(super) fn poll_failed_qp(&self) -> Option<EngineEvent<'_, R>> {
        while self.qps.shared.failed_qps.has_any() {
            let FailedQp { qpn, context, fault } = self.qps.shared.failed_qps.take()?;
            let state = self.qps.table.show(qpn.value(), |qp| qp.state());
            if state == Some(State::Error) {
                return Some(EngineEvent::QpFailed { qpn, context, fault });
            }
        }
        None
    }
}
