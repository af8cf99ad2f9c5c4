// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of a packed ring. (virtio §6, §7)
//!
//! Words by which either side passes something to the other are atomic, as the driver's are: driver and device may run on two threads.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{self, Ordering};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

const EVENT_ENABLE: u16 = 0;
const EVENT_DISABLE: u16 = 1;
const EVENT_POSITION: u16 = 2;

/// A buffer that the driver made available.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub id: u16,
    pub address: GuestAddress,
    pub len: u32,
    pub writable: bool,
    /// It is a part in a table of indirect descriptors.
    pub in_table: bool,
}

#[derive(Clone, Copy)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    const START: Self = Self { slot: 0, wrap: true };

    fn step(&mut self, size: u16) {
        self.slot += 1;
        if self.slot == size {
            *self = Self { slot: 0, wrap: !self.wrap };
        }
    }
}

pub struct PackedQueue {
    pub max_size: u16,
    size: u16,
    /// Addresses of the descriptor ring and of the event structures of driver and device.
    pub areas: [u64; 3],
    pub event_idx: bool,
    pub indirect: bool,
    pub ready: bool,
    available: Position,
    used: Position,
    /// Descriptors of the buffers that the device has, by id; 0 for others.
    outstanding: Vec<u16>,
    /// Positions of the descriptors used since the last interrupt decision.
    undecided: Vec<(u16, bool)>,
}

