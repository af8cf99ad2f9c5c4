// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue of the device in either ring format: rust-vmm's split queue, or [`PackedQueue`].

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::packed::{Buffer, PackedQueue};

/// Both formats of one queue; the driver's features say which one is in use.
pub struct DeviceQueue {
    split: Queue,
    packed: PackedQueue,
    pub is_packed: bool,
    pub indirect: bool,
}

impl DeviceQueue {
    pub fn new(size: u16) -> Self {
        let split = Queue::new(size.clamp(1, 1 << 15).next_power_of_two()).unwrap();
        Self { split, packed: PackedQueue::new(size.max(1)), is_packed: false, indirect: false }
    }

    pub fn reset(&mut self) {
        self.split.reset();
        self.packed.reset();
    }

    pub fn is_ready(&self) -> bool {
        self.split.ready() || self.packed.ready
    }

    pub fn packed_size(&self) -> u16 {
        self.packed.size()
    }

    pub fn set_size(&mut self, size: u16) {
        if self.is_packed { self.packed.set_size(size) } else { self.split.set_size(size) }
    }

    /// Sets half of the address of the descriptor, driver or device area.
    pub fn set_address(&mut self, area: usize, half: u32, value: u32) {
        self.packed.set_address(area, half, value);
        let halves = if half == 0 { (Some(value), None) } else { (None, Some(value)) };
        match area {
            0 => self.split.set_desc_table_address(halves.0, halves.1),
            1 => self.split.set_avail_ring_address(halves.0, halves.1),
            _ => self.split.set_used_ring_address(halves.0, halves.1),
        }
    }

    pub fn enable(&mut self, memory: &GuestMemoryMmap, event_idx: bool, indirect: bool) {
        self.indirect = indirect;
        if self.is_packed {
            self.packed.indirect = indirect;
            self.packed.event_idx = event_idx;
            self.packed.set_ready();
        } else {
            self.split.set_event_idx(event_idx);
            self.split.set_ready(true);
            assert!(self.split.is_valid(memory), "the queue is valid");
        }
    }

    /// Takes the next buffer, of one descriptor.
    pub fn pop(&mut self, memory: &GuestMemoryMmap) -> Option<Buffer> {
        let (_, chain) = self.pop_chain(memory)?;
        assert_eq!(chain.len(), 1, "one descriptor per buffer");
        chain.first().copied()
    }

    /// Takes the next buffer: its id and descriptors, no more than the queue has.
    pub fn pop_chain(&mut self, memory: &GuestMemoryMmap) -> Option<(u16, Vec<Buffer>)> {
        let (id, chain) = self.pop_any_chain(memory)?;
        let size = if self.is_packed { self.packed.size() } else { self.split.size() };
        assert!(chain.len() <= size.into(), "{} descriptors in a queue of {size}", chain.len());
        Some((id, chain))
    }

    fn pop_any_chain(&mut self, memory: &GuestMemoryMmap) -> Option<(u16, Vec<Buffer>)> {
        if self.is_packed {
            return self.packed.pop(memory);
        }
        let chain = self.split.pop_descriptor_chain(memory)?;
        let id = chain.head_index();
        let head = GuestAddress(self.split.desc_table() + 16 * u64::from(id));
        let head: Descriptor = memory.read_obj(head).unwrap();
        let in_table = head.refers_to_indirect_table();
        assert!(!in_table || self.indirect && !head.has_next(), "a table has all parts");
        let buffer = |descriptor: Descriptor| Buffer {
            id,
            address: descriptor.addr(),
            len: descriptor.len(),
            writable: descriptor.is_write_only(),
            in_table,
        };
        Some((id, chain.map(buffer).collect()))
    }

    pub fn push(&mut self, memory: &GuestMemoryMmap, id: u16, len: u32) {
        if self.is_packed {
            self.packed.push(memory, id, len);
        } else {
            self.split.add_used(memory, id, len).unwrap();
        }
    }

    pub fn disable_notification(&mut self, memory: &GuestMemoryMmap) {
        if self.is_packed {
            self.packed.disable_notification(memory);
        } else {
            self.split.disable_notification(memory).unwrap();
        }
    }

    /// Returns `true` when a buffer was made available meanwhile.
    pub fn enable_notification(&mut self, memory: &GuestMemoryMmap) -> bool {
        if self.is_packed {
            self.packed.enable_notification(memory)
        } else {
            self.split.enable_notification(memory).unwrap()
        }
    }

    pub fn needs_interrupt(&mut self, memory: &GuestMemoryMmap) -> bool {
        if self.is_packed {
            self.packed.needs_interrupt(memory)
        } else {
            self.split.needs_notification(memory).unwrap()
        }
    }

    /// Whether the driver disabled interrupts by flags.
    pub fn has_interrupts_disabled(&self, memory: &GuestMemoryMmap) -> bool {
        if self.is_packed {
            return self.packed.has_interrupts_disabled(memory);
        }
        memory.read_obj::<u16>(GuestAddress(self.split.avail_ring())).unwrap() & 1 != 0
    }

    /// Returns buffer `id` with a used index, or used descriptors, that are `steps` further, as a hostile device may.
    pub fn forge(&mut self, memory: &GuestMemoryMmap, id: u32, len: u32, steps: u16) {
        if self.is_packed {
            for _ in 0..steps {
                self.packed.push(memory, id as u16, len);
            }
            return;
        }
        let used = self.split.used_ring();
        let index: u16 = memory.read_obj(GuestAddress(used + 2)).unwrap();
        let slot = u64::from(index % self.split.size());
        memory.write_obj(id, GuestAddress(used + 4 + slot * 8)).unwrap();
        memory.write_obj(len, GuestAddress(used + 8 + slot * 8)).unwrap();
        memory.write_obj(index.wrapping_add(steps), GuestAddress(used + 2)).unwrap();
    }
}
