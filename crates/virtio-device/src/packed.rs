// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of a packed ring. (virtio §6, §7)

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemory};

use crate::{
    chain::Chain, memory::DeviceMemory, quirks::UsedQuirk, ring::RingAddresses, violation::Violation,
};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// `flags` of an event suppression structure.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_POSITION: u16 = 2;
/// Bit of its `desc`: the wrap counter.
const WRAP: u16 = 1 << 15;

/// An id that no buffer has.
const NO_ID: u16 = 0xffff;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;

/// A slot, and the wrap counter.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    const START: Self = Self { slot: 0, wrap: true };

    fn advance(&mut self, steps: u16, size: u16) {
        let slot = u32::from(self.slot) + u32::from(steps);
        self.wrap ^= slot >= u32::from(size);
        self.slot = (slot % u32::from(size)) as u16;
    }

    fn retreat(&mut self, steps: u16, size: u16) {
        self.wrap ^= steps > self.slot;
        self.slot = if steps > self.slot { self.slot + size - steps } else { self.slot - steps };
    }
}

/// A descriptor, read once.
struct Descriptor {
    address: u64,
    len: u32,
    id: u16,
    flags: u16,
}

/// The device's positions in one packed ring.
pub struct PackedQueue {
    ring: RingAddresses,
    available: Position,
    used: Position,
    /// Descriptors of each buffer that the device has, by id; 0 for the others.
    outstanding: Vec<u16>,
    /// Their sum.
    held: u16,
    last_used: u16,
    completed: u32,
    /// Descriptors used since the last interrupt decision.
    undecided: u32,
}

impl PackedQueue {
    pub fn new(ring: &RingAddresses) -> Self {
        Self {
            ring: *ring,
            available: Position::START,
            used: Position::START,
            outstanding: vec![0; usize::from(ring.size)],
            held: 0,
            last_used: 0,
            completed: 0,
            undecided: 0,
        }
    }

    /// Returns the next buffer after validating its descriptors.
    pub fn pop(&mut self, memory: &impl DeviceMemory, indirect: bool) -> Result<Option<Chain>, Violation> {
        if !self.is_available(memory.whole(), self.available)? {
            return Ok(None);
        }
        // Read after its flags.
        let mut position = self.available;
        let mut descriptor = self.read(memory.whole(), position.slot)?;
        let mut chain = Chain::new(0);
        let mut count = 0;
        loop {
            let Descriptor { address, len, flags, .. } = descriptor;
            let unknown = flags & !(NEXT | WRITE | INDIRECT | AVAIL | USED);
            if unknown != 0 {
                return Err(Violation::ring(format!("descriptor flags {flags:#x} in a packed ring")));
            }
            if flags & INDIRECT == 0 {
                chain.push(address, len, flags & WRITE != 0)?;
            } else {
                Self::read_table(memory, &descriptor, indirect, &mut chain)?;
            }
            count += 1;
            position.advance(1, self.ring.size);
            if flags & NEXT == 0 {
                break;
            }
            if count == self.ring.size || !self.is_available(memory.whole(), position)? {
                return Err(Violation::ring(format!(
                    "a chain of {count} descriptors in a packed ring of {} continues with one that is not available",
                    self.ring.size
                )));
            }
            descriptor = self.read(memory.whole(), position.slot)?;
        }
        let id = descriptor.id;
        let Some(outstanding) = self.outstanding.get_mut(usize::from(id)) else {
            return Err(Violation::ring(format!("buffer id {id} in a packed ring of {}", self.ring.size)));
        };
        if *outstanding != 0 {
            return Err(Violation::ring(format!(
                "buffer id {id} was made available again before the device returned it"
            )));
        }
        if count > self.ring.size - self.held {
            return Err(Violation::ring(format!(
                "{count} descriptors are available in a packed ring of {}, {} of which the device has",
                self.ring.size, self.held
            )));
        }
        *outstanding = count;
        self.held += count;
        self.available = position;
        chain.head = id;
        Ok(Some(chain))
    }

    /// Undoes the [`pop`](Self::pop) of the buffer taken last.
    pub fn unpop(&mut self, id: u16) {
        let count = std::mem::take(&mut self.outstanding[usize::from(id)]);
        self.held -= count;
        self.available.retreat(count, self.ring.size);
    }

