// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCEv2 engines on a virtual network, driven by a virtual clock: for tests and benches.
//!
//! A [`TwoHosts`] has two [`Side`]s, each an engine with the objects that a consumer creates, and a link
//! between them. The link delays, drops (singly or in bursts), duplicates, reorders, corrupts and ECN-marks frames as
//! [`Options`] configure; a switch in it drops and marks frames by the length of its queues. In an [`Incast`], several
//! hosts send to one through such a switch. A test posts requests, calls [`TwoHosts::run`] and checks the completions. The virtual clock steps
//! from one event to the next and all randomness comes from [`Options::seed`]: the same options give the
//! same run, frame by frame.
//!
//! Of an [`Incast`], the senders may be at different distances from the switch ([`Options::farther`]), and TCP may share its port.
//!
//! The hosts' timers are exact, or expire at ticks ([`Options::timer_tick`]).
//!
//! [`goodput`] measures the goodput of a link with losses.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod ecn;
pub mod goodput;
mod incast;
mod link;
mod lock;
mod network;
mod options;
mod random;
mod side;
mod switch;
mod tcp;
mod two_hosts;
mod wire;

pub use incast::Incast;
pub use link::{Filter, Steering};
pub use lock::{Lock, on_release};
pub use options::{Bursts, Marking, Options, Switch};
pub use side::{Memory, Side, pattern, poll, spec};
pub use switch::PortStats;
pub use two_hosts::{PORT, TwoHosts, with_srq};
