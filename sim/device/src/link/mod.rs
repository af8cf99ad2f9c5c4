// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network between hosts: a point-to-point Ethernet link with faults, captures, and a tunnel to a
//! datagram socket.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`faults`] | loss, duplication, corruption and reordering, decided by a seed |
//! | [`pcapng`] | captures |
//! | [`wire`] | the link itself: rate, latency, flow control, counters |
//! | [`tunnel`] | one end of a link outside the simulation |

pub mod faults;
pub mod pcapng;
pub mod tunnel;
pub mod wire;

pub use faults::{Fate, Faults};
pub use pcapng::{Capture, Lost};
pub use tunnel::{Datagrams, Tunnel, TunnelCounters};
pub use wire::{Counters, Endpoint, Frame, Port, Wire, WireOptions};
