// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands of the consumer.
#![allow(clippy::similar_names, reason = "DREQ and DREP are what the protocol calls them")]

use super::{
    Cm, Conn, DisconnectProgress, LocalQp, PeerQp, Pending, State, addresses::is_unicast, conn_id,
    state::Input,
};
use crate::{
    conn::{AcceptSpec, ConnId, ConnectSpec, DisconnectOutcome, PrivateData, ReadLimits},
    error::ConnError,
    time::Instant,
};
use roce_wire::{
    Gid, MacAddr, PKEY_DEFAULT, Psn, Qpn,
    cm::{
        CmMessage, CmPath, CmPathRepr, CommId, DrepRepr, DreqRepr, IpCm, IpEnds, RejReason, RejRepr, RepRepr,
        ReqRepr, RespondedMessage, RtuRepr, ServiceId, TransportService, private_data,
    },
};

impl Cm {
    /// Requests a connection: sends a REQ, with retries. Ends with [`CmEventKind::Replied`],
    /// [`CmEventKind::Refused`] or [`CmEventKind::TimedOut`].
    ///
    /// [`CmEventKind::Replied`]: super::CmEventKind::Replied
    /// [`CmEventKind::Refused`]: super::CmEventKind::Refused
    /// [`CmEventKind::TimedOut`]: super::CmEventKind::TimedOut
    ///
    /// # Errors
    /// [`ConnError::Invalid`] if the path mixes address families, the destination is not unicast, or the MTU is
    /// too large; [`ConnError::NotLocal`] if the path's source is not a local address;
    /// [`ConnError::PrivateDataTooLong`] for more than 56 bytes; [`ConnError::OutOfMemory`],
    /// [`ConnError::TooMany`].
    pub fn connect(
        &mut self,
        now: Instant,
        spec: &ConnectSpec<'_>,
        local: LocalQp,
    ) -> Result<ConnId, ConnError> {
        let path = spec.path;
        if path.local_ip.is_ipv4() != path.remote_ip.is_ipv4()
            || !is_unicast(path.remote_ip)
            || spec.mtu > self.config.max_mtu
        {
            return Err(ConnError::Invalid);
        }
        //= R-CONN-2
        if !self.addresses.contains(path.local_ip) {
            return Err(ConnError::NotLocal);
        }
        let ends =
            IpEnds { source: path.local_ip, source_port: spec.local_port, destination: path.remote_ip };
        let area = request_data(&ends, spec.private_data).ok_or(ConnError::PrivateDataTooLong)?;
        //= R-CONN-20
        let reads = spec.reads.lowered(self.config.reads);
        let peer = PeerQp {
            qpn: Qpn::default(),
            send_psn: Psn::default(),
            mtu: spec.mtu,
            reads,
            retry_count: local.retry_count,
            rnr_retry_count: 0,
            ack_timeout: local.ack_timeout,
            path,
        };
        let index = self.create(now, |conn| {
            conn.owned = true;
            conn.context = spec.context;
            conn.path = path;
            conn.local_port = spec.local_port;
            conn.remote_port = spec.remote_port;
            conn.local = local;
            conn.peer = peer;
            conn.reads = reads;
        })?;
        let transaction = self.prf.random();
        let flow_label = self.prf.random() as u32 & 0x000F_FFFF;
        let conn = self.conns.get_mut(index).ok_or(ConnError::Unknown)?;
        conn.transaction = transaction;
        let mut primary_path = [0; CmPath::LEN];
        let request_path = CmPathRepr {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            local_gid: Gid::from(path.local_ip),
            remote_gid: Gid::from(path.remote_ip),
            flow_label,
            packet_rate: 0,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            service_level: path.traffic_class >> 5,
            subnet_local: false,
            local_ack_timeout: local.ack_timeout,
        };
        request_path.emit(&mut primary_path);
        let req = ReqRepr {
            local_comm_id: conn.local_id,
            vendor_id: 0,
            service_id: ServiceId::port(spec.remote_port),
            local_ca_guid: self.config.ca_guid,
            local_q_key: 0,
            local_qpn: local.qpn,
            responder_resources: reads.inbound,
            local_eecn: 0,
            initiator_depth: reads.outbound,
            remote_eecn: 0,
            remote_cm_response_timeout: self.config.response_timeout,
            transport_service: TransportService::RC,
            end_to_end_flow_control: false,
            starting_psn: local.receive_psn,
            local_cm_response_timeout: self.config.response_timeout,
            retry_count: local.retry_count,
            p_key: PKEY_DEFAULT,
            path_mtu: spec.mtu.code(),
            rdc_exists: false,
            rnr_retry_count: local.rnr_retry_count,
            max_cm_retries: self.config.max_retries,
            srq: local.srq,
            extended_transport: 0,
            primary_path,
            alternate_path: [0; CmPath::LEN],
            private_data: area,
        };
        self.advance_and_send(now, index, Input::Connect, &CmMessage::Req(req));
        Ok(self.id_of(index))
    }

