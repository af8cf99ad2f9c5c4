// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive processing of the messages of a connection: REP, RTU, MRA, REJ, DREQ, DREP.
#![allow(clippy::similar_names, reason = "DREQ and DREP are what the protocol calls them")]

use core::time::Duration;

use super::{
    answer::AnswerKind,
    conn::Pending,
    event::{PeerQp, is_user_qpn},
    incoming::{Incoming, Origin},
    path_mtu::acceptable_mtu,
    state::{Input, State},
};
use crate::{
    conn::{DisconnectOutcome, PrivateData, ReadLimits},
    ignored::Ignored,
    time::nanos,
};
use roce_wire::{
    Attribute, ack_timeout,
    cm::{CommId, DrepRepr, DreqRepr, MraRepr, RejReason, RejRepr, RepRepr, RespondedMessage, RtuRepr},
};

impl Incoming<'_> {
    pub(super) fn receive_rep(&mut self, rep: &RepRepr) -> Result<(), Ignored> {
        let now = self.origin.now;
        let Ok(index) = self.find_local(rep.remote_comm_id, None) else {
            //= rocev2 §12
            return self.refuse_rep(rep, RejReason::INVALID_COMM_ID);
        };
        let conn = self.conn(index)?;
        if conn.state != State::ReqSent {
            return self.repeated_rep(index, rep);
        }
        if conn.transaction != self.origin.transaction {
            return Err(Ignored::Unknown);
        }
        if rep.local_comm_id == CommId(0) || !is_user_qpn(rep.local_qpn) {
            return Err(Ignored::Malformed);
        }
        let stale = self.is_stale(rep.local_ca_guid, rep.local_qpn);
        let conn = self.conn_mut(index)?;
        conn.measure_round_trip(now);
        conn.remote_id = rep.local_comm_id;
        conn.remote_guid = rep.local_ca_guid;
        if stale {
            conn.reason = RejReason::STALE_CONNECTION;
            self.conns.advance_and_notify(now, index, Input::ReceiveRep, Pending::REFUSED);
            self.conns.refuse(now, index, RejReason::STALE_CONNECTION, &[]);
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
        self.conns.slots.index_by_qpn(index);
        self.conns.advance_and_notify(now, index, Input::ReceiveRep, Pending::REPLIED);
        Ok(())
    }

    /// Handles a REP in another state than `ReqSent`.
    fn repeated_rep(&mut self, index: u32, rep: &RepRepr) -> Result<(), Ignored> {
        let conn = self.conn(index)?;
        if conn.remote_id == CommId(0) && conn.transaction == self.origin.transaction {
            // The REP arrived after this side gave up, and the REJ that said so may be lost.
            return self.refuse_rep(rep, RejReason::TIMEOUT);
        }
        if conn.remote_id != rep.local_comm_id {
            return Err(Ignored::Unknown);
        }
        //= rocev2 §12
        match (conn.state, conn.sent) {
            // The consumer has not answered yet.
            (State::RepReceived, _) => self.answer_mra(index, RespondedMessage::REP),
            (State::Established, Some(Attribute::CM_RTU)) | (State::TimeWait, Some(Attribute::CM_REJ)) => {
                self.repeat_message(index);
            }
            _ => {}
        }
        Err(Ignored::Duplicate)
    }

    /// Refuses a REP that belongs to no connection.
    fn refuse_rep(&mut self, rep: &RepRepr, reason: RejReason) -> Result<(), Ignored> {
        let kind = AnswerKind::Rej { message: RespondedMessage::REP, reason, mtu: None };
        self.answer(rep.local_comm_id, kind)?;
        Err(Ignored::Refused)
    }

    pub(super) fn receive_rtu(&mut self, rtu: &RtuRepr) -> Result<(), Ignored> {
        let now = self.origin.now;
        let index = self.find_local(rtu.remote_comm_id, Some(rtu.local_comm_id))?;
        match self.conns.slots.get(index).map(|conn| (conn.state, conn.sent)) {
            Some((State::RepSent, _)) => {
                self.conn_mut(index)?.measure_round_trip(now);
                self.conns.advance_and_notify(now, index, Input::ReceiveRtu, Pending::ESTABLISHED);
                Ok(())
            }
            Some((State::Established, _)) => Err(Ignored::Duplicate),
            // The REJ of this side was lost.
            Some((State::TimeWait, Some(Attribute::CM_REJ))) => {
                self.repeat_message(index);
                Err(Ignored::Unexpected)
            }
            _ => Err(Ignored::Unexpected),
        }
    }

    pub(super) fn receive_mra(&mut self, mra: &MraRepr) -> Result<(), Ignored> {
        let index = self.find_local(mra.remote_comm_id, None)?;
        let Origin { transaction, now, .. } = self.origin;
        let conn = self.conn_mut(index)?;
        let expected = match conn.state {
            State::ReqSent => mra.message_mraed == RespondedMessage::REQ,
            State::RepSent => {
                mra.message_mraed == RespondedMessage::REP && mra.local_comm_id == conn.remote_id
            }
            _ => false,
        };
        if !expected || conn.transaction != transaction || conn.mra_budget.is_zero() {
            return Err(Ignored::Unexpected);
        }
        conn.measure_round_trip(now);
        //= rocev2 §12
        // In nanoseconds: differences of durations carry a panic into the image.
        let mra_budget = nanos(conn.mra_budget);
        let wait =
            nanos(ack_timeout(mra.service_timeout)).saturating_add(nanos(conn.interval)).min(mra_budget);
        conn.mra_budget = Duration::from_nanos(mra_budget.saturating_sub(wait));
        let wait = Duration::from_nanos(wait);
        self.conns.slots.outbox.remove(index);
        self.conns.slots.deadlines.set(index, Some(now + wait));
        Ok(())
    }

    pub(super) fn receive_rej(&mut self, rej: &RejRepr) -> Result<(), Ignored> {
        let now = self.origin.now;
        let index = self.find_refused(rej)?;
        if let Some(mtu) = acceptable_mtu(rej)
            && self.conns.request_with_mtu(now, index, mtu)
        {
            return Ok(());
        }
        let conn = self.conn_mut(index)?;
        conn.reason = rej.reason;
        let what = match conn.state {
            State::ReqSent | State::RepSent => {
                conn.data = PrivateData::new(&rej.private_data).unwrap_or_default();
                Pending::REFUSED
            }
            //= R-CONN-29
            //= R-CONN-41
            State::ReqReceived | State::RepReceived => Pending::ABORTED,
            State::Established => {
                Pending::ABORTED | self.conns.disconnect_done(index, DisconnectOutcome::Aborted)
            }
            State::DreqSent => self.conns.disconnect_done(index, DisconnectOutcome::Graceful),
            State::TimeWait | State::Idle => return Err(Ignored::Duplicate),
            State::DreqReceived => return Err(Ignored::Unexpected),
        };
        self.conns.advance_and_notify(now, index, Input::ReceiveRej, what);
        Ok(())
    }

    /// Finds the connection of a REJ.
    fn find_refused(&self, rej: &RejRepr) -> Result<u32, Ignored> {
        if rej.remote_comm_id != CommId(0) {
            let index = self.find_local(rej.remote_comm_id, None)?;
            let conn = self.conns.slots.get(index).ok_or(Ignored::Unknown)?;
            let known_id = conn.remote_id == CommId(0)
                || rej.local_comm_id == CommId(0)
                || rej.local_comm_id == conn.remote_id;
            return (known_id && conn.transaction == self.origin.transaction)
                .then_some(index)
                .ok_or(Ignored::Unknown);
        }
        //= rocev2 §12
        // The active side gave up before it received our communication ID. It identifies itself by its CA GUID.
        let guid = rej.information.first_chunk().map(|guid| u64::from_be_bytes(*guid));
        let guid = guid.filter(|_| rej.reason == RejReason::TIMEOUT && rej.information_len >= 8);
        let guid = guid.ok_or(Ignored::Unknown)?;
        let found = self.conns.slots.find_by_id(guid, rej.local_comm_id, |conn| {
            !conn.datagrams && conn.transaction == self.origin.transaction && self.origin.is_from(conn)
        });
        found.ok_or(Ignored::Unknown)
    }

    pub(super) fn receive_dreq(&mut self, dreq: &DreqRepr) -> Result<(), Ignored> {
        let Origin { now, transaction, .. } = self.origin;
        let Ok(index) = self.find_local(dreq.remote_comm_id, Some(dreq.local_comm_id)) else {
            //= rocev2 §12
            self.answer_drep(dreq)?;
            return Err(Ignored::Unknown);
        };
        let conn = self.conn_mut(index)?;
        //= rocev2 §11
        if dreq.remote_qpn != conn.local.qpn {
            return Err(Ignored::Malformed);
        }
        if conn.state == State::Established && self.queue_pairs.is_failing(self.conns.slots.id_of(index)) {
            // The failure came first.
            self.conns.abort(now, index);
        }
        let conn = self.conn_mut(index)?;
        match conn.state {
            State::Established | State::RepSent => {
                //= rocev2 §12
                // In RepSent the RTU was lost: the peer had completed.
                let mut what = Pending::DISCONNECTED;
                if conn.state == State::RepSent {
                    conn.was_established = true;
                    what |= Pending::ESTABLISHED;
                }
                conn.transaction = transaction;
                self.conns.advance_and_notify(now, index, Input::ReceiveDreq, what);
                Ok(())
            }
            //= R-CONN-94
            State::DreqSent => {
                let what = self.conns.disconnect_done(index, DisconnectOutcome::Graceful);
                self.conns.advance_and_notify(now, index, Input::ReceiveDreq, what);
                self.conns.slots.outbox.remove(index);
                self.answer_drep(dreq)
            }
            State::RepReceived => {
                self.conns.advance_and_notify(now, index, Input::ReceiveDreq, Pending::ABORTED);
                self.answer_drep(dreq)
            }
            State::TimeWait | State::Idle => {
                self.answer_drep(dreq)?;
                Err(Ignored::Duplicate)
            }
            // The consumer was notified.
            State::DreqReceived => Err(Ignored::Duplicate),
            State::ReqSent | State::ReqReceived => Err(Ignored::Unexpected),
        }
    }

    pub(super) fn receive_drep(&mut self, drep: &DrepRepr) -> Result<(), Ignored> {
        let index = self.find_local(drep.remote_comm_id, Some(drep.local_comm_id))?;
        if self.conns.slots.get(index).map(|conn| conn.state) != Some(State::DreqSent) {
            return Err(Ignored::Unexpected);
        }
        let what = self.conns.disconnect_done(index, DisconnectOutcome::Graceful);
        self.conns.advance_and_notify(self.origin.now, index, Input::ReceiveDrep, what);
        self.conns.slots.outbox.remove(index);
        Ok(())
    }

    /// Queues a DREP with the communication IDs of the DREQ.
    fn answer_drep(&mut self, dreq: &DreqRepr) -> Result<(), Ignored> {
        let (remote_id, kind) = (dreq.local_comm_id, AnswerKind::Drep { local_id: dreq.remote_comm_id });
        self.answer(remote_id, kind)
    }
}
