// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands of the consumer, for connections and listeners.

use super::{
    Cm,
    addresses::is_unicast,
    conn::Pending,
    event::{LocalQp, PeerQp, is_user_qpn},
    messages,
    state::Input,
};
use crate::{
    conn::{AcceptSpec, ConnId, ConnectSpec, ListenSpec, ListenerId, PrivateData, ReadLimits},
    error::ConnError,
    time::Instant,
};
use roce_wire::{
    Attribute, MacAddr, PKEY_DEFAULT, Psn, Qpn,
    cm::{RejReason, ServiceId, SidrReqRepr, SidrStatus, private_data},
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
    /// [`ConnError::Invalid`] if the path mixes address families, the destination is not unicast, the MTU is
    /// too large, or no message can carry the queue pair's parameters; [`ConnError::NotLocal`] if the path's source is
    /// not a local address; [`ConnError::PrivateDataTooLong`] for more than 56 bytes; [`ConnError::OutOfMemory`],
    /// [`ConnError::TooMany`].
    pub fn connect(
        &mut self,
        now: Instant,
        spec: &ConnectSpec<'_>,
        local: LocalQp,
    ) -> Result<ConnId, ConnError> {
        let path = spec.path;
        if path.local_ip.is_ipv4() != path.remote_ip.is_ipv4()
            || !is_unicast(path.remote_ip, self.conns.config.loopback)
            || spec.mtu > self.conns.config.max_mtu
            || local.q_key.is_none() && !local.is_valid()
        {
            return Err(ConnError::Invalid);
        }
        //= R-CONN-2
        if !self.addresses.contains(path.local_ip) {
            return Err(ConnError::NotLocal);
        }
        if local.q_key.is_some() {
            return self.resolve(now, spec);
        }
        let private_data = messages::request_data(spec).ok_or(ConnError::PrivateDataTooLong)?;
        //= R-CONN-20
        let reads = spec.reads.lowered(self.conns.config.reads);
        let peer = PeerQp {
            qpn: Qpn::default(),
            send_psn: Psn::default(),
            mtu: spec.mtu,
            reads,
            retry_count: local.retry_count,
            rnr_retry_count: 0,
            ack_timeout: local.ack_timeout,
            q_key: 0,
            path,
        };
        let index = self.conns.create(now, |conn| {
            conn.owned = true;
            conn.context = spec.context;
            conn.path = path;
            conn.local_port = spec.local_port;
            conn.remote_port = spec.remote_port;
            conn.local = local;
            conn.peer = peer;
            conn.reads = reads;
        })?;
        let transaction = self.conns.random.next_u64();
        let flow_label = self.conns.random.next_u32() & 0x000F_FFFF;
        let conn = self.conns.slots.get_mut(index).ok_or(ConnError::Unknown)?;
        conn.transaction = transaction;
        let req = messages::req(conn, &self.conns.config, spec, flow_label, private_data);
        self.conns.advance_and_send(now, index, Input::Connect, &req);
        Ok(self.conns.slots.id_of(index))
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
    /// [`ConnError::PrivateDataTooLong`] for more than 196 bytes; [`ConnError::Unknown`]; [`ConnError::Invalid`] if no message can
    /// carry the queue pair's parameters.
    pub fn accept(
        &mut self,
        now: Instant,
        id: ConnId,
        spec: &AcceptSpec<'_>,
        local: LocalQp,
    ) -> Result<ReadLimits, ConnError> {
        let (index, conn) = self.conns.slots.resolve(id)?;
        if conn.datagrams {
            return self.answer(now, index, spec, local);
        }
        let private_data = private_data(spec.private_data).ok_or(ConnError::PrivateDataTooLong)?;
        if !local.is_valid() || local.q_key.is_some() {
            return Err(ConnError::Invalid);
        }
        if conn.state.on(Input::Accept).is_err() {
            return Err(ConnError::State);
        }
        //= R-CONN-21
        //= R-CONN-25
        let reads = spec.reads.lowered(conn.peer.reads);
        let rep = messages::rep(conn, &self.conns.config, &local, reads, private_data);
        if let Some(conn) = self.conns.slots.get_mut(index) {
            conn.local = local;
            conn.reads = reads;
            conn.peer.reads = reads;
            conn.context = spec.context;
        }
        self.conns.advance_and_send(now, index, Input::Accept, &rep);
        Ok(reads)
    }

    /// Completes a connection that the peer has accepted: sends an RTU. The connection is established.
    ///
    /// # Errors
    /// [`ConnError::State`] if no REP has arrived or the peer has given up; [`ConnError::Unknown`].
    pub fn complete(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, conn) = self.conns.slots.resolve(id)?;
        let rtu = messages::rtu(conn);
        self.conns.advance_and_send(now, index, Input::Complete, &rtu).then_some(()).ok_or(ConnError::State)
    }

    /// Refuses a request, or a connection that the peer has accepted: sends a REJ.
    ///
    /// # Errors
    /// [`ConnError::State`] if there is no REQ or REP to refuse, or the peer has given up;
    /// [`ConnError::PrivateDataTooLong`] for more than 148 bytes; [`ConnError::Unknown`].
    //= R-CONN-36
    pub fn reject(&mut self, now: Instant, id: ConnId, data: &[u8]) -> Result<(), ConnError> {
        let (index, conn) = self.conns.slots.resolve(id)?;
        if data.len() > if conn.datagrams { PrivateData::MAX_ANSWER } else { PrivateData::MAX_REJECT } {
            return Err(ConnError::PrivateDataTooLong);
        }
        if conn.state.on(Input::Reject).is_err() {
            return Err(ConnError::State);
        }
        self.conns.refuse(now, index, RejReason::CONSUMER, data);
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
        self.conns.disconnect(now, id)
    }

    /// Disconnects a connection whose queue pair has failed, see [`Cm::disconnect`]. If it is established, the [`Cm::abort`] that
    /// follows ends the disconnect.
    ///
    /// # Errors
    /// Those of [`Cm::disconnect`].
    pub fn disconnect_failing(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        self.conns.disconnect_failing(now, id)
    }

    /// Returns the consumer's context of a connection; `None` if it was released.
    pub fn context(&self, id: ConnId) -> Option<u64> {
        self.conns.slots.resolve(id).ok().map(|(_, conn)| conn.context)
    }

    /// Returns the time from a message of this side to the first answer while a connection was established, in nanoseconds: a round trip, and
    /// what the peer's consumer took. `None` if the message was sent more than once.
    pub fn round_trip(&self, id: ConnId) -> Option<u64> {
        self.conns.slots.resolve(id).ok().and_then(|(_, conn)| conn.round_trip)
    }

    /// Changes the MAC address to which messages of a connection are sent.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn set_next_hop(&mut self, id: ConnId, mac: MacAddr) -> Result<(), ConnError> {
        let (index, _) = self.conns.slots.resolve(id)?;
        if let Some(conn) = self.conns.slots.get_mut(index) {
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
        let (index, _) = self.conns.slots.resolve(id)?;
        self.conns.abort(now, index);
        Ok(())
    }

    /// Reports that a valid packet of the peer arrived on the queue pair: it takes the place of a lost RTU.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn traffic_seen(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        let (index, _) = self.conns.slots.resolve(id)?;
        if let Some(conn) = self.conns.slots.get_mut(index) {
            conn.measure_round_trip(now);
        }
        //= rocev2 §12
        self.conns.advance_and_notify(now, index, Input::Traffic, Pending::ESTABLISHED);
        Ok(())
    }

    /// Releases a connection. It is torn down in the background; no event follows, and the handle is invalid.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn release(&mut self, now: Instant, id: ConnId) -> Result<(), ConnError> {
        self.conns.release(now, id)
    }
}

