// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS 6.85 for miniport drivers, the IP helper and Winsock Kernel, as subsystems of [`nt_sim`].
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`registration`], [`driver`] | registration of the driver and its optional handlers |
//! | [`upper_drivers`] | registration of protocol and filter drivers |
//! | [`interface`] | network interfaces: index, LUID, name, registry key |
//! | [`adapter`] | one adapter: its states, attributes, what it holds |
//! | [`hang`] | checks for a miniport that hangs, and its reset |
//! | `lifecycle` | the calls of the miniport from initialization to halt |
//! | `owner` | what an adapter must release before it is halted |
//! | [`miniport`] | the harness's side: start, pause, halt, removal, OID requests, frames, NDK, receive side scaling |
//! | [`oid`], [`direct_oid`], `pending_oids`, `stack_oids` | OID requests; those that NDIS does not serialize |
//! | [`offload`] | task offloads |
//! | `rss`, `receive_hash` | receive side scaling, or hashes alone: parameters, and the check of received frames |
//! | [`tcp_stack`] | TCP on an adapter, with its offloads |
//! | `ndk_objects` | the objects below each NDK adapter |
//! | [`ndk`] | opening and closing NDK adapters, net PnP events |
//! | [`poll`] | poll objects: receiving and completing sends in calls that NDIS limits |
//! | [`bus`], [`dma`], [`shared_memory`], [`interrupt`], `message_info` | the device under the adapter |
//! | `block` | memory of NDIS's own structures |
//! | [`physical_device`] | the physical device object of an adapter |
//! | [`sg_list`] | scatter/gather lists |
//! | [`nbl`], [`clones`], [`list_fields`] | NET_BUFFER_LISTs |
//! | [`data_path`], `receive_checks`, `in_flight` | sending and receiving them, and the checks of what is received |
//! | [`filter_module`], [`filter_path`], [`filter_status`], [`filter_oid`], [`filter_pnp`], [`filter_stack`] | filter modules: their states, their lists, statuses, OID requests and PnP events, attaching and detaching them |
//! | [`device`](mod@device) | devices that a driver registers for programs |
//! | [`config`], [`event_log`] | registry keywords; the event log |
//! | [`rss_processors`] | the processors of receive side scaling |
//! | [`runtime`] | work items, timers, events, processors |
//! | [`protocol`] | what is bound to adapters from above |
//! | [`netio`] | the imports of `netio.sys` and the IP stack behind them, a protocol driver |
//! | [`wsk`] | Winsock Kernel, as NDK consumers use it |
//! | [`network_rules`] | the rules of Winsock Kernel and of the IP helper |
//! | [`rules`] | NDIS's rules, the pages that state them, and the reports of violations |
//! | [`ndis_host`] | the methods that this crate adds to a [`Host`](nt_sim::Host) |
//!
//! Handles are numbers that are no addresses: an image that dereferences one faults.
//!
//! A simulation with all of them is built by [`builder`].
#![allow(unsafe_code, reason = "implements functions that drivers call with pointers")]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod adapter;
mod block;
pub mod bus;
pub mod clones;
mod coalescing;
pub mod config;
pub mod data_path;
pub mod device;
pub mod direct_oid;
pub mod dma;
pub mod driver;
pub mod event_log;
pub mod filter_module;
pub mod filter_oid;
pub mod filter_path;
pub mod filter_pnp;
pub mod filter_stack;
pub mod filter_status;
mod handle;
pub mod hang;
mod hang_state;
mod in_flight;
pub mod interface;
pub mod interrupt;
mod keyword;
mod lifecycle;
mod link;
pub mod list_fields;
mod message_info;
pub mod miniport;
pub mod nbl;
pub mod ndis_host;
pub mod ndk;
mod ndk_objects;
mod ndk_state;
pub mod netio;
pub mod network_rules;
pub mod offload;
pub mod oid;
mod owner;
mod pending_oids;
pub mod physical_device;
pub mod poll;
mod power;
pub mod priority_vlan;
pub mod protocol;
mod receive_checks;
mod receive_hash;
pub mod registration;
mod removal;
mod removal_request;
mod rss;
pub mod rss_processors;
pub mod rules;
pub mod runtime;
pub mod sg_list;
pub mod shared_memory;
mod stack_oids;
mod statistics;
mod subsystem;
pub mod tcp_stack;
pub mod upper_drivers;
mod wait;
mod wmi;
pub mod wsk;

pub use adapter::{Adapter, AdapterState, StatusIndication};
pub use bus::open_tunnel;
pub use event_log::LogEntry;
pub use in_flight::SendId;
pub use interface::Interface;
pub use keyword::Keyword;
pub use lifecycle::StartError;
pub use miniport::{Miniport, NdkRequests, ProtocolStack, ScalingRequests, WmiRequests};
pub use ndis_host::NdisHost;
pub use ndk::NdkAdapter;
pub use ndk_state::NdkEvent;
pub use netio::{IpHost, NETIO};
pub use offload::{Offloads, ReceivedFrame, SendRequest};
pub use receive_hash::HashParameters;
pub use removal_request::RemovalRequest;
pub use rss::{RssCapabilities, RssParameters};
pub use subsystem::{NDIS, Ndis, builder};
pub use wsk::WSK;
