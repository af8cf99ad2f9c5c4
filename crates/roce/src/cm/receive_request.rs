// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive processing of REQ: a peer requests a connection.

use core::time::Duration;

use super::{
    answer::AnswerKind,
    bounds::Admission,
    conn::Pending,
    event::{PeerQp, is_user_qpn},
    incoming::Incoming,
    state::{Input, State},
};
use crate::conn::{ListenerId, PrivateData, ReadLimits};
use crate::ignored::Ignored;
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

/// Reason why a REQ is refused, and for `INVALID_MTU` the largest MTU that would be accepted.
struct Refusal {
    /// `None` if the REQ is dropped: the peer repeats it.
    reason: Option<RejReason>,
    mtu: Option<PathMtu>,
}

impl Refusal {
    const SILENT: Self = Self { reason: None, mtu: None };
}

impl From<RejReason> for Refusal {
    fn from(reason: RejReason) -> Self {
        Self { reason: Some(reason), mtu: None }
    }
}

impl Incoming<'_> {
    /// Handles a REQ: admits the peer, refuses it, or answers a duplicate.
    ///
    /// # Errors
    /// The reason why it had no effect on a connection.
    pub(super) fn receive_req(&mut self, req: &ReqRepr) -> Result<(), Ignored> {
        if req.local_comm_id == CommId(0) || !is_user_qpn(req.local_qpn) {
            return Err(Ignored::Malformed);
        }
        let slots = &self.conns.slots;
        let known = slots.find_by_id(req.local_ca_guid, req.local_comm_id, |conn| {
            !conn.datagrams && self.origin.is_from(conn)
        });
        if let Some(index) = known {
            return self.repeated_req(index);
        }
        let taken = self.validate(req).and_then(|valid| self.admit(req, &valid));
        taken.or_else(|refusal| self.refuse_unknown(req.local_comm_id, &refusal))
    }

    /// Checks the partition of a request, and the addresses that its private data names. Returns the peer's port.
    pub(super) fn requested_from(&self, p_key: u16, private_data: &[u8]) -> Result<u16, RejReason> {
        //= rocev2 §13
        // A full member of the default partition also communicates with its limited members.
        if p_key | PKEY_FULL_MEMBER != PKEY_DEFAULT {
            return Err(RejReason::UNSUPPORTED);
        }
        //= rocev2 §12
        let header = IpCm::new_checked(private_data).map_err(|_| RejReason::UNSUPPORTED)?;
        let ends = IpEnds::parse(&header).ok_or(RejReason::UNSUPPORTED)?;
        // As in GIDs, an IPv4 address may be mapped into an IPv6 one.
        let (source, destination) = (self.origin.packet.source(), self.origin.packet.destination());
        if ends.source.to_canonical() != source || ends.destination.to_canonical() != destination {
            return Err(RejReason::INVALID_GID);
        }
        Ok(ends.source_port)
    }

    /// Validates a REQ and finds its listener, or returns the reason to refuse it.
    #[inline(never)]
    fn validate(&self, req: &ReqRepr) -> Result<ValidRequest, Refusal> {
        //= rocev2 §11
        if req.transport_service != TransportService::RC || req.extended_transport != 0 {
            return Err(RejReason::INVALID_TRANSPORT.into());
        }
        let local_port = req.service_id.to_port().ok_or(RejReason::INVALID_SERVICE_ID)?;
        let (source, destination) = (self.origin.packet.source(), self.origin.packet.destination());
        let path = CmPath::new(&req.primary_path);
        if path.local_gid().to_ip() != source || path.remote_gid().to_ip() != destination {
            return Err(RejReason::INVALID_GID.into());
        }
        let remote_port = self.requested_from(req.p_key, &req.private_data)?;
        let mtu = req.path_mtu.mtu().filter(|&mtu| mtu <= self.conns.config.max_mtu);
        let mtu = mtu
            .ok_or(Refusal { reason: Some(RejReason::INVALID_MTU), mtu: Some(self.conns.config.max_mtu) })?;
        //= rocev2 §12
        //= R-CONN-6
        let listener = self.conns.listeners.matching(destination, local_port, false);
        let listener = listener.ok_or(RejReason::INVALID_SERVICE_ID)?;
        //= R-CONN-62
        if !self.conns.listeners.has_room(listener) {
            return Err(RejReason::NO_RESOURCES.into());
        }
        Ok(ValidRequest {
            listener,
            local_port,
            remote_port,
            mtu,
            // The ECN bits are set per packet.
            traffic_class: path.traffic_class() & !ECN,
            ack_timeout: path.local_ack_timeout(),
        })
    }

    /// Creates a connection for a validated REQ and queues the event for the consumer.
    #[inline(never)]
    fn admit(&mut self, req: &ReqRepr, valid: &ValidRequest) -> Result<(), Refusal> {
        // Checked before stale connections: each guess at another peer's QPN counts against the limit.
        match self.conns.admission(self.origin.now, self.origin.packet.source()) {
            Admission::Now => {}
            Admission::Later => return Err(Refusal::SILENT),
            Admission::Never => return Err(RejReason::NO_RESOURCES.into()),
        }
        if self.is_stale(req.local_ca_guid, req.local_qpn) {
            return Err(RejReason::STALE_CONNECTION.into());
        }
        let path = Path { traffic_class: valid.traffic_class, ..self.origin.path() };
        //= rocev2 §11
        //= R-CONN-24
        let asked = ReadLimits { inbound: req.initiator_depth, outbound: req.responder_resources };
        let reads = asked.lowered(self.conns.config.reads);
        let transaction = self.origin.transaction;
        let created = self.conns.create(self.origin.now, |conn| {
            conn.listener = Some(valid.listener);
            conn.remote_id = req.local_comm_id;
            conn.remote_guid = req.local_ca_guid;
            conn.transaction = transaction;
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
                q_key: 0,
                path,
            };
            conn.data = req.private_data.get(IpCm::LEN..).and_then(PrivateData::new).unwrap_or_default();
            conn.interval = ack_timeout(req.local_cm_response_timeout).clamp(MIN_INTERVAL, MAX_INTERVAL);
            conn.retries = req.max_cm_retries.min(MAX_REP_RETRIES);
            conn.failover_accepted = u8::from(req.alternate_path != [0; CmPath::LEN]);
            conn.pending = Pending::REQUEST;
        });
        let index = created.map_err(|_| match self.conns.slots.half_open.first() {
            // They are established soon, or end.
            Some(_) => Refusal::SILENT,
            None => RejReason::NO_RESOURCES.into(),
        })?;
        self.conns.slots.index_by_id(index);
        self.conns.slots.index_by_qpn(index);
        self.conns.listeners.request_queued(valid.listener);
        self.conns.advance(self.origin.now, index, Input::ReceiveReq);
        self.conns.slots.pending_events.push(index);
        Ok(())
    }

    /// Handles a duplicate REQ.
    fn repeated_req(&mut self, index: u32) -> Result<(), Ignored> {
        let conn = self.conn(index)?;
        //= rocev2 §12
        match (conn.state, conn.sent) {
            // The consumer has not answered yet.
            (State::ReqReceived, _) => self.answer_mra(index, RespondedMessage::REQ),
            (State::TimeWait, Some(Attribute::CM_REJ)) => self.repeat_message(index),
            (State::TimeWait, _) => {
                let remote_id = conn.remote_id;
                return self.refuse_unknown(remote_id, &RejReason::STALE_CONNECTION.into());
            }
            // The retry timer sends the REP again.
            _ => {}
        }
        Err(Ignored::Duplicate)
    }

    /// Refuses a REQ without creating a connection.
    fn refuse_unknown(&mut self, remote_id: CommId, refusal: &Refusal) -> Result<(), Ignored> {
        let Some(reason) = refusal.reason else { return Err(Ignored::NoRoom) };
        let kind = AnswerKind::Rej { message: RespondedMessage::REQ, reason, mtu: refusal.mtu };
        self.answer(remote_id, kind)?;
        Err(Ignored::Refused)
    }
}
