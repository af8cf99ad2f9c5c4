// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kinds of retransmission of a requester, and the record of the last one.

use crate::time::Instant;
use crate::transport::sequence::Sequence;

/// Packets that the requester sends again when it goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// The oldest packet and everything after it.
    GoBackN,
    /// A run of packets: from the oldest one up to `run_end`. Then everything from `resume` on. The packets between
    /// have arrived, unless the peer drops packets after a gap.
    Selective { run_end: Sequence, resume: Sequence },
    /// The oldest READ request, and everything from this packet on. Responses between are stored here.
    Read(Sequence),
    /// The oldest packet alone, until it is acknowledged. Then everything after it, unless the peer may store packets.
    Probe { selective: bool },
}

/// The last retransmission.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Retransmission {
    /// The first field, which tells whether there was one: of most queue pairs nothing else is used.
    pub(crate) kind: Resend,
    /// The packet that the requester went back to.
    pub(crate) first: Sequence,
    /// The packet after those sent again at once; for a READ request, after its responses.
    pub(crate) end: Sequence,
    /// The first packet that was never sent, at that time.
    pub(crate) high: Sequence,
    pub(crate) at: Instant,
    /// The first packet is acknowledged.
    pub(crate) answered: bool,
    /// A packet behind `end` is acknowledged.
    pub(crate) passed: bool,
    /// A positive acknowledgement covers the run of selective repeat alone.
    pub(crate) alone: bool,
    /// How often the requester had gone back to `first` before, in a row.
    pub(crate) repeats: u8,
}

impl Retransmission {
    /// Accounts for the packet resent at `sequence`, up to `end`. Returns the next packet to send.
    pub(crate) fn resume_after(&mut self, sequence: Sequence, end: Sequence) -> Sequence {
        let (resent, next) = match self.kind {
            Resend::Selective { run_end, resume } => {
                (sequence < run_end, if end < run_end { end } else { resume.max(end) })
            }
            Resend::Read(resume) => (sequence == self.first, resume.max(end)),
            Resend::GoBackN | Resend::Probe { .. } => (sequence == self.first, end),
        };
        if resent {
            self.end = end;
            next
        } else {
            end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    /// A packet that is sent and its end, what is sent next, and the end of what was sent again.
    type Sent = (u64, u64, u64, u64);

    #[test]
    fn each_kind_continues_where_it_must() {
        let run = Resend::Selective { run_end: at(12), resume: at(90) };
        let probe = Resend::Probe { selective: true };
        let cases: [(Resend, &[Sent]); 4] = [
            (Resend::GoBackN, &[(10, 11, 11, 11), (11, 12, 12, 11)]),
            (probe, &[(10, 11, 11, 11), (11, 12, 12, 11)]),
            (run, &[(10, 11, 11, 11), (11, 12, 90, 12), (90, 91, 91, 12)]),
            (Resend::Read(at(90)), &[(10, 64, 90, 64), (90, 91, 91, 64)]),
        ];
        for (kind, sent) in cases {
            let mut retransmission = Retransmission {
                kind,
                first: at(10),
                end: at(10),
                high: at(100),
                at: Instant::from_nanos(0),
                answered: false,
                passed: false,
                alone: false,
                repeats: 0,
            };
            for &(sequence, end, next, resent) in sent {
                assert_eq!(
                    retransmission.resume_after(at(sequence), at(end)),
                    at(next),
                    "{kind:?}, {sequence}"
                );
                assert_eq!(retransmission.end, at(resent), "{kind:?}, {sequence}");
            }
        }
    }
}
