// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive processing of CM messages.
#![allow(clippy::similar_names, reason = "DREQ and DREP are what the protocol calls them")]

use core::time::Duration;

use super::{
    AttachedQps, Cm, Conn, Ignored, PeerQp, Pending, State, addresses,
    answer::{Answer, AnswerKind},
    state::Input,
};
use crate::{
    conn::{DisconnectOutcome, PrivateData, ReadLimits},
    time::{Instant, nanos},
};
use roce_wire::{
    Attribute, Deth, Mad, Packet, Path, Qpn, ack_timeout,
    cm::{
        CmMessage, CommId, DrepRepr, DreqRepr, MraRepr, RejReason, RejRepr, RepRepr, RespondedMessage,
        RtuRepr, SidrReq, SidrReqRepr,
    },
};

/// The context of a received message: its packet, transaction ID and arrival time.
pub(super) struct Incoming<'a> {
    pub(super) now: Instant,
    pub(super) packet: &'a Packet<'a>,
    pub(super) transaction: u64,
    pub(super) queue_pairs: &'a dyn AttachedQps,
}

impl Incoming<'_> {
    /// Returns the path back to the source.
    pub(super) fn path(&self) -> Path {
        let eth = self.packet.eth();
        Path {
            vlan: eth.vlan(),
            ..Path::new(eth.destination(), eth.source(), self.packet.destination(), self.packet.source())
        }
    }

    /// Returns `true` if it comes from the address of a connection's peer.
    pub(super) fn is_from(&self, conn: &Conn) -> bool {
        conn.path.remote_ip == self.packet.source() && conn.path.local_ip == self.packet.destination()
    }
}

impl Cm {
    /// Handles a packet to queue pair 1 whose ICRC is valid. An established connection that the peer seems to have lost,
    /// because a message names the same queue pair of the peer, is challenged.
    ///
    /// # Errors
    /// The reason why the packet had no effect on a connection, for statistics.
    pub fn handle(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        queue_pairs: &dyn AttachedQps,
    ) -> Result<(), Ignored> {
        addresses::check(&self.addresses, packet)?;
        let deth = packet.deth().ok_or(Ignored::NotCm)?;
        //= rocev2 §11
        if packet.bth().dest_qp() != Qpn::GSI
            || deth.source_qp() != Qpn::GSI
            || deth.q_key() != Deth::Q_KEY_GSI
            || packet.payload().len() != Mad::LEN
        {
            return Err(Ignored::NotCm);
        }
        let mad = Mad::new_checked(packet.payload()).map_err(|_| Ignored::NotCm)?;
        let header = mad.header();
        if !header.is_cm() {
            return Err(Ignored::NotCm);
        }
        let incoming = Incoming { now, packet, transaction: header.transaction_id(), queue_pairs };
        if header.attribute() == Attribute::CM_SIDR_REQ {
            return self.receive_sidr_req(&incoming, &SidrReqRepr::parse(&SidrReq::new(mad.body())));
        }
        match CmMessage::parse(&mad).ok_or(Ignored::Unsupported)? {
            CmMessage::Req(req) => self.receive_req(&incoming, &req),
            CmMessage::Rep(rep) => self.receive_rep(&incoming, &rep),
            CmMessage::Rtu(rtu) => self.receive_rtu(&incoming, &rtu),
            CmMessage::Mra(mra) => self.receive_mra(&incoming, &mra),
            CmMessage::Rej(rej) => self.receive_rej(&incoming, &rej),
            CmMessage::Dreq(dreq) => self.receive_dreq(&incoming, &dreq),
            CmMessage::Drep(drep) => self.receive_drep(&incoming, &drep),
        }
    }

    /// Answers SIDR_REQ with "unsupported", so that the peer does not retry.
    fn receive_sidr_req(&mut self, incoming: &Incoming<'_>, req: &SidrReqRepr) -> Result<(), Ignored> {
        //= rocev2 §11
        let kind = AnswerKind::SidrUnsupported { service_id: req.service_id };
        let (path, transaction, remote_id) = (incoming.path(), incoming.transaction, req.request_id);
        self.answer(Answer { path, transaction, remote_id, kind })?;
        Err(Ignored::Refused)
    }

