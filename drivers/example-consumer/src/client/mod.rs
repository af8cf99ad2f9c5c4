// SPDX-License-Identifier: MIT OR Apache-2.0

//! The client: a connection to a server, and transfers over it.

mod connect;
mod pattern;
mod requests;
mod transfer;

pub use connect::{Client, Options};
pub use transfer::Direction;
