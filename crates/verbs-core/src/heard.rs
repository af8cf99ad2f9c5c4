// SPDX-License-Identifier: MIT OR Apache-2.0

//! Until when all frames that had arrived are handled: deadlines before that can be, because none of the answers that came in time is left.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use roce::Instant;

use crate::link::{DRAINED, Received};

/// Until when all frames are handled.
#[derive(Debug, Default)]
pub struct Heard {
    until: AtomicU64,
    /// Receptions in a row that have left frames.
    rounds: AtomicUsize,
    /// When the first of these began.
    first_round: AtomicU64,
}

impl Heard {
    /// Records a reception that began `now`.
    pub fn record(&self, now: Instant, received: Received) {
        if received.is_all {
            self.rounds.store(0, Ordering::Relaxed);
            self.until.fetch_max(now.as_nanos(), Ordering::Relaxed);
        } else if received.frames > 0 {
            match self.rounds.fetch_add(1, Ordering::Relaxed) {
                0 => self.first_round.store(now.as_nanos(), Ordering::Relaxed),
                // Others arrive all the time, and are behind those that had arrived then.
                DRAINED.. => {
                    self.rounds.store(0, Ordering::Relaxed);
                    self.until.fetch_max(self.first_round.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Returns until when all frames are handled.
    pub fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_handled_when_none_is_left_or_as_many_as_a_buffer_holds() {
        let (heard, at) = (Heard::default(), Instant::from_nanos);
        let [all, more, other] =
            [(5, true), (32, false), (0, false)].map(|(frames, is_all)| Received { frames, is_all });
        heard.record(at(10), all);
        heard.record(at(20), more);
        heard.record(at(30), other);
        assert_eq!(heard.until(), at(10));
        heard.record(at(40), all);
        assert_eq!(heard.until(), at(40));
        for round in 0..DRAINED as u64 {
            heard.record(at(50 + round), more);
            assert_eq!(heard.until(), at(40));
        }
        heard.record(at(5000), more);
        assert_eq!(heard.until(), at(50));
    }
}