    fn receive_rep(&mut self, incoming: &Incoming<'_>, rep: &RepRepr) -> Result<(), Ignored> {
        let now = incoming.now;
        let Ok(index) = self.find_local(incoming, rep.remote_comm_id, None) else {
            //= rocev2 §12
            return self.refuse_rep(incoming, rep, RejReason::INVALID_COMM_ID);
        };
        let Some(conn) = self.conns.get(index) else { return Err(Ignored::Unknown) };
        if conn.state != State::ReqSent {
            return self.repeated_rep(incoming, index, rep);
        }
        if conn.transaction != incoming.transaction {
            return Err(Ignored::Unknown);
        }
        if rep.local_comm_id == CommId(0) || !is_user_qpn(rep.local_qpn) {
            return Err(Ignored::Malformed);
        }
        let qpn_hash = self.qpn_hash(rep.local_ca_guid, rep.local_qpn);
        let stale = self.is_stale(incoming, qpn_hash, rep.local_ca_guid, rep.local_qpn);
        let Some(conn) = self.conns.get_mut(index) else { return Err(Ignored::Unknown) };
        conn.remote_id = rep.local_comm_id;
        conn.remote_guid = rep.local_ca_guid;
        if stale {
            conn.reason = RejReason::STALE_CONNECTION;
            self.advance_and_notify(now, index, Input::ReceiveRep, Pending::REFUSED);
            self.refuse(now, index, RejReason::STALE_CONNECTION, &[]);
            return Err(Ignored::Refused);
        }
        //= rocev2 §11
        //= R-CONN-21
        let granted = ReadLimits { inbound: rep.initiator_depth, outbound: rep.responder_resources };
        conn.reads = conn.reads.lowered(granted);
        conn.peer = PeerQp {
            qpn: rep.local_qpn,
            send_psn: rep.starting_psn,
            reads: conn.reads,
            rnr_retry_count: rep.rnr_retry_count,
            //= rocev2 §8
            ack_timeout: conn.local.ack_timeout.max(rep.target_ack_delay.saturating_add(1)).min(31),
            ..conn.peer
        };
        conn.data = PrivateData::new(&rep.private_data).unwrap_or_default();
        conn.qpn_hash = Some(qpn_hash);
        self.by_qpn.insert(qpn_hash, index);
        self.advance_and_notify(now, index, Input::ReceiveRep, Pending::REPLIED);
        Ok(())
    }

    /// Handles a REP in another state than `ReqSent`.
    fn repeated_rep(&mut self, incoming: &Incoming<'_>, index: u32, rep: &RepRepr) -> Result<(), Ignored> {
        let Some(conn) = self.conns.get(index) else { return Err(Ignored::Unknown) };
        if conn.remote_id == CommId(0) && conn.transaction == incoming.transaction {
            // The REP arrived after this side gave up, and the REJ that said so may be lost.
            return self.refuse_rep(incoming, rep, RejReason::TIMEOUT);
        }
        if conn.remote_id != rep.local_comm_id {
            return Err(Ignored::Unknown);
        }
        //= rocev2 §12
        match (conn.state, conn.sent) {
            // The consumer has not answered yet.
            (State::RepReceived, _) => self.answer_mra(incoming, index, RespondedMessage::REP),
            (State::Established, Some(Attribute::CM_RTU)) | (State::TimeWait, Some(Attribute::CM_REJ)) => {
                self.queue_message(incoming.now, index);
            }
            _ => {}
        }
        Err(Ignored::Duplicate)
    }

    /// Refuses a REP that belongs to no connection.
    fn refuse_rep(
        &mut self,
        incoming: &Incoming<'_>,
        rep: &RepRepr,
        reason: RejReason,
    ) -> Result<(), Ignored> {
        let kind = AnswerKind::Rej { message: RespondedMessage::REP, reason, mtu: None };
        let (path, transaction, remote_id) = (incoming.path(), incoming.transaction, rep.local_comm_id);
        self.answer(Answer { path, transaction, remote_id, kind })?;
        Err(Ignored::Refused)
    }

    fn receive_rtu(&mut self, incoming: &Incoming<'_>, rtu: &RtuRepr) -> Result<(), Ignored> {
        let index = self.find_local(incoming, rtu.remote_comm_id, Some(rtu.local_comm_id))?;
        match self.conns.get(index).map(|conn| (conn.state, conn.sent)) {
            Some((State::RepSent, _)) => {
                self.advance_and_notify(incoming.now, index, Input::ReceiveRtu, Pending::ESTABLISHED);
                Ok(())
            }
            Some((State::Established, _)) => Err(Ignored::Duplicate),
            // The REJ of this side was lost.
            Some((State::TimeWait, Some(Attribute::CM_REJ))) => {
                self.queue_message(incoming.now, index);
                Err(Ignored::Unexpected)
            }
            _ => Err(Ignored::Unexpected),
        }
    }

