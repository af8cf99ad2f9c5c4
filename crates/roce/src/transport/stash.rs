// SPDX-License-Identifier: MIT OR Apache-2.0

//! The stash: copies of request frames that arrived after a gap and cannot be placed into memory yet.
//!
//! Its memory is allocated with the engine: room for [`StashLimits::total`] bytes, of which a queue pair may use
//! [`StashLimits::per_qp`] and [`REACH`] frames. What finds no room is dropped, as every frame after a gap may be: the peer
//! sends it again.
//!
//! A frame has a slot of fixed size. Each slot is in one list: the free ones, or those of one queue pair in the order of
//! their sequence numbers.

#![allow(unsafe_code, reason = "slots of one block of memory")]

use alloc::vec::Vec;
use lock_api::{Mutex, RawMutex};

use super::sequence::Sequence;
use crate::config::StashLimits;
use crate::error::CreateError;
use fallible::vec;
use fallible::{AliasableBytes, Arc};
use roce_wire::{Packet, PathMtu};

/// How far after the expected packet a stored one may be.
pub(super) const REACH: u64 = 128;

/// Bytes of the longest frame's headers, pad and ICRC.
const OVERHEAD: usize = 128;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The stash of an engine.
#[derive(Debug)]
pub(crate) struct StashMemory<R: RawMutex> {
    /// `None` without slots.
    bytes: Option<AliasableBytes>,
    /// Bytes of a slot.
    size: usize,
    /// Slots that a queue pair may use.
    per_qp: u32,
    slots: Mutex<R, Slots>,
}

#[derive(Debug)]
struct Slots {
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The next slot of its list.
    next: u32,
    /// Bytes of the frame.
    len: u32,
    sequence: Sequence,
}

/// The stored frames of one queue pair.
#[derive(Debug)]
pub(super) struct Stash {
    oldest: u32,
    newest: u32,
    frames: u32,
    /// Sequence numbers of the oldest and of the newest.
    first: Sequence,
    last: Sequence,
}

/// A frame that was taken from the stash. Its slot is free again after [`StashMemory::release`].
pub(super) struct Taken {
    slot: u32,
    len: u32,
}

impl Slots {
    fn get(&self, at: u32) -> Option<Slot> {
        self.slots.get(at as usize).copied()
    }

    fn set_next(&mut self, at: u32, next: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.next = next;
        }
    }

    fn release(&mut self, at: u32) {
        self.set_next(at, self.free);
        self.free = at;
    }
}

impl<R: RawMutex> StashMemory<R> {
    /// Allocates the memory for frames of packets up to `max_mtu`.
    #[inline(never)]
    pub(crate) fn try_new(limits: StashLimits, max_mtu: PathMtu) -> Result<Arc<Self>, CreateError> {
        let StashLimits { per_qp, total } = limits;
        let size = max_mtu.bytes().saturating_add(OVERHEAD);
        let count = total as usize / size;
        let bytes = match count {
            0 => None,
            _ => Some(AliasableBytes::try_new(count.saturating_mul(size))?),
        };
        let mut slots = Slots {
            slots: vec::filled(count, Slot { next: NONE, len: 0, sequence: Sequence::ZERO })?,
            free: NONE,
        };
        for at in 0..count as u32 {
            slots.release(at);
        }
        let per_qp = (per_qp as usize / size).min(REACH as usize) as u32;
        Ok(Arc::try_new(Self { bytes, size, per_qp, slots: Mutex::new(slots) })?)
    }

    /// Returns the address of a slot's bytes.
    fn address(&self, at: u32) -> Option<*mut u8> {
        let bytes = self.bytes.as_ref()?;
        let offset = (at as usize).checked_mul(self.size)?;
        if offset.checked_add(self.size)? > bytes.len() {
            return None;
        }
        // SAFETY: the slot is inside the block.
        Some(unsafe { bytes.as_ptr().add(offset) })
    }

    /// Returns the frame in a slot of a queue pair's list, or one that was taken from it.
    fn frame(&self, at: u32, len: u32) -> &[u8] {
        let Some(address) = self.address(at).filter(|_| len as usize <= self.size) else { return &[] };
        // SAFETY: the slot is not free, and it is written to only before it enters the list of its queue pair, whose lock the
        // caller holds.
        unsafe { core::slice::from_raw_parts(address, len as usize) }
    }