    /// Accepts a request: sends a REP, with retries. Ends with [`CmEventKind::Established`],
    /// [`CmEventKind::Refused`] or [`CmEventKind::TimedOut`]. Returns the negotiated read limits. The queue pair must
    /// be in RTR before the REP is sent.
    ///
    /// [`CmEventKind::Established`]: super::CmEventKind::Established
    /// [`CmEventKind::Refused`]: super::CmEventKind::Refused
    /// [`CmEventKind::TimedOut`]: super::CmEventKind::TimedOut
    ///
    /// # Errors
    /// [`ConnError::State`] if the peer has given up or the request was answered already;
    /// [`ConnError::PrivateDataTooLong`] for more than 196 bytes; [`ConnError::Unknown`].
    pub fn accept(
        &mut self,
        now: Instant,
        id: ConnId,
        spec: &AcceptSpec<'_>,
        local: LocalQp,
    ) -> Result<ReadLimits, ConnError> {
        let (index, conn) = self.resolve(id)?;
        let private_data = private_data(spec.private_data).ok_or(ConnError::PrivateDataTooLong)?;
        if conn.state.on(Input::Accept).is_err() {
            return Err(ConnError::State);
        }
        //= R-CONN-21
        //= R-CONN-25
        let reads = spec.reads.lowered(conn.peer.reads);
        let rep = RepRepr {
            local_comm_id: conn.local_id,
            remote_comm_id: conn.remote_id,
            local_q_key: 0,
            local_qpn: local.qpn,
            vendor_id: 0,
            local_eecn: 0,
            starting_psn: local.receive_psn,
            responder_resources: reads.inbound,
            initiator_depth: reads.outbound,
            target_ack_delay: self.config.target_ack_delay,
            //= rocev2 §11
            failover_accepted: conn.failover_accepted,
            end_to_end_flow_control: false,
            rnr_retry_count: local.rnr_retry_count,
            srq: local.srq,
            local_ca_guid: self.config.ca_guid,
            private_data,
        };
        if let Some(conn) = self.conns.get_mut(index) {
            conn.local = local;
            conn.reads = reads;
            conn.peer.reads = reads;
            conn.context = spec.context;
        }
        self.advance_and_send(now, index, Input::Accept, &CmMessage::Rep(rep));
        Ok(reads)
    }

    /// Completes a connection that the peer has accepted: sends an RTU. The connection is established.
    ///
    /// # Errors
    /// [`ConnError::State`] if no REP has arrived or the peer has given up; [`ConnError::Unknown`].
    pub fn complete(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.resolve(id)?;
        let rtu =
            RtuRepr { local_comm_id: conn.local_id, remote_comm_id: conn.remote_id, private_data: [0; 224] };
        self.advance_and_send(now, index, Input::Complete, &CmMessage::Rtu(rtu))
            .then_some(())
            .ok_or(ConnError::State)
    }

    /// Refuses a request, or a connection that the peer has accepted: sends a REJ.
    ///
    /// # Errors
    /// [`ConnError::State`] if there is no REQ or REP to refuse, or the peer has given up;
    /// [`ConnError::PrivateDataTooLong`] for more than 148 bytes; [`ConnError::Unknown`].
    //= R-CONN-36
    pub fn reject(&mut self, now: Instant, id: ConnId, data: &[u8]) -> Result<(), ConnError> {
        let (index, conn) = self.resolve(id)?;
        if data.len() > PrivateData::MAX_REJECT {
            return Err(ConnError::PrivateDataTooLong);
        }
        if conn.state.on(Input::Reject).is_err() {
            return Err(ConnError::State);
        }
        self.refuse(now, index, RejReason::CONSUMER, data);
        Ok(())
    }

