// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of one queue, in either ring format.

use crate::{
    chain::Chain, memory::DeviceMemory, packed::PackedQueue, quirks::UsedQuirk, ring::RingAddresses,
    split::SplitQueue, violation::Violation,
};

enum Format {
    Split(SplitQueue),
    Packed(PackedQueue),
}

/// One queue, device side.
pub struct DeviceQueue {
    /// `None` until the driver enables the queue.
    format: Option<Format>,
    ring: RingAddresses,
    /// The next interrupt decision is for an interrupt, whatever the driver's event is.
    must_interrupt: bool,
    /// Number of resets.
    resets: u64,
}

impl Default for DeviceQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl DeviceQueue {
    /// Returns a queue that the driver has not enabled.
    #[must_use]
    pub fn new() -> Self {
        Self { format: None, ring: RingAddresses::default(), must_interrupt: false, resets: 0 }
    }

    /// Forgets the ring and all buffers.
    pub fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::new() };
    }

    /// Starts using the rings at these addresses. [`RingAddresses::check`] checks them.
    pub fn enable(&mut self, ring: &RingAddresses) {
        self.format = Some(if ring.packed {
            Format::Packed(PackedQueue::new(ring))
        } else {
            Format::Split(SplitQueue::new(ring))
        });
        self.ring = *ring;
    }

    /// Makes the next call of [`needs_interrupt`](Self::needs_interrupt) return `true`, whatever the driver's event is.
    pub fn interrupt_next(&mut self) {
        self.must_interrupt = true;
    }

    /// Returns whether the driver has enabled the queue.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.format.is_some()
    }

    /// Returns the size that the driver gave the queue; 0 before it enabled it.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.ring.size
    }

    /// Returns whether a range overlaps a part of the ring.
    #[must_use]
    pub fn overlaps(&self, address: u64, len: u64) -> bool {
        let overlaps = |(start, size): (u64, u64)| start < address + len && address < start + size;
        self.is_enabled() && self.ring.parts().into_iter().any(overlaps)
    }

    /// Returns the next buffer after validating its descriptors; `None` if there is none, or the queue is not enabled. `indirect`:
    /// INDIRECT_DESC was negotiated.
    ///
    /// # Errors
    /// The driver's violation.
    pub fn pop(&mut self, memory: &impl DeviceMemory, indirect: bool) -> Result<Option<Chain>, Violation> {
        let chain = match &mut self.format {
            Some(Format::Split(queue)) => queue.pop(memory, indirect)?,
            Some(Format::Packed(queue)) => queue.pop(memory, indirect)?,
            None => None,
        };
        Ok(chain.map(|chain| Chain { resets: self.resets, ..chain }))
    }

    /// Returns whether the device still holds a buffer: the queue was not reset since it was taken. After a reset, the memory of
    /// ring and buffers is the driver's.
    #[must_use]
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

    /// Returns a buffer of which `len` bytes were written. `quirk` corrupts the used entry of every n-th buffer.
    ///
    /// # Errors
    /// [`Violation`] when the ring is not in memory, also below.
    pub fn push(
        &mut self,
        memory: &impl DeviceMemory,
        head: u16,
        len: u32,
        quirk: Option<(u32, UsedQuirk)>,
    ) -> Result<(), Violation> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.push(memory, head, len, quirk),
            Some(Format::Packed(queue)) => queue.push_all(memory, &[(head, len)], quirk),
            None => Ok(()),
        }
    }

    /// Returns several buffers at once: the driver sees all or none.
    pub fn push_all(&mut self, memory: &impl DeviceMemory, buffers: &[(u16, u32)]) -> Result<(), Violation> {
        match &mut self.format {
            Some(Format::Split(queue)) => {
                // The queue counts one completion only, so that its interrupt decision would be wrong.
                self.must_interrupt |= buffers.len() > 1;
                queue.push_all(memory, buffers)
            }
            Some(Format::Packed(queue)) => queue.push_all(memory, buffers, None),
            None => Ok(()),
        }
    }

    /// Writes a used entry with `id` and `len` and moves the used index by `steps`, whatever the device holds, as a hostile device
    /// may. In a packed ring, each of `steps` descriptors is used with `id`.
    pub fn forge(
        &mut self,
        memory: &impl DeviceMemory,
        id: u32,
        len: u32,
        steps: u16,
    ) -> Result<(), Violation> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.forge(memory.whole(), (id, len), steps),
            Some(Format::Packed(queue)) => queue.forge(memory.whole(), (id as u16, len), steps),
            None => Ok(()),
        }
    }

    /// Returns whether the driver has disabled interrupts by flags; `false` if the queue is not enabled.
    pub fn are_interrupts_disabled(&self, memory: &impl DeviceMemory) -> Result<bool, Violation> {
        match &self.format {
            Some(Format::Split(queue)) => queue.are_interrupts_disabled(memory.whole()),
            Some(Format::Packed(queue)) => queue.are_interrupts_disabled(memory.whole()),
            None => Ok(false),
        }
    }

    /// Returns whether the driver requested an interrupt for the completions since the last call.
    pub fn needs_interrupt(&mut self, memory: &impl DeviceMemory) -> Result<bool, Violation> {
        let wanted = match &mut self.format {
            Some(Format::Split(queue)) => queue.needs_interrupt(memory)?,
            Some(Format::Packed(queue)) => queue.needs_interrupt(memory.whole())?,
            None => return Ok(false),
        };
        Ok(std::mem::take(&mut self.must_interrupt) || wanted)
    }

    /// Enables notifications; returns `true` when buffers were made available meanwhile.
    pub fn enable_notifications(&mut self, memory: &impl DeviceMemory) -> Result<bool, Violation> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.enable_notifications(memory),
            Some(Format::Packed(queue)) => queue.enable_notifications(memory.whole()),
            None => Ok(false),
        }
    }

    /// Asks the driver for no notifications.
    pub fn disable_notifications(&mut self, memory: &impl DeviceMemory) -> Result<(), Violation> {
        match &mut self.format {
            Some(Format::Split(queue)) => queue.disable_notifications(memory),
            Some(Format::Packed(queue)) => queue.disable_notifications(memory.whole()),
            None => Ok(()),
        }
    }
}
