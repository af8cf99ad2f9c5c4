// SPDX-License-Identifier: MIT OR Apache-2.0

//! Access to consumer memory. No other module reads or writes it.
//!
//! A [`Backing`] says where the bytes of a region are. Its creator guarantees that the memory is valid; this
//! module keeps every access within its bounds. The consumer, its peers and devices may read and write the same
//! memory concurrently. So no reference to it is created, each byte is read or written through a raw pointer
//! exactly once, and no decision depends on the data. Such races result in torn data only, as with DMA. The
//! language does not guarantee that for plain copies, so all of them are in this module.
#![allow(unsafe_code, reason = "the only module that accesses consumer memory")]

use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::error::CreateError;
use fallible::vec;
use roce_wire::Frame;

/// A piece of contiguous memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Offset of its first byte in the backing.
    start: u64,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is not tied to a thread: by the contract of `Backing::push` the memory is accessible from
// any thread.
unsafe impl Send for Segment {}
// SAFETY: as above; only the copies below access memory through a shared `Segment`.
unsafe impl Sync for Segment {}

/// Memory of a region or of a logical range: a list of contiguous segments.
#[derive(Debug, Default)]
pub struct Backing {
    /// In ascending order of `start`, without gaps and without empty segments.
    segments: Vec<Segment>,
    length: u64,
}

impl Backing {
    /// Creates an empty backing.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: Vec::new(), length: 0 }
    }

    /// Creates a backing of one contiguous segment.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// As for [`Backing::push`].
    pub unsafe fn contiguous(base: NonNull<u8>, len: usize) -> Result<Self, CreateError> {
        let mut backing = Self::new();
        // SAFETY: this function has the contract of `push`: the memory is valid as long as the backing is used.
        unsafe { backing.push(base, len) }?;
        Ok(backing)
    }

    /// Appends `len` bytes at `base`.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the total length overflows; [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// As long as the engine may use this backing (until the region is deregistered or the range
    /// unmapped), the memory stays readable, and writable if the region's rights or logical use require it,
    /// from any thread and at any IRQL; and no Rust reference to it is live while the engine accesses
    /// it on behalf of a work request or a peer.
    pub unsafe fn push(&mut self, base: NonNull<u8>, len: usize) -> Result<(), CreateError> {
        if len == 0 {
            return Ok(());
        }
        let length = self.length.checked_add(len as u64).ok_or(CreateError::Invalid)?;
        vec::push(&mut self.segments, Segment { start: self.length, base, len })?;
        self.length = length;
        Ok(())
    }

    /// Returns the total length in bytes.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns `true` if `[offset, offset + len)` is within bounds.
    #[inline]
    pub(crate) const fn contains(&self, offset: u64, len: u64) -> bool {
        match offset.checked_add(len) {
            Some(end) => end <= self.length,
            None => false,
        }
    }

    /// Copies `source` to `offset`. Returns `false` and writes nothing if it is out of bounds.
    #[inline]
    pub(crate) fn write(&self, offset: u64, source: &[u8]) -> bool {
        if !self.contains(offset, source.len() as u64) {
            return false;
        }
        let mut rest = source;
        self.for_each_piece(offset, source.len(), |piece| {
            let (now, later) = rest.split_at_checked(piece.len).unwrap_or((rest, &[]));
            rest = later;
            // SAFETY: `now.len() <= piece.len` bytes are writable at `piece.base`: the piece is within a
            // segment, whose memory is valid by the contract of `push`. They do not overlap `now`: a frame being
            // received is not in a consumer's region.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), piece.base, now.len()) };
        });
        true
    }

    /// Copies memory from `offset` on to `target`. Returns `false` and reads nothing if that is out of bounds.
    pub(crate) fn copy_to(&self, offset: u64, target: &mut [u8]) -> bool {
        if !self.contains(offset, target.len() as u64) {
            return false;
        }
        let len = target.len();
        let mut rest = target;
        self.for_each_piece(offset, len, |piece| {
            let all = core::mem::take(&mut rest);
            let now = piece.len.min(all.len());
            let Some((now, later)) = all.split_at_mut_checked(now) else { return };
            rest = later;
            // SAFETY: `now.len() <= piece.len` bytes are readable at `piece.base`: the piece is within a segment, whose memory is
            // valid by the contract of `push`. `now` is the caller's and not in a consumer's region.
            unsafe { core::ptr::copy_nonoverlapping(piece.base.cast_const(), now.as_mut_ptr(), now.len()) };
        });
        true
    }

    /// Returns whether the memory at `offset` holds `bytes`. `false` if that is out of bounds.
    pub(crate) fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        if !self.contains(offset, bytes.len() as u64) {
            return false;
        }
        let (mut rest, mut same) = (bytes, true);
        self.for_each_piece(offset, bytes.len(), |piece| {
            let (now, later) = rest.split_at_checked(piece.len).unwrap_or((rest, &[]));
            rest = later;
            let mut base = piece.base.cast_const();
            for expected in now.chunks(64) {
                let mut present = [0; 64];
                let Some(present) = present.get_mut(..expected.len()) else { return };
                // SAFETY: the chunks of `now`, which is not longer than the piece, follow each other, so
                // `expected.len()` bytes are readable at `base`: the piece is within a segment, whose memory is valid
                // by the contract of `push`. `present` is on the stack and does not overlap.
                unsafe { core::ptr::copy_nonoverlapping(base, present.as_mut_ptr(), present.len()) };
                same &= *present == *expected;
                base = base.wrapping_add(expected.len());
            }
        });
        same
    }

    /// Copies `len` bytes at `offset` into the payload of `frame`. Returns `false` and reads nothing if that is
    /// out of bounds here or in the frame.
    #[inline]
    pub(crate) fn read(&self, offset: u64, len: usize, frame: &mut Frame<'_>) -> bool {
        if !self.contains(offset, len as u64) || frame.missing() < len {
            return false;
        }
        self.for_each_piece(offset, len, |piece| {
            frame.fill(piece.len, |crc, slot, state| {
                // SAFETY: `slot` is `piece.len` long, since at least that many bytes of the frame are missing,
                // and the piece is within a segment, whose memory is valid by the contract of `push`. A transmit
                // slot is not in a consumer's region.
                unsafe { crc.copy_in(slot, piece.base, state) }
            });
        });
        true
    }

    /// Calls `each` for the contiguous pieces of `[offset, offset + len)`, which is within bounds.
    #[inline]
    fn for_each_piece(&self, offset: u64, len: usize, mut each: impl FnMut(Piece)) {
        match self.segments.as_slice() {
            // The common case: the segment is the whole backing, so its length is that of the backing.
            [segment] if len > 0 => {
                each(Piece { base: segment.base.as_ptr().wrapping_add(offset as usize), len });
            }
            segments => Self::for_each_of(segments, offset, len, &mut each),
        }
    }

    /// [`Backing::for_each_piece`] for several segments.
    #[inline(never)]
    fn for_each_of(segments: &[Segment], offset: u64, len: usize, each: &mut dyn FnMut(Piece)) {
        // The last segment that starts at or before the offset.
        let mut at = segments.partition_point(|segment| segment.start <= offset).saturating_sub(1);
        let (mut offset, mut left) = (offset, len);
        while left > 0
            && let Some(segment) = segments.get(at)
        {
            // Within the segment, whose length is a `usize`.
            let skip = offset.saturating_sub(segment.start) as usize;
            let len = segment.len.saturating_sub(skip).min(left);
            each(Piece { base: segment.base.as_ptr().wrapping_add(skip), len });
            offset = offset.saturating_add(len as u64);
            left = left.saturating_sub(len);
            at = at.saturating_add(1);
        }
    }
}

