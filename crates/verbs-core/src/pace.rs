// SPDX-License-Identifier: MIT OR Apache-2.0

//! How a thread that polls in vain shares its processor.
//!
//! A thread that has a processor alone polls on: a wake-up takes longer than a frame. Beside another one that polls, perhaps its peer, it
//! yields after each poll. Beside one that computes, it would get the processor back late: it waits for frames, with which it gets it at once.

use core::time::Duration;
use std::cell::Cell;

/// How long a thread waits for frames.
pub const WAIT: Duration = Duration::from_micros(100);

/// Empty polls of a thread that has a processor alone, until it yields to see whether it still has.
const ALONE: u32 = 64;

/// A yield that takes as long has let another thread run.
const SHARED: Duration = Duration::from_micros(3);

/// Yields after a yield that took as long, at least.
const YIELDS: u32 = 16;

/// A yield that takes as long has let a thread run that computes.
const HELD: Duration = Duration::from_micros(500);

/// Waits after a yield that took as long; twice as many after the next one, at most `MOST_WAITS`.
const FIRST_WAITS: u32 = 64;
const MOST_WAITS: u32 = 4096;

/// Pause of a thread between two polls that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Polls again.
    None,
    /// Yields, and says how long that took.
    Yield,
    /// Waits for frames for [`WAIT`].
    Wait,
}

/// The pace of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pause: Pause,
    /// How often `pause` is the next one.
    left: u32,
    /// Waits after the next yield that another thread holds.
    waits: u32,
}

thread_local!(static OWN: Cell<Pace> = const { Cell::new(Pace::NEW) });

impl Pace {
    const NEW: Self = Self { pause: Pause::None, left: ALONE, waits: FIRST_WAITS };

    /// Returns what the calling thread does after an empty poll.
    pub fn next_of_thread() -> Pause {
        let mut pace = OWN.get();
        let pause = pace.next();
        OWN.set(pace);
        pause
    }

    /// Records how long a yield of the calling thread took.
    pub fn thread_yielded(time: Duration) {
        let mut pace = OWN.get();
        pace.yielded(time);
        OWN.set(pace);
    }

    fn next(&mut self) -> Pause {
        let Some(left) = self.left.checked_sub(1) else { return Pause::Yield };
        self.left = left;
        self.pause
    }

    fn yielded(&mut self, time: Duration) {
        if time >= HELD {
            (self.pause, self.left) = (Pause::Wait, self.waits);
            self.waits = self.waits.saturating_mul(2).min(MOST_WAITS);
            return;
        }
        self.waits = FIRST_WAITS;
        if time >= SHARED {
            (self.pause, self.left) = (Pause::Yield, YIELDS);
        } else if self.left == 0 {
            (self.pause, self.left) = (Pause::None, ALONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pauses after empty polls, with their numbers, when each yield takes as long as `times` says.
    fn pauses(times: &[Duration]) -> Vec<(Pause, u32)> {
        let mut pace = Pace::NEW;
        let mut times = times.iter();
        let mut pauses: Vec<(Pause, u32)> = Vec::new();
        loop {
            let pause = pace.next();
            if pause == Pause::Yield {
                let Some(&time) = times.next() else { return pauses };
                pace.yielded(time);
            }
            match pauses.last_mut() {
                Some((last, count)) if *last == pause => *count += 1,
                _ => pauses.push((pause, 1)),
            }
        }
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn thread_alone_yields_rarely() {
        use Pause::{None, Yield};
        assert_eq!(
            pauses(&[micros(0), micros(2)]),
            [(None, 64), (Yield, 1), (None, 64), (Yield, 1), (None, 64)]
        );
    }

    #[test]
    fn thread_beside_another_that_polls_yields_after_each_poll() {
        use Pause::{None, Yield};
        // The first shows that it shares; the 16th after the last that was shared that it does no longer.
        let times = [[micros(3); 5].as_slice(), &[micros(1); 16]].concat();
        assert_eq!(pauses(&times), [(None, 64), (Yield, 21), (None, 64)]);
    }

    #[test]
    fn thread_beside_one_that_computes_waits_and_rarely_looks_whether_it_still_does() {
        use Pause::{None, Wait, Yield};
        let times = [[micros(500); 8].as_slice(), &[micros(1)], &[micros(500)]].concat();
        let waits = [64, 128, 256, 512, 1024, 2048, 4096, 4096];
        let beside = waits.map(|waits| [(Yield, 1), (Wait, waits)]);
        let after = [(Yield, 1), (None, 64), (Yield, 1), (Wait, 64)];
        assert_eq!(pauses(&times), [&[(None, 64)], beside.as_flattened(), &after].concat());
    }
}
