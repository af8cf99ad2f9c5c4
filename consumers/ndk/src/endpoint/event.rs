// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration and events of an endpoint.

use crate::stats::Operation;

/// Configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// Maximum number of outstanding initiator requests.
    pub requests: u32,
    /// Receives posted at all times; with shared receives, the maximum number of unprocessed messages.
    pub receives: u32,
    /// Length of the largest message in bytes.
    pub message: usize,
}

/// An event of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
    /// A request with this tag succeeded.
    Done(Operation, u64),
    /// A message has arrived; [`take`](super::Endpoint::take) it.
    Message(Received),
}

/// A message in its receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Received {
    pub(super) buffer: usize,
    pub(super) length: usize,
    /// The token of this side that the peer invalidated with the message.
    pub invalidated: Option<u32>,
}
