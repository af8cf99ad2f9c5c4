// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loss recovery of READs: what measures the path while responses are missing.

use super::Recovery;
use super::retransmission::Resend;
use super::round_trip::{Sample, SampleKind};
use crate::transport::sequence::Sequence;

impl Recovery {
    /// The sample of a READ request is no measurement of the path: that is [`super::round_trip::ReadSample`].
    pub(crate) fn sample_time_only(&mut self) {
        if self.sample.kind == SampleKind::Usual {
            self.sample.kind = SampleKind::AfterLoss;
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

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
        (recovery.timeout.first_resend, recovery.timeout.resend) = (5000, 40_000);
        recovery.timeout.restart(Instant::from_nanos(2000));
        assert_eq!(recovery.timeout.deadline(at(0)), Instant::from_nanos(7000));
    }
}
