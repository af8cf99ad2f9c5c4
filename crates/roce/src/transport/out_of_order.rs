// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of a message that arrived after a gap.
//!
//! The specification lets a responder drop every packet after a missing one. Storing them costs nothing:
//! the PSN alone tells where the payload of a packet belongs, and packets of one message never overlap.
//! Stored packets count from the moment the missing packet arrives; until then they are not acknowledged,
//! completed or answered.
//!
//! Packets of later messages are not placed: they may write the same memory and must do so later. They go to the
//! [stash](super::stash). A WRITE carries its length, so packets of the next message are recognized at once. A SEND does
//! not: its packets go to the stash, and are placed only if there is no room; its last packet never is, since it would
//! decide where the message ends. While it is missing, all packets of the next SEND except the first look like its own, and
//! their payload is written to the current receive after the end of the message. That is
//! harmless. Only a run without a gap counts, and a run never passes the first or the last packet of a SEND, since
//! these are never placed. The end of a message clears everything recorded, so the peer sends those packets again.
//!
//! # Forged packets
//!
//! A packet in order has the expected PSN; one after a gap has any of 128. So that a packet with a guessed PSN does
//! not take the place of the genuine one, order decides again when both arrive (`docs/decisions.md`):
//!
//! * Of two packets with the same PSN and other content, both after the gap, neither counts: the peer sends it again.
//! * After the gap is filled, the packets that follow in order are written again, although they are duplicates: a
//!   genuine packet that was in flight replaces a forged one that was stored before it.

use super::sequence::Sequence;

/// Which packets after the expected one are stored, all of the current message as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfOrder {
    /// Bit n is the packet n + 1 after the expected one.
    stored: u128,
    /// After a gap was filled: the next packet of those that follow in order. If it is a duplicate, it is written again.
    following: Option<Sequence>,
    /// One has arrived.
    followed: bool,
}

/// What to do with a packet after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Store its payload, this many packets after the expected one.
    Store(u32),
    /// A packet with its PSN is stored, this many packets after the expected one. If its content differs, neither
    /// counts.
    Compare(u32),
    /// It is too far away.
    Reject,
}

impl OutOfOrder {
    pub(super) const EMPTY: Self = Self { stored: 0, following: None, followed: false };

    pub(super) const fn is_empty(&self) -> bool {
        self.stored == 0
    }

    /// Returns what to do with the packet at `sequence`.
    pub(super) fn place(&self, expected: Sequence, sequence: Sequence) -> Placement {
        let Some(distance) =
            sequence.checked_since(expected).filter(|&distance| (1..=128).contains(&distance))
        else {
            return Placement::Reject;
        };
        let distance = distance as u32;
        if self.stored & Self::bit(distance) == 0 {
            Placement::Store(distance)
        } else {
            Placement::Compare(distance)
        }
    }

    /// Records that the packet `distance` after the expected one is stored.
    pub(super) fn record(&mut self, distance: u32) {
        self.stored |= Self::bit(distance);
    }

    /// Records that no packet is stored there.
    pub(super) fn forget(&mut self, distance: u32) {
        self.stored &= !Self::bit(distance);
    }

    const fn bit(distance: u32) -> u128 {
        1 << (distance.saturating_sub(1) & 127)
    }

    /// Removes the packets that follow `expected` without a gap, and returns their number: the packet at `expected`
    /// has arrived.
    pub(super) fn take_contiguous(&mut self, expected: Sequence) -> u32 {
        let count = self.stored.trailing_ones();
        self.stored = self.stored.checked_shr(count.saturating_add(1)).unwrap_or(0);
        if count > 0 {
            self.followed = false;
            self.following = Some(expected.next());
        }
        count
    }

    /// Returns whether a gap was filled and none of the packets that follow has arrived again since.
    pub(super) const fn is_following(&self) -> bool {
        self.following.is_some() && !self.followed
    }

    /// Returns whether the duplicate at `sequence` is to be written again.
    pub(super) fn follows(&mut self, sequence: Sequence) -> bool {
        let follows = self.following == Some(sequence);
        if follows {
            self.followed = true;
            self.following = Some(sequence.next());
        }
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    fn store(out_of_order: &mut OutOfOrder, expected: u64, number: u64) {
        let Placement::Store(distance) = out_of_order.place(at(expected), at(number)) else {
            panic!("{number}")
        };
        out_of_order.record(distance);
    }

    #[test]
    fn packets_without_a_gap_are_taken_together() {
        let mut out_of_order = OutOfOrder::EMPTY;
        for sequence in [103, 101, 102, 105, 106] {
            store(&mut out_of_order, 100, sequence);
        }
        assert_eq!(out_of_order.take_contiguous(at(100)), 3);
        assert!(!out_of_order.is_empty(), "105 and 106 wait for 104");
        assert_eq!(out_of_order.take_contiguous(at(104)), 2);
        assert!(out_of_order.is_empty());
    }

    #[test]
    fn at_most_128_packets_are_stored() {
        let mut out_of_order = OutOfOrder::EMPTY;
        assert_eq!(out_of_order.place(at(100), at(100)), Placement::Reject, "the expected one");
        assert_eq!(out_of_order.place(at(100), at(229)), Placement::Reject);
        for sequence in 101..=228 {
            store(&mut out_of_order, 100, sequence);
        }
        assert_eq!(out_of_order.take_contiguous(at(100)), 128);
        assert!(out_of_order.is_empty());
    }

    #[test]
    fn a_forgotten_packet_is_missing_again() {
        let mut out_of_order = OutOfOrder::EMPTY;
        for sequence in 101..=104 {
            store(&mut out_of_order, 100, sequence);
        }
        assert_eq!(out_of_order.place(at(100), at(103)), Placement::Compare(3));
        out_of_order.forget(3);
        assert_eq!(out_of_order.take_contiguous(at(100)), 2);
        assert_eq!(out_of_order.take_contiguous(at(103)), 1);
    }

    #[test]
    fn only_packets_in_order_after_a_filled_gap_are_written_again() {
        let mut out_of_order = OutOfOrder::EMPTY;
        assert_eq!(out_of_order.take_contiguous(at(99)), 0);
        assert!(!out_of_order.follows(at(100)), "there was no gap");
        for sequence in 101..=104 {
            store(&mut out_of_order, 100, sequence);
        }
        assert!(!out_of_order.follows(at(100)));
        out_of_order.take_contiguous(at(100));
        for (sequence, follows) in
            [(102, false), (101, true), (101, false), (102, true), (104, false), (103, true)]
        {
            assert_eq!(out_of_order.follows(at(sequence)), follows, "{sequence}");
        }
    }
}
