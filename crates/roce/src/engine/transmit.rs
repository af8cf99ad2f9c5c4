// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's transmit queue, as the engine sees it.

/// A queue of frames to transmit. The caller of the engine holds its lock.
pub trait Transmit {
    /// Returns the next free slot, the same one until [`Transmit::commit`]; `None` when the queue is full. A
    /// slot is at least as long as the longest frame: path MTU plus 150 bytes.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// Transmits the frame in the slot: `len` bytes from the Ethernet header on, without frame check sequence.
    fn commit(&mut self, len: usize);
}
