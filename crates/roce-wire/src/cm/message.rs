// SPDX-License-Identifier: MIT OR Apache-2.0

//! Any message of a connection.

use super::{
    drep::{Drep, DrepRepr},
    dreq::{Dreq, DreqRepr},
    mra::{Mra, MraRepr},
    rej::{Rej, RejRepr},
    rep::{Rep, RepRepr},
    req::{Req, ReqRepr},
    rtu::{Rtu, RtuRepr},
};
use crate::mad::{self, Attribute, Mad};

/// A message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack for the length of one call")]
pub enum CmMessage {
    Req(ReqRepr),
    Mra(MraRepr),
    Rej(RejRepr),
    Rep(RepRepr),
    Rtu(RtuRepr),
    Dreq(DreqRepr),
    Drep(DrepRepr),
}

impl CmMessage {
    /// Reads the message of a datagram; `None` if it is not one of these.
    #[must_use]
    pub fn parse(mad: &Mad<'_>) -> Option<Self> {
        let header = mad.header();
        if !header.is_cm() {
            return None;
        }
        let body = mad.body();
        Some(match header.attribute() {
            Attribute::CM_REQ => Self::Req(ReqRepr::parse(&Req::new(body))),
            Attribute::CM_MRA => Self::Mra(MraRepr::parse(&Mra::new(body))),
            Attribute::CM_REJ => Self::Rej(RejRepr::parse(&Rej::new(body))),
            Attribute::CM_REP => Self::Rep(RepRepr::parse(&Rep::new(body))),
            Attribute::CM_RTU => Self::Rtu(RtuRepr::parse(&Rtu::new(body))),
            Attribute::CM_DREQ => Self::Dreq(DreqRepr::parse(&Dreq::new(body))),
            Attribute::CM_DREP => Self::Drep(DrepRepr::parse(&Drep::new(body))),
            _ => return None,
        })
    }

    /// Returns the attribute ID of the message.
    #[must_use]
    pub const fn attribute(&self) -> Attribute {
        match self {
            Self::Req(_) => Attribute::CM_REQ,
            Self::Mra(_) => Attribute::CM_MRA,
            Self::Rej(_) => Attribute::CM_REJ,
            Self::Rep(_) => Attribute::CM_REP,
            Self::Rtu(_) => Attribute::CM_RTU,
            Self::Dreq(_) => Attribute::CM_DREQ,
            Self::Drep(_) => Attribute::CM_DREP,
        }
    }

    /// Writes the whole datagram.
    pub fn emit(&self, transaction_id: u64, mad: &mut [u8; Mad::LEN]) {
        let Some(body) = mad::begin(self.attribute(), transaction_id, mad) else { return };
        match self {
            Self::Req(message) => message.emit(body),
            Self::Mra(message) => message.emit(body),
            Self::Rej(message) => message.emit(body),
            Self::Rep(message) => message.emit(body),
            Self::Rtu(message) => message.emit(body),
            Self::Dreq(message) => message.emit(body),
            Self::Drep(message) => message.emit(body),
        }
    }
}

/// Returns `data` at the start of a private data area of `N` bytes, followed by zeros; `None` if it is longer.
#[must_use]
pub fn private_data<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut area = [0; N];
    area.get_mut(..data.len())?.copy_from_slice(data);
    Some(area)
}
