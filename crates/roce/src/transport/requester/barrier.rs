// SPDX-License-Identifier: MIT OR Apache-2.0

//! The request before which the requester stops: one that cannot be sent or executed, or in state SQD the first that is not begun.

use super::send_queue::SendQueue;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::Unsent;
use crate::transport::sequence::Sequence;

/// The request before which the requester stops, if any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier(Option<(Sequence, Reason)>);

/// Why a requester stops.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// The request has failed before it was the oldest. The queue pair fails once all requests before it are complete.
    Failed(Failure),
    /// The send queue is drained: the request, which need not be posted yet, is not begun.
    Drained,
}

impl Barrier {
    pub(super) const NONE: Self = Self(None);

    /// Records the failure of the request that begins at `first`. Fails if it is the oldest one of `queue`.
    pub(super) fn record(
        &mut self,
        first: Sequence,
        failure: Failure,
        queue: &SendQueue,
    ) -> Result<(), Failure> {
        self.0 = Some((first, Reason::Failed(failure)));
        self.check(queue)
    }

    /// Records that the payload of the request that begins at `first` cannot be read. Returns why nothing is sent.
    #[inline(never)]
    pub(super) fn unreadable(&mut self, first: Sequence, queue: &SendQueue) -> Unsent {
        //= R-QP-43
        //= R-QP-44
        self.record(first, Failure::LocalProtection, queue).map_or_else(Unsent::from, |()| Unsent::Idle)
    }

    /// Stops before the request that begins at `first`, unless one has failed.
    pub(super) fn hold(&mut self, first: Sequence) {
        self.0.get_or_insert((first, Reason::Drained));
    }

    /// Goes on with the request that was held.
    pub(super) fn release(&mut self) {
        if let Some((_, Reason::Drained)) = self.0 {
            *self = Self::NONE;
        }
    }

    /// Returns whether the requester stops before some request.
    #[inline]
    pub(super) const fn is_some(self) -> bool {
        self.0.is_some()
    }

    /// Returns whether it stops before the request that begins at `first`.
    #[inline]
    pub(super) fn is(self, first: Sequence) -> bool {
        self.0.is_some_and(|(stopped, _)| stopped == first)
    }

    /// Fails if it is the oldest request of `queue` and has failed.
    #[inline]
    pub(super) fn check(self, queue: &SendQueue) -> Result<(), Failure> {
        match self.0 {
            Some((first, Reason::Failed(failure))) if queue.front().is_some_and(|wqe| wqe.first == first) => {
                Err(failure)
            }
            _ => Ok(()),
        }
    }
}
