// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of a connection: what each says, by the connection's state and the consumer's parameters.
#![allow(clippy::similar_names, reason = "DREQ and DREP are what the protocol calls them")]

use super::{config::CmConfig, conn::Conn, event::LocalQp, state::State};
use crate::conn::{ConnectSpec, ReadLimits};
use roce_wire::{
    Gid, PKEY_DEFAULT,
    cm::{
        CmMessage, CmPath, CmPathRepr, CommId, DrepRepr, DreqRepr, IpCm, IpEnds, RejReason, RejRepr, RepRepr,
        ReqRepr, RespondedMessage, RtuRepr, ServiceId, TransportService, private_data,
    },
};

/// Returns the private data of a REQ or SIDR_REQ: the IP addressing header, then the consumer's. `None` if that is too long.
pub(super) fn request_data<const N: usize>(spec: &ConnectSpec<'_>) -> Option<[u8; N]> {
    let ends =
        IpEnds { source: spec.path.local_ip, source_port: spec.local_port, destination: spec.path.remote_ip };
    let mut area = [0; N];
    let (header, room) = area.split_first_chunk_mut::<{ IpCm::LEN }>()?;
    ends.repr().emit(header);
    room.get_mut(..spec.private_data.len())?.copy_from_slice(spec.private_data);
    Some(area)
}

/// Returns the REQ of a connection.
pub(super) fn req(
    conn: &Conn,
    config: &CmConfig,
    spec: &ConnectSpec<'_>,
    flow_label: u32,
    private_data: [u8; 92],
) -> CmMessage {
    let (path, local) = (conn.path, conn.local);
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
    CmMessage::Req(ReqRepr {
        local_comm_id: conn.local_id,
        vendor_id: 0,
        service_id: ServiceId::port(spec.remote_port),
        local_ca_guid: config.ca_guid,
        local_q_key: 0,
        local_qpn: local.qpn,
        responder_resources: conn.reads.inbound,
        local_eecn: 0,
        initiator_depth: conn.reads.outbound,
        remote_eecn: 0,
        remote_cm_response_timeout: config.response_timeout,
        transport_service: TransportService::RC,
        end_to_end_flow_control: false,
        starting_psn: local.receive_psn,
        local_cm_response_timeout: config.response_timeout,
        retry_count: local.retry_count,
        p_key: PKEY_DEFAULT,
        path_mtu: spec.mtu.code(),
        rdc_exists: false,
        rnr_retry_count: local.rnr_retry_count,
        max_cm_retries: config.max_retries,
        srq: local.srq,
        extended_transport: 0,
        primary_path,
        alternate_path: [0; CmPath::LEN],
        private_data,
    })
}

/// Returns the REP that accepts a request with the queue pair `local`.
pub(super) fn rep(
    conn: &Conn,
    config: &CmConfig,
    local: &LocalQp,
    reads: ReadLimits,
    private_data: [u8; 196],
) -> CmMessage {
    CmMessage::Rep(RepRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        local_q_key: 0,
        local_qpn: local.qpn,
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: local.receive_psn,
        responder_resources: reads.inbound,
        initiator_depth: reads.outbound,
        target_ack_delay: config.target_ack_delay,
        //= rocev2 §11
        failover_accepted: conn.failover_accepted,
        end_to_end_flow_control: false,
        rnr_retry_count: local.rnr_retry_count,
        srq: local.srq,
        local_ca_guid: config.ca_guid,
        private_data,
    })
}

/// Returns the RTU that completes a connection.
pub(super) fn rtu(conn: &Conn) -> CmMessage {
    CmMessage::Rtu(RtuRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        private_data: [0; 224],
    })
}

/// Returns the REJ that withdraws an unanswered REQ. The peer's communication ID is not known, so the REJ carries
/// the local CA GUID.
pub(super) fn timeout_rej(conn: &Conn, ca_guid: u64) -> CmMessage {
    let mut information = [0; 72];
    if let Some(guid) = information.first_chunk_mut() {
        *guid = ca_guid.to_be_bytes();
    }
    CmMessage::Rej(RejRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: CommId(0),
        message_rejected: RespondedMessage::OTHER,
        information_len: 8,
        reason: RejReason::TIMEOUT,
        information,
        private_data: [0; 148],
    })
}

/// Returns the REJ that refuses the peer's last message.
pub(super) fn rej(conn: &Conn, reason: RejReason, data: &[u8]) -> CmMessage {
    CmMessage::Rej(RejRepr {
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
    })
}

/// Returns the DREQ that disconnects.
pub(super) fn dreq(conn: &Conn) -> CmMessage {
    CmMessage::Dreq(DreqRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        remote_qpn: conn.peer.qpn,
        private_data: [0; 220],
    })
}

/// Returns the DREP that answers the peer's DREQ.
pub(super) fn drep(conn: &Conn) -> CmMessage {
    CmMessage::Drep(DrepRepr {
        local_comm_id: conn.local_id,
        remote_comm_id: conn.remote_id,
        private_data: [0; 224],
    })
}
