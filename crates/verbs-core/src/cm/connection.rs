// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections of identifiers.

use std::sync::Arc;

use roce::{AcceptSpec, Access, ConnId, ConnectSpec, LocalQp, ReadLimits};
use roce_wire::{Psn, Qpn};

use super::id::{CmId, Phase, PortSpace, State, vector};
use super::of_engine::of_conn;
use crate::device::Device;
use crate::error::Error;
use crate::limits;
use crate::qp::{AddressVector, Mask, QpAttributes, QpState};

/// Code of the RNR NAK timer: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// The Q_Key of datagrams in the port space of UDP.
const Q_KEY: u32 = 0x0123_4567;

/// Parameters of a connect or accept.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParameters<'a> {
    pub private_data: &'a [u8],
    pub reads: ReadLimits,
    pub retries: u8,
    pub rnr_retries: u8,
    pub qpn: u32,
    pub srq: bool,
}

impl CmId {
    fn local_qp(&self, state: &State, parameters: &ConnectParameters<'_>) -> LocalQp {
        LocalQp {
            qpn: Qpn::new(parameters.qpn),
            receive_psn: Psn::new(self.psn),
            srq: parameters.srq,
            retry_count: parameters.retries.min(7),
            rnr_retry_count: parameters.rnr_retries.min(7),
            ack_timeout: state.ack_timeout,
            q_key: (self.space() == PortSpace::Udp).then_some(Q_KEY),
        }
    }

    /// Requests a connection, or for datagrams the queue pair of the peer. An event has the answer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no route was resolved, or a parameter is out of range; [`Error::OutOfMemory`].
    pub fn connect(&self, parameters: &ConnectParameters<'_>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let (Phase::RouteResolved, Some(device), Some(local), Some(remote)) =
            (state.phase, state.device.clone(), state.local, state.remote)
        else {
            return Err(Error::Invalid);
        };
        let spec = ConnectSpec {
            path: device.path_to(remote.ip(), state.traffic_class),
            local_port: local.port(),
            remote_port: remote.port(),
            mtu: device.active_mtu(),
            reads: limited(parameters.reads),
            private_data: parameters.private_data,
            context: self.context(&mut state, &device),
        };
        let local_qp = self.local_qp(&state, parameters);
        let adapter = device.adapter();
        let connection = adapter.engine.connections().connect_unbound(adapter.clock.now(), local_qp, &spec);
        state.connection = Some(connection.map_err(of_conn)?);
        state.phase = Phase::Connecting;
        drop(state);
        device.adapter().attend();
        device.adapter().follow_up();
        Ok(())
    }

    /// Accepts a request. The queue pair is to be ready to receive; one for datagrams ready to send.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no request that waits, or a parameter is out of range.
    pub fn accept(&self, parameters: &ConnectParameters<'_>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let (device, connection) = waiting(&state, Phase::RequestReceived)?;
        let spec = AcceptSpec {
            reads: limited(parameters.reads),
            private_data: parameters.private_data,
            context: self.context(&mut state, &device),
        };
        let local_qp = self.local_qp(&state, parameters);
        let adapter = device.adapter();
        let accepted =
            adapter.engine.connections().accept_unbound(adapter.clock.now(), connection, local_qp, &spec);
        accepted.map_err(of_conn)?;
        state.phase = match self.space() {
            PortSpace::Tcp => Phase::Connecting,
            // The peer does not answer.
            PortSpace::Udp => Phase::Established,
        };
        drop(state);
        device.adapter().attend();
        device.adapter().follow_up();
        Ok(())
    }

    /// Establishes a connection that the peer has accepted. The queue pair is to be ready to send.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none that waits.
    pub fn establish(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let (device, connection) = waiting(&state, Phase::ReplyReceived)?;
        let adapter = device.adapter();
        adapter.engine.connections().complete(adapter.clock.now(), connection).map_err(of_conn)?;
        state.phase = Phase::Established;
        drop(state);
        device.adapter().follow_up();
        Ok(())
    }

