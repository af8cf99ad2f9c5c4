// SPDX-License-Identifier: MIT OR Apache-2.0

//! Outstanding requests of an endpoint, and their latency.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::os::Os;
use crate::stats::Operation;

/// The outstanding requests. The index of a request is its request context.
pub struct Requests<O: Os> {
    os: Arc<O>,
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Whether the clock is read for each request.
    measures_latency: bool,
}

/// Record of an outstanding request, for its completion.
#[derive(Clone, Copy)]
pub struct Request {
    pub operation: Operation,
    pub owner: BufferOwner,
    /// A number that the caller chose.
    pub tag: u64,
    /// Bytes to transfer; 0 for receives.
    pub bytes: u64,
    /// Time of the post.
    pub at: Duration,
}

/// The owner of the memory that a request uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BufferOwner {
    /// A message buffer of the endpoint, free again when the request completes.
    Endpoint(usize),
    /// The caller.
    Caller,
    /// No memory: the request only checks that the peer is reachable.
    None,
}

impl<O: Os> Requests<O> {
    pub const fn new(os: Arc<O>) -> Self {
        Self { os, slots: Vec::new(), free: Vec::new(), measures_latency: true }
    }

    /// From now on, requests have no latency.
    pub const fn ignore_latency(&mut self) {
        self.measures_latency = false;
    }

    /// Notes a request before it is posted: it may complete before the post returns. Returns its request context.
    pub fn add(&mut self, operation: Operation, owner: BufferOwner, tag: u64, bytes: usize) -> usize {
        let request = self.begin(operation, owner, tag, bytes);
        if let Some(index) = self.free.pop() {
            self.slots[index] = Some(request);
            return index;
        }
        self.slots.push(Some(request));
        self.slots.len() - 1
    }

    /// Returns a request that begins now, and has no context of its own.
    pub fn begin(&self, operation: Operation, owner: BufferOwner, tag: u64, bytes: usize) -> Request {
        let at = if self.measures_latency { self.os.now() } else { Duration::ZERO };
        Request { operation, owner, tag, bytes: bytes as u64, at }
    }

    /// Returns how long a request has taken until now, if that is measured.
    pub fn latency(&self, request: &Request) -> Option<Duration> {
        self.measures_latency.then(|| self.os.now().saturating_sub(request.at))
    }

    pub fn remove(&mut self, index: usize) -> Option<Request> {
        let request = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(request)
    }
}
