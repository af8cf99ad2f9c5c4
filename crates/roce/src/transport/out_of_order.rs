// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of a message that arrived after a gap.
//!
//! The specification lets a responder drop every packet after a missing one. Storing them costs nothing:
//! the PSN alone tells where the payload of a packet belongs, and packets of one message never overlap.
//! Stored packets count from the moment the missing packet arrives; until then they are not acknowledged,
//! completed or answered.
//!
//! Packets of later messages are not stored: they may write the same memory and must do so later. A WRITE
//! carries its length, so packets of the next message are recognized at once. A SEND does not: while its last
//! packet is missing, all packets of the next SEND except the first look like its own, and their payload
//! is written to the current receive after the end of the message. That is harmless. Only a run without
//! a gap counts, and a run never passes the first packet of a message, since that is never stored. The end of
//! a message clears everything recorded, so the peer sends those packets again.

use super::sequence::Sequence;

/// Which packets after the expected one are stored, all of the current message as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfOrder {
    /// Bit n is the packet n + 1 after the expected one.
    stored: u128,
    last: Option<LastPacket>,
}

/// The last packet of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastPacket {
    pub(super) sequence: Sequence,
    /// Payload length in bytes.
    pub(super) len: u32,
    pub(super) solicited: bool,
}

/// Stored packets that follow the expected one without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContiguousRun {
    /// Number of packets of full length.
    pub(super) full: u32,
    pub(super) last: Option<LastPacket>,
}

/// What to do with a packet after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Store its payload, this many packets after the expected one.
    Store(u32),
    /// It is stored already.
    Duplicate,
    /// It is too far away, or contradicts what is stored.
    Reject,
}

impl OutOfOrder {
    pub(super) const EMPTY: Self = Self { stored: 0, last: None };

    pub(super) const fn is_empty(&self) -> bool {
        self.stored == 0
    }

    /// Returns what to do with the packet at `sequence`; `is_last` if it is the message's last one.
    pub(super) fn classify(&self, expected: Sequence, sequence: Sequence, is_last: bool) -> Placement {
        let Some(distance) =
            sequence.checked_since(expected).filter(|&distance| (1..=128).contains(&distance))
        else {
            return Placement::Reject;
        };
        let bit = 1u128 << (distance.saturating_sub(1) as u32 & 127);
        if self.stored & bit != 0 {
            return Placement::Duplicate;
        }
        let after_last = self.last.is_some_and(|last| last.sequence < sequence);
        if after_last || is_last && self.stored > bit {
            Placement::Reject
        } else {
            Placement::Store(distance as u32)
        }
    }

    /// Records that the packet `distance` after the expected one is stored.
    pub(super) fn record(&mut self, distance: u32, last: Option<LastPacket>) {
        self.stored |= 1u128 << (distance.saturating_sub(1) & 127);
        self.last = self.last.or(last);
    }

    /// Removes and returns the packets that follow `expected` without a gap: the packet at `expected` has
    /// arrived.
    pub(super) fn take_contiguous(&mut self, expected: Sequence) -> ContiguousRun {
        let count = self.stored.trailing_ones();
        self.stored = self.stored.checked_shr(count.saturating_add(1)).unwrap_or(0);
        let end = expected.add(u64::from(count));
        let last = self.last.take_if(|last| last.sequence <= end);
        ContiguousRun { full: count.saturating_sub(u32::from(last.is_some())), last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    fn store(out_of_order: &mut OutOfOrder, expected: u64, number: u64, is_last: bool) {
        let (expected, sequence) = (at(expected), at(number));
        let Placement::Store(distance) = out_of_order.classify(expected, sequence, is_last) else {
            panic!("{number}")
        };
        out_of_order.record(distance, is_last.then_some(LastPacket { sequence, len: 5, solicited: false }));
    }

    #[test]
    fn packets_without_a_gap_are_taken_together() {
        let mut out_of_order = OutOfOrder::EMPTY;
        for sequence in [103, 101, 102, 105, 106] {
            store(&mut out_of_order, 100, sequence, sequence == 106);
        }
        assert_eq!(out_of_order.classify(at(100), at(102), false), Placement::Duplicate);
        assert_eq!(out_of_order.take_contiguous(at(100)), ContiguousRun { full: 3, last: None });
        assert!(!out_of_order.is_empty(), "105 and 106 wait for 104");
        assert_eq!(out_of_order.classify(at(104), at(105), false), Placement::Duplicate);
        let last = Some(LastPacket { sequence: at(106), len: 5, solicited: false });
        assert_eq!(out_of_order.take_contiguous(at(104)), ContiguousRun { full: 1, last });
        assert!(out_of_order.is_empty());
    }

    #[test]
    fn at_most_128_packets_are_stored_and_none_after_the_last() {
        let mut out_of_order = OutOfOrder::EMPTY;
        assert_eq!(out_of_order.classify(at(100), at(100), false), Placement::Reject, "the expected one");
        assert_eq!(out_of_order.classify(at(100), at(229), false), Placement::Reject);
        for sequence in 101..=228 {
            store(&mut out_of_order, 100, sequence, false);
        }
        assert_eq!(out_of_order.take_contiguous(at(100)), ContiguousRun { full: 128, last: None });
        assert!(out_of_order.is_empty());
        store(&mut out_of_order, 300, 305, true);
        assert_eq!(out_of_order.classify(at(300), at(306), false), Placement::Reject);
        assert_eq!(out_of_order.classify(at(300), at(306), true), Placement::Reject);
        store(&mut out_of_order, 300, 304, false);
        assert_eq!(out_of_order.classify(at(300), at(303), true), Placement::Reject, "a second last packet");
        assert_eq!(out_of_order.take_contiguous(at(300)), ContiguousRun { full: 0, last: None });
    }
}