    /// Returns a frame that was taken.
    pub(super) fn taken(&self, taken: &Taken) -> &[u8] {
        self.frame(taken.slot, taken.len)
    }

    /// Frees the slot of a frame that was taken.
    #[allow(clippy::needless_pass_by_value, reason = "it cannot be used after that")]
    pub(super) fn release(&self, taken: Taken) {
        self.slots.lock().release(taken.slot);
    }
}

impl Stash {
    pub(super) const EMPTY: Self =
        Self { oldest: NONE, newest: NONE, frames: 0, first: Sequence::ZERO, last: Sequence::ZERO };

    pub(super) const fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Returns whether the oldest frame is that of `sequence`.
    pub(super) fn begins_with(&self, sequence: Sequence) -> bool {
        !self.is_empty() && self.first == sequence
    }

    /// Returns the stored frame of `sequence`.
    pub(super) fn get<'a, R: RawMutex>(
        &self,
        sequence: Sequence,
        memory: &'a StashMemory<R>,
    ) -> Option<&'a [u8]> {
        if self.is_empty() || sequence < self.first || sequence > self.last {
            return None;
        }
        let slots = memory.slots.lock();
        let (mut at, mut slot) = (self.oldest, slots.get(self.oldest)?);
        while slot.sequence < sequence {
            at = slot.next;
            slot = slots.get(at)?;
        }
        (slot.sequence == sequence).then(|| memory.frame(at, slot.len))
    }

    /// Stores a copy of the packet at `sequence`, of which none is stored. Returns whether there was room.
    pub(super) fn insert<R: RawMutex>(
        &mut self,
        sequence: Sequence,
        packet: &Packet<'_>,
        memory: &StashMemory<R>,
    ) -> bool {
        let (eth, covered, icrc) = packet.pieces();
        let pieces = [&eth[..], covered, &icrc[..]];
        let len = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        if self.frames >= memory.per_qp || len > memory.size {
            return false;
        }
        let mut slots = memory.slots.lock();
        let at = slots.free;
        let (Some(slot), Some(mut address)) = (slots.get(at), memory.address(at)) else { return false };
        slots.free = slot.next;
        for piece in pieces {
            // SAFETY: the pieces fit the slot, which is in no list.
            unsafe { address.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            // SAFETY: the pieces fit the slot.
            address = unsafe { address.add(piece.len()) };
        }
        if let Some(slot) = slots.slots.get_mut(at as usize) {
            *slot = Slot { next: NONE, len: len as u32, sequence };
        }
        self.link(at, sequence, &mut slots);
        true
    }

    /// Adds a slot to the list.
    fn link(&mut self, at: u32, sequence: Sequence, slots: &mut Slots) {
        if self.is_empty() {
            (self.oldest, self.newest, self.first, self.last) = (at, at, sequence, sequence);
        } else if sequence > self.last {
            slots.set_next(self.newest, at);
            (self.newest, self.last) = (at, sequence);
        } else if sequence < self.first {
            slots.set_next(at, self.oldest);
            (self.oldest, self.first) = (at, sequence);
        } else {
            let mut before = self.oldest;
            while let Some(slot) = slots.get(before)
                && let Some(next) = slots.get(slot.next)
                && next.sequence < sequence
            {
                before = slot.next;
            }
            let next = slots.get(before).map_or(NONE, |slot| slot.next);
            slots.set_next(at, next);
            slots.set_next(before, at);
        }
        self.frames = self.frames.saturating_add(1);
    }

    /// Takes the oldest frame.
    pub(super) fn take<R: RawMutex>(&mut self, memory: &StashMemory<R>) -> Option<Taken> {
        if self.is_empty() {
            return None;
        }
        let at = self.oldest;
        let slots = memory.slots.lock();
        let slot = slots.get(at)?;
        self.frames = self.frames.saturating_sub(1);
        self.oldest = slot.next;
        if let Some(next) = slots.get(slot.next) {
            self.first = next.sequence;
        }
        Some(Taken { slot: at, len: slot.len })
    }

    /// Frees the frame of `sequence`.
    pub(super) fn remove<R: RawMutex>(&mut self, sequence: Sequence, memory: &StashMemory<R>) {
        let mut kept = Self::EMPTY;
        // Few frames: at most `REACH`.
        while !self.is_empty() {
            let at = self.first;
            let Some(taken) = self.take(memory) else { break };
            if at == sequence {
                memory.release(taken);
            } else {
                let mut slots = memory.slots.lock();
                slots.set_next(taken.slot, NONE);
                kept.link(taken.slot, at, &mut slots);
            }
        }
        *self = kept;
    }

    /// Frees the frames before `expected`.
    pub(super) fn forget_before<R: RawMutex>(&mut self, expected: Sequence, memory: &StashMemory<R>) {
        while !self.is_empty()
            && self.first < expected
            && let Some(taken) = self.take(memory)
        {
            memory.release(taken);
        }
    }

    /// Frees all frames.
    pub(super) fn clear<R: RawMutex>(&mut self, memory: &StashMemory<R>) {
        self.forget_before(Sequence::MAX, memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;
    use roce_wire::icrc::Crc;
    use roce_wire::{Ext, Headers, MacAddr, Opcode, Path, Psn, Qpn, Template};

    /// Slots of [`memory`].
    const SLOTS: u32 = 6;

    fn memory(per_qp: u32) -> Arc<StashMemory<Lock>> {
        let mtu = PathMtu::Bytes4096;
        let slot = (mtu.bytes() + OVERHEAD) as u32;
        StashMemory::try_new(StashLimits { per_qp: per_qp * slot, total: SLOTS * slot }, mtu).unwrap()
    }

    fn frame(number: u8, len: usize) -> Vec<u8> {
        let path = Path::new(MacAddr([2; 6]), MacAddr([4; 6]), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let psn = Psn::new(u32::from(number));
        let headers =
            Headers { opcode: Opcode::SEND_ONLY, solicited: true, ack_req: true, psn, ext: Ext::None };
        let mut slot = std::vec![0; len + 200];
        let mut frame =
            Template::new(&path, Qpn::new(7)).unwrap().begin(Crc::table(), &mut slot, &headers, len).unwrap();
        frame.write(&std::vec![number; len]);
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    fn insert(stash: &mut Stash, number: u8, memory: &StashMemory<Lock>) -> bool {
        let frame = frame(number, 4096);
        stash.insert(Sequence::ZERO.add(u64::from(number)), &Packet::parse(&frame).unwrap(), memory)
    }

    fn take(stash: &mut Stash, memory: &StashMemory<Lock>) -> Option<u8> {
        let taken = stash.take(memory)?;
        let packet = Packet::parse(memory.taken(&taken)).unwrap();
        assert!(packet.icrc_valid(Crc::table()));
        let payload = packet.payload();
        assert!(payload.len() == 4096 && payload.iter().all(|byte| *byte == payload[0]));
        let number = payload[0];
        memory.release(taken);
        Some(number)
    }

    #[test]
    fn frames_come_back_in_order_and_whole() {
        let memory = memory(SLOTS);
        for order in [[3, 1, 2, 5], [1, 2, 3, 5], [5, 3, 2, 1], [2, 5, 1, 3]] {
            let mut stash = Stash::EMPTY;
            for number in order {
                assert!(insert(&mut stash, number, &memory));
            }
            for number in 0..7 {
                let sequence = Sequence::ZERO.add(number);
                assert_eq!(stash.get(sequence, &memory).is_some(), [1, 2, 3, 5].contains(&number));
            }
            stash.remove(Sequence::ZERO.add(2), &memory);
            assert!(stash.begins_with(Sequence::ZERO.add(1)));
            let taken: Vec<_> = std::iter::from_fn(|| take(&mut stash, &memory)).collect();
            assert_eq!(taken, [1, 3, 5]);
            assert!(stash.is_empty());
        }
    }

    #[test]
    fn slots_are_bounded_and_free_again() {
        let memory = memory(4);
        for _ in 0..3 {
            let (mut one, mut other) = (Stash::EMPTY, Stash::EMPTY);
            let count = |stash: &mut Stash| (1..=9).filter(|&number| insert(stash, number, &memory)).count();
            assert_eq!((count(&mut one), count(&mut other)), (4, 2));
            one.forget_before(Sequence::ZERO.add(3), &memory);
            assert_eq!(count(&mut other), 2);
            one.clear(&memory);
            other.clear(&memory);
        }
    }
}