    /// Returns several buffers, each with the number of bytes written: the driver sees all or none. `quirk` corrupts the last
    /// descriptor.
    pub fn push_all(
        &mut self,
        memory: &impl DeviceMemory,
        buffers: &[(u16, u32)],
        quirk: Option<(u32, UsedQuirk)>,
    ) -> Result<(), Violation> {
        let Some((&first, others)) = buffers.split_first() else { return Ok(()) };
        let memory = memory.whole();
        let at_first = self.used;
        self.write_used(memory, first, quirk)?;
        self.advance_used(first.0);
        for &buffer in others {
            self.write_used(memory, buffer, quirk)?;
            self.write_flags(memory, self.used)?;
            self.advance_used(buffer.0);
        }
        self.write_flags(memory, at_first)?;
        if quirk.is_some_and(|(every, quirk)| quirk == UsedQuirk::IndexJump && self.completed >= every) {
            // The next descriptor is used as well.
            memory
                .store(NO_ID, self.descriptor(self.used.slot)(12), Ordering::Relaxed)
                .map_err(unreachable_ring)?;
            self.write_flags(memory, self.used)?;
        }
        Ok(())
    }

    /// Uses `steps` descriptors with `id` and `len`, whatever the device holds.
    pub fn forge(
        &mut self,
        memory: &impl GuestMemory,
        (id, len): (u16, u32),
        steps: u16,
    ) -> Result<(), Violation> {
        for _ in 0..steps {
            self.write_used(memory, (id, len), None)?;
            self.write_flags(memory, self.used)?;
            if self.outstanding.get(usize::from(id)).is_some_and(|&count| count > 0) {
                self.advance_used(id);
            } else {
                self.used.advance(1, self.ring.size);
                self.undecided += 1;
            }
        }
        Ok(())
    }

    /// Returns whether the driver has disabled interrupts.
    pub fn are_interrupts_disabled(&self, memory: &impl GuestMemory) -> Result<bool, Violation> {
        Ok(self.driver_event(memory)?.1 == DISABLE)
    }

    /// Returns position and flags of the driver's event suppression structure.
    fn driver_event(&self, memory: &impl GuestMemory) -> Result<(u16, u16), Violation> {
        let event: u32 =
            memory.load(GuestAddress(self.ring.driver), Ordering::Relaxed).map_err(unreachable_ring)?;
        Ok((event as u16, (event >> 16) as u16))
    }

    /// Returns whether the driver requested an interrupt for the descriptors used since the last call.
    pub fn needs_interrupt(&mut self, memory: &impl GuestMemory) -> Result<bool, Violation> {
        let undecided = std::mem::take(&mut self.undecided);
        // The driver looks for used descriptors again after it wrote the structure.
        fence(Ordering::SeqCst);
        let (desc, flags) = self.driver_event(memory)?;
        match flags {
            ENABLE => Ok(undecided > 0),
            DISABLE => Ok(false),
            AT_POSITION if self.ring.event_idx => {
                let slot = u32::from(desc & !WRAP);
                if slot >= self.ring.size.into() {
                    return Err(Violation::ring(format!("an interrupt event at descriptor {slot}")));
                }
                // Distance back from the position behind the last used descriptor.
                let lap = if (desc & WRAP != 0) == self.used.wrap { 0 } else { u32::from(self.ring.size) };
                let behind = (u32::from(self.used.slot) + lap).checked_sub(slot);
                Ok(behind.is_some_and(|behind| (1..=undecided).contains(&behind)))
            }
            _ => Err(Violation::ring(format!("event suppression flags {flags:#x} of the driver"))),
        }
    }

    /// Enables notifications; returns `true` when a buffer was made available meanwhile.
    pub fn enable_notifications(&mut self, memory: &impl GuestMemory) -> Result<bool, Violation> {
        let flags = if self.ring.event_idx { AT_POSITION } else { ENABLE };
        self.write_event(memory, self.available.slot | if self.available.wrap { WRAP } else { 0 }, flags)?;
        // The driver reads the structure after it made a descriptor available.
        fence(Ordering::SeqCst);
        self.is_available(memory, self.available)
    }

    pub fn disable_notifications(&mut self, memory: &impl GuestMemory) -> Result<(), Violation> {
        self.write_event(memory, 0, DISABLE)
    }

    fn write_event(&self, memory: &impl GuestMemory, desc: u16, flags: u16) -> Result<(), Violation> {
        let event = u32::from(desc) | u32::from(flags) << 16;
        memory.store(event, GuestAddress(self.ring.device), Ordering::Relaxed).map_err(unreachable_ring)
    }