    fn receive_mra(&mut self, incoming: &Incoming<'_>, mra: &MraRepr) -> Result<(), Ignored> {
        let index = self.find_local(incoming, mra.remote_comm_id, None)?;
        let Some(conn) = self.conns.get_mut(index) else { return Err(Ignored::Unknown) };
        let expected = match conn.state {
            State::ReqSent => mra.message_mraed == RespondedMessage::REQ,
            State::RepSent => {
                mra.message_mraed == RespondedMessage::REP && mra.local_comm_id == conn.remote_id
            }
            _ => false,
        };
        if !expected || conn.transaction != incoming.transaction || conn.mra_budget.is_zero() {
            return Err(Ignored::Unexpected);
        }
        //= rocev2 §12
        // In nanoseconds: differences of durations carry a panic into the image.
        let mra_budget = nanos(conn.mra_budget);
        let wait =
            nanos(ack_timeout(mra.service_timeout)).saturating_add(nanos(conn.interval)).min(mra_budget);
        conn.mra_budget = Duration::from_nanos(mra_budget.saturating_sub(wait));
        let wait = Duration::from_nanos(wait);
        self.outbox.remove(index);
        self.deadlines.set(index, Some(incoming.now + wait));
        Ok(())
    }

    fn receive_rej(&mut self, incoming: &Incoming<'_>, rej: &RejRepr) -> Result<(), Ignored> {
        let now = incoming.now;
        let index = self.find_refused(incoming, rej)?;
        let Some(conn) = self.conns.get_mut(index) else { return Err(Ignored::Unknown) };
        let what = match conn.state {
            State::ReqSent | State::RepSent => {
                conn.reason = rej.reason;
                conn.data = PrivateData::new(&rej.private_data).unwrap_or_default();
                Pending::REFUSED
            }
            //= R-CONN-29
            //= R-CONN-41
            State::ReqReceived | State::RepReceived => Pending::ABORTED,
            State::Established => Pending::ABORTED | self.disconnect_done(index, DisconnectOutcome::Aborted),
            State::DreqSent => self.disconnect_done(index, DisconnectOutcome::Graceful),
            State::TimeWait | State::Idle => return Err(Ignored::Duplicate),
            State::DreqReceived => return Err(Ignored::Unexpected),
        };
        self.advance_and_notify(now, index, Input::ReceiveRej, what);
        Ok(())
    }

    /// Finds the connection of a REJ.
    fn find_refused(&self, incoming: &Incoming<'_>, rej: &RejRepr) -> Result<u32, Ignored> {
        if rej.remote_comm_id != CommId(0) {
            let index = self.find_local(incoming, rej.remote_comm_id, None)?;
            let conn = self.conns.get(index).ok_or(Ignored::Unknown)?;
            let known_id = conn.remote_id == CommId(0)
                || rej.local_comm_id == CommId(0)
                || rej.local_comm_id == conn.remote_id;
            return (known_id && conn.transaction == incoming.transaction)
                .then_some(index)
                .ok_or(Ignored::Unknown);
        }
        //= rocev2 §12
        // The active side gave up before it received our communication ID. It identifies itself by its CA GUID.
        let guid = rej.information.first_chunk().map(|guid| u64::from_be_bytes(*guid));
        let guid = guid.filter(|_| rej.reason == RejReason::TIMEOUT && rej.information_len >= 8);
        let guid = guid.ok_or(Ignored::Unknown)?;
        let hash = self.prf.hash(guid, u64::from(rej.local_comm_id.0));
        let found = self.by_id.find(hash, |index| {
            self.conns.get(index).is_some_and(|conn| {
                conn.remote_guid == guid
                    && conn.remote_id == rej.local_comm_id
                    && conn.transaction == incoming.transaction
                    && incoming.is_from(conn)
            })
        });
        found.ok_or(Ignored::Unknown)
    }

