// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times in which a host sends nothing, because its device takes no frames: whether they are long enough to end a connection by its own
//! timers. A connection that ends in a shorter one was lost.

use std::time::Duration;

use roce::Timing;

/// Time after the end of a pause in which transports have not recovered from it yet, so that the next one adds to it.
const RECOVERY: Duration = Duration::from_secs(1);
/// From this time on, a driver may have the device reset the queue.
const NOTICED: Duration = Duration::from_millis(900);

/// The last time in which a host sends nothing.
#[derive(Debug, Default)]
pub struct Silence {
    begun: Duration,
    end: Duration,
}

impl Silence {
    /// Adds a pause from `now` on, for at most `pause`.
    pub fn add(&mut self, now: Duration, pause: Duration) {
        if now >= self.end + RECOVERY {
            self.begun = now;
        }
        self.end = self.end.max(now + pause);
    }

    fn length(&self) -> Duration {
        self.end.saturating_sub(self.begun)
    }

    /// Returns whether a connection may end by its timers: without an answer for the ACK timeouts of a request and of all of its retries
    /// but one, because packets that were lost before may have begun them.
    #[must_use]
    pub fn ends_connections(&self) -> bool {
        let timing = Timing::default();
        self.length() >= timing.ack_timeout * u32::from(timing.retries)
    }

    /// Returns whether the driver may have had the queue reset, which takes its own time.
    #[must_use]
    pub fn resets_queues(&self) -> bool {
        self.length() >= NOTICED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_may_end_after_the_time_of_their_retries() {
        const MILLI: Duration = Duration::from_millis(1);
        let of = |pauses: &[(u32, u32)]| {
            let mut silence = Silence::default();
            for &(at, pause) in pauses {
                silence.add(at * MILLI, pause * MILLI);
            }
            (silence.resets_queues(), silence.ends_connections())
        };
        for (pauses, expected) in [
            (&[][..], (false, false)),
            (&[(5000, 899)], (false, false)),
            (&[(5000, 1875)], (true, false)),
            (&[(5000, 1876)], (true, true)),
            (&[(5000, 100), (6099, 100)], (true, false)),
            (&[(5000, 1000), (6999, 1000)], (true, true)),
            (&[(5000, 1000), (7000, 1000)], (true, false)),
            (&[(5000, 1000), (5500, 100)], (true, false)),
        ] {
            assert_eq!(of(pauses), expected, "{pauses:?}");
        }
    }
}
