// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma-probe`, a tool of this project: cases that the packaged tools do not cover.
//!
//! Each run is one [`Scenario`]: the client makes requests, and the server checks their effect. All integers on the wire are
//! big-endian; the messages are in [`message`]. Before it accepts, the server posts receives of [`receive_bytes`]; the client
//! posts receives for control messages only.
//!
//! The data of an item is a function of its number and the offset ([`pattern`]); the sizes of the items are a fixed list
//! ([`ladder`]). The server sends a verdict after each item. At the end the client disconnects.

mod client;
pub mod message;
mod observed;
mod plan;
mod server;

pub use client::client;
pub use plan::{PORT, Plan, Scenario, ladder, pattern, receive_bytes, window_bytes};
pub use server::serve;
