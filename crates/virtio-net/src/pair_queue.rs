// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of the queues that carry frames.

/// The receive or the transmit queue of a pair, by the pair's number from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairQueue {
    Receive(u16),
    Transmit(u16),
}

impl PairQueue {
    /// Returns the number of the queue in the device. (virtio §4)
    #[must_use]
    pub const fn index(self) -> u16 {
        match self {
            Self::Receive(pair) => pair.wrapping_mul(2),
            Self::Transmit(pair) => pair.wrapping_mul(2).wrapping_add(1),
        }
    }
}
