// SPDX-License-Identifier: MIT OR Apache-2.0

//! Assignment of interrupt messages to queues, or of the line.

/// A queue or the configuration has no vector. (virtio §15)
const NO_VECTOR: u16 = 0xFFFF;

/// Interrupt messages by purpose: MSI-X vectors, or the causes of the line in their place. (virtio §15)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vectors {
    pub config: u16,
    /// Vector of the first receive queue. The vectors of other pairs follow it.
    pub receive: u16,
    /// Vector of the first transmit queue, likewise.
    pub transmit: u16,
    /// Number of queue pairs, at least 1. With several pairs, both queues of a pair share a vector.
    pub pairs: u16,
    /// The device has its line, and no vectors.
    pub is_line: bool,
}

impl Vectors {
    /// Returns the assignment for `messages` interrupt messages and at most `pairs` queue pairs. The configuration gets one message, and
    /// each pair gets one; fewer messages mean fewer pairs. A single pair gets one message each for receive and transmit, or one for both,
    /// or shares one with the configuration. Without a message the device has its line and a single pair.
    #[must_use]
    pub const fn plan(messages: u32, pairs: u16) -> Self {
        let of_pairs = messages.saturating_sub(1);
        let (receive, transmit, pairs) = match (messages, pairs) {
            (1, _) => (0, 0, 1),
            (0 | 2, _) => (1, 1, 1),
            (_, 0 | 1) => (1, 2, 1),
            _ if of_pairs < pairs as u32 => (1, 1, of_pairs as u16),
            _ => (1, 1, pairs),
        };
        Self { config: 0, receive, transmit, pairs, is_line: messages == 0 }
    }

    /// Returns the vector of configuration changes, as the device knows it.
    #[must_use]
    pub const fn of_config(self) -> u16 {
        if self.is_line { NO_VECTOR } else { self.config }
    }

    /// Returns the vectors of the receive and the transmit queue of a pair, from 0 on, as the device knows them.
    #[must_use]
    pub const fn of_pair(self, pair: u16) -> [u16; 2] {
        if self.is_line {
            return [NO_VECTOR; 2];
        }
        [self.receive.wrapping_add(pair), self.transmit.wrapping_add(pair)]
    }

    /// Returns the next assignment to try after the device refused this one.
    #[must_use]
    pub(crate) const fn fewer(self) -> Option<Self> {
        let messages = match self {
            Self { is_line: true, .. } => return None,
            Self { pairs: 2, .. } => 3,
            Self { pairs: 3.., .. } => self.pairs as u32,
            Self { transmit: 2, .. } => 2,
            Self { receive: 1, .. } => 1,
            _ => return None,
        };
        Some(Self::plan(messages, if self.pairs == 2 { 1 } else { self.pairs }))
    }
}
