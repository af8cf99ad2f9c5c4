// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIDR_REQ and SIDR_REP: service ID resolution.

use super::ids::{CommId, ServiceId};
use crate::{
    layout::layout,
    mad::{self, Attribute, Mad},
    place::{Be16, Be24, Be32, Be64, Byte, Bytes},
    qpn::Qpn,
    value::newtypes,
};

/// The status of a SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    pub const VALID: Self = Self(0);
    /// The service ID is not supported.
    pub const UNSUPPORTED: Self = Self(1);
    pub const REJECTED: Self = Self(2);
    pub const NO_QP: Self = Self(3);
    pub const REDIRECT: Self = Self(4);
    pub const UNSUPPORTED_VERSION: Self = Self(5);
}

newtypes! {
    SidrStatus: u8, SidrStatus, |status: SidrStatus| status.0;
}

//= rocev2 §11
layout! {
    /// SIDR_REQ: request for the queue pair of a datagram service.
    SidrReq, SidrReqRepr, 232 bytes {
        request_id: CommId = Be32<0>;
        p_key: u16 = Be16<4>;
        service_id: ServiceId = Be64<8>;
        private_data: [u8; 216] = Bytes<16, 216>;
    }
}

//= rocev2 §11
layout! {
    /// SIDR_REP: the queue pair, or the reason why there is none.
    SidrRep, SidrRepRepr, 232 bytes {
        request_id: CommId = Be32<0>;
        status: SidrStatus = Byte<4>;
        /// Valid bytes of `information`, up to 72.
        information_len: u8 = Byte<5>;
        qpn: Qpn = Be24<8>;
        service_id: ServiceId = Be64<12>;
        q_key: u32 = Be32<20>;
        information: [u8; 72] = Bytes<24, 72>;
        private_data: [u8; 136] = Bytes<96, 136>;
    }
}

impl SidrReqRepr {
    /// Writes the whole datagram.
    pub fn emit_datagram(&self, transaction_id: u64, mad: &mut [u8; Mad::LEN]) {
        if let Some(body) = mad::begin(Attribute::CM_SIDR_REQ, transaction_id, mad) {
            self.emit(body);
        }
    }
}

impl SidrRepRepr {
    /// Returns a reply without a queue pair.
    #[must_use]
    pub fn refusal(request_id: CommId, status: SidrStatus, service_id: ServiceId) -> Self {
        Self {
            request_id,
            status,
            information_len: 0,
            qpn: Qpn::new(0),
            service_id,
            q_key: 0,
            information: [0; 72],
            private_data: [0; 136],
        }
    }

    /// Writes the whole datagram.
    pub fn emit_datagram(&self, transaction_id: u64, mad: &mut [u8; Mad::LEN]) {
        if let Some(body) = mad::begin(Attribute::CM_SIDR_REP, transaction_id, mad) {
            self.emit(body);
        }
    }
}
