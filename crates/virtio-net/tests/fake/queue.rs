// SPDX-License-Identifier: MIT OR Apache-2.0

//! One queue of the device: its registers, and the rings behind them. Panics where the driver breaks a rule.

use virtio_device::{Chain, DeviceMemory as _, DeviceQueue, RingAddresses};
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// A part of a buffer that the driver made available.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub id: u16,
    pub address: GuestAddress,
    pub len: u32,
    pub writable: bool,
    /// It is a part in a table of indirect descriptors.
    pub in_table: bool,
}

/// Registers and rings of one queue.
pub struct QueueRegisters {
    max_size: u16,
    ring: RingAddresses,
    queue: DeviceQueue,
    /// INDIRECT_DESC was negotiated.
    pub indirect: bool,
}

impl QueueRegisters {
    pub fn new(max_size: u16) -> Self {
        let ring = RingAddresses { size: max_size, ..RingAddresses::default() };
        Self { max_size, ring, queue: DeviceQueue::new(), indirect: false }
    }

    pub fn reset(&mut self) {
        let packed = self.ring.packed;
        self.ring = RingAddresses { size: self.max_size, packed, ..RingAddresses::default() };
        self.queue.reset();
    }

    pub fn set_packed(&mut self, packed: bool) {
        self.ring.packed = packed;
    }

    pub fn is_enabled(&self) -> bool {
        self.queue.is_enabled()
    }

    pub fn size(&self) -> u16 {
        self.ring.size
    }

    pub fn set_size(&mut self, size: u16) {
        assert!((1..=self.max_size).contains(&size), "queue size {size} of {}", self.max_size);
        assert!(self.ring.packed || size.is_power_of_two(), "size {size} of a split queue");
        self.ring.size = size;
    }

    /// Sets half of the address of the descriptor, driver or device area.
    pub fn set_address(&mut self, area: usize, half: u32, value: u32) {
        let ring = &mut self.ring;
        let address =
            [&mut ring.descriptors, &mut ring.driver, &mut ring.device].into_iter().nth(area).unwrap();
        let shift = 32 * half;
        *address = *address & !(0xFFFF_FFFF << shift) | u64::from(value) << shift;
    }

    pub fn enable(&mut self, memory: &GuestMemoryMmap, event_idx: bool, indirect: bool) {
        self.indirect = indirect;
        self.ring.event_idx = event_idx;
        self.ring.check(0, memory).unwrap();
        self.queue.enable(&self.ring);
    }

    /// Takes the next buffer, of one descriptor.
    pub fn pop(&mut self, memory: &GuestMemoryMmap) -> Option<Buffer> {
        let (_, parts) = self.pop_parts(memory)?;
        assert_eq!(parts.len(), 1, "one descriptor per buffer");
        parts.first().copied()
    }

    /// Takes the next buffer: its id and parts, no more than the queue has descriptors.
    pub fn pop_parts(&mut self, memory: &GuestMemoryMmap) -> Option<(u16, Vec<Buffer>)> {
        let chain = self.queue.pop(memory, self.indirect).unwrap()?;
        let Chain { head, ref readable, ref writable, is_indirect, .. } = chain;
        let parts = |parts: &[(u64, u32)], is_writable: bool| -> Vec<Buffer> {
            let part = |&(address, len): &(u64, u32)| {
                assert!(memory.is_mapped(address, len.into()), "a buffer in memory");
                let address = GuestAddress(address);
                Buffer { id: head, address, len, writable: is_writable, in_table: is_indirect }
            };
            parts.iter().map(part).collect()
        };
        let parts = [parts(readable, false), parts(writable, true)].concat();
        let size = self.ring.size;
        assert!(parts.len() <= size.into(), "{} descriptors in a queue of {size}", parts.len());
        Some((head, parts))
    }

    pub fn push(&mut self, memory: &GuestMemoryMmap, id: u16, len: u32) {
        self.queue.push(memory, id, len, None).unwrap();
    }

    pub fn disable_notifications(&mut self, memory: &GuestMemoryMmap) {
        self.queue.disable_notifications(memory).unwrap();
    }

    /// Returns `true` when a buffer was made available meanwhile.
    pub fn enable_notifications(&mut self, memory: &GuestMemoryMmap) -> bool {
        self.queue.enable_notifications(memory).unwrap()
    }

    pub fn needs_interrupt(&mut self, memory: &GuestMemoryMmap) -> bool {
        self.queue.needs_interrupt(memory).unwrap()
    }

    /// Whether the driver disabled interrupts by flags.
    pub fn has_interrupts_disabled(&self, memory: &GuestMemoryMmap) -> bool {
        self.queue.are_interrupts_disabled(memory).unwrap()
    }

    /// Returns buffer `id` with a used index, or used descriptors, that are `steps` further, as a hostile device may.
    pub fn forge(&mut self, memory: &GuestMemoryMmap, id: u32, len: u32, steps: u16) {
        self.queue.forge(memory, id, len, steps).unwrap();
    }
}
