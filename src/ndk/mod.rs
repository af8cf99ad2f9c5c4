// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network Direct (NDK) on an adapter: what the provider requires of the driver, and its callbacks from NDIS.
//!
//! | file | responsible for |
//! | --- | --- |
//! | [`open`] | registration as a provider; NDIS opens and closes NDK adapters |
//! | [`provider`] | the provider of one adapter, its attributes, enabling and disabling it |
//! | [`state_event`] | whether RDMA is on, and why not, in the event log |
//! | [`environment`] | the functions of the driver that the provider calls |
//! | [`queries`] | the NDK queries: statistics, connections, local endpoints |
//! | [`diagnostics`] | vendor-specific queries: counters and events of the engine |
//! | [`addresses`], [`neighbor`], [`interface`] | the adapter's IP addresses, and the way to a peer |
#![allow(unsafe_code, reason = "calls of NDIS and the IP stack, and their callbacks, with pointers")]

pub mod addresses;
pub mod diagnostics;
pub mod environment;
pub mod interface;
pub mod neighbor;
pub mod open;
pub mod provider;
pub mod queries;
mod state_event;