/// Service ID resolution.
impl Cm {
    /// Asks the peer for the queue pair of a datagram service: sends a SIDR_REQ, with retries. Ends with
    /// [`CmEventKind::Replied`](super::CmEventKind::Replied), [`CmEventKind::Refused`](super::CmEventKind::Refused) or
    /// [`CmEventKind::TimedOut`](super::CmEventKind::TimedOut).
    ///
    /// # Errors
    /// Those of [`Cm::connect`], whose checks have passed; the private data may have 180 bytes.
    #[inline(never)]
    fn resolve(&mut self, now: Instant, spec: &ConnectSpec<'_>) -> Result<ConnId, ConnError> {
        let private_data: [u8; 216] = messages::request_data(spec).ok_or(ConnError::PrivateDataTooLong)?;
        let transaction = self.conns.random.next_u64();
        let index = self.conns.create(now, |conn| {
            conn.owned = true;
            conn.datagrams = true;
            conn.context = spec.context;
            conn.path = spec.path;
            conn.local_port = spec.local_port;
            conn.remote_port = spec.remote_port;
            conn.peer = PeerQp { mtu: spec.mtu, path: spec.path, ..conn.peer };
            conn.transaction = transaction;
        })?;
        let service_id = ServiceId::datagram_port(spec.remote_port);
        let retries = self.conns.config.max_retries;
        self.conns.advance_and_emit(now, index, Input::Connect, (Attribute::CM_SIDR_REQ, retries), |conn| {
            let request =
                SidrReqRepr { request_id: conn.local_id, p_key: PKEY_DEFAULT, service_id, private_data };
            request.emit_datagram(conn.transaction, &mut conn.message);
        });
        Ok(self.conns.slots.id_of(index))
    }

