// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks of a READ: the parts that it is requested in.
//!
//! A chunk has 64 to 256 packets: a quarter of the window between these limits. So the window bounds the responses in flight, and
//! what is lost of a chunk is one request ([`ReadGaps`](crate::transport::requester::reads::gaps::ReadGaps)). Chunk boundaries
//! never move: a responder finds any part of a chunk inside one READ that it remembers.

use super::Wqe;
use crate::transport::sequence::Sequence;

impl Wqe {
    /// Returns the first packet of the chunk that `sequence` is in.
    pub(crate) fn chunk_first(&self, sequence: Sequence) -> Sequence {
        let into = sequence.since(self.first);
        self.first.add(into >> self.chunk_shift << self.chunk_shift)
    }

    /// Returns the end of the chunk that `sequence` is in.
    pub(crate) fn chunk_end(&self, sequence: Sequence) -> Sequence {
        let into = sequence.since(self.first);
        let end = (into >> self.chunk_shift).saturating_add(1) << self.chunk_shift;
        self.first.add(end).min(self.end())
    }

    /// Returns the number of chunks that end at or before `sequence`.
    pub(crate) fn chunks_before(&self, sequence: Sequence) -> u32 {
        let into = sequence.since(self.first);
        if sequence >= self.end() { self.chunks_of(into) } else { (into >> self.chunk_shift) as u32 }
    }

    /// Returns the number of chunks that as many packets need.
    pub(crate) fn chunks_of(&self, packets: u64) -> u32 {
        let less = (1u64 << self.chunk_shift).wrapping_sub(1);
        (packets.saturating_add(less) >> self.chunk_shift) as u32
    }
}
