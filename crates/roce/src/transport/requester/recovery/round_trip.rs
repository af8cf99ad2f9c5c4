// SPDX-License-Identifier: MIT OR Apache-2.0

//! The round-trip time: which acknowledgement measures it, and its estimate (RFC 6298).

use crate::time::Instant;
use crate::transport::sequence::Sequence;

/// Longest round-trip time that counts, in nanoseconds: about a year.
const MAX_RTT: u64 = 1 << 55;

/// The packet whose acknowledgement measures the round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// [`Sequence::MAX`] for no sample.
    pub(crate) sequence: Sequence,
    pub(crate) sent: Instant,
    /// The oldest unacknowledged packet when it was sent.
    pub(crate) una: Sequence,
    pub(crate) kind: SampleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleKind {
    Usual,
    /// A packet was missing when it was sent: packets are acknowledged with it that had arrived before.
    AfterLoss,
    /// A probe was sent meanwhile, so the acknowledgement may be the probe's, and measures nothing (Karn's algorithm, RFC 6298
    /// section 3).
    Ambiguous,
}

impl Sample {
    pub(crate) const NONE: Self = Self {
        sequence: Sequence::MAX,
        sent: Instant::from_nanos(0),
        una: Sequence::ZERO,
        kind: SampleKind::Usual,
    };
}

/// The READ request whose first response measures the path. Responses after a gap count: otherwise a path that loses packets would
/// seldom be measured.
#[derive(Debug)]
pub(crate) struct ReadSample {
    /// [`Sequence::MAX`] for no sample.
    sequence: Sequence,
    sent: Instant,
    /// Responses received before.
    before: u64,
    /// Responses received so far.
    received: u64,
}

impl ReadSample {
    pub(crate) const NONE: Self =
        Self { sequence: Sequence::MAX, sent: Instant::from_nanos(0), before: 0, received: 0 };

    /// The responses from `sequence` on are requested for the first time.
    pub(crate) fn request(&mut self, sequence: Sequence, now: Instant) {
        if self.sequence == Sequence::MAX {
            (self.sequence, self.sent, self.before) = (sequence, now, self.received);
        }
    }

    /// Accounts for a response. If it is that of the sample, returns the number of responses since the request, and the time in
    /// nanoseconds.
    #[inline]
    pub(crate) fn receive(&mut self, sequence: Sequence, now: Instant) -> Option<(u64, u64)> {
        self.received = self.received.wrapping_add(1);
        if sequence < self.sequence {
            return None;
        }
        let measured = (self.received.wrapping_sub(self.before), now.nanos_since(self.sent));
        let is_lost = sequence > self.sequence;
        self.sequence = Sequence::MAX;
        (!is_lost).then_some(measured)
    }
}

/// Round-trip times in nanoseconds (RFC 6298). Integers, since divisions of [`Duration`] can panic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    pub(crate) smoothed: u64,
    pub(crate) variation: u64,
}

impl Rtt {
    /// Returns the estimate after a sample of `rtt` nanoseconds.
    #[inline]
    pub(crate) fn with_sample(old: Option<Self>, rtt: u64) -> Self {
        let rtt = rtt.min(MAX_RTT);
        let old = old.unwrap_or(Self { smoothed: rtt, variation: rtt / 2 });
        // By the limit nothing wraps.
        let smoothed = old.smoothed.wrapping_mul(7).wrapping_add(rtt) / 8;
        let variation = old.variation.wrapping_mul(3).wrapping_add(old.smoothed.abs_diff(rtt)) / 4;
        Self { smoothed, variation }
    }

    /// Returns the time before a tail probe and the retransmission timeout, without their minimums, in nanoseconds. Of an even path,
    /// less than the two round trips of RFC 8985; of an uneven one more, so that queues that grow are not taken for losses.
    #[inline]
    pub(crate) const fn timeout(self) -> u64 {
        // Half a round trip more: with evenly spaced ACKs the variation is smaller than the next delay may be.
        let usual = self.smoothed.wrapping_add(self.smoothed / 2);
        usual.wrapping_add(self.variation.wrapping_mul(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    /// The estimate is that of RFC 6298.
    #[test]
    fn the_first_sample_counts_whole_and_later_ones_in_part() {
        let mut rtt = None;
        for (sample, smoothed, variation, timeout) in
            [(1000, 1000, 375, 3000), (1000, 1000, 281, 2624), (1800, 1100, 410, 3290)]
        {
            let new = Rtt::with_sample(rtt, sample);
            assert_eq!((new.smoothed, new.variation, new.timeout()), (smoothed, variation, timeout));
            rtt = Some(new);
        }
    }

    /// The response measures with those that arrived since its request; one behind it shows that it is lost or late.
    #[test]
    fn the_response_of_a_sample_measures_unless_another_overtakes_it() {
        let time = Instant::from_nanos;
        let mut sample = ReadSample::NONE;
        assert_eq!(sample.receive(at(0), time(0)), None);
        sample.request(at(10), time(1000));
        sample.request(at(20), time(1100));
        assert_eq!(sample.receive(at(9), time(1500)), None);
        assert_eq!(sample.receive(at(10), time(2000)), Some((2, 1000)));
        assert_eq!(sample.receive(at(11), time(2001)), None);
        sample.request(at(30), time(3000));
        assert_eq!(sample.receive(at(31), time(4000)), None);
        assert_eq!(sample.receive(at(30), time(4001)), None);
    }
}
