// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of transmitted frames, for tests.

use crate::environment::Faults;

/// Shares are in millionths.
const MILLION: u32 = 1_000_000;

/// Decides the fate of each frame. Equal seeds and numbers of frames give equal decisions.
#[derive(Debug)]
pub struct FaultInjector {
    faults: Faults,
    random: fastrand::Rng,
    counts: Counts,
}

/// Numbers of frames with faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
}

impl FaultInjector {
    pub fn new(faults: Faults) -> Self {
        Self { faults, random: fastrand::Rng::with_seed(faults.seed), counts: Counts::default() }
    }

    /// Returns whether there are any faults.
    pub fn is_active(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Returns how many frames had faults.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns what is transmitted instead of a batch: frames may be missing, be there twice, or come after the next one.
    pub fn apply<T: Copy>(&mut self, batch: Vec<T>) -> Vec<T> {
        let mut transmitted = Vec::with_capacity(batch.len());
        let mut held = None;
        for frame in batch {
            if self.happens(self.faults.loss) {
                self.counts.lost += 1;
                continue;
            }
            let twice = self.happens(self.faults.duplicate);
            if self.happens(self.faults.reorder) && held.is_none() {
                held = Some(frame);
                continue;
            }
            self.counts.duplicated += u64::from(twice);
            self.counts.reordered += u64::from(held.is_some());
            transmitted.extend(core::iter::repeat_n(frame, if twice { 2 } else { 1 }));
            transmitted.extend(held.take());
        }
        transmitted.extend(held);
        transmitted
    }

    /// Draws whether something with this share happens.
    fn happens(&mut self, share: u32) -> bool {
        share > 0 && self.random.u32(..MILLION) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmitted(faults: Faults) -> Vec<u32> {
        FaultInjector::new(faults).apply((0..10_000).collect())
    }

    #[test]
    fn frames_are_lost_duplicated_and_reordered_by_their_shares() {
        let none = Faults { seed: 1, ..Faults::default() };
        assert_eq!(transmitted(none), (0..10_000).collect::<Vec<_>>());
        let lost = transmitted(Faults { loss: 10_000, ..none });
        assert!((9_850..9_950).contains(&lost.len()), "{}", lost.len());
        assert_eq!(lost, transmitted(Faults { loss: 10_000, ..none }), "the same seed");
        assert_ne!(lost, transmitted(Faults { loss: 10_000, seed: 2, ..none }));
        let twice = transmitted(Faults { duplicate: 10_000, ..none });
        assert!((10_050..10_150).contains(&twice.len()), "{}", twice.len());
        let mut reordered = transmitted(Faults { reorder: 10_000, ..none });
        let late = reordered.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((50..150).contains(&late), "{late}");
        reordered.sort_unstable();
        assert_eq!(reordered, (0..10_000).collect::<Vec<_>>());
        assert_eq!(transmitted(Faults { loss: 1_000_000, ..none }), []);
    }

    #[test]
    fn faults_are_counted() {
        let faults = Faults { loss: 10_000, duplicate: 10_000, reorder: 10_000, seed: 1 };
        let mut injector = FaultInjector::new(faults);
        let sent = injector.apply((0..10_000).collect());
        let Counts { lost, duplicated, reordered } = injector.counts();
        assert_eq!(sent.len() as u64, 10_000 - lost + duplicated);
        let late = sent.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        assert!([lost, duplicated, reordered].iter().all(|count| (50..150).contains(count)), "{late}");
        assert_eq!(late, reordered);
        // One that is alone comes after no other one.
        let mut injector = FaultInjector::new(Faults { reorder: 1_000_000, ..Faults::default() });
        assert_eq!((injector.apply(vec![1]), injector.counts()), (vec![1], Counts::default()));
    }
}
