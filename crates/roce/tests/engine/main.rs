// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine as its consumers see it: two of them on a virtual network, driven by a virtual clock.

mod addresses;
mod congestion;
mod connect;
mod cq;
mod errors;
mod fields;
mod hostile;
mod keys;
mod loss;
mod memory;
mod pair;
mod requests;
mod responder;
mod srq;
mod strangers;
mod threads;
mod windows;
