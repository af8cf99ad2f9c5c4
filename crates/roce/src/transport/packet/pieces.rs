// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pieces of a scatter/gather list that the payload of one packet takes.

use crate::sge_cursor::{SgeCursor, TooShort};
use crate::work::Sge;

/// Pieces of consumer memory that the payload of a packet may take.
const MAX_PIECES: usize = 4;

/// Pieces of consumer memory, in the order of the payload.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: [Sge; MAX_PIECES],
    count: usize,
}

impl Pieces {
    /// Notes the pieces of `length` bytes of `sges` from `offset` on, and advances `cursor` over them. Returns `None`, and leaves
    /// the cursor, if there are too many pieces or the list is too short.
    #[inline(never)]
    pub(crate) fn collect(cursor: &mut SgeCursor, sges: &[Sge], offset: u32, length: u32) -> Option<Self> {
        let mut end = *cursor;
        let mut found = Self { pieces: [Sge::default(); MAX_PIECES], count: 0 };
        end.seek(sges, offset).ok()?;
        end.walk(sges, length, TooShort, |sge, within, length| {
            let address = sge.address.checked_add(u64::from(within)).ok_or(TooShort)?;
            *found.pieces.get_mut(found.count).ok_or(TooShort)? = Sge { address, length, key: sge.key };
            found.count = found.count.saturating_add(1);
            Ok(())
        })
        .ok()?;
        *cursor = end;
        Some(found)
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        self.pieces.get(..self.count).unwrap_or_default()
    }
}
