// SPDX-License-Identifier: MIT OR Apache-2.0

//! Engines on a network that loses, repeats, reorders and marks frames, over long runs in virtual time.

mod goodput;
mod granted_reads;
mod incast;
mod seeds;
mod shallow_port;
