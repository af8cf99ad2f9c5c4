// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDIS miniport: registration, the adapter's life cycle, OID requests, sends and receives.

pub mod adapter;
pub mod announce;
mod coalescing;
pub mod completion;
mod device_rss;
pub mod dpc;
pub mod filter;
mod flow;
pub mod initialize;
pub mod lifecycle;
pub mod link;
mod moderation;
pub mod network_addresses;
pub mod oid;
pub mod outgoing;
pub mod power;
pub mod receive;
mod receive_hash;
mod receive_lanes;
pub mod receive_pool;
pub mod register;
mod rss;
pub mod send;
pub mod send_offload;
pub mod state;
pub mod statistics;
pub mod status;
pub mod task_offload;
pub mod traffic;
pub mod transitions;
pub mod version;
pub mod vlan;
