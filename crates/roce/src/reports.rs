// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports that queue pairs make under their locks, and the engine handles without one.

use core::sync::atomic::{AtomicBool, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::error::CreateError;
use fallible::Fifo;

/// Reports of queue pairs, for which room was made. Whether there are any is read without the lock: the driver asks after each post.
pub(crate) struct Reports<R: RawMutex, T> {
    reports: Mutex<R, Fifo<T>>,
    /// Changes under the lock.
    has_any: AtomicBool,
}

impl<R: RawMutex, T> Reports<R, T> {
    pub(crate) const fn new() -> Self {
        Self { reports: Mutex::new(Fifo::new()), has_any: AtomicBool::new(false) }
    }

    /// Makes room for `count` reports besides those that are listed.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    pub(crate) fn reserve_for(&self, count: usize) -> Result<(), CreateError> {
        let mut reports = self.reports.lock();
        let listed = reports.len();
        Ok(reports.reserve_for(listed.saturating_add(count))?)
    }

    /// Adds a report.
    pub(crate) fn add(&self, report: T) {
        let mut reports = self.reports.lock();
        reports.push(report);
        self.has_any.store(true, Ordering::Release);
    }

    /// Returns whether there may be a report. A thread sees those that it has added.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes the report that was added first.
    pub(crate) fn take(&self) -> Option<T> {
        let mut reports = self.reports.lock();
        let first = reports.pop();
        self.has_any.store(!reports.is_empty(), Ordering::Release);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::ConnId;
    use crate::testing::Lock;

    #[test]
    fn reports_are_taken_in_the_order_in_which_they_were_added() {
        let list = Reports::<Lock, _>::new();
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
        let list = Reports::<Lock, _>::new();
        // More than the room that the first reservation makes at least.
        for first in [0, 64] {
            list.reserve_for(64).unwrap();
            (first..first + 64).for_each(|number| list.add(ConnId(number)));
        }
        let taken: std::vec::Vec<_> = core::iter::from_fn(|| list.take()).collect();
        assert_eq!(taken, (0..128).map(ConnId).collect::<std::vec::Vec<_>>());
    }
}
