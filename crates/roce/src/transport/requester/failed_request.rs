// SPDX-License-Identifier: MIT OR Apache-2.0

//! A request that cannot be sent or executed. It fails once all requests before it are complete.

use super::send_queue::SendQueue;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::Unsent;
use crate::transport::sequence::Sequence;

/// The first request that has failed before it is the oldest, if any.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedRequest(Option<(Sequence, Failure)>);

impl FailedRequest {
    pub(super) const NONE: Self = Self(None);

    /// Records the failure of the request that begins at `first`. Fails if it is the oldest one of `queue`.
    pub(super) fn record(
        &mut self,
        first: Sequence,
        failure: Failure,
        queue: &SendQueue,
    ) -> Result<(), Failure> {
        self.0 = Some((first, failure));
        self.check(queue)
    }

    /// Records that the payload of the request that begins at `first` cannot be read. Returns why nothing is sent.
    #[inline(never)]
    pub(super) fn unreadable(&mut self, first: Sequence, queue: &SendQueue) -> Unsent {
        //= R-QP-43
        //= R-QP-44
        self.record(first, Failure::LocalProtection, queue).map_or_else(Unsent::from, |()| Unsent::Idle)
    }

    /// Returns whether a request has failed.
    #[inline]
    pub(super) const fn is_some(self) -> bool {
        self.0.is_some()
    }

    /// Returns whether it is the request that begins at `first`.
    #[inline]
    pub(super) fn is(self, first: Sequence) -> bool {
        self.0.is_some_and(|(failed, _)| failed == first)
    }

    /// Fails if it is the oldest request of `queue`.
    #[inline]
    pub(super) fn check(self, queue: &SendQueue) -> Result<(), Failure> {
        match self.0 {
            Some((first, failure)) if queue.front().is_some_and(|wqe| wqe.first == first) => Err(failure),
            _ => Ok(()),
        }
    }
}