impl PackedQueue {
    pub fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            areas: [0; 3],
            event_idx: false,
            indirect: false,
            ready: false,
            available: Position::START,
            used: Position::START,
            outstanding: vec![0; usize::from(max_size)],
            undecided: Vec::new(),
        }
    }

    pub fn reset(&mut self) {
        *self = Self::new(self.max_size);
    }

    pub fn size(&self) -> u16 {
        self.size
    }

    pub fn set_size(&mut self, size: u16) {
        assert!((1..=self.max_size).contains(&size), "queue size {size} of {}", self.max_size);
        self.size = size;
    }

    pub fn set_address(&mut self, area: usize, half: u32, value: u32) {
        let shift = 32 * half;
        self.areas[area] = self.areas[area] & !(0xFFFF_FFFF << shift) | u64::from(value) << shift;
    }

    pub fn set_ready(&mut self) {
        assert!(
            self.areas[0].is_multiple_of(16)
                && self.areas[1].is_multiple_of(4)
                && self.areas[2].is_multiple_of(4)
        );
        self.ready = true;
    }

    /// Takes the next buffer: its id and descriptors.
    pub fn pop(&mut self, memory: &GuestMemoryMmap) -> Option<(u16, Vec<Buffer>)> {
        let (mut chain, mut count) = (Vec::new(), 0);
        loop {
            let Some((buffer, flags)) = self.pop_descriptor(memory) else {
                assert!(chain.is_empty(), "the chain is complete");
                return None;
            };
            let (id, more) = (buffer.id, flags & NEXT != 0);
            count += 1;
            if flags & INDIRECT == 0 {
                chain.push(buffer);
            } else {
                assert!(!more, "a table has all parts");
                chain.extend(self.parts(memory, &buffer));
            }
            if !more {
                assert!(id < self.size, "id {id} in a ring of {}", self.size);
                let outstanding = &mut self.outstanding[usize::from(id)];
                assert_eq!(std::mem::replace(outstanding, count), 0, "id {id} twice");
                return Some((id, chain));
            }
        }
    }

    /// Takes the next descriptor. Returns its flags, too.
    fn pop_descriptor(&mut self, memory: &GuestMemoryMmap) -> Option<(Buffer, u16)> {
        let at = self.descriptor(self.available.slot);
        let flags: u16 = memory.load(at(14), Acquire).unwrap();
        if !self.ready
            || (flags & AVAIL != 0) != self.available.wrap
            || (flags & USED != 0) == self.available.wrap
        {
            return None;
        }
        self.available.step(self.size);
        let buffer = Buffer {
            id: memory.read_obj(at(12)).unwrap(),
            address: GuestAddress(memory.read_obj(at(0)).unwrap()),
            len: memory.read_obj(at(8)).unwrap(),
            writable: flags & WRITE != 0,
            in_table: false,
        };
        Some((buffer, flags))
    }

    /// Returns the parts in a table.
    fn parts(&self, memory: &GuestMemoryMmap, table: &Buffer) -> Vec<Buffer> {
        assert!(self.indirect, "INDIRECT_DESC was not negotiated");
        assert!(!table.writable && table.len > 0 && table.len.is_multiple_of(16));
        let starts = (0..u64::from(table.len)).step_by(16);
        let part = |start| {
            let at = |field| GuestAddress(table.address.0 + start + field);
            let flags: u16 = memory.read_obj(at(14)).unwrap();
            assert_eq!(flags & !WRITE, 0, "a table of a packed ring has no other flags");
            Buffer {
                id: table.id,
                address: GuestAddress(memory.read_obj(at(0)).unwrap()),
                len: memory.read_obj(at(8)).unwrap(),
                writable: flags & WRITE != 0,
                in_table: true,
            }
        };
        starts.map(part).collect()
    }

    /// Writes a used descriptor, also one that contradicts the ring.
    pub fn push(&mut self, memory: &GuestMemoryMmap, id: u16, len: u32) {
        let at = self.descriptor(self.used.slot);
        memory.write_obj(id, at(12)).unwrap();
        memory.write_obj(len, at(8)).unwrap();
        let flags = if self.used.wrap { AVAIL | USED } else { 0 };
        memory.store(flags, at(14), Release).unwrap();
        let taken = self.outstanding.get_mut(usize::from(id)).map_or(0, std::mem::take);
        self.undecided.push((self.used.slot, self.used.wrap));
        for _ in 0..taken.max(1) {
            self.used.step(self.size);
        }
    }

    pub fn disable_notification(&self, memory: &GuestMemoryMmap) {
        self.set_event(memory, 0, EVENT_DISABLE);
    }

    /// Returns `true` when a buffer was made available meanwhile.
    pub fn enable_notification(&self, memory: &GuestMemoryMmap) -> bool {
        let Position { slot, wrap } = self.available;
        let flags = if self.event_idx { EVENT_POSITION } else { EVENT_ENABLE };
        self.set_event(memory, slot | u16::from(wrap) << 15, flags);
        atomic::fence(Ordering::SeqCst);
        let flags: u16 = memory.load(self.descriptor(slot)(14), Relaxed).unwrap();
        (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap
    }

    /// Writes the device's event suppression structure at once, as the driver reads it.
    fn set_event(&self, memory: &GuestMemoryMmap, desc: u16, flags: u16) {
        let event = u32::from(desc) | u32::from(flags) << 16;
        memory.store(event, GuestAddress(self.areas[2]), Relaxed).unwrap();
    }

    /// Returns `desc` and `flags` of the driver's event suppression structure.
    fn event(&self, memory: &GuestMemoryMmap) -> (u16, u16) {
        let event: u32 = memory.load(GuestAddress(self.areas[1]), Relaxed).unwrap();
        (event as u16, (event >> 16) as u16)
    }

    pub fn needs_interrupt(&mut self, memory: &GuestMemoryMmap) -> bool {
        let used = std::mem::take(&mut self.undecided);
        atomic::fence(Ordering::SeqCst);
        match self.event(memory) {
            (_, EVENT_ENABLE) => !used.is_empty(),
            (_, EVENT_DISABLE) => false,
            (desc, EVENT_POSITION) => {
                assert!(self.event_idx, "EVENT_IDX was not negotiated");
                used.contains(&(desc & 0x7FFF, desc >> 15 != 0))
            }
            (_, flags) => panic!("event flags {flags}"),
        }
    }

    /// Whether the driver disabled interrupts.
    pub fn has_interrupts_disabled(&self, memory: &GuestMemoryMmap) -> bool {
        self.event(memory).1 == EVENT_DISABLE
    }

    fn descriptor(&self, slot: u16) -> impl Fn(u64) -> GuestAddress + use<> {
        let start = self.areas[0] + 16 * u64::from(slot);
        move |field| GuestAddress(start + field)
    }
}
