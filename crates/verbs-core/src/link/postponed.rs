// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests for connections that wait a moment for their listener.
//!
//! The kernel of a host with a network card answers requests at any time. Here a process receives a request together with the frames
//! before it, when it is scheduled: one of these may be what its program waits for before it listens.

use core::time::Duration;
use std::collections::VecDeque;

use roce::Instant;

/// How long a request waits before it is refused: a few time slices of the scheduler.
const PATIENCE: Duration = Duration::from_millis(100);

/// Requests that wait at most; others are refused at once.
const MOST: usize = 32;

/// Requests for connections on which nothing listens yet, in the order of their times.
#[derive(Debug, Default)]
pub struct Postponed(VecDeque<Request>);

#[derive(Debug)]
struct Request {
    due: Instant,
    port: u16,
    frame: Vec<u8>,
}

impl Postponed {
    /// Adds a request, unless too many wait. Returns whether it did.
    pub fn add(&mut self, now: Instant, port: u16, frame: &[u8]) -> bool {
        let Self(requests) = self;
        if requests.len() == MOST {
            return false;
        }
        requests.push_back(Request { due: now + PATIENCE, port, frame: frame.to_vec() });
        true
    }

    /// Returns when the first request is to be handled.
    pub fn due(&self) -> Option<Instant> {
        self.0.front().map(|request| request.due)
    }

    /// Takes the first request that is to be handled: its port and its frame.
    pub fn take(&mut self, now: Instant) -> Option<(u16, Vec<u8>)> {
        let Self(requests) = self;
        let request = requests.pop_front_if(|request| request.due <= now)?;
        Some((request.port, request.frame))
    }

    /// Lets the requests for a port wait no longer.
    pub fn hasten(&mut self, now: Instant, port: u16) {
        let Self(requests) = self;
        for request in requests.iter_mut().filter(|request| request.port == port) {
            request.due = request.due.min(now);
        }
        requests.make_contiguous().sort_by_key(|request| request.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_their_time_or_their_listener() {
        let (start, mut postponed) = (Instant::from_nanos(1), Postponed::default());
        assert!(postponed.add(start, 1, b"one") && postponed.add(start, 2, b"two"));
        assert_eq!(postponed.take(start), None);
        postponed.hasten(start, 2);
        assert_eq!((postponed.due(), postponed.take(start)), (Some(start), Some((2, b"two".to_vec()))));
        assert_eq!(postponed.take(start), None);
        assert_eq!(postponed.due(), Some(start + PATIENCE));
        assert_eq!(postponed.take(start + PATIENCE), Some((1, b"one".to_vec())));
        assert_eq!(postponed.due(), None);
        assert_eq!((0..40).filter(|_| postponed.add(start, 3, &[])).count(), MOST);
    }
}
