// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive processing of REQ: a peer requests a connection.

use core::time::Duration;

use super::{
    Cm, Ignored, PeerQp, Pending, State,
    answer::{Answer, AnswerKind},
    bounds::Admission,
    receive::{Incoming, is_user_qpn},
    state::Input,
};
use crate::conn::{ListenerId, PrivateData, ReadLimits};
use roce_wire::{
    Attribute, PKEY_DEFAULT, Path, PathMtu, ack_timeout,
    cm::{CmPath, CommId, IpCm, IpEnds, RejReason, ReqRepr, RespondedMessage, TransportService},
};

/// Maximum time between retries of a REP. The peer chooses the time within these limits.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between retries of a REP.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Membership bit of a P_Key.
const PKEY_FULL_MEMBER: u16 = 0x8000;

/// ECN bits of a traffic class.
const ECN: u8 = 3;

/// Maximum retries of a REP. Bounds the messages that a REQ with a spoofed source draws to that address.
const MAX_REP_RETRIES: u8 = 7;

/// Parameters of a REQ that passed validation.
struct ValidRequest {
    listener: ListenerId,
    local_port: u16,
    remote_port: u16,
    mtu: PathMtu,
    traffic_class: u8,
    ack_timeout: u8,
}

/// Why a REQ is refused, and for `INVALID_MTU` the largest MTU that would be accepted.
pub(super) struct Refusal {
    /// `None` if the REQ is dropped: the peer repeats it.
    pub(super) reason: Option<RejReason>,
    pub(super) mtu: Option<PathMtu>,
}

impl Refusal {
    const SILENT: Self = Self { reason: None, mtu: None };
}

impl From<RejReason> for Refusal {
    fn from(reason: RejReason) -> Self {
        Self { reason: Some(reason), mtu: None }
    }
}

impl Cm {
    pub(super) fn receive_req(&mut self, incoming: &Incoming<'_>, req: &ReqRepr) -> Result<(), Ignored> {
        if req.local_comm_id == CommId(0) || !is_user_qpn(req.local_qpn) {
            return Err(Ignored::Malformed);
        }
        let id_hash = self.prf.hash(req.local_ca_guid, u64::from(req.local_comm_id.0));
        let known = self.by_id.find(id_hash, |index| {
            self.conns.get(index).is_some_and(|conn| {
                conn.remote_guid == req.local_ca_guid
                    && conn.remote_id == req.local_comm_id
                    && incoming.is_from(conn)
            })
        });
        if let Some(index) = known {
            return self.repeated_req(incoming, index);
        }
        let taken = self.validate(incoming, req).and_then(|valid| self.admit(incoming, req, &valid, id_hash));
        taken.or_else(|refusal| self.refuse_unknown(incoming, req.local_comm_id, &refusal))
    }

    /// Validates a REQ and finds its listener, or returns the reason to refuse it.
    #[inline(never)]
    fn validate(&self, incoming: &Incoming<'_>, req: &ReqRepr) -> Result<ValidRequest, Refusal> {
        //= rocev2 §11
        if req.transport_service != TransportService::RC || req.extended_transport != 0 {
            return Err(RejReason::INVALID_TRANSPORT.into());
        }
        let local_port = req.service_id.to_port().ok_or(RejReason::INVALID_SERVICE_ID)?;
        let (source, destination) = (incoming.packet.source(), incoming.packet.destination());
        let path = CmPath::new(&req.primary_path);
        if path.local_gid().to_ip() != source || path.remote_gid().to_ip() != destination {
            return Err(RejReason::INVALID_GID.into());
        }
        //= rocev2 §13
        // A full member of the default partition also communicates with its limited members.
        if req.p_key | PKEY_FULL_MEMBER != PKEY_DEFAULT {
            return Err(RejReason::UNSUPPORTED.into());
        }
        //= rocev2 §12
        let header = IpCm::new_checked(&req.private_data).map_err(|_| RejReason::UNSUPPORTED)?;
        let ends = IpEnds::parse(&header).ok_or(RejReason::UNSUPPORTED)?;
        if ends.source != source || ends.destination != destination {
            return Err(RejReason::INVALID_GID.into());
        }
        let mtu = req.path_mtu.mtu().filter(|&mtu| mtu <= self.config.max_mtu);
        let mtu =
            mtu.ok_or(Refusal { reason: Some(RejReason::INVALID_MTU), mtu: Some(self.config.max_mtu) })?;
        //= rocev2 §12
        //= R-CONN-6
        let listener = self.listeners.matching(destination, local_port);
        let listener = listener.ok_or(RejReason::INVALID_SERVICE_ID)?;
        //= R-CONN-62
        if !self.listeners.has_room(listener) {
            return Err(RejReason::NO_RESOURCES.into());
        }
        Ok(ValidRequest {
            listener,
            local_port,
            remote_port: ends.source_port,
            mtu,
            // The ECN bits are set per packet.
            traffic_class: path.traffic_class() & !ECN,
            ack_timeout: path.local_ack_timeout(),
        })
    }

