// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of events with a file descriptor that is readable while the queue holds one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::Mutex;

use crate::error::Error;
use crate::sys::EventFd;

/// A queue of events.
#[derive(Debug)]
pub struct EventQueue<T> {
    /// Counts the events that no thread has begun to take.
    fd: EventFd,
    events: Mutex<Events<T>>,
}

#[derive(Debug)]
struct Events<T> {
    queued: VecDeque<T>,
    /// Counts of removed events that threads have read and not yet dropped.
    orphaned: usize,
}

impl<T> EventQueue<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            fd: EventFd::semaphore()?,
            events: Mutex::new(Events { queued: VecDeque::new(), orphaned: 0 }),
        })
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        let mut events = self.events.lock();
        events.queued.push_back(event);
        self.fd.add();
    }

    /// Takes the oldest event. Waits for one, unless the application made the descriptor nonblocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take(&self) -> Result<T, Error> {
        self.take_counted(|_| {})
    }

    /// Takes the oldest event as [`EventQueue::take`] does. Calls `count` with it before another thread can find the event gone.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take_counted(&self, count: impl Fn(&T)) -> Result<T, Error> {
        loop {
            self.fd.take()?;
            let mut events = self.events.lock();
            if events.orphaned > 0 {
                // It is the count of a removed event, or as good as that: another thread that has read one takes the oldest event.
                events.orphaned -= 1;
            } else if let Some(event) = events.queued.pop_front() {
                count(&event);
                return Ok(event);
            }
        }
    }

    /// Removes the events for which `remove` returns `true`. Returns them.
    pub fn remove(&self, mut remove: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = self.events.lock();
        let (removed, kept): (Vec<_>, Vec<_>) = events.queued.drain(..).partition(|event| remove(event));
        events.queued.extend(kept);
        for _ in &removed {
            if !self.fd.try_take() {
                // Another thread has read the count of this event, and then waits for the next one.
                events.orphaned += 1;
            }
        }
        removed
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
        for event in 0..5 {
            queue.push(event);
        }
        assert_eq!(queue.take(), Ok(0));
        assert_eq!(queue.remove(|event| event % 2 == 1), [1, 3]);
        assert_eq!((queue.take(), queue.take()), (Ok(2), Ok(4)));
        assert!(!queue.fd.try_take());
    }

    /// A thread that has read the count of an event when it is removed waits for the next one, and the removal does not wait for it.
    #[test]
    fn events_are_removed_while_a_thread_takes_them() {
        let queue = EventQueue::new().unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| while queue.take() != Ok(u32::MAX) {});
            for event in 0..20_000 {
                queue.push(event);
                queue.remove(|_| true);
            }
            queue.push(u32::MAX);
            taken.join().unwrap();
        });
        assert!(!queue.fd.try_take());
    }

    #[test]
    fn an_event_is_counted_before_a_removal_finds_it_gone() {
        let queue = EventQueue::new().unwrap();
        queue.push(1);
        assert_eq!(queue.take_counted(|_| assert!(queue.events.is_locked())), Ok(1));
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
