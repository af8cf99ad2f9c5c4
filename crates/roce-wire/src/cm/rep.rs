//! REP: grants a connection.

use super::CommId;
use crate::{
    Psn, Qpn,
    layout::{Apart24, Be24, Be32, Be64, Bits, Byte, Bytes, Flag, layout},
};

//= rocev2 §11
layout! {
    /// REP: grants a connection.
    Rep, RepRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        local_q_key: u32 = Be32<8>;
        local_qpn: Qpn = Be24<12>;
        /// Of vendor options.
        vendor_id: u32 = Apart24<15, 19, 23>;
        local_eecn: u32 = Be24<16>;
        /// What the receiver of the REP must begin sending with.
        starting_psn: Psn = Be24<20>;
        /// READs and atomics that the sender will serve at a time.
        responder_resources: u8 = Byte<24>;
        /// READs and atomics that the sender wants to have under way at a time.
        initiator_depth: u8 = Byte<25>;
        /// 4.096 us * 2^code.
        target_ack_delay: u8 = Bits<26, 7, 3>;
        failover_accepted: u8 = Bits<26, 2, 1>;
        end_to_end_flow_control: bool = Flag<26, 0>;
        /// For the sends of the receiver of the REP; 7 for no limit.
        rnr_retry_count: u8 = Bits<27, 7, 5>;
        srq: bool = Flag<27, 4>;
        local_ca_guid: u64 = Be64<28>;
        private_data: [u8; 196] = Bytes<36, 196>;
    }
}

impl Rep<'_> {
    /// Bytes of private data that the consumer may use.
    pub const CONSUMER_DATA: usize = 196;
}
