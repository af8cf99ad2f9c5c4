// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct for implementations of SMB2 that have no RDMA.
//!
//! [`client()`] is the gateway of such a client: it connects to a server by SMB Direct. [`server()`] is that of such a server: it
//! accepts a client of SMB Direct. Messages pass unchanged, but the data of large READs and WRITEs go by RDMA on one side and in
//! the messages on the other. The session must be neither signed nor encrypted, except for the messages of its setup.

mod client;
mod plain;
mod server;

pub use client::client;
pub use plain::{Counts, Plain};
pub use server::server;
