// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDIS miniport: registration, the adapter's life cycle, OID requests, sends and receives.
#![allow(unsafe_code, reason = "handlers that NDIS calls, and calls of NDIS, with pointers")]

pub mod adapter;
pub mod announce;
mod change_trace;
mod coalescing;
pub mod completion;
mod configuration_change;
mod demultiplexer;
mod device_coalescing;
mod device_filter;
mod device_rss;
mod device_settings;
mod device_setup;
pub mod dpc;
mod failure;
mod flow_hash;
pub mod initialize;
mod interrupt_moderation;
pub mod lifecycle;
pub mod link;
mod mac_address;
mod ndis_attributes;
pub mod network_addresses;
mod offload_set;
pub mod offload_state;
mod oid_handlers;
mod oid_requests;
pub mod oid_table;
pub mod outgoing_frame;
mod poll_setup;
pub mod power;
pub mod receive;
mod receive_backlog;
mod receive_checksum;
mod receive_filter;
mod receive_hash;
mod receive_lanes;
pub mod receive_pool;
mod recovery;
pub mod register;
pub mod requested_offload;
mod rss;
pub mod send;
mod set_value;
mod settings_thread;
pub mod statistics;
pub mod status_indication;
pub mod traffic;
mod transition_requests;
mod transition_worker;
pub mod transitions;
mod transmit_stall;
pub mod version;
pub mod vlan;
mod wire_statistics;
