// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive processing of service ID resolution (IBTA Volume 1, section 12.11): a peer asks for the queue pair of a datagram service, or
//! answers such a request.
//!
//! A request has the slot, the limits, the retries and the events of a connection, from SIDR_REQ to SIDR_REP; there is no connection
//! afterwards. An answer is sent again for each duplicate of its request, for as long as a refusal of a REQ.

use super::{
    answer::AnswerKind,
    bounds::Admission,
    conn::Pending,
    event::{PeerQp, is_user_qpn},
    incoming::Incoming,
    state::{Input, State},
};
use crate::conn::{ListenerId, PrivateData};
use crate::ignored::Ignored;
use roce_wire::Attribute;
use roce_wire::cm::{CommId, IpCm, RejReason, SidrRepRepr, SidrReqRepr, SidrStatus};

/// Key of requests by their number: they name no CA.
const NO_GUID: u64 = 0;

/// A request that passed validation.
struct ValidRequest {
    listener: ListenerId,
    local_port: u16,
    remote_port: u16,
}

/// Reason why a request is refused; `None` if it is dropped: the peer repeats it.
struct Refusal(Option<SidrStatus>);

impl From<SidrStatus> for Refusal {
    fn from(status: SidrStatus) -> Self {
        Self(Some(status))
    }
}

impl Incoming<'_> {
    /// Handles a SIDR_REQ: admits the peer, refuses it, or answers a duplicate.
    ///
    /// # Errors
    /// The reason why it had no effect.
    #[inline(never)]
    pub(super) fn receive_sidr_req(&mut self, req: &SidrReqRepr) -> Result<(), Ignored> {
        let known = self.conns.slots.find_by_id(NO_GUID, req.request_id, |conn| {
            conn.datagrams && conn.transaction == self.origin.transaction && self.origin.is_from(conn)
        });
        if let Some(index) = known {
            let conn = self.conn(index)?;
            if conn.sent == Some(Attribute::CM_SIDR_REP) {
                self.repeat_message(index);
            }
            return Err(Ignored::Duplicate);
        }
        let taken = self.validate_resolution(req).and_then(|valid| self.admit_resolution(req, &valid));
        taken.or_else(|Refusal(status)| {
            let Some(status) = status else { return Err(Ignored::NoRoom) };
            //= rocev2 §11
            let kind = AnswerKind::SidrRefused { status, service_id: req.service_id };
            self.answer(req.request_id, kind)?;
            Err(Ignored::Refused)
        })
    }

    /// Validates a SIDR_REQ and finds its listener, or returns the reason to refuse it.
    fn validate_resolution(&self, req: &SidrReqRepr) -> Result<ValidRequest, Refusal> {
        let local_port = req.service_id.to_datagram_port().ok_or(SidrStatus::UNSUPPORTED)?;
        let listener = self.conns.listeners.matching(self.origin.packet.destination(), local_port, true);
        let listener = listener.ok_or(SidrStatus::UNSUPPORTED)?;
        let remote_port = self.requested_from(req.p_key, &req.private_data);
        let remote_port = remote_port.map_err(|_| SidrStatus::REJECTED)?;
        if req.request_id == CommId(0) {
            return Err(SidrStatus::REJECTED.into());
        }
        if !self.conns.listeners.has_room(listener) {
            return Err(SidrStatus::NO_QP.into());
        }
        Ok(ValidRequest { listener, local_port, remote_port })
    }

    /// Creates the slot of a validated request and queues the event for the consumer.
    fn admit_resolution(&mut self, req: &SidrReqRepr, valid: &ValidRequest) -> Result<(), Refusal> {
        match self.conns.admission(self.origin.now, self.origin.packet.source()) {
            Admission::Now => {}
            Admission::Later => return Err(Refusal(None)),
            Admission::Never => return Err(SidrStatus::NO_QP.into()),
        }
        let (path, transaction) = (self.origin.path(), self.origin.transaction);
        let mtu = self.conns.config.max_mtu;
        let created = self.conns.create(self.origin.now, |conn| {
            conn.datagrams = true;
            conn.listener = Some(valid.listener);
            conn.remote_id = req.request_id;
            conn.transaction = transaction;
            conn.path = path;
            conn.local_port = valid.local_port;
            conn.remote_port = valid.remote_port;
            conn.peer = PeerQp { mtu, path, ..conn.peer };
            conn.data = req.private_data.get(IpCm::LEN..).and_then(PrivateData::new).unwrap_or_default();
            conn.pending = Pending::REQUEST;
        });
        let index = created.map_err(|_| Refusal(None))?;
        self.conns.slots.index_by_id(index);
        self.conns.listeners.request_queued(valid.listener);
        self.conns.advance(self.origin.now, index, Input::ReceiveReq);
        self.conns.slots.pending_events.push(index);
        Ok(())
    }

    /// Handles a SIDR_REP: the peer's queue pair, or the reason why there is none.
    ///
    /// # Errors
    /// The reason why it had no effect.
    #[inline(never)]
    pub(super) fn receive_sidr_rep(&mut self, rep: &SidrRepRepr) -> Result<(), Ignored> {
        let (index, conn) = self.conns.slots.find(rep.request_id).ok_or(Ignored::Unknown)?;
        let is_own =
            conn.datagrams && conn.transaction == self.origin.transaction && self.origin.is_from(conn);
        if !is_own {
            return Err(Ignored::Unknown);
        }
        if conn.state != State::ReqSent {
            return Err(Ignored::Duplicate);
        }
        let is_valid = rep.status == SidrStatus::VALID;
        if is_valid && !is_user_qpn(rep.qpn) {
            return Err(Ignored::Malformed);
        }
        let now = self.origin.now;
        let conn = self.conn_mut(index)?;
        conn.data = PrivateData::new(&rep.private_data).unwrap_or_default();
        if is_valid {
            conn.peer = PeerQp { qpn: rep.qpn, q_key: rep.q_key, ..conn.peer };
            self.conns.advance_and_notify(now, index, Input::Resolve, Pending::REPLIED);
        } else {
            conn.reason = RejReason(rep.status.0.into());
            self.conns.advance_and_notify(now, index, Input::ReceiveRej, Pending::REFUSED);
        }
        Ok(())
    }
}
