// SPDX-License-Identifier: MIT OR Apache-2.0

//! The stash: copies of request frames that arrived after a gap and cannot be placed into memory yet.
//!
//! Its memory is allocated with the engine: room for [`StashLimits::total`] bytes, of which a queue pair may use
//! [`StashLimits::per_qp`], for [`FRAMES`] frames at most, and no more than it leaves for others: the next one finds room, however
//! many take what they can (dynamic thresholds, Choudhury and Hahne 1998). What finds no room is dropped, as every frame after a gap
//! may be: the peer sends it again. So may be what waits for long, see [`super::standstill`].
//!
//! A frame has a [cell](super::cells) of about its length, and a slot that describes it. Slots in use are found by queue pair and sequence number with a hash table. Consecutive
//! sequence numbers of a queue pair have consecutive buckets, so that a bucket has at most one frame of each queue pair;
//! where those of a queue pair begin is secret, so that a peer cannot fill a bucket with frames of many.

#![allow(unsafe_code, reason = "slots of one block of memory")]

use alloc::vec::Vec;
use lock_api::{Mutex, RawMutex};

use super::cells::{Cells, UNITS};
use crate::config::{MOST_PACKETS, StashLimits};
use crate::error::CreateError;
use crate::time::Instant;
use crate::transport::sequence::Sequence;
use fallible::vec;
use fallible::{AliasableBytes, Arc};
use roce_wire::{Packet, PathMtu};

/// Frames at most of one queue pair.
const FRAMES: u32 = 6144;

/// Bytes of the longest frame's headers, pad and ICRC.
const OVERHEAD: usize = 128;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The stash of an engine.
#[derive(Debug)]
pub(crate) struct StashMemory<R: RawMutex> {
    /// `None` without room.
    bytes: Option<AliasableBytes>,
    /// Bytes of a block of cells.
    size: usize,
    /// Units of cells that a queue pair may use.
    per_qp: u32,
    slots: Mutex<R, Slots>,
}

#[derive(Debug)]
struct Slots {
    cells: Cells,
    /// As many as there may be cells.
    all: Vec<Slot>,
    /// The first free slot.
    free: u32,
    /// The first slot of each bucket; a power of two of them, at least as many as slots and as packets of a queue pair.
    buckets: Vec<u32>,
    /// Number of the last queue pair that began to store frames.
    owners: u64,
    /// Random.
    key: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The next slot of its bucket, or the next free one.
    chain: u32,
    /// The next slot and the previous one of the queue pair.
    next: u32,
    previous: u32,
    cell: u32,
    /// Bytes of the frame.
    len: u32,
    owner: Owner,
    sequence: Sequence,
}

/// A queue pair with stored frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner(u64);

/// The stored frames of one queue pair.
#[derive(Debug)]
pub(crate) struct Stash {
    owner: Owner,
    frames: u32,
    /// Units of the cells of the frames.
    units: u32,
    /// A list of them, in the order of arrival.
    newest: u32,
    /// None is stored of a packet before this one.
    start: Sequence,
}

/// The packet that was missing before the stored ones at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(super) missing: Sequence,
    pub(super) since: Instant,
}

/// A frame that was taken from the stash. Its cell is free again after [`StashMemory::release`].
pub(crate) struct Taken {
    cell: u32,
    len: u32,
}

impl Slots {
    fn get(&self, at: u32) -> Option<Slot> {
        self.all.get(at as usize).copied()
    }

    fn update(&mut self, at: u32, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.all.get_mut(at as usize) {
            change(slot);
        }
    }

    /// Takes a cell of `units` units for a queue pair that has `owned`, if that leaves as much for the others.
    fn acquire(&mut self, units: u32, owned: u32) -> Option<u32> {
        if owned.saturating_add(units) > self.cells.free_units() {
            return None;
        }
        self.cells.acquire(units)
    }

    fn take_slot(&mut self) -> u32 {
        let at = self.free;
        self.free = self.get(at).map_or(NONE, |slot| slot.chain);
        at
    }

    fn free_slot(&mut self, at: u32) {
        let free = self.free;
        self.update(at, |slot| slot.chain = free);
        self.free = at;
    }

    fn new_owner(&mut self) -> Owner {
        self.owners = self.owners.wrapping_add(1);
        Owner(self.owners)
    }

    fn bucket(&self, owner: Owner, sequence: Sequence) -> usize {
        let start = owner.0.wrapping_mul(self.key) >> 32;
        let mask = self.buckets.len().wrapping_sub(1);
        (start as usize).wrapping_add(sequence.since(Sequence::ZERO) as usize) & mask
    }