    fn advance_used(&mut self, id: u16) {
        let count = std::mem::take(&mut self.outstanding[usize::from(id)]);
        self.held -= count;
        self.used.advance(count, self.ring.size);
        self.undecided += u32::from(count);
        self.last_used = id;
    }

    /// Writes id and length of a used descriptor.
    fn write_used(
        &mut self,
        memory: &impl GuestMemory,
        (id, len): (u16, u32),
        quirk: Option<(u32, UsedQuirk)>,
    ) -> Result<(), Violation> {
        self.completed += 1;
        let (id, len) = match quirk.filter(|&(every, _)| self.completed.is_multiple_of(every.max(1))) {
            Some((_, UsedQuirk::IdOutOfRange)) => (self.ring.size + 7, len),
            Some((_, UsedQuirk::IdTwice)) => (self.last_used, len),
            Some((_, UsedQuirk::LengthTooLarge)) => (id, 0x7fff_ffff),
            Some((_, UsedQuirk::LengthTooSmall)) => (id, 3),
            Some((_, UsedQuirk::IndexJump)) | None => (id, len),
        };
        let at = self.descriptor(self.used.slot);
        memory.store(len, at(8), Ordering::Relaxed).map_err(unreachable_ring)?;
        memory.store(id, at(12), Ordering::Relaxed).map_err(unreachable_ring)
    }

    fn write_flags(&self, memory: &impl GuestMemory, position: Position) -> Result<(), Violation> {
        let flags = if position.wrap { AVAIL | USED } else { 0 };
        memory.store(flags, self.descriptor(position.slot)(14), Ordering::Release).map_err(unreachable_ring)
    }

    fn is_available(&self, memory: &impl GuestMemory, position: Position) -> Result<bool, Violation> {
        let flags: u16 =
            memory.load(self.descriptor(position.slot)(14), Ordering::Acquire).map_err(unreachable_ring)?;
        Ok((flags & AVAIL != 0) == position.wrap && (flags & USED != 0) != position.wrap)
    }

    fn read(&self, memory: &impl GuestMemory, slot: u16) -> Result<Descriptor, Violation> {
        read_descriptor(memory, self.descriptor(slot)(0))
    }

    fn descriptor(&self, slot: u16) -> impl Fn(u64) -> GuestAddress + use<> {
        let start = self.ring.descriptors + DESCRIPTOR * u64::from(slot);
        move |field| GuestAddress(start + field)
    }

    /// Adds the parts of an indirect table.
    fn read_table(
        memory: &impl DeviceMemory,
        head: &Descriptor,
        accepted: bool,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        if !accepted {
            return Err(Violation::ring("an indirect descriptor, but INDIRECT_DESC was not negotiated"));
        }
        let len = u64::from(head.len);
        if head.flags & NEXT != 0 || len == 0 || !len.is_multiple_of(DESCRIPTOR) {
            return Err(Violation::ring(format!(
                "an indirect table of {len} bytes, flags {:#x}",
                head.flags
            )));
        }
        if !memory.is_mapped(head.address, len) {
            return Err(Violation::unmapped("an indirect table", head.address, len));
        }
        chain.is_indirect = true;
        for at in (head.address..head.address + len).step_by(DESCRIPTOR as usize) {
            let descriptor = read_descriptor(memory.whole(), GuestAddress(at))?;
            if descriptor.flags & !WRITE != 0 {
                return Err(Violation::ring(format!(
                    "flags {:#x} in an indirect table of a packed ring",
                    descriptor.flags
                )));
            }
            chain.push(descriptor.address, descriptor.len, descriptor.flags & WRITE != 0)?;
        }
        Ok(())
    }
}

fn read_descriptor(memory: &impl GuestMemory, at: GuestAddress) -> Result<Descriptor, Violation> {
    let bytes: [u8; 16] = memory.read_obj(at).map_err(unreachable_ring)?;
    let bits = u128::from_le_bytes(bytes);
    Ok(Descriptor {
        address: bits as u64,
        len: (bits >> 64) as u32,
        id: (bits >> 96) as u16,
        flags: (bits >> 112) as u16,
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreachable_ring(error: vm_memory::GuestMemoryError) -> Violation {
    Violation::ring(format!("a packed ring cannot be used: {error}"))
}
