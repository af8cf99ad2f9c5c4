// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK consumers on the image.

mod addresses;
mod affinity;
mod client_server;
mod conformance;
mod consumer;
mod copy;
mod create_calls;
mod objects;
mod resolution;
mod strict;
