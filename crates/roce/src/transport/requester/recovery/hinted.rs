// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets that a peer has named as missing: see [`hints`](super::hints).

use crate::time::Instant;
use crate::transport::sequence::Sequence;

/// Packets at most.
const CAPACITY: usize = 32;

/// A packet that is to be sent again.
#[derive(Clone, Copy, Debug)]
struct Missing {
    sequence: Sequence,
    /// When it was sent again.
    sent: Option<Instant>,
}

/// The packets that the peer has named.
#[derive(Debug)]
pub(in crate::transport::requester) struct Hinted {
    packets: [Missing; CAPACITY],
    count: usize,
    /// Where the requester continues after these packets; [`Sequence::MAX`] while it is not sending them.
    pub(super) resume: Sequence,
}

impl Hinted {
    pub(super) const NONE: Self = Self {
        packets: [Missing { sequence: Sequence::MAX, sent: None }; CAPACITY],
        count: 0,
        resume: Sequence::MAX,
    };

    fn active(&self) -> &[Missing] {
        self.packets.get(..self.count).unwrap_or_default()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        (self.count, self.resume) = (0, Sequence::MAX);
    }

    /// The requester goes elsewhere. Returns where it would have continued, if it was sending these packets.
    pub(super) fn leave(&mut self) -> Option<Sequence> {
        let resume = core::mem::replace(&mut self.resume, Sequence::MAX);
        (resume != Sequence::MAX).then_some(resume)
    }

    /// Returns where the requester continues when what it was about to send is acknowledged, as all before `una`.
    pub(in crate::transport::requester) fn continue_from(&mut self, una: Sequence) -> Sequence {
        let Some(resume) = self.leave() else { return una };
        let next = resume.max(una);
        self.before(una, next).unwrap_or(next)
    }

    /// Returns when the packet was sent again.
    pub(super) fn sent(&self, sequence: Sequence) -> Option<Instant> {
        self.active().iter().find(|packet| packet.sequence == sequence).and_then(|packet| packet.sent)
    }

    /// Notes the packet at `sequence`, and forgets those before `una`. Returns whether it is a new one. One that was sent again is,
    /// if `is_lost` says so of the time.
    pub(super) fn add(
        &mut self,
        una: Sequence,
        sequence: Sequence,
        is_lost: impl Fn(Instant) -> bool,
    ) -> bool {
        let mut kept = 0usize;
        for at in 0..self.count {
            let Some(&packet) = self.packets.get(at) else { break };
            if packet.sequence >= una {
                if let Some(slot) = self.packets.get_mut(kept) {
                    *slot = packet;
                }
                kept = kept.saturating_add(1);
            }
        }
        self.count = kept;
        if let Some(packet) = self.packets.iter_mut().take(kept).find(|packet| packet.sequence == sequence) {
            let again = packet.sent.is_some_and(is_lost);
            if again {
                packet.sent = None;
            }
            return again;
        }
        let Some(slot) = self.packets.get_mut(kept) else { return false };
        *slot = Missing { sequence, sent: None };
        self.count = kept.saturating_add(1);
        true
    }

    /// Returns the first packet from `una` on that is to be sent again, if that is before `next`. The requester continues at `next` then.
    pub(super) fn before(&mut self, una: Sequence, next: Sequence) -> Option<Sequence> {
        let missing = self.next(una).filter(|&missing| missing < next)?;
        self.resume = next;
        Some(missing)
    }

    /// Returns the first packet from `una` on that is to be sent again.
    fn next(&self, una: Sequence) -> Option<Sequence> {
        let wanted = self.active().iter().filter(|packet| packet.sent.is_none() && packet.sequence >= una);
        wanted.map(|packet| packet.sequence).min()
    }

    /// The packet was sent again.
    pub(super) fn mark_sent(&mut self, sequence: Sequence, now: Instant) {
        if let Some(packet) =
            self.packets.iter_mut().take(self.count).find(|packet| packet.sequence == sequence)
        {
            packet.sent = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    fn hinted(packets: &[u64]) -> Hinted {
        let mut hinted = Hinted::NONE;
        for &packet in packets {
            assert!(hinted.add(at(0), at(packet), |_| false));
        }
        hinted
    }

    /// The packet that is next is sent without a detour.
    #[test]
    fn packets_before_the_next_one_are_sent_in_their_order() {
        let mut hinted = hinted(&[7, 5]);
        assert_eq!((hinted.before(at(1), at(5)), hinted.leave()), (None, None));
        for (packet, next) in [(5, 6), (7, 8)] {
            assert_eq!(hinted.before(at(1), at(next)), Some(at(packet)));
            assert_eq!(hinted.leave(), Some(at(next)));
            hinted.mark_sent(at(packet), Instant::from_nanos(1));
        }
        assert_eq!(hinted.before(at(1), at(9)), None);
    }

    #[test]
    fn the_requester_continues_at_the_oldest_packet_or_behind_it() {
        let mut named = hinted(&[5]);
        assert_eq!(named.continue_from(at(3)), at(3), "it sends none of these");
        for (una, expected, resume) in
            [(3, 5, Some(at(9))), (5, 5, Some(at(9))), (6, 9, None), (9, 9, None), (12, 12, None)]
        {
            assert!(named.before(at(3), at(9)).is_some());
            assert_eq!((named.continue_from(at(una)), named.leave()), (at(expected), resume), "{una}");
        }
    }
}
