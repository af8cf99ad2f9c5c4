// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two RoCEv2 engines on a virtual network, driven by a virtual clock: for tests and benches.
//!
//! A [`Pair`] has two [`Side`]s, each an engine with the objects that a consumer creates, and a link
//! between them. The link delays, drops, duplicates, reorders, corrupts and ECN-marks frames as [`Options`]
//! configure. A test posts requests, calls [`Pair::run`] and checks the completions. The virtual clock steps
//! from one event to the next and all randomness comes from [`Options::seed`]: the same options give the
//! same run, frame by frame.
//!
//! [`goodput`] measures the goodput of a link with losses.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

pub mod goodput;
mod link;
mod pair;
mod side;

pub use link::{Filter, Options};
pub use pair::{PORT, Pair, with_srq};
pub use side::{Lock, Memory, Side, pattern, poll, spec};
