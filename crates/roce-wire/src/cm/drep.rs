//! DREP: answers a DREQ.

use super::CommId;
use crate::layout::{Be32, Bytes, layout};

//= rocev2 §11
layout! {
    /// DREP: the disconnection is agreed to.
    Drep, DrepRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        private_data: [u8; 224] = Bytes<8, 224>;
    }
}
