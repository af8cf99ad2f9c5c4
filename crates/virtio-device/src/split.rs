// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of a split ring: rust-vmm's queue, and checks that it does not make.
//! (virtio §5, §7)

use std::{num::Wrapping, sync::atomic::Ordering};

use virtio_queue::{Queue, QueueOwnedT as _, QueueT, desc::split::Descriptor};
use vm_memory::{Bytes, GuestAddress, GuestMemory};

use crate::{
    chain::Chain, memory::DeviceMemory, quirks::UsedQuirk, ring::RingAddresses, violation::Violation,
};

/// `flags` of the available ring: the driver asks for no interrupt.
const NO_INTERRUPT: u16 = 1;

/// One split ring, device side.
pub struct SplitQueue {
    queue: Queue,
    ring: RingAddresses,
    /// Heads the device holds.
    outstanding: Vec<bool>,
    last_head: u16,
    completed: u32,
}

impl SplitQueue {
    pub fn new(ring: &RingAddresses) -> Self {
        let mut queue = Queue::new(ring.size).expect("sizes are powers of two up to 32768");
        let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
        let (low, high) = halves(ring.descriptors);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(ring.driver);
        queue.set_avail_ring_address(low, high);
        let (low, high) = halves(ring.device);
        queue.set_used_ring_address(low, high);
        queue.set_size(ring.size);
        queue.set_event_idx(ring.event_idx);
        queue.set_ready(true);
        let outstanding = vec![false; usize::from(ring.size)];
        Self { queue, ring: *ring, outstanding, last_head: 0, completed: 0 }
    }

    /// Returns the next buffer after validating its descriptors.
    pub fn pop(&mut self, memory: &impl DeviceMemory, indirect: bool) -> Result<Option<Chain>, Violation> {
        self.check_index(memory.whole())?;
        let Some(chain) = self.queue.pop_descriptor_chain(memory.whole()) else { return Ok(None) };
        let head = chain.head_index();
        let Some(outstanding) = self.outstanding.get_mut(usize::from(head)).filter(|_| head < self.ring.size)
        else {
            return Err(Violation::ring(format!("head {head} in a ring of {}", self.ring.size)));
        };
        if std::mem::replace(outstanding, true) {
            return Err(Violation::ring(format!(
                "head {head} was made available again before the device returned it"
            )));
        }
        let is_indirect = self.check_indirect(memory, head, indirect)?;
        let mut popped = Chain { is_indirect, ..Chain::new(head) };
        let mut unfinished = true;
        for descriptor in chain {
            unfinished = descriptor.has_next();
            popped.push(descriptor.addr().0, descriptor.len(), descriptor.is_write_only())?;
        }
        // The iterator ends early when a chain loops or leaves its table.
        if unfinished {
            return Err(Violation::ring(format!("chain {head} loops or leaves its descriptor table")));
        }
        Ok(Some(popped))
    }

    /// Checks that the available index is ahead by at most the ring's size.
    fn check_index(&self, memory: &impl GuestMemory) -> Result<(), Violation> {
        let index = self.queue.avail_idx(memory, Ordering::Acquire).map_err(unreachable_ring)?;
        let ahead = index - Wrapping(self.queue.next_avail());
        if ahead.0 > self.ring.size {
            return Err(Violation::ring(format!(
                "the available index is {index}, {ahead} ahead of the device: more than the ring size"
            )));
        }
        Ok(())
    }

    /// Checks the indirect table of a chain. Returns whether it has one.
    fn check_indirect(
        &self,
        memory: &impl DeviceMemory,
        head: u16,
        accepted: bool,
    ) -> Result<bool, Violation> {
        let at = GuestAddress(self.ring.descriptors + 16 * u64::from(head));
        let first: Descriptor = memory
            .whole()
            .read_obj(at)
            .map_err(|error| Violation::ring(format!("descriptor {head}: {error}")))?;
        if !first.refers_to_indirect_table() {
            return Ok(false);
        }
        if !accepted {
            return Err(Violation::ring(format!(
                "chain {head} is indirect, but INDIRECT_DESC was not negotiated"
            )));
        }
        if first.has_next() || first.len() == 0 || !first.len().is_multiple_of(16) {
            return Err(Violation::ring(format!("chain {head}: indirect table of {} bytes", first.len())));
        }
        let (address, len) = (first.addr().0, first.len().into());
        if !memory.is_mapped(address, len) {
            return Err(Violation::unmapped("an indirect table", address, len));
        }
        Ok(true)
    }

