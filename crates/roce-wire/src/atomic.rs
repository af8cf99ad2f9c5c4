// SPDX-License-Identifier: MIT OR Apache-2.0

//! Extended transport headers of atomic operations (IBTA Vol 1 §9.3).

use crate::{
    layout::layout,
    place::{Be32, Be64},
};

//= rocev2 §3
layout! {
    /// An AtomicETH: the request of an atomic operation.
    AtomicEth, AtomicEthRepr, 28 bytes {
        address: u64 = Be64<0>;
        r_key: u32 = Be32<8>;
        /// The value to store (`CmpSwap`) or to add (`FetchAdd`).
        swap_or_add: u64 = Be64<12>;
        /// The value to compare with (`CmpSwap`).
        compare: u64 = Be64<20>;
    }
}

//= rocev2 §3
layout! {
    /// An AtomicAckETH: the response of an atomic operation.
    AtomicAckEth, AtomicAckEthRepr, 8 bytes {
        /// The value in memory before the operation.
        original: u64 = Be64<0>;
    }
}
