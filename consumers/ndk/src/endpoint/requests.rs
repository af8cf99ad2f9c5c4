// SPDX-License-Identifier: MIT OR Apache-2.0

//! Outstanding requests of an endpoint.

use alloc::vec::Vec;
use core::time::Duration;

use crate::stats::Operation;

/// The outstanding requests. The index of a request is its request context.
#[derive(Default)]
pub struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
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

impl Requests {
    pub fn insert(&mut self, request: Request) -> usize {
        if let Some(index) = self.free.pop() {
            self.slots[index] = Some(request);
            return index;
        }
        self.slots.push(Some(request));
        self.slots.len() - 1
    }

    pub fn remove(&mut self, index: usize) -> Option<Request> {
        let request = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(request)
    }
}
