// SPDX-License-Identifier: MIT OR Apache-2.0

//! Assignment of interrupt messages to queues.

/// MSI-X vectors by purpose. (virtio §15)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vectors {
    pub config: u16,
    /// Vector of the first receive queue. The vectors of other pairs follow it.
    pub receive: u16,
    /// Vector of the first transmit queue, likewise.
    pub transmit: u16,
    /// Number of queue pairs, at least 1. With several pairs, both queues of a pair share a vector.
    pub pairs: u16,
}

impl Vectors {
    /// Returns the assignment for `messages` interrupt messages and at most `pairs` queue pairs. The configuration gets one message, and
    /// each pair gets one; fewer messages mean fewer pairs. A single pair gets one message each for receive and transmit, or one for both,
    /// or shares one with the configuration. `None` without a message.
    #[must_use]
    pub const fn plan(messages: u32, pairs: u16) -> Option<Self> {
        let of_pairs = messages.saturating_sub(1);
        match (messages, pairs) {
            (0, _) => None,
            (1, _) => Some(Self { config: 0, receive: 0, transmit: 0, pairs: 1 }),
            (2, _) => Some(Self { config: 0, receive: 1, transmit: 1, pairs: 1 }),
            (_, 0 | 1) => Some(Self { config: 0, receive: 1, transmit: 2, pairs: 1 }),
            _ if of_pairs < pairs as u32 => {
                Some(Self { config: 0, receive: 1, transmit: 1, pairs: of_pairs as u16 })
            }
            _ => Some(Self { config: 0, receive: 1, transmit: 1, pairs }),
        }
    }

    /// Returns the vectors of the receive and the transmit queue of a pair, from 0 on.
    #[must_use]
    pub const fn of_pair(self, pair: u16) -> [u16; 2] {
        [self.receive.wrapping_add(pair), self.transmit.wrapping_add(pair)]
    }

    /// Returns the next assignment to try after the device refused this one.
    #[must_use]
    pub(crate) const fn fewer(self) -> Option<Self> {
        match self {
            Self { pairs: 2, .. } => Self::plan(3, 1),
            Self { pairs: 3.., .. } => Self::plan(self.pairs as u32, self.pairs),
            Self { transmit: 2, .. } => Self::plan(2, 1),
            Self { receive: 1, .. } => Self::plan(1, 1),
            _ => None,
        }
    }
}
