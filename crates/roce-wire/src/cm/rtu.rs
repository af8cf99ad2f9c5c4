// SPDX-License-Identifier: MIT OR Apache-2.0

//! RTU: ready to use.

use super::ids::CommId;
use crate::{
    layout::layout,
    place::{Be32, Bytes},
};

//= rocev2 §11
layout! {
    /// RTU: ready to use. The active side has accepted the REP.
    Rtu, RtuRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        private_data: [u8; 224] = Bytes<8, 224>;
    }
}