    /// Rejects a request, or the peer's acceptance.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none that waits, or the private data is too long.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let mut state = self.state.lock();
        let (device, connection) =
            waiting(&state, Phase::RequestReceived).or_else(|_| waiting(&state, Phase::ReplyReceived))?;
        let adapter = device.adapter();
        adapter
            .engine
            .connections()
            .reject(adapter.clock.now(), connection, private_data)
            .map_err(of_conn)?;
        state.phase = Phase::Ended;
        drop(state);
        device.adapter().follow_up();
        Ok(())
    }

    /// Disconnects, or answers the peer's disconnect. The queue pair is to be in error.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the identifier was never connected.
    pub fn disconnect(&self) -> Result<(), Error> {
        let state = self.state.lock();
        let (Some(device), Some(connection)) = (state.device.clone(), state.connection) else {
            return Err(Error::Invalid);
        };
        let phase = state.phase;
        drop(state);
        let adapter = device.adapter();
        let result = adapter.engine.connections().disconnect(adapter.clock.now(), connection);
        adapter.attend();
        adapter.follow_up();
        match phase {
            // The peer was faster, or the connection is broken: there is nothing left to say.
            Phase::Disconnected => Ok(()),
            _ => result.map_err(of_conn),
        }
    }

    /// Checks that the identifier has or had a connection.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has none.
    pub fn check_connected(&self) -> Result<(), Error> {
        if self.state.lock().connection.is_some() { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Takes a packet of the peer for the message by which it establishes the connection.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no connection that was accepted.
    pub fn traffic_seen(&self) -> Result<(), Error> {
        let (device, connection) = waiting(&self.state.lock(), Phase::Connecting)?;
        let adapter = device.adapter();
        adapter.engine.connections().establish(adapter.clock.now(), connection).map_err(of_conn)?;
        adapter.follow_up();
        Ok(())
    }

    /// Returns the attributes for a change of the queue pair to a state, and which of them to set.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the state needs what the peer has not sent yet, or the identifier has no device.
    pub fn qp_attributes(&self, to: QpState) -> Result<(QpAttributes, Mask), Error> {
        let state = self.state.lock();
        let device = state.device.as_ref().ok_or(Error::Invalid)?;
        let mut attributes = QpAttributes {
            state: to,
            port: 1,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            receive_psn: self.psn,
            rnr_timer: RNR_TIMER,
            q_key: Q_KEY,
            ..QpAttributes::default()
        };
        let mask = match (to, self.space()) {
            (QpState::Init, PortSpace::Tcp) => {
                return Ok((attributes, Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS));
            }
            (QpState::Init, PortSpace::Udp) => {
                return Ok((attributes, Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::Q_KEY));
            }
            (QpState::ReadyToReceive, PortSpace::Udp) => return Ok((attributes, Mask::STATE)),
            (QpState::ReadyToSend, PortSpace::Udp) => {
                return Ok((attributes, Mask::STATE | Mask::SEND_PSN));
            }
            (QpState::ReadyToReceive, PortSpace::Tcp) => {
                Mask::STATE
                    | Mask::PATH
                    | Mask::PATH_MTU
                    | Mask::DESTINATION
                    | Mask::RECEIVE_PSN
                    | Mask::INBOUND_READS
                    | Mask::RNR_TIMER
            }
            (QpState::ReadyToSend, PortSpace::Tcp) => {
                Mask::STATE
                    | Mask::TIMEOUT
                    | Mask::RETRIES
                    | Mask::RNR_RETRIES
                    | Mask::SEND_PSN
                    | Mask::OUTBOUND_READS
            }
            _ => return Err(Error::Invalid),
        };
        let connection = state.connection.ok_or(Error::Invalid)?;
        let peer = device.engine().connections().peer(connection).ok_or(Error::Invalid)?;
        attributes.path = AddressVector { traffic_class: state.traffic_class, ..vector(&peer.path) };
        attributes.path_mtu = peer.mtu;
        attributes.destination = peer.qpn.value();
        attributes.inbound_reads = peer.reads.inbound;
        attributes.outbound_reads = peer.reads.outbound;
        attributes.timeout = peer.ack_timeout;
        attributes.retries = peer.retry_count;
        attributes.rnr_retries = peer.rnr_retry_count;
        attributes.send_psn = peer.send_psn.value();
        Ok((attributes, mask))
    }
}

fn waiting(state: &State, phase: Phase) -> Result<(Arc<Device>, ConnId), Error> {
    match (&state.device, state.connection) {
        (Some(device), Some(connection)) if state.phase == phase => Ok((Arc::clone(device), connection)),
        _ => Err(Error::Invalid),
    }
}

fn limited(reads: ReadLimits) -> ReadLimits {
    ReadLimits { inbound: reads.inbound.min(limits::READS), outbound: reads.outbound.min(limits::READS) }
}
