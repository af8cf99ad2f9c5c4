// SPDX-License-Identifier: MIT OR Apache-2.0

//! DREQ: request for communication release.

use super::ids::CommId;
use crate::{
    layout::layout,
    place::{Be24, Be32, Bytes},
    qpn::Qpn,
};

//= rocev2 §11
layout! {
    /// DREQ: request for communication release.
    Dreq, DreqRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        /// The receiver's own queue pair. A message with another one is invalid.
        remote_qpn: Qpn = Be24<8>;
        private_data: [u8; 220] = Bytes<12, 220>;
    }
}
