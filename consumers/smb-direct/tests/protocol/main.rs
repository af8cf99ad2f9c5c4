// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection against scripted peers, against hostile ones, and two connections against each other.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests panic on failure")]

mod credits;
mod descriptors;
mod hostile;
mod keepalive;
mod negotiation;
mod receiving;
mod sending;
mod simulation;
mod support;
