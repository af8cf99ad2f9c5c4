// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common parts of tests on the image: testbeds, copies, packets, TCP, receive side scaling, devices with faults.

#![cfg(target_os = "linux")]
#![allow(clippy::must_use_candidate, reason = "a test that drops a result does not need it")]

pub mod adapters;
pub mod affinity;
pub mod announcements;
pub mod bed;
pub mod captures;
pub mod client_server;
pub mod consumers;
pub mod copying;
pub mod dpdk;
pub mod failed_starts;
pub mod faults;
pub mod filters;
pub mod flows;
pub mod frames;
pub mod linux;
pub mod neighbors;
pub mod objects;
pub mod packets;
pub mod pause;
pub mod plans;
pub mod programs;
pub mod queue_pairs;
pub mod scaling;
pub mod segments;
pub mod smb_gateway;
pub mod smb_peers;
pub mod smoltcp_peer;
pub mod stalled;
pub mod strict;
pub mod tags;
pub mod tcp;
pub mod traces;
pub mod watchdog;
pub mod windbg;
