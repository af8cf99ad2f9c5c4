// SPDX-License-Identifier: MIT OR Apache-2.0

//! Invalidate extended transport header (IBTA Vol 1 §9.3).

use crate::{layout::layout, place::Be32};

//= rocev2 §3
layout! {
    /// An invalidate extended transport header (IETH): the R_Key that a SEND with Invalidate invalidates.
    Ieth, IethRepr, 4 bytes {
        r_key: u32 = Be32<0>;
    }
}
