// SPDX-License-Identifier: MIT OR Apache-2.0

//! Used entries that no correct device writes.

/// Corruption of the used ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsedQuirk {
    /// An id beyond the descriptor table.
    IdOutOfRange,
    /// The id of a buffer that was returned before.
    IdTwice,
    /// More bytes than the buffer has.
    LengthTooLarge,
    /// Fewer bytes than the header.
    LengthTooSmall,
    /// An index ahead of every buffer that was made available; in a packed ring, one more used descriptor, whose id no buffer
    /// has.
    IndexJump,
}
