// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loss recovery of READs: how much is requested, and what measures the path while responses are missing.

use super::Recovery;
use super::retransmission::Resend;
use super::round_trip::{Sample, SampleKind};
use crate::time::Instant;
use crate::transport::sequence::Sequence;

impl Recovery {
    /// Returns how many packets may be unacknowledged with the responses of a READ request. It begins below
    /// [`Recovery::window`]; while responses are `missing`, it may end above by a whole chunk.
    #[inline]
    pub(crate) fn read_window(&self, missing: bool) -> u64 {
        if missing { self.window.extended() } else { self.window.with_chunks() }
    }

    /// The sample of a READ request is no measurement of the path: that is [`super::round_trip::ReadSample`].
    pub(crate) fn sample_time_only(&mut self) {
        if self.sample.kind == SampleKind::Usual {
            self.sample.kind = SampleKind::AfterLoss;
        }
    }

    /// Adapts the window to as many responses that were received in a time in nanoseconds.
    #[inline]
    pub(crate) fn measure_responses(&mut self, (received, took): (u64, u64)) {
        self.window.measure(received, took);
    }

    /// Returns how many packets of a READ are requested at once, as a power of two: a quarter of the window, to be limited by
    /// the queue.
    pub(crate) fn chunk_shift(&self) -> u8 {
        (self.window.packets() / 4).checked_ilog2().unwrap_or(0) as u8
    }

    /// Returns the round trip without queues, in nanoseconds; 0 before the first one.
    pub(crate) fn round_trip(&self) -> u64 {
        self.window.round_trip()
    }

    /// Returns whether the packet at `sequence` is the probe after a timeout.
    pub(crate) fn is_probe(&self, sequence: Sequence) -> bool {
        self.retransmission.is_some_and(|retransmission| {
            retransmission.first == sequence && retransmission.kind == Resend::Probe { selective: true }
        })
    }

    /// Responses are requested again, of packets before `high`: what arrives until `high` does not measure the round trip.
    pub(crate) fn record_repair(&mut self, high: Sequence) {
        (self.sample, self.path_sample, self.repaired) = (Sample::NONE, Sample::NONE, high);
    }

    /// The timeout counts from now: the peer has answered, if not what is awaited.
    pub(crate) fn restart_timeout(&mut self, now: Instant) {
        self.resend = self.first_resend;
        if let Some((_, at)) = &mut self.ack_requested {
            *at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    #[test]
    fn a_read_request_measures_the_time_only() {
        for (kind, expected) in [
            (SampleKind::Usual, SampleKind::AfterLoss),
            (SampleKind::AfterLoss, SampleKind::AfterLoss),
            (SampleKind::Ambiguous, SampleKind::Ambiguous),
        ] {
            let mut recovery = Recovery::IDLE;
            recovery.sample.kind = kind;
            recovery.sample_time_only();
            assert_eq!(recovery.sample.kind, expected);
        }
    }

    #[test]
    fn a_chunk_is_a_quarter_of_the_window() {
        for (packets, shift) in [(2, 0), (128, 5), (1020, 7), (1024, 8)] {
            let recovery = Recovery { window: Window::new(packets, packets), ..Recovery::IDLE };
            assert_eq!(recovery.chunk_shift(), shift, "{packets}");
        }
        let mut recovery = Recovery::IDLE;
        recovery.measure_responses((1, 1000));
        assert_eq!(recovery.round_trip(), 1000);
    }

    #[test]
    fn only_the_packet_that_asks_after_a_timeout_is_the_probe() {
        for (kind, expected) in [
            (Resend::Probe { selective: true }, true),
            (Resend::Probe { selective: false }, false),
            (Resend::GoBackN, false),
        ] {
            let mut recovery = Recovery::IDLE;
            recovery.record_go_back(at(10), at(20), kind, Instant::from_nanos(0));
            assert_eq!([9, 10, 11].map(|number| recovery.is_probe(at(number))), [false, expected, false]);
        }
    }

    #[test]
    fn a_repair_ends_measurements_and_restarts_the_timeout() {
        let mut recovery = Recovery::IDLE;
        for path in [true, false] {
            recovery.record_ack_request(at(0), at(0), at(1), true, Instant::from_nanos(1000));
            if path {
                recovery.sample_path();
            }
        }
        recovery.record_repair(at(7));
        let samples = [recovery.sample.sequence, recovery.path_sample.sequence];
        assert_eq!((samples, recovery.repaired), ([Sequence::MAX; 2], at(7)));
        (recovery.first_resend, recovery.resend) = (5000, 40_000);
        recovery.restart_timeout(Instant::from_nanos(2000));
        assert_eq!(recovery.deadline(at(0)), Instant::from_nanos(7000));
    }
}
