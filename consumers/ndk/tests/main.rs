// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the consumer, on two natively linked providers and on a provider of its own.

mod loopback;
mod objects;
mod protocols;
mod transfer_over_loopback;
mod transfer_over_network;
mod two_hosts;
