// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues and shared receive queues whose notice waits for
//! [`Engine::poll_event`](crate::Engine::poll_event).

use lock_api::RawMutex;

use crate::cq::Cq;
use crate::error::CreateError;
use crate::srq::Srq;
use fallible::Arc;
use fallible::Fifo;

/// Queues with a notice, each at most once.
pub(crate) struct EventQueue<R: RawMutex> {
    pub(crate) notices: Fifo<Entry<R>>,
    /// Completion queues and shared receive queues that exist, or whose last notice is with the driver.
    members: usize,
}

/// A queued event.
pub(crate) enum Entry<R: RawMutex> {
    Cq(Arc<Cq<R>>),
    Srq(Arc<Srq<R>>),
    /// Context of a completion queue that was destroyed while its last notice was with the driver.
    CqGone(u64),
    SrqGone(u64),
}

impl<R: RawMutex> EventQueue<R> {
    pub(crate) const fn new() -> Self {
        Self { notices: Fifo::new(), members: 0 }
    }

    /// Makes room for one more queue.
    pub(crate) fn add_member(&mut self) -> Result<(), CreateError> {
        self.notices.reserve_for(self.members.saturating_add(1))?;
        self.members = self.members.saturating_add(1);
        Ok(())
    }

    pub(crate) fn remove_member(&mut self) {
        self.members = self.members.saturating_sub(1);
    }
}
