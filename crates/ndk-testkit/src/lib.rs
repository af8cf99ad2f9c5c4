// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts on one wire, each with an NDK provider, for tests.
//!
//! [`two_hosts`] returns the [`Host`]s, [`with_adapters`] opens an NDK adapter on each. The wire is two queues of frames; [`WireOptions`] sets its MTU and its losses. Each host has a
//! receiver thread in place of the NIC's receive DPC: it processes frames in batches, and all of them arrive by the last shard.
//! Time is real, and so are the provider's threads.
//!
//! | module | responsible for |
//! | --- | --- |
//! | `host` | a host: its provider, its receiver thread, and what a test does to it |
//! | `nic` | the NIC of a host: transmission, addresses, next hops |
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod host;
mod nic;

pub use host::{Host, WireOptions, two_hosts, with_adapters};
pub use nic::{Identity, SCOPE};