    /// Answers a request with the queue pair `local`.
    ///
    /// # Errors
    /// [`ConnError::State`] if it was answered or has ended; [`ConnError::PrivateDataTooLong`] for more than 136 bytes;
    /// [`ConnError::Invalid`] if no message can carry the queue pair's parameters.
    #[inline(never)]
    fn answer(
        &mut self,
        now: Instant,
        index: u32,
        spec: &AcceptSpec<'_>,
        local: LocalQp,
    ) -> Result<ReadLimits, ConnError> {
        let data = private_data(spec.private_data).ok_or(ConnError::PrivateDataTooLong)?;
        let q_key = local.q_key.filter(|_| is_user_qpn(local.qpn)).ok_or(ConnError::Invalid)?;
        let answered = self.conns.reply(now, index, Input::Answer, |reply| {
            (reply.status, reply.qpn, reply.q_key) = (SidrStatus::VALID, local.qpn, q_key);
            reply.private_data = data;
        });
        if !answered {
            return Err(ConnError::State);
        }
        if let Some(conn) = self.conns.slots.get_mut(index) {
            conn.context = spec.context;
        }
        Ok(ReadLimits::default())
    }
}

/// Listeners.
impl Cm {
    /// Creates a listener.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`] if another listener has the port on an overlapping address;
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`].
    pub fn listen(&mut self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        self.conns.listeners.add(spec, self.conns.config.max_listeners)
    }

    /// Pauses or resumes a listener. While paused, requests are refused as for a port without listener. A pause
    /// refuses requests that were not reported to the consumer yet; reported ones stay.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    //= R-CONN-59
    //= R-CONN-60
    //= R-CONN-61
    pub fn pause(&mut self, now: Instant, id: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.conns.listeners.pause(id, paused)?;
        if paused {
            self.conns.refuse_unreported(now, id);
        }
        Ok(())
    }

    /// Removes a listener. Requests that were not reported to the consumer yet are refused; reported ones stay.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    pub fn unlisten(&mut self, now: Instant, id: ListenerId) -> Result<(), ConnError> {
        self.conns.refuse_unreported(now, id);
        self.conns.listeners.remove(id)
    }
}
