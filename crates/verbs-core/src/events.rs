// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of events with a file descriptor that is readable while the queue holds one.

use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::Mutex;

use crate::error::Error;
use crate::sys::{EventFd, wait_readable};

/// A queue of events.
#[derive(Debug)]
pub struct EventQueue<T> {
    /// Counts the events.
    fd: EventFd,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { fd: EventFd::semaphore()?, events: Mutex::default() })
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        self.events.lock().push_back(event);
        self.fd.add();
    }

    /// Takes the oldest event. Waits for one, unless the application made the descriptor nonblocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take(&self) -> Result<T, Error> {
        loop {
            self.fd.take()?;
            // None if the event was removed after the descriptor had counted it.
            if let Some(event) = self.events.lock().pop_front() {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event if there is one. Does not wait.
    pub fn try_take(&self) -> Option<T> {
        self.is_readable().then(|| self.take().ok())?
    }

    /// Removes the events for which `remove` returns `true`. Returns them.
    pub fn remove(&self, mut remove: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = self.events.lock();
        let (removed, kept): (Vec<_>, Vec<_>) = events.drain(..).partition(|event| remove(event));
        events.extend(kept);
        for _ in &removed {
            // Another thread may have read the count of this event; it then waits for the next one.
            if self.is_readable() {
                let _ = self.fd.take();
            }
        }
        removed
    }

    fn is_readable(&self) -> bool {
        let mut interest = [(self.fd.as_fd(), false)];
        wait_readable(&mut interest, Some(Duration::ZERO));
        let [(_, readable)] = interest;
        readable
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_counts_events() {
        let queue = EventQueue::new().unwrap();
        assert_eq!(queue.try_take(), None);
        for event in 0..5 {
            queue.push(event);
        }
        assert_eq!(queue.take(), Ok(0));
        assert_eq!(queue.remove(|event| event % 2 == 1), [1, 3]);
        assert_eq!((queue.try_take(), queue.try_take(), queue.try_take()), (Some(2), Some(4), None));
        assert!(!queue.is_readable());
    }

    #[test]
    fn a_take_waits_for_the_next_event() {
        let queue = EventQueue::new().unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take());
            queue.push(7);
            assert_eq!(taken.join().unwrap(), Ok(7));
        });
    }
}
