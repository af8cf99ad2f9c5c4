// SPDX-License-Identifier: MIT OR Apache-2.0

//! DREP: reply to a DREQ.

use super::ids::CommId;
use crate::{
    layout::layout,
    place::{Be32, Bytes},
};

//= rocev2 §11
layout! {
    /// DREP: reply to a request for communication release.
    Drep, DrepRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        private_data: [u8; 224] = Bytes<8, 224>;
    }
}
