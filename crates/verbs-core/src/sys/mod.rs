// SPDX-License-Identifier: MIT OR Apache-2.0

//! System calls, as safe functions.
#![allow(unsafe_code, reason = "calls the C library")]

mod batch;
mod datagrams;
mod eventfd;
mod filter;
mod host;
mod netlink;
mod packet;
mod socket;

pub use batch::BATCH;
pub use datagrams::{receive, send};
pub use eventfd::EventFd;
pub use filter::Filter;
pub use host::{block_signals, host_addresses, make_resident, random_seed, wait_readable, yield_processor};
pub use netlink::{Neighbor, Netlink, Route};
pub use packet::{PacketSocket, interface_index};
pub use socket::UdpSocket;
