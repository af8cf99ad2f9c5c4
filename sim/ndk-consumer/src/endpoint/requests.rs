//! Requests that an endpoint waits for.

use core::time::Duration;

use crate::books::Operation;

/// Requests outstanding; their index is the context they are posted with.
#[derive(Default)]
pub struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
}

/// A request, as it has to be known when it completes.
#[derive(Clone, Copy)]
pub struct Request {
    pub operation: Operation,
    pub holding: Holding,
    /// The poster's own number.
    pub tag: u64,
    /// Bytes it moves, where its poster knows.
    pub bytes: u64,
    /// When it was posted.
    pub at: Duration,
}

/// Whose memory a request moves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// A message buffer of the endpoint's, free again when the request is over.
    Buffer(usize),
    /// The poster's.
    Lent,
    /// Nobody's: the request only asks whether the peer is there.
    Nothing,
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
