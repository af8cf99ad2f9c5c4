// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processor that makes the notifications of a completion queue or a shared receive queue, from the affinity that the consumer gives.
//!
//! The engine has one notice queue for each processor. The number of the queue is the index of the processor.

use core::sync::atomic::{AtomicU32, Ordering};
use nt::processor;

/// A set of processors of one group, as `GROUP_AFFINITY` has it.
#[derive(Clone, Copy, Debug)]
pub struct Affinity {
    pub group: u16,
    /// Bit n is processor n of the group.
    pub mask: u64,
}

/// Returns the number of notice queues for the active processors: none if there is one only, which makes all notifications.
pub fn notice_queues() -> u32 {
    match processor::count() {
        1 => 0,
        count => count,
    }
}

/// Counts choices among processors, so that queues with equal affinities have different ones.
#[derive(Debug, Default)]
pub struct Turns(AtomicU32);

impl Turns {
    /// Returns the index of an active processor of `affinity`, less than `count`; `None` for any processor of the system. A queue
    /// for any processor takes no turn.
    pub fn choose(&self, affinity: Option<Affinity>, count: u32) -> Option<u32> {
        affinity?.choose(|| self.0.fetch_add(1, Ordering::Relaxed), count)
    }
}

impl Affinity {
    /// Returns the index of one of its active processors, less than `count`; `None` for any processor of the system. `turn`
    /// selects one and is called only if there is a choice.
    ///
    /// An affinity that cannot be honored is none: it is never a reason to fail.
    //= R-CREATE-23, R-SRQ-19
    fn choose(self, turn: impl FnOnce() -> u32, count: u32) -> Option<u32> {
        let active = || {
            (0..u64::BITS as u8)
                .filter(|&number| self.mask >> number & 1 != 0)
                .filter_map(|number| processor::index(self.group, number))
                .filter(|&index| index < count)
        };
        let available = u32::try_from(active().count()).ok().filter(|&available| available < count)?;
        (available > 0).then(turn).and_then(|turn| active().nth(turn.checked_rem(available)? as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-CREATE-23
    #[test]
    fn one_of_the_active_processors_is_chosen() {
        let choose = |group, mask, turn| Affinity { group, mask }.choose(|| turn, processor::count());
        assert_eq!(processor::count(), 2);
        assert_eq!(choose(0, 1, 0), Some(0));
        assert_eq!(choose(0, 2, 0), Some(1));
        assert_eq!(choose(0, 2, 1), Some(1));
        // Inactive ones do not count.
        assert_eq!(choose(0, 1 << 63 | 2, 5), Some(1));
        // All, none, and only inactive ones are any.
        for (group, mask) in [(0, 3), (0, u64::MAX), (0, 0), (0, 4), (0, 1 << 63), (1, 1), (0xffff, 1)] {
            assert_eq!(choose(group, mask, 0), None, "{group}, {mask:#x}");
        }
        // A processor that was added after the start has no notice queue.
        assert_eq!(Affinity { group: 0, mask: 2 }.choose(|| 0, 1), None);
    }

    //= R-CREATE-23, R-SRQ-19
    #[test]
    fn queues_of_an_affinity_have_its_processors_in_turn() {
        let turns = Turns::default();
        // Queues for any processor between them: without an affinity, and with one that cannot be honored.
        let both = Some(Affinity { group: 0, mask: 3 });
        let inactive = Some(Affinity { group: 1, mask: 3 });
        let chosen = [both, None, both, inactive, both, both].map(|affinity| turns.choose(affinity, 3));
        assert_eq!(chosen, [Some(0), None, Some(1), None, Some(0), Some(1)]);
    }
}
