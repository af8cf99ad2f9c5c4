// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram extended transport header (IBTA Vol 1 §9.3).

use crate::{
    layout::layout,
    place::{Be24, Be32},
    qpn::Qpn,
};

//= rocev2 §3
layout! {
    /// A datagram extended transport header (DETH): the Q_Key and the sender of a datagram.
    Deth, DethRepr, 8 bytes {
        q_key: u32 = Be32<0>;
        source_qp: Qpn = Be24<5>;
    }
}

impl Deth<'_> {
    /// The Q_Key of connection management.
    pub const Q_KEY_GSI: u32 = 0x8001_0000;
}

impl DethRepr {
    /// The DETH of every CM message.
    pub const GSI: Self = Self { q_key: Deth::Q_KEY_GSI, source_qp: Qpn::GSI };
}