    /// Disconnects: sends a DREQ, with retries, or a DREP if the peer has sent a DREQ. Ends with
    /// [`CmEventKind::DisconnectDone`], at once if the peer has disconnected or the connection is broken.
    ///
    /// [`CmEventKind::DisconnectDone`]: super::CmEventKind::DisconnectDone
    ///
    /// # Errors
    /// [`ConnError::State`] if the connection was never established or was disconnected before;
    /// [`ConnError::Unknown`].
    pub fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.resolve(id)?;
        if !conn.was_established || conn.disconnect_progress != DisconnectProgress::None {
            return Err(ConnError::State);
        }
        let first = conn.state == State::Established;
        let message = match conn.state {
            State::Established => Some(dreq(conn)),
            State::DreqReceived => Some(drep(conn)),
            _ => None,
        };
        if let Some(conn) = self.conns.get_mut(index) {
            conn.disconnect_progress = DisconnectProgress::Requested;
        }
        let sent = message.is_some_and(|m| self.advance_and_send(now, index, Input::Disconnect, &m));
        //= R-CONN-81, R-CONN-91
        if !first {
            let outcome = if sent { DisconnectOutcome::Graceful } else { DisconnectOutcome::Aborted };
            self.notify_disconnect_done(index, outcome);
        }
        Ok(())
    }

    /// As [`Cm::disconnect`], of a connection whose queue pair has failed. If it is established, the [`Cm::abort`] that follows
    /// ends the disconnect.
    ///
    /// # Errors
    /// As [`Cm::disconnect`].
    pub fn disconnect_failing(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.resolve(id)?;
        if conn.state != State::Established {
            return self.disconnect(now, id);
        }
        if conn.disconnect_progress != DisconnectProgress::None {
            return Err(ConnError::State);
        }
        if let Some(conn) = self.conns.get_mut(index) {
            conn.disconnect_progress = DisconnectProgress::Requested;
        }
        Ok(())
    }

    /// Returns the consumer's context of a connection; `None` if it was released.
    pub fn context(&self, id: ConnId) -> Option<u64> {
        self.resolve(id).ok().map(|(_, conn)| conn.context)
    }

    /// Changes the MAC address to which messages of a connection are sent.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn set_next_hop(&mut self, id: ConnId, mac: MacAddr) -> Result<(), ConnError> {
        let (index, _) = self.resolve(id)?;
        if let Some(conn) = self.conns.get_mut(index) {
            conn.path.remote_mac = mac;
            conn.peer.path.remote_mac = mac;
        }
        Ok(())
    }

    /// Aborts a connection whose queue pair has failed. Reports [`CmEventKind::Aborted`] unless the end of the
    /// connection was reported already.
    ///
    /// [`CmEventKind::Aborted`]: super::CmEventKind::Aborted
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn abort(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, _) = self.resolve(id)?;
        self.abort_conn(now, index);
        Ok(())
    }

    /// Reports that a valid packet of the peer arrived on the queue pair: it takes the place of a lost RTU.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn traffic_seen(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, _) = self.resolve(id)?;
        //= rocev2 §12
        self.advance_and_notify(now, index, Input::Traffic, Pending::ESTABLISHED);
        Ok(())
    }

    /// Releases a connection. It is torn down in the background; no event follows, and the handle is invalid.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    //= R-CONN-89
    //= R-CONN-96
    pub fn release(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.resolve(id)?;
        let state = conn.state;
        if let Some(conn) = self.conns.get_mut(index) {
            conn.owned = false;
            conn.pending = Pending::empty();
        }
        self.pending_events.remove(index);
        match state {
            State::Idle => self.forget(index),
            State::DreqReceived => {
                if let Some(message) = self.conns.get(index).map(drep) {
                    self.advance_and_send(now, index, Input::Disconnect, &message);
                }
            }
            _ => self.abort_conn(now, index),
        }
        self.update_reclaimable(index);
        Ok(())
    }

    /// Aborts a connection in any state: notifies the peer, and the consumer unless it has released it.
    pub(super) fn abort_conn(&mut self, now: Instant, index: u32) {
        let is_established = self.conns.get(index).is_some_and(|conn| conn.state == State::Established);
        self.end(now, index, Input::Abort, RejReason::CONSUMER);
        if is_established {
            // A disconnect was requested while the queue pair was failing.
            self.notify_disconnect_done(index, DisconnectOutcome::Aborted);
        }
    }

    /// Aborts a connection whose local address was removed. The message to the peer is sent once.
    //= R-CONN-101
    pub(super) fn abort_without_address(&mut self, now: Instant, index: u32) {
        let done = self.disconnect_done(index, DisconnectOutcome::AddressRemoved);
        self.end(now, index, Input::LoseAddress, RejReason::CONSUMER);
        if let Some(conn) = self.conns.get_mut(index) {
            conn.notify(done);
            self.queue_event(index);
        }
    }

    /// Ends a connection by `input`; notifies the consumer and the peer unless they know. `reason` is for the REJ
    /// to a peer that is still connecting.
    pub(super) fn end(&mut self, now: Instant, index: u32, input: Input, reason: RejReason) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.state.on(input).is_err() {
            return;
        }
        let message = match conn.state {
            State::Established => Some(dreq(conn)),
            State::DreqReceived => Some(drep(conn)),
            //= rocev2 §12
            State::ReqSent => Some(CmMessage::Rej(timeout_rej(conn, self.config.ca_guid))),
            State::ReqReceived | State::RepReceived | State::RepSent => {
                Some(CmMessage::Rej(rej(conn, reason, &[])))
            }
            _ => None,
        };
        if !matches!(conn.state, State::DreqSent | State::DreqReceived) {
            conn.notify(Pending::ABORTED);
            self.queue_event(index);
        }
        match message {
            Some(message) => self.advance_and_send(now, index, input, &message),
            None => self.advance(now, index, input),
        };
    }

    /// Refuses a request or a reply.
    pub(super) fn refuse(&mut self, now: Instant, index: u32, reason: RejReason, data: &[u8]) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        // The REJ may be lost: a duplicate REQ or REP draws it again.
        conn.time_wait = conn.time_wait.max(conn.interval.min(MAX_REFUSAL_MEMORY).saturating_mul(2));
        let message = CmMessage::Rej(rej(conn, reason, data));
        self.advance_and_send(now, index, Input::Reject, &message);
    }

    /// Reports the end of a disconnect that needs no answer of the peer.
    fn notify_disconnect_done(&mut self, index: u32, outcome: DisconnectOutcome) {
        let what = self.disconnect_done(index, outcome);
        if let Some(conn) = self.conns.get_mut(index) {
            conn.notify(what);
            self.queue_event(index);
        }
    }

    /// Creates a connection in state `Idle` and initializes it by `fill`.
    pub(super) fn create(&mut self, now: Instant, fill: impl FnOnce(&mut Conn)) -> Result<u32, ConnError> {
        self.make_room(now)?;
        let (index, generation) = self.conns.claim().ok_or(ConnError::TooMany)?;
        let local_id = self.comm_id(index, generation);
        let conn = self.conns.get_mut(index).ok_or(ConnError::TooMany)?;
        conn.generation = generation;
        conn.local_id = local_id;
        conn.interval = self.config.interval();
        conn.time_wait = self.config.time_wait;
        fill(conn);
        Ok(index)
    }

    pub(super) fn id_of(&self, index: u32) -> ConnId {
        conn_id(index, self.conns.get(index).map_or(0, |conn| conn.generation))
    }
}

