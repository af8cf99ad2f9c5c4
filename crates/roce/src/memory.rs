// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of others: the one place that reads and writes it.
//!
//! A [`Backing`] says where the bytes of a region are. Whoever makes one vouches for the memory; this
//! module keeps every access inside of it. Others (the consumer, its peers, devices) may read and write
//! the same memory at the same time. So no reference to it is ever made, each byte is read or written
//! through a raw pointer exactly once, and nothing that is decided depends on what was read. That such
//! races end in torn data and in nothing worse is what every DMA relies on; the language does not promise
//! it for plain copies, which is why all of them stand here.
#![allow(unsafe_code, reason = "the one module that touches memory of consumers")]

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

// SAFETY: the pointer is not tied to a thread: whoever gave it has promised (`Backing::push`) that the
// memory is accessible from any.
unsafe impl Send for Segment {}
// SAFETY: as above; nothing is accessed through a shared `Segment` but by the copies below.
unsafe impl Sync for Segment {}

/// Where the bytes of a region or of a logical range are: segments of memory, one after the other.
#[derive(Debug, Default)]
pub struct Backing {
    /// In rising order of `start`, without gaps and without empty ones.
    segments: Vec<Segment>,
    length: u64,
}

impl Backing {
    /// Nothing so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: Vec::new(), length: 0 }
    }

    /// One contiguous piece of memory.
    ///
    /// # Safety
    /// As for [`Backing::push`].
    pub unsafe fn contiguous(base: NonNull<u8>, len: usize) -> Result<Self, CreateError> {
        let mut backing = Self::new();
        // SAFETY: the same contract.
        unsafe { backing.push(base, len) }?;
        Ok(backing)
    }

    /// Adds `len` bytes at `base` to the end.
    ///
    /// # Safety
    /// As long as the engine may use this backing (until the region is deregistered or the range
    /// unmapped), the memory stays readable, and writable if the region's rights or logical use say so,
    /// from any thread and at any IRQL; and no Rust reference to it is alive while the engine accesses
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

    /// Bytes in all.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether `[offset, offset + len)` lies inside.
    #[inline]
    pub(crate) const fn contains(&self, offset: u64, len: u64) -> bool {
        match offset.checked_add(len) {
            Some(end) => end <= self.length,
            None => false,
        }
    }

    /// Copies `source` to `offset`. Nothing is written, and `false` returned, when it does not fit.
    #[inline]
    pub(crate) fn write(&self, offset: u64, source: &[u8]) -> bool {
        if !self.contains(offset, source.len() as u64) {
            return false;
        }
        let mut rest = source;
        self.for_each_piece(offset, source.len(), |piece| {
            let (now, later) = rest.split_at_checked(piece.len).unwrap_or((rest, &[]));
            rest = later;
            // SAFETY: `now.len() <= piece.len` bytes are writable at `piece.base`: the piece lies inside a
            // segment whose memory was vouched for. They do not overlap `now`: a frame being received is
            // not inside a consumer's region.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), piece.base, now.len()) };
        });
        true
    }

    /// Copies `len` bytes from `offset` on into the payload of `frame`. Nothing is read, and `false`
    /// returned, when there are not as many, here or in the frame.
    #[inline]
    pub(crate) fn read(&self, offset: u64, len: usize, frame: &mut Frame<'_>) -> bool {
        if !self.contains(offset, len as u64) || frame.missing() < len {
            return false;
        }
        self.for_each_piece(offset, len, |piece| {
            frame.fill(piece.len, |crc, slot, state| {
                // SAFETY: `slot` is `piece.len` long, as the frame misses no fewer, and the piece lies
                // inside a segment whose memory was vouched for. A transmit slot is not inside a
                // consumer's region.
                unsafe { crc.copy_in_and_crc(slot, piece.base, state) }
            });
        });
        true
    }

    /// The contiguous pieces of `[offset, offset + len)`, which lies inside.
    #[inline]
    fn for_each_piece(&self, offset: u64, len: usize, mut each: impl FnMut(Piece)) {
        let mut at = match self.segments.as_slice() {
            // The usual case, without a search.
            [_] => 0,
            // The last one that starts at or before the offset.
            segments => segments.partition_point(|segment| segment.start <= offset).saturating_sub(1),
        };
        let (mut offset, mut left) = (offset, len);
        while left > 0
            && let Some(segment) = self.segments.get(at)
        {
            // Inside the segment, whose length is a `usize`.
            let skip = offset.saturating_sub(segment.start) as usize;
            let len = segment.len.saturating_sub(skip).min(left);
            each(Piece { base: segment.base.as_ptr().wrapping_add(skip), len });
            offset = offset.saturating_add(len as u64);
            left = left.saturating_sub(len);
            at = at.saturating_add(1);
        }
    }
}

/// Contiguous bytes inside one segment.
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
    fn a_copy_crosses_segments() {
        let mut pieces = [vec![0u8; 3], vec![0; 5], vec![0; 1], vec![0; 4]];
        let backing = backing(&mut pieces);
        assert_eq!(backing.length(), 13);
        assert!(backing.write(2, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert!(!backing.write(6, &[9; 8]), "one byte too far");
        assert!(backing.write(13, &[]), "nothing at the end is inside");
        assert!(!backing.write(u64::MAX, &[9; 8]), "and no wrap");
        assert_eq!(pieces, [vec![0, 0, 1], vec![2, 3, 4, 5, 6], vec![7], vec![8, 0, 0, 0]]);
    }
}
