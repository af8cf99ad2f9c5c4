//! REQ: asks for a connection.

use super::{CommId, ServiceId};
use crate::{
    Gid, MtuCode, Psn, Qpn,
    layout::{Be16, Be20, Be24, Be32, Be64, Bits, Byte, Bytes, Flag, layout, wrapped},
};

/// The kind of connection that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportService(pub u8);

impl TransportService {
    pub const RC: Self = Self(0);
    pub const UC: Self = Self(1);
    pub const RD: Self = Self(2);
    /// See the extended transport type.
    pub const EXTENDED: Self = Self(3);
}

wrapped! {
    TransportService: u8, TransportService, |service: TransportService| service.0;
}

//= rocev2 §11
layout! {
    /// REQ: asks for a connection.
    Req, ReqRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        /// Of vendor options.
        vendor_id: u32 = Be24<5>;
        service_id: ServiceId = Be64<8>;
        /// One for all connections of a node.
        local_ca_guid: u64 = Be64<16>;
        local_q_key: u32 = Be32<28>;
        local_qpn: Qpn = Be24<32>;
        /// READs and atomics that the sender will serve at a time.
        responder_resources: u8 = Byte<35>;
        local_eecn: u32 = Be24<36>;
        /// READs and atomics that the sender wants to have under way at a time.
        initiator_depth: u8 = Byte<39>;
        remote_eecn: u32 = Be24<40>;
        /// How long the sender of the REQ waits for an answer: 4.096 us * 2^code.
        remote_cm_response_timeout: u8 = Bits<43, 7, 3>;
        transport_service: TransportService = Bits<43, 2, 1>;
        end_to_end_flow_control: bool = Flag<43, 0>;
        /// What the receiver of the REQ must begin sending with.
        starting_psn: Psn = Be24<44>;
        /// How long the receiver of the REQ shall wait for an answer to its REP.
        local_cm_response_timeout: u8 = Bits<47, 7, 3>;
        retry_count: u8 = Bits<47, 2, 0>;
        p_key: u16 = Be16<48>;
        path_mtu: MtuCode = Bits<50, 7, 4>;
        rdc_exists: bool = Flag<50, 3>;
        /// For the sends of the receiver of the REQ; 7 for no limit.
        rnr_retry_count: u8 = Bits<50, 2, 0>;
        max_cm_retries: u8 = Bits<51, 7, 4>;
        srq: bool = Flag<51, 3>;
        extended_transport: u8 = Bits<51, 2, 0>;
        /// A [`CmPath`].
        primary_path: [u8; 44] = Bytes<52, 44>;
        /// A [`CmPath`]; all zero for none.
        alternate_path: [u8; 44] = Bytes<96, 44>;
        /// An [`IpCm`](super::IpCm) header and 56 bytes of the consumer's.
        private_data: [u8; 92] = Bytes<140, 92>;
    }
}

//= rocev2 §11
layout! {
    /// A path in a REQ.
    CmPath, CmPathRepr, 44 bytes {
        local_lid: u16 = Be16<0>;
        remote_lid: u16 = Be16<2>;
        local_gid: Gid = Bytes<4, 16>;
        remote_gid: Gid = Bytes<20, 16>;
        /// 20 bits.
        flow_label: u32 = Be20<36>;
        packet_rate: u8 = Bits<39, 5, 0>;
        traffic_class: u8 = Byte<40>;
        hop_limit: u8 = Byte<41>;
        service_level: u8 = Bits<42, 7, 4>;
        subnet_local: bool = Flag<42, 3>;
        /// 4.096 us * 2^code, for the sends of the receiver of the REQ.
        local_ack_timeout: u8 = Bits<43, 7, 3>;
    }
}

impl Req<'_> {
    /// Bytes of private data that the consumer may use.
    pub const CONSUMER_DATA: usize = 56;
}
