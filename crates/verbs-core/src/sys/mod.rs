// SPDX-License-Identifier: MIT OR Apache-2.0

//! System calls, as safe functions.
#![allow(unsafe_code, reason = "calls the C library")]

mod datagrams;
mod eventfd;
mod host;
mod socket;

pub use datagrams::{BATCH, receive, send};
pub use eventfd::EventFd;
pub use host::{block_signals, host_addresses, make_resident, random_seed, wait_readable, yield_processor};
pub use socket::UdpSocket;
