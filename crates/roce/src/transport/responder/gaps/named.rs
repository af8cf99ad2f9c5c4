// SPDX-License-Identifier: MIT OR Apache-2.0

//! The missing packets that the responder has named: see [`hints`](super::hints).

use crate::transport::sequence::Sequence;

/// The place up to which the responder has looked for missing packets, and the one that it names next.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Hints {
    /// The packet that is named next; [`Sequence::MAX`] for none.
    pub(super) next: Sequence,
    /// Packets before it were looked at.
    pub(super) frontier: Sequence,
    /// Packets that have arrived after the gap, less the acknowledgements sent since: no more packets are named, so that a forger has no
    /// more packets sent than it sends.
    pub(crate) arrivals: u32,
}

impl Hints {
    pub(crate) const NONE: Self = Self { next: Sequence::MAX, frontier: Sequence::ZERO, arrivals: 0 };

    /// Returns whether a packet is to be named.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.next != Sequence::MAX
    }
}