/// Half of the maximum time for which a refusal is remembered.
const MAX_REFUSAL_MEMORY: core::time::Duration = core::time::Duration::from_secs(5);

/// Returns the private data of a REQ: the IP addressing header, then the consumer's. `None` if that is too long.
fn request_data(ends: &IpEnds, data: &[u8]) -> Option<[u8; 92]> {
    let mut area = [0; 92];
    let (header, room) = area.split_first_chunk_mut::<{ IpCm::LEN }>()?;
    ends.repr().emit(header);
    room.get_mut(..data.len())?.copy_from_slice(data);
    Some(area)
}

/// Returns the REJ that withdraws an unanswered REQ. The peer's communication ID is not known, so the REJ carries
/// the local CA GUID.
fn timeout_rej(conn: &Conn, ca_guid: u64) -> RejRepr {
    let mut information = [0; 72];
    if let Some(guid) = information.first_chunk_mut() {
        *guid = ca_guid.to_be_bytes();
    }
    RejRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: CommId(0),
        message_rejected: RespondedMessage::OTHER,
        information_len: 8,
        reason: RejReason::TIMEOUT,
        information,
        private_data: [0; 148],
    }
}

/// Returns the REJ that refuses the peer's last message.
pub(super) fn rej(conn: &Conn, reason: RejReason, data: &[u8]) -> RejRepr {
    RejRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        message_rejected: match conn.state {
            State::ReqReceived => RespondedMessage::REQ,
            State::RepReceived | State::ReqSent => RespondedMessage::REP,
            _ => RespondedMessage::OTHER,
        },
        information_len: 0,
        reason,
        information: [0; 72],
        private_data: private_data(data).unwrap_or([0; 148]),
    }
}

fn dreq(conn: &Conn) -> CmMessage {
    CmMessage::Dreq(DreqRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        remote_qpn: conn.peer.qpn,
        private_data: [0; 220],
    })
}

pub(super) fn drep(conn: &Conn) -> CmMessage {
    CmMessage::Drep(DrepRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        private_data: [0; 224],
    })
}
