// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection management (CM) messages, one file each (IBTA Vol 1 §12.6).
//!
//! A message follows the [`MadHeader`](crate::MadHeader) and fills the rest of the datagram, 232 bytes. The last of them
//! are private data. Its length is not transmitted: the receiver gets the whole area, filled up with zeros.
//!
//! Source: rocev2 §11.

mod drep;
mod dreq;
mod ids;
mod ip;
mod message;
mod mra;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr;

pub use drep::{Drep, DrepRepr};
pub use dreq::{Dreq, DreqRepr};
pub use ids::{CommId, RespondedMessage, ServiceId};
pub use ip::{IpCm, IpCmRepr, IpEnds};
pub use message::{CmMessage, private_data};
pub use mra::{Mra, MraRepr};
pub use rej::{Rej, RejReason, RejRepr};
pub use rep::{Rep, RepRepr};
pub use req::{CmPath, CmPathRepr, Req, ReqRepr, TransportService};
pub use rtu::{Rtu, RtuRepr};
pub use sidr::{SidrRep, SidrRepRepr, SidrReq, SidrReqRepr, SidrStatus};
