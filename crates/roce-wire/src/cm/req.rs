// SPDX-License-Identifier: MIT OR Apache-2.0

//! REQ: request for communication.

use super::ids::{CommId, ServiceId};
use crate::{
    gid::Gid,
    layout::layout,
    mtu::MtuCode,
    place::{Be16, Be24, Be32, Be64, Bits, Bits24, Byte, Bytes, Flag},
    psn::Psn,
    qpn::Qpn,
    value::newtypes,
};

/// The transport service type of the requested connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportService(pub u8);

impl TransportService {
    pub const RC: Self = Self(0);
    pub const UC: Self = Self(1);
    pub const RD: Self = Self(2);
    /// Given by the extended transport type.
    pub const EXTENDED: Self = Self(3);
}

newtypes! {
    TransportService: u8, TransportService, |service: TransportService| service.0;
}

//= rocev2 §11
layout! {
    /// REQ: request for communication.
    Req, ReqRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        /// Vendor of vendor-specific options.
        vendor_id: u32 = Be24<5>;
        service_id: ServiceId = Be64<8>;
        /// The same for all connections of a node.
        local_ca_guid: u64 = Be64<16>;
        local_q_key: u32 = Be32<28>;
        local_qpn: Qpn = Be24<32>;
        /// Outstanding READs and atomics that the sender serves.
        responder_resources: u8 = Byte<35>;
        local_eecn: u32 = Be24<36>;
        /// Outstanding READs and atomics that the sender wants to issue.
        initiator_depth: u8 = Byte<39>;
        remote_eecn: u32 = Be24<40>;
        /// Time that the sender of the REQ waits for a reply: 4.096 us * 2^code.
        remote_cm_response_timeout: u8 = Bits<43, 7, 3>;
        transport_service: TransportService = Bits<43, 2, 1>;
        end_to_end_flow_control: bool = Flag<43, 0>;
        /// First PSN that the receiver of the REQ sends.
        starting_psn: Psn = Be24<44>;
        /// Time that the receiver of the REQ waits for a reply to its REP: 4.096 us * 2^code.
        local_cm_response_timeout: u8 = Bits<47, 7, 3>;
        retry_count: u8 = Bits<47, 2, 0>;
        p_key: u16 = Be16<48>;
        path_mtu: MtuCode = Bits<50, 7, 4>;
        rdc_exists: bool = Flag<50, 3>;
        /// For requests that the receiver of the REQ sends; 7 means no limit.
        rnr_retry_count: u8 = Bits<50, 2, 0>;
        max_cm_retries: u8 = Bits<51, 7, 4>;
        srq: bool = Flag<51, 3>;
        extended_transport: u8 = Bits<51, 2, 0>;
        /// A [`CmPath`].
        primary_path: [u8; 44] = Bytes<52, 44>;
        /// A [`CmPath`]; all zeros for none.
        alternate_path: [u8; 44] = Bytes<96, 44>;
        /// An [`IpCm`](super::IpCm) header and 56 bytes for the consumer.
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
        flow_label: u32 = Bits24<36, 23, 4>;
        packet_rate: u8 = Bits<39, 5, 0>;
        traffic_class: u8 = Byte<40>;
        hop_limit: u8 = Byte<41>;
        service_level: u8 = Bits<42, 7, 4>;
        subnet_local: bool = Flag<42, 3>;
        /// 4.096 us * 2^code, for requests that the receiver of the REQ sends.
        local_ack_timeout: u8 = Bits<43, 7, 3>;
    }
}

impl Req<'_> {
    /// Bytes of private data available to the consumer.
    pub const CONSUMER_DATA: usize = 56;
}