    /// Returns a buffer of which `len` bytes were written. `quirk` corrupts the used ring's entry.
    pub fn push(
        &mut self,
        memory: &impl DeviceMemory,
        head: u16,
        len: u32,
        quirk: Option<(u32, UsedQuirk)>,
    ) -> Result<(), Violation> {
        self.outstanding[usize::from(head)] = false;
        self.completed += 1;
        let slot = self.queue.next_used() % self.ring.size;
        self.queue.add_used(memory.whole(), head, len).map_err(unreachable_ring)?;
        if let Some((_, quirk)) = quirk.filter(|&(every, quirk)| self.is_corrupted(every, quirk)) {
            let (id, len) = match quirk {
                UsedQuirk::IdOutOfRange => (u32::from(self.ring.size) + 7, len),
                UsedQuirk::IdTwice => (self.last_head.into(), len),
                UsedQuirk::LengthTooLarge => (head.into(), 0x7fff_ffff),
                UsedQuirk::LengthTooSmall => (head.into(), 3),
                UsedQuirk::IndexJump => {
                    let index = self.queue.next_used().wrapping_add(self.ring.size + 1);
                    let stored =
                        memory.whole().store(index, GuestAddress(self.ring.device + 2), Ordering::Release);
                    return stored.map_err(unreachable_memory);
                }
            };
            let at = GuestAddress(self.ring.device + 4 + 8 * u64::from(slot));
            let written = memory.whole().write_obj((u64::from(id) | u64::from(len) << 32).to_le(), at);
            written.map_err(unreachable_memory)?;
        }
        self.last_head = head;
        Ok(())
    }

    /// Returns whether `quirk` applies to the buffer completed last. An index that jumped stays wrong.
    fn is_corrupted(&self, every: u32, quirk: UsedQuirk) -> bool {
        self.completed.is_multiple_of(every.max(1)) || quirk == UsedQuirk::IndexJump && self.completed > every
    }

    /// Returns several buffers at once: the driver sees all or none.
    pub fn push_all(&mut self, memory: &impl DeviceMemory, buffers: &[(u16, u32)]) -> Result<(), Violation> {
        let Some((&(last, last_len), ahead)) = buffers.split_last() else { return Ok(()) };
        let first = self.queue.next_used();
        for (index, &(head, len)) in ahead.iter().enumerate() {
            self.outstanding[usize::from(head)] = false;
            let slot = first.wrapping_add(index as u16) % self.ring.size;
            let at = GuestAddress(self.ring.device + 4 + 8 * u64::from(slot));
            let element = u64::from(head) | u64::from(len) << 32;
            let written = memory.whole().write_obj(element.to_le(), at);
            written.map_err(unreachable_memory)?;
        }
        self.queue.set_next_used(first.wrapping_add(ahead.len() as u16));
        self.push(memory, last, last_len, None)
    }

    /// Writes a used entry with `id` and `len`, and moves the used index by `steps`, whatever the device holds.
    pub fn forge(
        &mut self,
        memory: &impl GuestMemory,
        (id, len): (u32, u32),
        steps: u16,
    ) -> Result<(), Violation> {
        let index = self.queue.next_used();
        let at = GuestAddress(self.ring.device + 4 + 8 * u64::from(index % self.ring.size));
        let element = u64::from(id) | u64::from(len) << 32;
        memory.write_obj(element.to_le(), at).map_err(unreachable_memory)?;
        let index = index.wrapping_add(steps);
        self.queue.set_next_used(index);
        let at = GuestAddress(self.ring.device + 2);
        memory.store(index.to_le(), at, Ordering::Release).map_err(unreachable_memory)
    }

    /// Returns whether the driver has disabled interrupts by the flag of the available ring.
    pub fn are_interrupts_disabled(&self, memory: &impl GuestMemory) -> Result<bool, Violation> {
        const NO_INTERRUPT: u16 = 1;
        let flags: u16 =
            memory.load(GuestAddress(self.ring.driver), Ordering::Relaxed).map_err(unreachable_memory)?;
        Ok(u16::from_le(flags) & NO_INTERRUPT != 0)
    }

    /// Returns whether the driver requested an interrupt for the completions since the last call.
    pub fn needs_interrupt(&mut self, memory: &impl DeviceMemory) -> Result<bool, Violation> {
        // It has a barrier between the used index and what it reads.
        let wanted = self.queue.needs_notification(memory.whole()).map_err(unreachable_ring)?;
        if self.ring.event_idx {
            return Ok(wanted);
        }
        // rust-vmm's queue does not read the flags.
        let flags: u16 = memory
            .whole()
            .load(GuestAddress(self.ring.driver), Ordering::Acquire)
            .map_err(|error| Violation::ring(format!("the flags of the available ring: {error}")))?;
        Ok(flags & NO_INTERRUPT == 0)
    }

    /// Enables notifications; returns `true` when buffers were made available meanwhile.
    pub fn enable_notifications(&mut self, memory: &impl DeviceMemory) -> Result<bool, Violation> {
        self.queue.enable_notification(memory.whole()).map_err(unreachable_ring)
    }

    pub fn disable_notifications(&mut self, memory: &impl DeviceMemory) -> Result<(), Violation> {
        self.queue.disable_notification(memory.whole()).map_err(unreachable_ring)
    }

    /// Undoes the last [`pop`](Self::pop).
    pub fn unpop(&mut self, head: u16) {
        self.outstanding[usize::from(head)] = false;
        self.queue.go_to_previous_position();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreachable_ring(error: virtio_queue::Error) -> Violation {
    Violation::ring(format!("a ring cannot be used: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreachable_memory(error: vm_memory::GuestMemoryError) -> Violation {
    Violation::ring(format!("the used ring: {error}"))
}
