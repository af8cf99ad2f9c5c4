// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hierarchical timer wheel, one entry per slot of a table.
//!
//! Scheduling and canceling take constant time, and only [`TimerWheel::reserve_for`] allocates. Owners re-arm
//! lazily: they keep their true deadline, leave an entry that is too early in place, and compare with the clock
//! when it expires.

use alloc::vec::Vec;

use crate::error::CreateError;
use crate::time::Instant;
use fallible::vec;

/// A tick is 2^14 ns: 16.4 us.
const TICK_BITS: u32 = 14;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Four levels reach 2^24 ticks, 275 s. Later entries wait in the last slot and are inserted again.
const LEVELS: usize = 4;
const REACH: u64 = 1 << (LEVEL_BITS as u64 * LEVELS as u64);
/// The greatest distance whose slot at the highest level differs from the present one: less than a full turn.
const FARTHEST: u64 = REACH - (1 << (LEVEL_BITS * (LEVELS as u32 - 1)));
const NIL: u32 = u32::MAX;

/// The wheel.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    /// The first tick that has not been processed.
    now: u64,
    /// [`LEVELS`] levels, allocated separately: they are too large for a kernel stack.
    levels: Vec<Level>,
    entries: Vec<Entry>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Level {
    /// One bit per slot, set if it has entries.
    occupied: u64,
    heads: [u32; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The tick it is due at.
    due: u64,
    next: u32,
    prev: u32,
    /// `level << 8 | slot`, or [`Entry::IDLE`].
    place: u16,
}

impl Entry {
    const IDLE: u16 = u16::MAX;
    const NEW: Self = Self { due: 0, next: NIL, prev: NIL, place: Self::IDLE };
}

impl TimerWheel {
    pub(crate) fn try_new() -> Result<Self, CreateError> {
        let levels = vec::filled(LEVELS, Level { occupied: 0, heads: [NIL; SLOTS] })?;
        Ok(Self { now: 0, levels, entries: Vec::new(), len: 0 })
    }

    /// Reserves the entry of `owner`.
    pub(crate) fn reserve_for(&mut self, owner: u32) -> Result<(), CreateError> {
        let wanted = (owner as usize).saturating_add(1);
        // Geometric: owners are numbered densely.
        let wanted = if wanted > self.entries.len() { wanted.next_power_of_two() } else { wanted };
        vec::grow_to(&mut self.entries, wanted, || Entry::NEW)?;
        Ok(())
    }

    /// Schedules `owner` to expire at `at` or up to a tick later. Replaces its earlier entry.
    pub(crate) fn schedule(&mut self, owner: u32, at: Instant) {
        self.cancel(owner);
        // Rounded up: never early.
        let due = (at.as_nanos() >> TICK_BITS).saturating_add(1).max(self.now);
        if let Some(entry) = self.entries.get_mut(owner as usize) {
            entry.due = due;
            self.insert(owner);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Schedules a timer unless it has an earlier entry, see [`TimerWheel::schedule`].
    pub(crate) fn schedule_earlier(&mut self, owner: u32, at: Instant) {
        let due = (at.as_nanos() >> TICK_BITS).saturating_add(1);
        let earlier = |entry: &Entry| entry.place != Entry::IDLE && entry.due <= due;
        if !self.entries.get(owner as usize).is_some_and(earlier) {
            self.schedule(owner, at);
        }
    }

    /// Removes `owner`'s entry, if it has one.
    pub(crate) fn cancel(&mut self, owner: u32) {
        if self.entries.get(owner as usize).is_some_and(|entry| entry.place != Entry::IDLE) {
            self.unlink(owner);
            self.len = self.len.saturating_sub(1);
        }
    }

    /// Returns when [`TimerWheel::expire`] is to be called next: at the earliest entry, or before it. `None` if
    /// there are no entries.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let mut earliest = u64::MAX;
        for (number, level) in self.levels.iter().enumerate() {
            if level.occupied == 0 {
                continue;
            }
            let shift = LEVEL_BITS.saturating_mul(number as u32);
            let position = self.now >> shift;
            // The next occupied slot, from the present one on.
            let ahead = level.occupied.rotate_right(position as u32 & (SLOTS as u32 - 1)).trailing_zeros();
            let start = position.saturating_add(u64::from(ahead)) << shift;
            earliest = earliest.min(start.max(self.now));
        }
        Some(Instant::from_nanos(earliest << TICK_BITS))
    }

    /// Removes one entry that is due at `now` and returns its owner. Call it until it returns `None`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<u32> {
        let until = now.as_nanos() >> TICK_BITS;
        while self.len > 0 {
            let Some(next) = self.next() else { break };
            let tick = next.as_nanos() >> TICK_BITS;
            if tick > until {
                break;
            }
            self.now = tick;
            if let Some(owner) = self.take_due() {
                self.len = self.len.saturating_sub(1);
                return Some(owner);
            }
        }
        // No entry is due before: the wheel advances.
        self.now = self.now.max(until);
        None
    }

    /// Processes the slots of the present tick: moves entries of higher levels down, and takes one that is due.
    fn take_due(&mut self) -> Option<u32> {
        for number in (1..LEVELS).rev() {
            let shift = LEVEL_BITS.saturating_mul(number as u32);
            let slot = ((self.now >> shift) as usize) & (SLOTS - 1);
            // Entries of this slot are due within its span, which includes the present tick: they all move to
            // lower levels. Each entry moves down at most once per level.
            while let Some(owner) = self.head(number, slot) {
                self.unlink(owner);
                if self.insert(owner) == (number, slot) {
                    break;
                }
            }
        }
        let slot = (self.now as usize) & (SLOTS - 1);
        let owner = self.head(0, slot)?;
        self.unlink(owner);
        Some(owner)
    }

    fn head(&self, level: usize, slot: usize) -> Option<u32> {
        self.levels.get(level)?.heads.get(slot).copied().filter(|&head| head != NIL)
    }

    /// Inserts an entry into the slot of its due tick. Returns level and slot.
    fn insert(&mut self, owner: u32) -> (usize, usize) {
        let Some(entry) = self.entries.get_mut(owner as usize) else { return (0, 0) };
        let due = entry.due.clamp(self.now, self.now.saturating_add(FARTHEST));
        // The highest digit in which the due tick and now differ.
        let level = match (due ^ self.now).checked_ilog2() {
            Some(bit) => ((bit / LEVEL_BITS) as usize).min(LEVELS - 1),
            None => 0,
        };
        let slot = ((due >> LEVEL_BITS.saturating_mul(level as u32)) as usize) & (SLOTS - 1);
        entry.place = (level as u16) << 8 | slot as u16;
        entry.prev = NIL;
        let mut old = NIL;
        if let Some(level) = self.levels.get_mut(level)
            && let Some(head) = level.heads.get_mut(slot)
        {
            level.occupied |= 1 << slot;
            old = core::mem::replace(head, owner);
        }
        entry.next = old;
        if let Some(old) = self.entries.get_mut(old as usize) {
            old.prev = owner;
        }
        (level, slot)
    }

    fn unlink(&mut self, owner: u32) {
        let Some(entry) = self.entries.get_mut(owner as usize) else { return };
        let Entry { next, prev, place, .. } = *entry;
        (entry.next, entry.prev, entry.place) = (NIL, NIL, Entry::IDLE);
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = prev;
        }
        if let Some(prev) = self.entries.get_mut(prev as usize) {
            prev.next = next;
            return;
        }
        let slot = usize::from(place & 0xFF);
        if let Some(level) = self.levels.get_mut(usize::from(place >> 8))
            && let Some(head) = level.heads.get_mut(slot)
        {
            *head = next;
            if next == NIL {
                level.occupied &= !(1 << slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn wheel(owners: u32) -> TimerWheel {
        let mut wheel = TimerWheel::try_new().unwrap();
        wheel.reserve_for(owners - 1).unwrap();
        wheel
    }

    /// Steps from one [`TimerWheel::next`] to the next. Returns the owners with their expiry times.
    fn run(wheel: &mut TimerWheel) -> Vec<(u32, Instant)> {
        let mut fired = Vec::new();
        while let Some(now) = wheel.next() {
            while let Some(owner) = wheel.expire(now) {
                fired.push((owner, now));
            }
        }
        fired
    }

    #[test]
    fn entries_expire_not_early_and_at_most_one_tick_late() {
        let mut wheel = wheel(6);
        let delays = [
            Duration::from_micros(10),
            Duration::from_micros(655),
            Duration::from_millis(67),
            Duration::from_secs(4),
            Duration::from_secs(200),
            Duration::from_secs(3000),
        ];
        for (owner, delay) in (0..).zip(delays) {
            wheel.schedule(owner, Instant::default() + delay);
        }
        let fired = run(&mut wheel);
        assert_eq!(fired.iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        for ((_, at), delay) in fired.into_iter().zip(delays) {
            let late = at.duration_since(Instant::default() + delay);
            assert!(at >= Instant::default() + delay, "{delay:?} expired early");
            assert!(late <= Duration::from_nanos(1 << TICK_BITS), "{delay:?} was {late:?} late");
        }
    }

    #[test]
    fn entries_can_be_rescheduled_and_canceled() {
        let mut wheel = wheel(2);
        let at = |ms| Instant::default() + Duration::from_millis(ms);
        wheel.schedule(0, at(5));
        wheel.schedule(1, at(5));
        wheel.schedule(0, at(50));
        wheel.cancel(1);
        wheel.cancel(1);
        let fired = run(&mut wheel);
        assert_eq!(fired.len(), 1);
        assert_eq!(fired[0].0, 0);
        assert!(fired[0].1 >= at(50));
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn all_due_entries_expire_after_a_clock_jump() {
        let mut wheel = wheel(100);
        for owner in 0..100 {
            wheel.schedule(owner, Instant::default() + Duration::from_millis(u64::from(owner) * 37));
        }
        let late = Instant::default() + Duration::from_secs(60);
        let mut owners: Vec<_> = core::iter::from_fn(|| wheel.expire(late)).collect();
        owners.sort_unstable();
        assert_eq!(owners, (0..100).collect::<Vec<_>>());
        wheel.schedule(3, Instant::default());
        assert_eq!(wheel.expire(late), Some(3), "an entry scheduled in the past expires at once");
    }

    #[test]
    fn entry_a_full_turn_away_does_not_stop_the_wheel() {
        for offset in [0, 1, (1 << 18) - 1, 1 << 18, (1 << 24) - 1] {
            let mut wheel = wheel(1);
            let start = Instant::from_nanos(offset << TICK_BITS);
            assert_eq!(wheel.expire(start), None);
            let due = start + Duration::from_secs(274);
            wheel.schedule(0, due);
            assert!(run(&mut wheel)[0].1 >= due);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_entry_expires_within_two_ticks_of_its_last_deadline(
            plan in proptest::collection::vec((0u32..64, 0u64..400_000_000_000), 1..200)
        ) {
            let mut wheel = wheel(64);
            let mut expected = std::collections::BTreeMap::new();
            for (owner, at) in plan {
                wheel.schedule(owner, Instant::from_nanos(at));
                expected.insert(owner, at);
            }
            let fired = run(&mut wheel);
            proptest::prop_assert_eq!(fired.len(), expected.len());
            for (owner, at) in fired {
                let due = expected[&owner];
                proptest::prop_assert!(at.as_nanos() >= due && at.as_nanos() - due <= 2 << TICK_BITS);
            }
        }
    }
}
