// SPDX-License-Identifier: MIT OR Apache-2.0

//! MRA: message receipt acknowledgement.

use super::ids::{CommId, RespondedMessage};
use crate::{
    layout::layout,
    place::{Be32, Bits, Bytes},
};

//= rocev2 §11
layout! {
    /// MRA: message receipt acknowledgement. The reply will take longer than the sender of the request waits.
    Mra, MraRepr, 232 bytes {
        local_comm_id: CommId = Be32<0>;
        remote_comm_id: CommId = Be32<4>;
        /// IBTA: "message MRAed".
        message_mraed: RespondedMessage = Bits<8, 7, 6>;
        /// 4.096 us * 2^code.
        service_timeout: u8 = Bits<9, 7, 3>;
        private_data: [u8; 222] = Bytes<10, 222>;
    }
}
