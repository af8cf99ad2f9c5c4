//! Messages of connection management: one file each.
//!
//! A message stands behind the [`MadHeader`](super::MadHeader) and takes the rest of the datagram, 232
//! bytes, of which the last are private data: as long as the area is, filled up with zeros, since no
//! length is transmitted.
//!
//! Source: rocev2 §11.

mod drep;
mod dreq;
mod ip;
mod mra;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr;

pub use drep::{Drep, DrepRepr};
pub use dreq::{Dreq, DreqRepr};
pub use ip::{IpCm, IpCmRepr, IpEnds};
pub use mra::{Mra, MraRepr};
pub use rej::{Rej, RejReason, RejRepr};
pub use rep::{Rep, RepRepr};
pub use req::{CmPath, CmPathRepr, Req, ReqRepr, TransportService};
pub use rtu::{Rtu, RtuRepr};
pub use sidr::{SidrRep, SidrRepRepr, SidrReq, SidrReqRepr, SidrStatus};

use core::fmt;

use super::{Attribute, Mad, MadHeaderRepr, layout::wrapped};

/// The name that one side of a connection has for it. 0 names none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CommId(pub u32);

impl fmt::Debug for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// What a connection is asked to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// RDMA IP CM service, TCP port space.
    const TCP: u64 = 0x0106_0000;

    /// The service behind an RDMA port.
    #[must_use]
    pub const fn port(port: u16) -> Self {
        //= rocev2 §11
        Self(Self::TCP | port as u64)
    }

    /// The RDMA port; `None` for a service that is none.
    pub const fn to_port(self) -> Option<u16> {
        if self.0 & !0xFFFF == Self::TCP { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_port() {
            Some(port) => write!(f, "port {port}"),
            None => write!(f, "service {:#018x}", self.0),
        }
    }
}

/// Which message another one is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct About(pub u8);

impl About {
    pub const REQ: Self = Self(0);
    pub const REP: Self = Self(1);
    /// In a REJ: another message or none. In an MRA: LAP.
    pub const OTHER: Self = Self(2);
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::REQ => f.write_str("REQ"),
            Self::REP => f.write_str("REP"),
            Self::OTHER => f.write_str("other"),
            Self(code) => write!(f, "message {code}"),
        }
    }
}

wrapped! {
    CommId: u32, CommId, |id: CommId| id.0;
    ServiceId: u64, ServiceId, |id: ServiceId| id.0;
    About: u8, About, |about: About| about.0;
}

/// Any message about a connection.
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
    /// Reads the message of a datagram; `None` when it is not one of these.
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
        let Some(body) = begin(self.attribute(), transaction_id, mad) else { return };
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

/// Writes the header of a datagram; gives the room behind it. Never `None`: there is room.
fn begin(
    attribute: Attribute,
    transaction_id: u64,
    mad: &mut [u8; Mad::LEN],
) -> Option<&mut [u8; Mad::BODY_LEN]> {
    let (header, rest) = mad.split_first_chunk_mut()?;
    MadHeaderRepr::cm(attribute, transaction_id).emit(header);
    rest.first_chunk_mut()
}

/// `data` at the start of an area of `N` bytes, zeros behind it; `None` when it is longer.
pub fn private_data<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut area = [0; N];
    area.get_mut(..data.len())?.copy_from_slice(data);
    Some(area)
}
