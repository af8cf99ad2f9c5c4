//! DREQ: asks for the end.

use super::CommId;
use crate::{
    Qpn,
    layout::{Be24, Be32, Bytes, layout},
};

//= rocev2 §11
layout! {
    /// DREQ: asks for the end of a connection.
    Dreq, DreqRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        /// The receiver's own queue pair; another one makes the message void.
        remote_qpn: Qpn = Be24<8>;
        private_data: [u8; 220] = Bytes<12, 220>;
    }
}
