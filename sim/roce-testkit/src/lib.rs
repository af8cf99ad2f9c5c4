// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two RoCEv2 engines on a virtual network, driven by a virtual clock: for tests and benches.
//!
//! A [`Pair`] is two [`Side`]s, each an engine with what a consumer makes on it, and a link between them
//! that delays, loses, repeats, reorders, corrupts, marks and cuts as [`Options`] say. A caller says what is
//! posted and what has to come of it; [`Pair::run`] does everything in between. Time is a number that steps
//! from one event to the next, and chance comes from a seed: the same options give the same run, frame by
//! frame.
//!
//! [`goodput`] measures what a link carries.
#![allow(clippy::unwrap_used, reason = "what a test cannot set up is that test's failure")]

pub mod goodput;
mod link;
mod pair;
mod side;

pub use link::{Filter, Options};
pub use pair::{PORT, Pair, with_srq};
pub use side::{Lock, Memory, Side, pattern, poll, spec};
