// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that queue pairs report under their locks, and that the engine handles without one.

use core::sync::atomic::{AtomicBool, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::conn::ConnId;
use crate::error::CreateError;
use fallible::Fifo;

/// A list of connections, each once. Whether there are any is read without the lock: the driver asks after each post.
pub(crate) struct ConnList<R: RawMutex> {
    conns: Mutex<R, Fifo<ConnId>>,
    /// Changes under the lock.
    has_any: AtomicBool,
}

impl<R: RawMutex> ConnList<R> {
    pub(crate) const fn new() -> Self {
        Self { conns: Mutex::new(Fifo::new()), has_any: AtomicBool::new(false) }
    }

    /// Makes room for the connections of `queue_pairs` queue pairs besides those that are listed.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    pub(crate) fn reserve_for(&self, queue_pairs: usize) -> Result<(), CreateError> {
        let mut conns = self.conns.lock();
        let listed = conns.len();
        Ok(conns.reserve_for(listed.saturating_add(queue_pairs))?)
    }

    /// Adds a connection.
    pub(crate) fn add(&self, conn: ConnId) {
        let mut conns = self.conns.lock();
        conns.push(conn);
        self.has_any.store(true, Ordering::Release);
    }

    /// Returns whether there may be a connection. A thread sees those that it has added.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes the connection that was added first.
    pub(crate) fn take(&self) -> Option<ConnId> {
        let mut conns = self.conns.lock();
        let first = conns.pop();
        self.has_any.store(!conns.is_empty(), Ordering::Release);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    #[test]
    fn connections_are_taken_in_the_order_in_which_they_were_added() {
        let list = ConnList::<Lock>::new();
        assert_eq!((list.has_any(), list.take()), (false, None));
        list.reserve_for(2).unwrap();
        list.add(ConnId(7));
        list.add(ConnId(3));
        assert!(list.has_any());
        assert_eq!(list.take(), Some(ConnId(7)));
        assert!(list.has_any(), "one is left");
        assert_eq!(list.take(), Some(ConnId(3)));
        assert_eq!((list.has_any(), list.take()), (false, None));
    }

    #[test]
    fn room_is_made_besides_what_is_listed() {
        let list = ConnList::<Lock>::new();
        // More than the room that the first reservation makes at least.
        for first in [0, 64] {
            list.reserve_for(64).unwrap();
            (first..first + 64).for_each(|number| list.add(ConnId(number)));
        }
        let taken: std::vec::Vec<_> = core::iter::from_fn(|| list.take()).collect();
        assert_eq!(taken, (0..128).map(ConnId).collect::<std::vec::Vec<_>>());
    }
}
