// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA extended transport header (IBTA Vol 1 §9.3).

use crate::{
    layout::layout,
    place::{Be32, Be64},
};

//= rocev2 §3
layout! {
    /// An RDMA extended transport header (RETH): the responder's memory that a READ or WRITE accesses.
    Reth, RethRepr, 16 bytes {
        address: u64 = Be64<0>;
        r_key: u32 = Be32<8>;
        /// Length of the whole message in bytes. The specification allows up to 2^31; a peer may claim more.
        length: u32 = Be32<12>;
    }
}
