// SPDX-License-Identifier: MIT OR Apache-2.0

//! REP: reply to a request for communication.

use super::ids::CommId;
use crate::{
    layout::layout,
    place::{Be24, Be32, Be64, Bits, Byte, Bytes, Flag, Split24},
    psn::Psn,
    qpn::Qpn,
};

//= rocev2 §11
layout! {
    /// REP: reply to a request for communication.
    Rep, RepRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        local_q_key: u32 = Be32<8>;
        local_qpn: Qpn = Be24<12>;
        /// Vendor of vendor-specific options.
        vendor_id: u32 = Split24<15, 19, 23>;
        local_eecn: u32 = Be24<16>;
        /// First PSN that the receiver of the REP sends.
        starting_psn: Psn = Be24<20>;
        /// Outstanding READs and atomics that the sender serves.
        responder_resources: u8 = Byte<24>;
        /// Outstanding READs and atomics that the sender wants to issue.
        initiator_depth: u8 = Byte<25>;
        /// 4.096 us * 2^code.
        target_ack_delay: u8 = Bits<26, 7, 3>;
        failover_accepted: u8 = Bits<26, 2, 1>;
        end_to_end_flow_control: bool = Flag<26, 0>;
        /// For requests that the receiver of the REP sends; 7 means no limit.
        rnr_retry_count: u8 = Bits<27, 7, 5>;
        srq: bool = Flag<27, 4>;
        local_ca_guid: u64 = Be64<28>;
        private_data: [u8; 196] = Bytes<36, 196>;
    }
}

impl Rep<'_> {
    /// Bytes of private data available to the consumer.
    pub const CONSUMER_DATA: usize = 196;
}