    /// Returns the slot of a frame, and the one before it in its bucket.
    fn find(&self, owner: Owner, sequence: Sequence) -> Option<(u32, Slot, Option<u32>)> {
        let mut at = *self.buckets.get(self.bucket(owner, sequence))?;
        let mut before = None;
        while let Some(slot) = self.get(at) {
            if slot.sequence == sequence && slot.owner == owner {
                return Some((at, slot, before));
            }
            before = Some(at);
            at = slot.chain;
        }
        None
    }

    /// Adds a slot for the frame in `cell` to its bucket and before `next`, the newest of its queue pair. Returns where it is.
    fn link(&mut self, owner: Owner, sequence: Sequence, (cell, len): (u32, u32), next: u32) -> u32 {
        let at = self.take_slot();
        let bucket = self.bucket(owner, sequence);
        let Some(first) = self.buckets.get_mut(bucket) else { return next };
        let chain = core::mem::replace(first, at);
        self.update(next, |slot| slot.previous = at);
        self.update(at, |slot| *slot = Slot { chain, next, previous: NONE, cell, len, owner, sequence });
        at
    }

    /// Removes `slot`, which is at `at`, from its bucket, where `before` precedes it, and from the frames of its queue pair.
    fn unlink(&mut self, (at, slot): (u32, Slot), before: Option<u32>, newest: &mut u32) {
        if let Some(before) = before {
            self.update(before, |other| other.chain = slot.chain);
        } else {
            let bucket = self.bucket(slot.owner, slot.sequence);
            if let Some(first) = self.buckets.get_mut(bucket) {
                *first = slot.chain;
            }
        }
        self.update(slot.next, |next| next.previous = slot.previous);
        match slot.previous {
            NONE => *newest = slot.next,
            previous => self.update(previous, |other| other.next = slot.next),
        }
        self.free_slot(at);
    }
}

impl<R: RawMutex> StashMemory<R> {
    /// Allocates the memory for frames of packets up to `max_mtu`. `key` is random.
    #[inline(never)]
    pub(crate) fn try_new(limits: StashLimits, max_mtu: PathMtu, key: u64) -> Result<Arc<Self>, CreateError> {
        let StashLimits { per_qp, total } = limits;
        let size = max_mtu.bytes().saturating_add(OVERHEAD);
        let count = total as usize / size;
        let bytes = match count {
            0 => None,
            _ => Some(AliasableBytes::try_new(count.saturating_mul(size))?),
        };
        let per_qp = (per_qp as usize / (size / UNITS as usize)) as u32;
        let most = count.saturating_mul(Cells::most_of(size));
        let free = Slot {
            chain: NONE,
            next: NONE,
            previous: NONE,
            cell: 0,
            len: 0,
            owner: Owner(0),
            sequence: Sequence::ZERO,
        };
        let buckets = if count == 0 { 0 } else { most.max(MOST_PACKETS as usize).next_power_of_two() };
        let mut slots = Slots {
            cells: Cells::try_new(count as u32)?,
            all: vec::filled(most, free)?,
            free: NONE,
            buckets: vec::filled(buckets, NONE)?,
            owners: 0,
            key: key | 1,
        };
        for at in (0..most as u32).rev() {
            slots.free_slot(at);
        }
        Ok(Arc::try_new(Self { bytes, size, per_qp, slots: Mutex::new(slots) })?)
    }

    /// Returns the address of a cell, from which on `len` bytes are in the memory.
    fn address(&self, cell: u32, len: usize) -> Option<*mut u8> {
        let bytes = self.bytes.as_ref()?;
        let offset = (cell as usize).checked_mul(self.size / UNITS as usize)?;
        if offset.checked_add(len)? > bytes.len() {
            return None;
        }
        // SAFETY: the address is inside the memory.
        Some(unsafe { bytes.as_ptr().add(offset) })
    }

    /// Returns the frame of `len` bytes in a cell of a queue pair, or one that was taken from it.
    fn frame(&self, cell: u32, len: u32) -> &[u8] {
        let Some(address) = self.address(cell, len as usize) else { return &[] };
        // SAFETY: the cell is not free, has `len` bytes at least, and is written to only before its slot is linked to its queue
        // pair, whose lock the caller holds.
        unsafe { core::slice::from_raw_parts(address, len as usize) }
    }

    /// Returns a frame that was taken.
    pub(crate) fn taken(&self, taken: &Taken) -> &[u8] {
        self.frame(taken.cell, taken.len)
    }

    /// Frees the cell of a frame that was taken.
    #[allow(clippy::needless_pass_by_value, reason = "it cannot be used after that")]
    pub(crate) fn release(&self, taken: Taken) {
        self.slots.lock().cells.release(taken.cell);
    }
}

