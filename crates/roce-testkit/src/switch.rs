// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue of a switch's port: its rate, tail drop and ECN marking by its length.

use std::collections::VecDeque;
use std::time::Duration;

use roce::Instant;

use crate::ecn::mark;
use crate::options::{Marking, Switch};
use crate::random::Random;

/// Ethernet overhead per frame in bytes: preamble, frame check sequence, interframe gap.
pub(crate) const FRAMING: u64 = 8 + 4 + 12;

/// Minimum Ethernet frame length in bytes, without the frame check sequence.
const SHORTEST: u64 = 60;

/// Returns the time that a frame of `len` bytes takes at `rate` bits per second.
pub(crate) fn transmit_time(len: usize, rate: u64) -> Duration {
    let bits = ((len as u64).max(SHORTEST) + FRAMING) * 8;
    Duration::from_nanos(bits * 1_000_000_000 / rate)
}

/// Counters of a port of the switch over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames that entered the queue.
    pub frames: u64,
    /// Frames dropped because the queue was full.
    pub dropped: u64,
    /// Frames marked CE.
    pub marked: u64,
    /// Most bytes in the queue at a time.
    pub longest: usize,
}

/// A port of the switch with its queue.
#[derive(Default)]
pub(crate) struct Port {
    /// Departure time and length of the queued frames, oldest first.
    queue: VecDeque<(Instant, usize)>,
    bytes: usize,
    pub(crate) stats: PortStats,
}

impl Port {
    /// Queues a frame at `now`. Returns when it leaves the port; `None` if it is dropped.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        frame: &mut [u8],
        switch: &Switch,
        random: &mut Random,
    ) -> Option<Instant> {
        while let Some(&(departure, len)) = self.queue.front()
            && departure <= now
        {
            self.queue.pop_front();
            self.bytes -= len;
        }
        if self.bytes + frame.len() > switch.queue {
            self.stats.dropped += 1;
            return None;
        }
        if switch.marking.is_some_and(|marking| random.chance(marking.probability(self.bytes), 1000)) {
            self.stats.marked += u64::from(mark(frame));
        }
        let start = self.queue.back().map_or(now, |(departure, _)| *departure);
        let departure = start + transmit_time(frame.len(), switch.rate);
        self.queue.push_back((departure, frame.len()));
        self.bytes += frame.len();
        self.stats.frames += 1;
        self.stats.longest = self.stats.longest.max(self.bytes);
        Some(departure)
    }
}

impl Marking {
    /// Returns the probability that a frame is marked that finds `bytes` bytes in the queue, in 1/1000.
    fn probability(self, bytes: usize) -> u32 {
        if bytes >= self.max {
            1000
        } else if bytes <= self.min {
            0
        } else {
            ((bytes - self.min) as u64 * u64::from(self.most) / (self.max - self.min) as u64) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 8 Gb/s, a byte takes a nanosecond.
    const SWITCH: Switch = Switch { rate: 8_000_000_000, queue: 3000, marking: None };

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_port_sends_at_its_rate_and_drops_what_does_not_fit() {
        let (mut port, mut random) = (Port::default(), Random::new(1));
        let mut forward = |now| port.forward(at(now), &mut [0; 1000], &SWITCH, &mut random);
        assert_eq!(forward(0), Some(at(1024)));
        assert_eq!(forward(0), Some(at(2048)));
        assert_eq!(forward(500), Some(at(3072)));
        assert_eq!(forward(1023), None, "three frames of 1000 bytes fill the queue");
        assert_eq!(forward(1024), Some(at(4096)), "one has left");
        assert_eq!(forward(9000), Some(at(10_024)), "an idle port sends at once");
        assert_eq!(port.stats, PortStats { frames: 5, dropped: 1, marked: 0, longest: 3000 });
    }

    #[test]
    fn marking_rises_with_the_length_of_the_queue() {
        let marking = Marking { min: 1000, max: 3000, most: 100 };
        for (bytes, probability) in
            [(0, 0), (1000, 0), (1020, 1), (2000, 50), (2999, 99), (3000, 1000), (9000, 1000)]
        {
            assert_eq!(marking.probability(bytes), probability, "{bytes}");
        }
        assert_eq!([999, 1000].map(|bytes| Marking::above(1000).probability(bytes)), [0, 1000]);
    }
}
