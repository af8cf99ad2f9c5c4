// SPDX-License-Identifier: MIT OR Apache-2.0

//! Upper-layer messages that wait to be sent, and their fragmentation ([MS-SMBD] 3.1.5.4).

use fallible::{AllocError, Fifo};

use crate::descriptor::Token;

/// A message that the consumer wants to send.
#[derive(Debug)]
pub(crate) struct Outgoing<M> {
    message: M,
    /// Length of the message in bytes when it was accepted.
    length: u32,
    /// Bytes sent so far.
    sent: u32,
    invalidate: Option<Token>,
}

/// A piece of the oldest message.
#[derive(Debug)]
pub(crate) struct Fragment {
    /// Number of bytes written to the buffer.
    pub(crate) length: u32,
    /// Bytes of the message that follow.
    pub(crate) remaining: u32,
    /// Token to invalidate with the piece.
    pub(crate) invalidate: Option<Token>,
}

/// Messages in the order in which they are sent. The first may have been sent in part.
#[derive(Debug)]
pub(crate) struct SendQueue<M> {
    first: Option<Outgoing<M>>,
    others: Fifo<Outgoing<M>>,
    /// Messages that may be queued.
    capacity: usize,
}

impl<M: AsRef<[u8]>> SendQueue<M> {
    pub(crate) fn new(capacity: u16) -> Result<Self, AllocError> {
        let mut others = Fifo::new();
        others.reserve_for(usize::from(capacity))?;
        Ok(Self { first: None, others, capacity: usize::from(capacity) })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.others.len() + usize::from(self.first.is_some()) >= self.capacity
    }

    /// Appends a message of `length` bytes. The caller has checked that the queue is not full.
    //= R-SMBD-55
    pub(crate) fn push(&mut self, message: M, length: u32, invalidate: Option<Token>) {
        let outgoing = Outgoing { message, length, sent: 0, invalidate };
        if self.first.is_none() {
            self.first = Some(outgoing);
        } else {
            self.others.push(outgoing);
        }
    }

    /// Removes the oldest message.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let first = core::mem::replace(&mut self.first, self.others.pop());
        first.map(|outgoing| outgoing.message)
    }

    /// Copies the next piece of the oldest message to `buffer`, as much as fits. The message stays in the queue.
    pub(crate) fn copy_fragment(&mut self, buffer: &mut [u8]) -> Option<Fragment> {
        let outgoing = self.first.as_mut()?;
        //= R-SMBD-57
        let left = outgoing.length.saturating_sub(outgoing.sent);
        let length = left.min(u32::try_from(buffer.len()).unwrap_or(u32::MAX));
        let start = outgoing.sent as usize;
        let bytes = outgoing.message.as_ref().get(start..start.saturating_add(length as usize))?;
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        outgoing.sent = outgoing.sent.saturating_add(length);
        let remaining = left - length;
        //= R-SMBD-58
        let invalidate = if remaining == 0 { outgoing.invalidate.take() } else { None };
        Some(Fragment { length, remaining, invalidate })
    }
}
