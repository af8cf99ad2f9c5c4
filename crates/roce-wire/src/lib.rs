//! RoCEv2 as bytes: one file per header, and whole frames.
//!
//! Responsible for turning bytes of the wire into checked types and back. Knows no queue pair, no
//! memory and no time; allocates nothing; cannot panic on any input.
//!
//! Every header has
//! * a **view**, such as [`Bth`], over exactly its bytes: whoever holds one holds a header of full
//!   length, so that its accessors neither check nor fail;
//! * a **summary**, such as [`BthRepr`], an owned value with `parse` (from the view) and `emit` (into
//!   exactly the header's bytes). `emit` of a parsed summary gives the same bytes again, as long as
//!   fields that the specification reserves were zero.
//!
//! Whole frames are read by [`Packet::parse`], which checks everything that can be checked without
//! knowing a queue pair, except the ICRC ([`Packet::icrc_valid`]), and are written through a
//! [`Template`] straight into a transmit slot.
//!
//! Codes that a peer chooses (opcodes, reject reasons, syndromes) are open newtypes: unknown values
//! survive, constants name the known ones.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[allow(unsafe_code, reason = "copies memory that may change meanwhile; vector instructions")]
pub mod icrc;

pub mod cm;

mod field;
mod layout;

mod aeth;
mod atomic;
mod bth;
mod deth;
mod eth;
mod ext;
mod frame;
mod gid;
mod ieth;
mod immdt;
mod ipv4;
mod ipv6;
mod mad;
mod mtu;
mod opcode;
mod packet;
mod psn;
mod reth;
#[cfg(test)]
mod tests;
mod timer;
mod udp;

pub use aeth::{Aeth, AethRepr, NakCode, Syndrome, SyndromeKind, credits};
pub use atomic::{AtomicAckEth, AtomicAckEthRepr, AtomicEth, AtomicEthRepr};
pub use bth::{Bth, BthRepr, PKEY_DEFAULT, Qpn};
pub use deth::{Deth, DethRepr};
pub use eth::{Eth, EthRepr, EtherType, MacAddr, Vlan};
pub use ext::Ext;
pub use frame::{BuildError, Frame, Headers, Path, Template, flow_source_port};
pub use gid::Gid;
pub use ieth::{Ieth, IethRepr};
pub use immdt::{ImmDt, ImmDtRepr};
pub use ipv4::{Ipv4, Ipv4Repr};
pub use ipv6::{Ipv6, Ipv6Repr};
pub use mad::{Attribute, Mad, MadHeader, MadHeaderRepr};
pub use mtu::{MtuCode, PathMtu};
pub use opcode::{Class, ExtHeaders, Opcode, OpcodeInfo, Operation, PayloadRule};
pub use packet::{DropReason, Ip, Packet, ParseError};
pub use psn::Psn;
pub use reth::{Reth, RethRepr};
pub use timer::{ack_timeout, ack_timeout_code, rnr_timer, rnr_timer_code};
pub use udp::{Udp, UdpRepr};

pub(crate) use bth::mask_variable as mask_bth;
pub(crate) use ipv4::mask_variable as mask_ipv4;
pub(crate) use ipv6::mask_variable as mask_ipv6;
pub(crate) use udp::mask_variable as mask_udp;

/// UDP destination port of every RoCEv2 frame, in both directions.
///
/// Source: rocev2 §1.
pub const UDP_PORT: u16 = 4791;

/// Bytes of the invariant CRC that ends every RoCEv2 frame.
pub const ICRC_LEN: usize = 4;

/// The input is shorter than the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;
