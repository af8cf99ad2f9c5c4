// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCEv2 wire formats: one file per header, and whole frames.
//!
//! This crate converts bytes of the wire to checked types and back. It has no queue pairs, no memory regions and no
//! clock; it does not allocate and does not panic on any input.
//!
//! Every header is declared as a table of its fields with `layout!` (see `layout.rs`) and has
//! * a **view**, such as [`Bth`], over exactly the header's bytes: the length was checked when the view was made, so that
//!   its accessors neither check nor fail;
//! * a **summary**, such as [`BthRepr`]: an owned value with `parse` (from the view) and `emit` (into exactly the
//!   header's bytes). `emit` of a parsed summary gives the same bytes again if reserved fields were zero.
//!
//! Received frames are read by [`Packet::parse`]. It checks everything that can be checked without a queue pair, except
//! the ICRC ([`Packet::icrc_valid`]). Frames to send are written by a [`Template`] directly into a transmit slot.
//!
//! Codes that a peer chooses (opcodes, reject reasons, syndromes) are newtypes with constants for the known values:
//! unknown values are kept.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[allow(unsafe_code, reason = "reads memory that others may write; vector instructions")]
pub mod icrc;

pub mod cm;

mod layout;
mod place;
mod truncated;
mod value;

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
mod plain;
mod psn;
mod qpn;
mod reth;
#[cfg(test)]
mod tests;
mod timer;
mod udp;

pub use aeth::{Aeth, AethRepr, NakCode, Syndrome, SyndromeKind, credits};
pub use atomic::{AtomicAckEth, AtomicAckEthRepr, AtomicEth, AtomicEthRepr};
pub use bth::{Bth, BthRepr, MOST_HINTED, PKEY_DEFAULT};
pub use deth::{Deth, DethRepr};
pub use eth::{Eth, EthRepr, EtherType, MacAddr, Vlan};
pub use ext::Ext;
pub use frame::{BuildError, Frame, Headers, Path, Template};
pub use gid::Gid;
pub use icrc::ICRC_LEN;
pub use ieth::{Ieth, IethRepr};
pub use immdt::{ImmDt, ImmDtRepr};
pub use ipv4::{Ipv4, Ipv4Repr};
pub use ipv6::{Ipv6, Ipv6Repr};
pub use mad::{Attribute, Mad, MadHeader, MadHeaderRepr};
pub use mtu::{MtuCode, PathMtu};
pub use opcode::{Class, ExtHeaders, Opcode, OpcodeInfo, Operation, PayloadRule};
pub use packet::{DropReason, Ip, Packet, ParseError, destination, may_be_roce};
pub use plain::{PlainAck, PlainFrame, PlainHeaders, PlainSend};
pub use psn::Psn;
pub use qpn::Qpn;
pub use reth::{Reth, RethRepr};
pub use timer::{ack_timeout, ack_timeout_code, rnr_timer, rnr_timer_code};
pub use truncated::Truncated;
pub use udp::{UDP_PORT, Udp, UdpRepr, flow_source_port};
