// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of one queue, in either ring format.

mod chain;
mod packed;
mod split;

pub use self::chain::Chain;
use self::{packed::PackedQueue, split::SplitQueue};
use super::{common::RingAddresses, quirks::UsedQuirk};
use crate::{dma::DmaSpace, registers::Misuse};

enum Format {
    Split(SplitQueue),
    Packed(PackedQueue),
}

/// One queue, device side.
pub struct DeviceQueue {
    /// `None` until the driver enables the queue.
    format: Option<Format>,
    ring: RingAddresses,
    /// Cleared at a start: as in QEMU, the first completion interrupts regardless of the driver's event.
    signalled: bool,
    /// Number of resets.
    resets: u64,
}

impl DeviceQueue {
    pub fn new() -> Self {
        Self { format: None, ring: RingAddresses::default(), signalled: false, resets: 0 }
    }

    pub fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::new() };
    }

    pub fn enable(&mut self, ring: &RingAddresses) {
        self.format = Some(if ring.packed {
            Format::Packed(PackedQueue::new(ring))
        } else {
            Format::Split(SplitQueue::new(ring))
        });
        self.ring = *ring;
    }

    pub fn is_enabled(&self) -> bool {
        self.format.is_some()
    }

    /// Returns the size that the driver gave the queue; 0 before it enabled it.
    pub fn size(&self) -> u16 {
        self.ring.size
    }

    /// Returns whether a range overlaps a part of the ring.
    pub fn overlaps(&self, address: u64, len: u64) -> bool {
        let overlaps = |(start, size): (u64, u64)| start < address + len && address < start + size;
        self.is_enabled() && self.ring.parts().into_iter().any(overlaps)
    }

    /// Returns the next buffer after validating its descriptors; `None` if there is none, or the queue is not enabled.
    pub fn pop(&mut self, memory: &DmaSpace, indirect: bool) -> Result<Option<Chain>, Misuse> {
        let chain = match &mut self.format {
            Some(Format::Split(queue)) => queue.pop(memory, indirect)?,
            Some(Format::Packed(queue)) => queue.pop(memory, indirect)?,
            None => None,
        };
        Ok(chain.map(|chain| Chain { resets: self.resets, ..chain }))
    }

    /// Returns whether the device still holds a buffer: the queue was not reset since it was taken. After a reset, the memory of
    /// ring and buffers is the driver's.
    pub fn holds(&self, chain: &Chain) -> bool {
        self.is_enabled() && self.resets == chain.resets
    }

    /// Undoes the last [`pop`](Self::pop).
    pub fn unpop(&mut self, chain: &Chain) {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.unpop(chain.head),
            Some(Format::Packed(queue)) => queue.unpop(chain.head),
            None => {}
        }
    }

    /// Returns a buffer of which `len` bytes were written. `quirk` corrupts what the driver reads.
    pub fn push(
        &mut self,
        memory: &DmaSpace,
        head: u16,
        len: u32,
        quirk: Option<(u32, UsedQuirk)>,
    ) -> Result<(), Misuse> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.push(memory, head, len, quirk),
            Some(Format::Packed(queue)) => queue.push_all(memory, &[(head, len)], quirk),
            None => Ok(()),
        }
    }

    /// Returns several buffers at once: the driver sees all or none.
    pub fn push_all(&mut self, memory: &DmaSpace, buffers: &[(u16, u32)]) -> Result<(), Misuse> {
        match &mut self.format {
            Some(Format::Split(queue)) => {
                // The queue counts one completion only, so that its interrupt decision would be wrong.
                self.signalled &= buffers.len() <= 1;
                queue.push_all(memory, buffers)
            }
            Some(Format::Packed(queue)) => queue.push_all(memory, buffers, None),
            None => Ok(()),
        }
    }

    /// Returns whether the driver requested an interrupt for the completions since the last call.
    pub fn needs_interrupt(&mut self, memory: &DmaSpace) -> Result<bool, Misuse> {
        let wanted = match &mut self.format {
            Some(Format::Split(queue)) => queue.needs_interrupt(memory)?,
            Some(Format::Packed(queue)) => queue.needs_interrupt(memory.memory())?,
            None => return Ok(false),
        };
        Ok(!std::mem::replace(&mut self.signalled, true) || wanted)
    }

    /// Enables notifications; returns `true` when buffers were made available meanwhile.
    pub fn enable_notifications(&mut self, memory: &DmaSpace) -> Result<bool, Misuse> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.enable_notifications(memory),
            Some(Format::Packed(queue)) => queue.enable_notifications(memory.memory()),
            None => Ok(false),
        }
    }

    pub fn disable_notifications(&mut self, memory: &DmaSpace) -> Result<(), Misuse> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.disable_notifications(memory),
            Some(Format::Packed(queue)) => queue.disable_notifications(memory.memory()),
            None => Ok(()),
        }
    }
}
