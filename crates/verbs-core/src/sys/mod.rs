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
mod passing;
mod shared_memory;
mod socket;

pub use batch::BATCH;
pub use datagrams::{receive, send};
pub use eventfd::EventFd;
pub use filter::Filter;
pub use host::{
    Interest, block_signals, host_addresses, make_resident, random_seed, request_large_pages, wait_readable,
    yield_processor,
};
pub use netlink::{Neighbor, Netlink, Route};
pub use packet::{PacketSocket, interface_index};
pub use passing::{is_of_same_user, pass_descriptor, take_descriptor};
pub use shared_memory::SharedMemory;
pub use socket::UdpSocket;