    /// Creates a connection for a validated REQ and queues the event for the consumer.
    #[inline(never)]
    fn admit(
        &mut self,
        incoming: &Incoming<'_>,
        req: &ReqRepr,
        valid: &ValidRequest,
        id_hash: u32,
    ) -> Result<(), Refusal> {
        // Checked before stale connections: each guess at another peer's QPN counts against the limit.
        match self.admission(incoming.now, incoming.packet.source()) {
            Admission::Now => {}
            Admission::Later => return Err(Refusal::SILENT),
            Admission::Never => return Err(RejReason::NO_RESOURCES.into()),
        }
        let qpn_hash = self.qpn_hash(req.local_ca_guid, req.local_qpn);
        if self.is_stale(incoming, qpn_hash, req.local_ca_guid, req.local_qpn) {
            return Err(RejReason::STALE_CONNECTION.into());
        }
        let path = Path { traffic_class: valid.traffic_class, ..incoming.path() };
        //= rocev2 §11
        //= R-CONN-24
        let asked = ReadLimits { inbound: req.initiator_depth, outbound: req.responder_resources };
        let reads = asked.lowered(self.config.reads);
        let created = self.create(incoming.now, |conn| {
            conn.listener = Some(valid.listener);
            conn.remote_id = req.local_comm_id;
            conn.remote_guid = req.local_ca_guid;
            conn.transaction = incoming.transaction;
            conn.path = path;
            conn.local_port = valid.local_port;
            conn.remote_port = valid.remote_port;
            conn.peer = PeerQp {
                qpn: req.local_qpn,
                send_psn: req.starting_psn,
                mtu: valid.mtu,
                reads,
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                ack_timeout: valid.ack_timeout,
                path,
            };
            conn.data = req.private_data.get(IpCm::LEN..).and_then(PrivateData::new).unwrap_or_default();
            conn.interval = ack_timeout(req.local_cm_response_timeout).clamp(MIN_INTERVAL, MAX_INTERVAL);
            conn.retries = req.max_cm_retries.min(MAX_REP_RETRIES);
            conn.failover_accepted = u8::from(req.alternate_path != [0; CmPath::LEN]);
            conn.id_hash = Some(id_hash);
            conn.qpn_hash = Some(qpn_hash);
            conn.pending = Pending::REQUEST;
        });
        let index = created.map_err(|_| match self.half_open.first() {
            // They are established soon, or end.
            Some(_) => Refusal::SILENT,
            None => RejReason::NO_RESOURCES.into(),
        })?;
        self.by_id.insert(id_hash, index);
        self.by_qpn.insert(qpn_hash, index);
        self.listeners.request_queued(valid.listener);
        self.advance(incoming.now, index, Input::ReceiveReq);
        self.pending_events.push(index);
        Ok(())
    }

    /// Handles a duplicate REQ.
    fn repeated_req(&mut self, incoming: &Incoming<'_>, index: u32) -> Result<(), Ignored> {
        let Some(conn) = self.conns.get(index) else { return Err(Ignored::Unknown) };
        //= rocev2 §12
        match (conn.state, conn.sent) {
            // The consumer has not answered yet.
            (State::ReqReceived, _) => self.answer_mra(incoming, index, RespondedMessage::REQ),
            (State::TimeWait, Some(Attribute::CM_REJ)) => self.queue_message(incoming.now, index),
            (State::TimeWait, _) => {
                let remote_id = conn.remote_id;
                return self.refuse_unknown(incoming, remote_id, &RejReason::STALE_CONNECTION.into());
            }
            // The retry timer sends the REP again.
            _ => {}
        }
        Err(Ignored::Duplicate)
    }

    /// Refuses a REQ without creating a connection.
    fn refuse_unknown(
        &mut self,
        incoming: &Incoming<'_>,
        remote_id: CommId,
        refusal: &Refusal,
    ) -> Result<(), Ignored> {
        let Some(reason) = refusal.reason else { return Err(Ignored::NoRoom) };
        let kind = AnswerKind::Rej { message: RespondedMessage::REQ, reason, mtu: refusal.mtu };
        self.answer(Answer { path: incoming.path(), transaction: incoming.transaction, remote_id, kind })?;
        Err(Ignored::Refused)
    }
}