    fn receive_dreq(&mut self, incoming: &Incoming<'_>, dreq: &DreqRepr) -> Result<(), Ignored> {
        let now = incoming.now;
        let Ok(index) = self.find_local(incoming, dreq.remote_comm_id, Some(dreq.local_comm_id)) else {
            //= rocev2 §12
            self.answer_drep(incoming, dreq)?;
            return Err(Ignored::Unknown);
        };
        let Some(conn) = self.conns.get_mut(index) else { return Err(Ignored::Unknown) };
        //= rocev2 §11
        if dreq.remote_qpn != conn.local.qpn {
            return Err(Ignored::Malformed);
        }
        if conn.state == State::Established && incoming.queue_pairs.is_failing(self.id_of(index)) {
            // The failure came first.
            self.abort_conn(now, index);
        }
        let Some(conn) = self.conns.get_mut(index) else { return Err(Ignored::Unknown) };
        match conn.state {
            State::Established | State::RepSent => {
                //= rocev2 §12
                // In RepSent the RTU was lost: the peer had completed.
                let mut what = Pending::DISCONNECTED;
                if conn.state == State::RepSent {
                    conn.was_established = true;
                    what |= Pending::ESTABLISHED;
                }
                conn.transaction = incoming.transaction;
                self.advance_and_notify(now, index, Input::ReceiveDreq, what);
                Ok(())
            }
            //= R-CONN-94
            State::DreqSent => {
                let what = self.disconnect_done(index, DisconnectOutcome::Graceful);
                self.advance_and_notify(now, index, Input::ReceiveDreq, what);
                self.outbox.remove(index);
                self.answer_drep(incoming, dreq)
            }
            State::RepReceived => {
                self.advance_and_notify(now, index, Input::ReceiveDreq, Pending::ABORTED);
                self.answer_drep(incoming, dreq)
            }
            State::TimeWait | State::Idle => {
                self.answer_drep(incoming, dreq)?;
                Err(Ignored::Duplicate)
            }
            // The consumer was notified.
            State::DreqReceived => Err(Ignored::Duplicate),
            State::ReqSent | State::ReqReceived => Err(Ignored::Unexpected),
        }
    }

    fn receive_drep(&mut self, incoming: &Incoming<'_>, drep: &DrepRepr) -> Result<(), Ignored> {
        let index = self.find_local(incoming, drep.remote_comm_id, Some(drep.local_comm_id))?;
        if self.conns.get(index).map(|conn| conn.state) != Some(State::DreqSent) {
            return Err(Ignored::Unexpected);
        }
        let what = self.disconnect_done(index, DisconnectOutcome::Graceful);
        self.advance_and_notify(incoming.now, index, Input::ReceiveDrep, what);
        self.outbox.remove(index);
        Ok(())
    }

    /// Finds the connection with the given local communication ID. The source address must be its peer's, and the
    /// remote ID must match if it is given.
    fn find_local(
        &self,
        incoming: &Incoming<'_>,
        local_id: CommId,
        remote_id: Option<CommId>,
    ) -> Result<u32, Ignored> {
        let (index, conn) = self.find(local_id).ok_or(Ignored::Unknown)?;
        let ids_fit = remote_id.is_none_or(|remote_id| remote_id == conn.remote_id);
        (incoming.is_from(conn) && ids_fit).then_some(index).ok_or(Ignored::Unknown)
    }

    pub(super) fn qpn_hash(&self, guid: u64, qpn: Qpn) -> u32 {
        self.prf.hash(guid, 1 << 32 | u64::from(qpn.value()))
    }

    /// Returns `true` if a connection with this queue pair of the peer exists: then the message is refused. The
    /// connection is stale only if its peer no longer answers, so that one that is established is challenged, and one that is being
    /// established waits for an answer anyway.
    pub(super) fn is_stale(&self, incoming: &Incoming<'_>, hash: u32, guid: u64, qpn: Qpn) -> bool {
        //= rocev2 §12
        let stale = self.by_qpn.find(hash, |index| {
            self.conns.get(index).is_some_and(|conn| {
                conn.remote_guid == guid && conn.peer.qpn == qpn && incoming.is_from(conn)
            })
        });
        if let Some(index) = stale
            && self.conns.get(index).is_some_and(|conn| conn.state == State::Established)
        {
            incoming.queue_pairs.challenge(self.id_of(index));
        }
        stale.is_some()
    }

    /// Queues an MRA.
    //= R-CONN-31
    pub(super) fn answer_mra(&mut self, incoming: &Incoming<'_>, index: u32, message: RespondedMessage) {
        let Some(conn) = self.conns.get(index) else { return };
        let (remote_id, kind) = (conn.remote_id, AnswerKind::Mra { local_id: conn.local_id, message });
        // If it is dropped, the peer's retry asks for it again.
        let _ =
            self.answer(Answer { path: incoming.path(), transaction: incoming.transaction, remote_id, kind });
    }

    /// Queues a DREP with the communication IDs of the DREQ.
    fn answer_drep(&mut self, incoming: &Incoming<'_>, dreq: &DreqRepr) -> Result<(), Ignored> {
        let (remote_id, kind) = (dreq.local_comm_id, AnswerKind::Drep { local_id: dreq.remote_comm_id });
        self.answer(Answer { path: incoming.path(), transaction: incoming.transaction, remote_id, kind })
    }
}

/// Returns `true` if a connection can use this queue pair number.
pub(super) fn is_user_qpn(qpn: Qpn) -> bool {
    //= rocev2 §13
    !matches!(qpn.value(), 0 | 1 | 0x00FF_FFFF)
}