impl Stash {
    pub(crate) const EMPTY: Self =
        Self { owner: Owner(0), frames: 0, units: 0, newest: NONE, start: Sequence::ZERO };

    pub(crate) const fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Returns whether a frame of `sequence` is stored.
    pub(crate) fn contains<R: RawMutex>(&self, sequence: Sequence, memory: &StashMemory<R>) -> bool {
        !self.is_empty() && memory.slots.lock().find(self.owner, sequence).is_some()
    }

    /// Returns the stored frame of `sequence`.
    pub(crate) fn get<'a, R: RawMutex>(
        &self,
        sequence: Sequence,
        memory: &'a StashMemory<R>,
    ) -> Option<&'a [u8]> {
        if self.is_empty() {
            return None;
        }
        let (_, slot, _) = memory.slots.lock().find(self.owner, sequence)?;
        Some(memory.frame(slot.cell, slot.len))
    }

    /// Stores a copy of the packet at `sequence`, of which none is stored. Returns whether there was room.
    pub(crate) fn insert<R: RawMutex>(
        &mut self,
        sequence: Sequence,
        packet: &Packet<'_>,
        memory: &StashMemory<R>,
    ) -> bool {
        let (eth, covered, icrc) = packet.pieces();
        let pieces = [&eth[..], covered, &icrc[..]];
        let len = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        let Some(units) = Cells::units_for(len, memory.size) else { return false };
        let owned = self.units.saturating_add(units);
        if self.frames >= FRAMES || owned > memory.per_qp {
            return false;
        }
        let Some(cell) = memory.slots.lock().acquire(units, self.units) else { return false };
        let Some(mut address) = memory.address(cell, len) else { return false };
        for piece in pieces {
            // SAFETY: the pieces fit the cell, which no slot refers to.
            unsafe { address.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            // SAFETY: the pieces fit the cell.
            address = unsafe { address.add(piece.len()) };
        }
        let mut slots = memory.slots.lock();
        if self.is_empty() {
            (self.owner, self.start) = (slots.new_owner(), sequence);
        }
        self.newest = slots.link(self.owner, sequence, (cell, len as u32), self.newest);
        self.start = self.start.min(sequence);
        self.frames = self.frames.saturating_add(1);
        self.units = owned;
        true
    }

    /// Takes the frame of `sequence`.
    pub(crate) fn take<R: RawMutex>(&mut self, sequence: Sequence, memory: &StashMemory<R>) -> Option<Taken> {
        if self.is_empty() {
            return None;
        }
        let mut slots = memory.slots.lock();
        let (at, slot, before) = slots.find(self.owner, sequence)?;
        slots.unlink((at, slot), before, &mut self.newest);
        self.frames = self.frames.saturating_sub(1);
        self.units = self.units.saturating_sub(slots.cells.units(slot.cell));
        if self.start == sequence {
            self.start = sequence.next();
        }
        Some(Taken { cell: slot.cell, len: slot.len })
    }

    /// Frees the frame of `sequence`, if one is stored.
    pub(crate) fn remove<R: RawMutex>(&mut self, sequence: Sequence, memory: &StashMemory<R>) {
        if let Some(taken) = self.take(sequence, memory) {
            memory.release(taken);
        }
    }

    /// Frees the frames before `expected`.
    pub(crate) fn forget_before<R: RawMutex>(&mut self, expected: Sequence, memory: &StashMemory<R>) {
        let passed = expected.checked_since(self.start).unwrap_or(0);
        if self.is_empty() || passed == 0 {
            return;
        }
        if passed <= u64::from(self.frames) {
            let start = self.start;
            for number in 0..passed {
                self.remove(start.add(number), memory);
            }
        } else {
            let mut at = self.newest;
            for _ in 0..self.frames {
                let slot = memory.slots.lock().get(at);
                let Some(slot) = slot else { break };
                at = slot.next;
                if slot.sequence < expected {
                    self.remove(slot.sequence, memory);
                }
            }
        }
        self.start = expected;
    }

    /// Frees all frames.
    pub(crate) fn clear<R: RawMutex>(&mut self, memory: &StashMemory<R>) {
        self.forget_before(Sequence::MAX, memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;
    use roce_wire::icrc::Crc;
    use roce_wire::{Ext, Headers, MacAddr, Opcode, Path, Psn, Qpn, Template};

    /// Frames of the largest size for which [`memory`] has room.
    const SLOTS: u32 = 18;

    fn memory(per_qp: u32) -> Arc<StashMemory<Lock>> {
        let mtu = PathMtu::Bytes4096;
        let slot = (mtu.bytes() + OVERHEAD) as u32;
        StashMemory::try_new(StashLimits { per_qp: per_qp * slot, total: SLOTS * slot }, mtu, 1 << 32)
            .unwrap()
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
        stash.insert(at(u64::from(number)), &Packet::parse(&frame).unwrap(), memory)
    }

    fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    fn take(stash: &mut Stash, number: u64, memory: &StashMemory<Lock>) -> Option<u8> {
        let taken = stash.take(at(number), memory)?;
        let packet = Packet::parse(memory.taken(&taken)).unwrap();
        assert!(packet.icrc_valid(Crc::table()));
        let payload = packet.payload();
        assert!(payload.len() == 4096 && payload.iter().all(|byte| *byte == payload[0]));
        let number = payload[0];
        memory.release(taken);
        Some(number)
    }

    /// Numbers of the stored frames.
    fn numbers(stash: &Stash, memory: &StashMemory<Lock>) -> Vec<u64> {
        (0..=20).filter(|&number| stash.contains(at(number), memory)).collect()
    }

    #[test]
    fn frames_come_back_whole_in_any_order() {
        let memory = memory(SLOTS);
        for order in [[3, 1, 2, 5], [1, 2, 3, 5], [5, 3, 2, 1], [2, 5, 1, 3]] {
            for taken in [[1, 3, 5], [5, 3, 1], [3, 5, 1]] {
                let mut stash = Stash::EMPTY;
                for number in order {
                    assert!(insert(&mut stash, number, &memory));
                }
                for number in 0..7 {
                    let frame = stash.get(at(number), &memory);
                    assert_eq!(frame.is_some(), [1, 2, 3, 5].contains(&number));
                    let same =
                        frame.is_none_or(|frame| Packet::parse(frame).unwrap().payload()[0] == number as u8);
                    assert!(same, "the frame of {number}");
                }
                stash.remove(at(2), &memory);
                stash.remove(at(4), &memory);
                for number in taken {
                    assert_eq!(take(&mut stash, number, &memory), Some(number as u8));
                    assert_eq!(take(&mut stash, number, &memory), None);
                }
                assert!(stash.is_empty());
            }
        }
    }

    #[test]
    fn frames_before_the_expected_one_are_freed_whatever_was_taken() {
        let memory = memory(SLOTS);
        let mut stash = Stash::EMPTY;
        assert!(insert(&mut stash, 5, &memory) && insert(&mut stash, 7, &memory));
        assert_eq!(take(&mut stash, 7, &memory), Some(7));
        stash.forget_before(at(6), &memory);
        assert!(stash.is_empty());
    }

    /// The longest frames have 4096 bytes of payload and short headers; none is longer than a slot.
    #[test]
    fn frames_fit_their_slots() {
        let memory = memory(SLOTS);
        let mut stash = Stash::EMPTY;
        let headers = frame(1, 0).len();
        // Payload is padded to 4 bytes.
        for (length, fits) in [(memory.size - headers - 2, true), (memory.size - headers + 2, false)] {
            let frame = frame(1, length);
            let packet = Packet::parse(&frame).unwrap();
            assert_eq!(stash.insert(at(1), &packet, &memory), fits, "{} bytes", frame.len());
        }
    }

    /// Queue pairs whose frames share buckets have frames of their own.
    #[test]
    fn frames_of_queue_pairs_are_apart() {
        let memory = memory(SLOTS);
        memory.slots.lock().key = 0;
        for removed in 0..3 {
            let mut stashes = [Stash::EMPTY, Stash::EMPTY, Stash::EMPTY];
            for stash in &mut stashes {
                assert!(insert(stash, 1, &memory) && insert(stash, 2, &memory));
            }
            stashes[removed].remove(at(1), &memory);
            for (number, stash) in stashes.iter_mut().enumerate() {
                assert_eq!(numbers(stash, &memory), if number == removed { &[2][..] } else { &[1, 2] });
            }
            for stash in &mut stashes {
                stash.clear(&memory);
                assert_eq!(numbers(stash, &memory), []);
            }
        }
    }

    /// Few frames are looked for in a list, many packets by their numbers.
    #[test]
    fn frames_before_a_packet_are_forgotten() {
        let memory = memory(SLOTS);
        for (stored, expected, rest) in [
            (&[3, 4, 5, 9][..], 4, &[4, 5, 9][..]),
            (&[3, 4, 5, 9], 6, &[9]),
            (&[9, 5, 4, 3], 6, &[9]),
            (&[5, 3, 9, 4], 9, &[9]),
            (&[3, 9], 10, &[]),
            (&[9, 3, 12], 11, &[12]),
            (&[3, 4], 3, &[3, 4]),
            (&[3, 4], 0, &[3, 4]),
        ] {
            let mut stash = Stash::EMPTY;
            for number in stored {
                assert!(insert(&mut stash, *number, &memory));
            }
            stash.forget_before(at(expected), &memory);
            assert_eq!(numbers(&stash, &memory), rest, "{stored:?} before {expected}");
            // One that arrives again is stored and forgotten again.
            assert!(insert(&mut stash, 2, &memory));
            stash.forget_before(at(3), &memory);
            assert_eq!(numbers(&stash, &memory), rest);
            stash.clear(&memory);
        }
    }

    /// Whatever was taken before, and in whatever order: the others are found in the list of their queue pair.
    #[test]
    fn frames_left_by_others_are_forgotten() {
        let memory = memory(SLOTS);
        for first in 1..=4 {
            for second in (1..=4).filter(|&second| second != first) {
                let (mut one, mut other) = (Stash::EMPTY, Stash::EMPTY);
                for number in 1..=4 {
                    assert!(insert(&mut one, number, &memory));
                }
                for number in [first, second] {
                    one.remove(at(number), &memory);
                }
                // It uses the slots that are free now.
                for number in 1..=4 {
                    assert!(insert(&mut other, number, &memory));
                }
                one.clear(&memory);
                assert!(one.is_empty(), "{first} and {second} were taken");
                assert_eq!(numbers(&other, &memory), [1, 2, 3, 4]);
                other.clear(&memory);
                assert_eq!(memory.slots.lock().cells.free_units(), SLOTS * UNITS, "each cell is free again");
            }
        }
    }

    #[test]
    fn slots_are_bounded_and_free_again() {
        let memory = memory(4);
        for _ in 0..3 {
            let (mut one, mut other) = (Stash::EMPTY, Stash::EMPTY);
            let count = |stash: &mut Stash| (1..=9).filter(|&number| insert(stash, number, &memory)).count();
            assert_eq!((count(&mut one), count(&mut other)), (4, 4));
            one.forget_before(at(3), &memory);
            assert_eq!((count(&mut one), count(&mut other)), (2, 0));
            one.clear(&memory);
            other.clear(&memory);
        }
    }

    /// Of several queue pairs that take what they can, each leaves room for one more.
    #[test]
    fn a_queue_pair_takes_no_more_than_it_leaves() {
        let memory = memory(SLOTS);
        let mut stashes: Vec<_> = (0..4).map(|_| Stash::EMPTY).collect();
        let taken: Vec<_> = stashes
            .iter_mut()
            .map(|stash| (1..=20).filter(|&number| insert(stash, number, &memory)).count())
            .collect();
        assert_eq!(taken, [9, 5, 2, 1]);
        for stash in &mut stashes {
            stash.clear(&memory);
        }
    }

    /// Short frames take as much of the memory as they are long, up to the next eighth of a block.
    #[test]
    fn frames_are_accounted_for_by_their_length() {
        let memory = memory(SLOTS);
        let mut stash = Stash::EMPTY;
        let mut units = |length: usize| {
            let before = memory.slots.lock().cells.free_units();
            let frame = frame(1, length);
            assert!(stash.insert(at(1), &Packet::parse(&frame).unwrap(), &memory));
            let after = memory.slots.lock().cells.free_units();
            assert_eq!(Packet::parse(stash.get(at(1), &memory).unwrap()).unwrap().payload().len(), length);
            stash.remove(at(1), &memory);
            assert_eq!(memory.slots.lock().cells.free_units(), before);
            before - after
        };
        assert_eq!([8, 256, 1024, 2048, 4096].map(&mut units), [1, 1, 4, 4, 8]);
        assert!(stash.is_empty() && stash.units == 0);
    }

    /// As many frames of a queue pair as there may be: each is found at once.
    #[test]
    fn a_bucket_has_one_frame_of_a_queue_pair() {
        let memory = memory(SLOTS);
        let mut slots = memory.slots.lock();
        assert!(slots.buckets.len() >= MOST_PACKETS as usize);
        for key in [1, 0x9E37_79B9_7F4A_7C15] {
            slots.key = key;
            let owner = slots.new_owner();
            let used: std::collections::HashSet<_> = (0..u64::from(MOST_PACKETS))
                .map(|number| slots.bucket(owner, at(1_000_000 + number)))
                .collect();
            assert_eq!(used.len(), MOST_PACKETS as usize);
            let other = slots.new_owner();
            assert!(key == 1 || slots.bucket(owner, at(0)) != slots.bucket(other, at(0)));
        }
    }
}
