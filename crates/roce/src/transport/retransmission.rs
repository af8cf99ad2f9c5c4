// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a requester sends again, and what is known of the last time that it did.

use super::sequence::Sequence;
use crate::time::Instant;

/// What the requester sends again when it goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
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
pub(super) struct Retransmission {
    /// The first field, which tells whether there was one: of most queue pairs nothing else is used.
    pub(super) kind: Resend,
    /// The packet that the requester went back to.
    pub(super) first: Sequence,
    /// The packet after those sent again at once; for a READ request, after its responses.
    pub(super) end: Sequence,
    /// The first packet that was never sent, at that time.
    pub(super) high: Sequence,
    pub(super) at: Instant,
    /// The first packet is acknowledged.
    pub(super) answered: bool,
    /// A packet behind `end` is acknowledged.
    pub(super) passed: bool,
    /// A positive acknowledgement covers the run of selective repeat alone.
    pub(super) alone: bool,
}

impl Retransmission {
    /// Accounts for the packet resent at `sequence`, up to `end`. Returns the next packet to send.
    pub(super) fn resume_after(&mut self, sequence: Sequence, end: Sequence) -> Sequence {
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
