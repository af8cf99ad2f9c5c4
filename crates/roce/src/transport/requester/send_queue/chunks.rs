// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks of a READ: the parts that it is requested in.
//!
//! The window decides how many packets a chunk has
//! ([`Window::chunk`](crate::transport::requester::recovery::window::Window::chunk)). So it bounds the responses in flight, and
//! what is lost of a chunk is one request ([`ReadGaps`](crate::transport::requester::outbound_reads::gaps::ReadGaps)). Chunk boundaries
//! never move: a responder finds any part of a chunk inside one READ that it remembers.

use super::Wqe;
use crate::transport::sequence::Sequence;

impl Wqe {
    /// Returns the first packet of the chunk that `sequence` is in.
    pub(crate) fn chunk_first(&self, sequence: Sequence) -> Sequence {
        let into = sequence.since(self.first);
        self.first.add(into.saturating_sub(into % self.chunk_packets()))
    }

    /// Returns the end of the chunk that `sequence` is in.
    pub(crate) fn chunk_end(&self, sequence: Sequence) -> Sequence {
        let into = sequence.since(self.first);
        let packets = self.chunk_packets();
        let end = into.saturating_sub(into % packets).saturating_add(packets);
        self.first.add(end).min(self.end())
    }

    /// Returns the number of chunks that end at or before `sequence`.
    pub(crate) fn chunks_before(&self, sequence: Sequence) -> u32 {
        let into = sequence.since(self.first);
        if sequence >= self.end() { self.chunks_of(into) } else { (into / self.chunk_packets()) as u32 }
    }

    /// Returns the number of chunks that as many packets need.
    pub(crate) fn chunks_of(&self, packets: u64) -> u32 {
        packets.div_ceil(self.chunk_packets()) as u32
    }

    /// Returns the packets of each chunk but the last one.
    #[inline]
    fn chunk_packets(&self) -> u64 {
        u64::from(self.chunk.max(1))
    }
}
