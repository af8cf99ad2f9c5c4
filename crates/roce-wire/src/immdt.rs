// SPDX-License-Identifier: MIT OR Apache-2.0

//! Immediate data extended transport header (IBTA Vol 1 §9.3).

use crate::{layout::layout, place::Bytes};

//= rocev2 §3
layout! {
    /// Immediate data (ImmDt): four bytes of a SEND or WRITE for the peer's receive completion.
    ImmDt, ImmDtRepr, 4 bytes {
        /// Opaque, in wire order.
        data: [u8; 4] = Bytes<0, 4>;
    }
}