/// Contiguous bytes within one segment.
struct Piece {
    base: *mut u8,
    len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(pieces: &mut [Vec<u8>]) -> Backing {
        let mut backing = Backing::new();
        for piece in pieces {
            let base = NonNull::new(piece.as_mut_ptr()).unwrap();
            // SAFETY: the vectors outlive the backing in the tests below and are not used meanwhile.
            unsafe { backing.push(base, piece.len()) }.unwrap();
        }
        backing
    }

    #[test]
    fn write_crosses_segments() {
        let mut pieces = [vec![0u8; 3], vec![0; 5], vec![0; 1], vec![0; 4]];
        let backing = backing(&mut pieces);
        assert_eq!(backing.length(), 13);
        assert!(backing.write(2, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert!(!backing.write(6, &[9; 8]), "one byte past the end");
        assert!(backing.write(13, &[]), "an empty write at the end is within bounds");
        assert!(backing.holds(1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]));
        let mut copy = [9; 12];
        assert!(backing.copy_to(1, &mut copy));
        assert_eq!(copy, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]);
        assert!(!backing.copy_to(2, &mut copy), "one byte past the end");
        for at in 0..8 {
            let mut other = [1, 2, 3, 4, 5, 6, 7, 8];
            other[at] ^= 1;
            assert!(!backing.holds(2, &other), "{at}");
        }
        assert!(!backing.holds(12, &[0, 0]), "one byte past the end");
        assert!(!backing.write(u64::MAX, &[9; 8]), "offset + length does not wrap");
        assert_eq!(pieces, [vec![0, 0, 1], vec![2, 3, 4, 5, 6], vec![7], vec![8, 0, 0, 0]]);
    }
}
