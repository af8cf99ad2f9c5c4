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

/// The READ request whose responses measure the path: the first one the round trip, the last one the rate. Responses after a gap
/// count: otherwise a path that loses packets would seldom be measured.
#[derive(Debug)]
pub(crate) struct ReadSample {
    /// The response that is awaited, the first or the last one; [`Sequence::MAX`] for none.
    awaited: Sequence,
    last: Sequence,
    /// The last one is awaited, after the first of several.
    awaits_last: bool,
    sent: Instant,
    /// Responses received before.
    before: u64,
    /// Responses received so far.
    received: u64,
}

/// The arrival of a response of [`ReadSample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Responses since the request.
    pub(crate) received: u64,
    /// Time since the request, in nanoseconds.
    pub(crate) took: u64,
    /// It is the first response.
    pub(crate) first: bool,
    /// It is the last one.
    pub(crate) last: bool,
}

impl ReadSample {
    pub(crate) const NONE: Self = Self {
        awaited: Sequence::MAX,
        last: Sequence::MAX,
        awaits_last: false,
        sent: Instant::from_nanos(0),
        before: 0,
        received: 0,
    };

    /// The responses from `first` to `end` are requested for the first time.
    pub(crate) fn request(&mut self, first: Sequence, end: Sequence, now: Instant) {
        if self.awaited == Sequence::MAX {
            (self.awaited, self.last, self.awaits_last) = (first, end.previous(), false);
            (self.sent, self.before) = (now, self.received);
        }
    }

    /// The responses from `first` to `end` are requested again. The arrival of the last one measures nothing then (Karn's algorithm). The
    /// first one, if that is awaited, is overtaken by others.
    pub(crate) fn requested_again(&mut self, first: Sequence, end: Sequence) {
        if self.awaits_last && (first..end).contains(&self.last) {
            self.awaited = Sequence::MAX;
        }
    }

    /// Accounts for a response. Returns what it measures, if anything.
    #[inline]
    pub(crate) fn receive(&mut self, sequence: Sequence, now: Instant) -> Option<Measured> {
        self.received = self.received.wrapping_add(1);
        if sequence < self.awaited { None } else { self.measure(sequence, now) }
    }

    #[inline(never)]
    fn measure(&mut self, sequence: Sequence, now: Instant) -> Option<Measured> {
        // One behind the awaited one shows that this is lost or late.
        let first = sequence == self.awaited && !self.awaits_last;
        let last = sequence == self.last;
        self.awaits_last = sequence < self.last;
        self.awaited = if self.awaits_last { self.last } else { Sequence::MAX };
        let received = self.received.wrapping_sub(self.before);
        let measured = Measured { received, took: now.nanos_since(self.sent), first, last };
        (first || last).then_some(measured)
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

    /// Returns the time in which a packet that was sent again is acknowledged, in nanoseconds.
    pub(super) const fn answer_time(self) -> u64 {
        self.smoothed.saturating_add(self.smoothed / 4)
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

    /// The first response measures the round trip and the last one the rate; one behind them shows that they are lost or late.
    #[test]
    fn the_ends_of_an_answer_measure_unless_others_overtake_them() {
        let time = Instant::from_nanos;
        let measured = |received, took, first, last| Some(Measured { received, took, first, last });
        let mut sample = ReadSample::NONE;
        assert_eq!(sample.receive(at(0), time(0)), None);
        sample.request(at(10), at(20), time(1000));
        sample.request(at(20), at(30), time(1100));
        assert_eq!(sample.receive(at(9), time(1500)), None);
        assert_eq!(sample.receive(at(10), time(2000)), measured(2, 1000, true, false));
        assert_eq!(sample.receive(at(11), time(2001)), None);
        assert_eq!(sample.receive(at(19), time(2100)), measured(4, 1100, false, true));
        assert_eq!(sample.receive(at(20), time(2200)), None);
        // The first one is lost.
        sample.request(at(30), at(40), time(3000));
        assert_eq!(sample.receive(at(31), time(4000)), None);
        assert_eq!(sample.receive(at(30), time(4001)), None);
        assert_eq!(sample.receive(at(39), time(4002)), measured(3, 1002, false, true));
        // The last one is.
        sample.request(at(40), at(50), time(5000));
        assert_eq!(sample.receive(at(40), time(6000)), measured(1, 1000, true, false));
        assert_eq!(sample.receive(at(50), time(6001)), None);
        assert_eq!(sample.receive(at(49), time(6002)), None);
        // A request for one packet.
        sample.request(at(60), at(61), time(7000));
        assert_eq!(sample.receive(at(60), time(8000)), measured(1, 1000, true, true));
    }

    /// Karn's algorithm (RFC 6298, section 3).
    #[test]
    fn a_response_that_is_requested_again_measures_nothing() {
        let time = Instant::from_nanos;
        for (first, end, measures) in [(15, 20, false), (19, 20, false), (11, 19, true)] {
            let mut sample = ReadSample::NONE;
            sample.request(at(10), at(20), time(1000));
            sample.receive(at(10), time(2000));
            sample.requested_again(at(first), at(end));
            assert_eq!(sample.receive(at(19), time(3000)).is_some(), measures, "{first} to {end}");
        }
    }
}
