// SPDX-License-Identifier: MIT OR Apache-2.0

//! Low-resources simulation: allocations that fail on purpose.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Decides which of the image's allocations fail: pool, MDLs, mappings, timers, work items, and all others that
/// may fail according to the documentation.
pub struct LowResources {
    asked: AtomicU64,
    /// The number of the allocation that fails; `u64::MAX` for none.
    victim: AtomicU64,
    /// Failing allocations per thousand.
    per_mille: AtomicU64,
    random: Mutex<fastrand::Rng>,
}

impl LowResources {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            asked: AtomicU64::new(0),
            victim: AtomicU64::new(u64::MAX),
            per_mille: AtomicU64::new(0),
            random: Mutex::new(random),
        }
    }

    /// Makes the `n`-th allocation from now fail, counted from 0.
    pub fn fail_nth(&self, n: u64) {
        self.victim.store(self.asked.load(Relaxed) + n, Relaxed);
    }

    /// Makes `share` of 1,000 allocations fail, selected by the seed.
    pub fn fail_per_mille(&self, share: u64) {
        self.per_mille.store(share, Relaxed);
    }

    /// Returns the number of allocations so far.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// Counts an allocation; returns whether it fails.
    #[must_use]
    pub fn fails(&self) -> bool {
        let number = self.asked.fetch_add(1, Relaxed);
        if number == self.victim.load(Relaxed) {
            return true;
        }
        let share = self.per_mille.load(Relaxed);
        share != 0 && self.random.lock().u64(..1000) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> LowResources {
        LowResources::new(fastrand::Rng::with_seed(1))
    }

    #[test]
    fn the_chosen_allocation_fails_alone() {
        let resources = resources();
        assert!(!resources.fails());
        assert!(!resources.fails());
        resources.fail_nth(1);
        assert_eq!([0; 4].map(|_| resources.fails()), [false, true, false, false]);
        assert_eq!(resources.asked(), 6);
    }

    #[test]
    fn a_share_of_the_allocations_fails() {
        for share in [0, 1, 200, 1000] {
            let (resources, mut random) = (resources(), fastrand::Rng::with_seed(1));
            resources.fail_per_mille(share);
            let failed = (0..5000).filter(|_| resources.fails()).count();
            // The generator is not asked where no allocation is to fail.
            let expected = (0..5000).filter(|_| random.u64(..1000) < share).count();
            assert_eq!(failed, expected, "{share}");
        }
    }
}
