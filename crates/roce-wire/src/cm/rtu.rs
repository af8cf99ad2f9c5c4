//! RTU: ready to use.

use super::CommId;
use crate::layout::{Be32, Bytes, layout};

//= rocev2 §11
layout! {
    /// RTU: the active side has taken the REP.
    Rtu, RtuRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        private_data: [u8; 224] = Bytes<8, 224>;
    }
}
