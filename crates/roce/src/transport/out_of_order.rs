// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of a WRITE that arrived after a gap, and responses of READs. What follows is about WRITEs; of the responses,
//! [`outbound_reads`](super::requester::outbound_reads) tells which are stored.
//!
//! The specification lets a responder drop every packet after a missing one. Storing them costs nothing:
//! the PSN alone tells where the payload of a packet belongs, and packets of one message never overlap.
//! Stored packets count from the moment the missing packet arrives; until then they are not acknowledged,
//! completed or answered.
//!
//! A WRITE announces its length, so packets of the next message are recognized at once. They are not placed: they may write the
//! same memory and must do so later. Nor are packets of a SEND, which does not say where it ends. They go to the
//! [stash](crate::transport::responder::gaps::stash). The end of a message clears everything recorded.
//!
//! # Forged packets
//!
//! A packet in order has the expected PSN; one after a gap has any up to [`REACH`] after the newest. So that a packet with a guessed PSN does
//! not take the place of the genuine one, order decides again when both arrive (`docs/decisions.md`):
//!
//! * Of two packets with the same PSN and other content, both after the gap, neither counts: the peer sends it again.
//! * After the gap is filled, the packets that follow in order are written again, although they are duplicates: a
//!   genuine packet that was in flight replaces a forged one that was stored before it. The last packet of a WRITE or a READ is
//!   the exception: it fits one PSN only, and ends the message once the gap is filled.

use super::sequence::Sequence;
use alloc::vec::Vec;

use crate::error::CreateError;
use fallible::vec;

/// How far after the newest packet, the expected one at first, another one may be. A peer that has more in flight than this
/// sends them in order; one with a guessed PSN has to hit one of so many, however many are in flight.
pub(crate) const REACH: u64 = 128;

/// Which packets after the expected one are stored. What each packet uses comes last: see [`cache_lines`](super::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OutOfOrder {
    /// A ring of bits, one for each packet that may be stored; a power of two of them. That of a packet is at its sequence
    /// number modulo their number.
    stored: Vec<u64>,
    /// The newest packet after a gap within reach.
    newest: Sequence,
    /// After a gap was filled: the next packet of those that follow in order. If it is a duplicate, it is written again.
    following: Option<Sequence>,
    /// Bits that are set.
    count: u32,
    /// One has arrived.
    followed: bool,
}

/// Handling of a packet after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Store its payload.
    Store,
    /// A packet with its PSN is stored. If its content differs, neither counts.
    Compare,
    /// It is too far away.
    Reject,
}

impl OutOfOrder {
    /// Without room.
    pub(crate) const EMPTY: Self =
        Self { stored: Vec::new(), count: 0, newest: Sequence::ZERO, following: None, followed: false };

    /// Allocates room for as many packets, rounded up to a power of two.
    pub(crate) fn try_new(packets: u32) -> Result<Self, CreateError> {
        let words = packets.div_ceil(u64::BITS).next_power_of_two();
        Ok(Self { stored: vec::filled(words as usize, 0)?, ..Self::EMPTY })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of stored packets.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Forgets all packets.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.count > 0 || self.following.is_some() {
            self.reset();
        }
    }

    #[inline(never)]
    fn reset(&mut self) {
        self.stored.fill(0);
        (self.count, self.following, self.followed) = (0, None, false);
    }

    /// Returns whether a packet after a gap is within reach. Those after it may be farther away from now on.
    pub(crate) fn reach(&mut self, expected: Sequence, sequence: Sequence) -> bool {
        let newest = self.newest.max(expected);
        let within = sequence.since(newest) <= REACH;
        if within {
            self.newest = newest.max(sequence);
        }
        within
    }

    /// Returns the newest packet after a gap within reach.
    pub(crate) const fn newest(&self) -> Sequence {
        self.newest
    }

    /// Returns what to do with the packet at `sequence`.
    pub(crate) fn admit(&self, expected: Sequence, sequence: Sequence) -> Handling {
        let packets = (self.stored.len() as u64).saturating_mul(u64::from(u64::BITS));
        if sequence <= expected || sequence.since(expected) > packets {
            return Handling::Reject;
        }
        if self.contains(sequence) { Handling::Compare } else { Handling::Store }
    }

    /// Returns the index of the word of a packet, and its bit.
    fn bit(&self, sequence: Sequence) -> (usize, u64) {
        let (word, bit) = sequence.word_and_bit();
        (word & self.stored.len().wrapping_sub(1), 1 << bit)
    }

    /// Returns whether the packet is stored.
    pub(crate) fn contains(&self, sequence: Sequence) -> bool {
        let (word, bit) = self.bit(sequence);
        self.stored.get(word).is_some_and(|stored| stored & bit != 0)
    }

    /// Returns the first packet from `from` to before `end` that is not stored. Compares words, not packets.
    pub(crate) fn first_missing(&self, from: Sequence, end: Sequence) -> Option<Sequence> {
        self.first_with(from, end, |word| word)
    }

    /// Returns the first packet from `from` to before `end` that is stored.
    pub(crate) fn first_stored(&self, from: Sequence, end: Sequence) -> Option<Sequence> {
        self.first_with(from, end, |word| !word)
    }

    /// Returns the first packet from `from` to before `end` whose bit is clear in its word after `change`.
    #[inline]
    fn first_with(&self, from: Sequence, end: Sequence, change: impl Fn(u64) -> u64) -> Option<Sequence> {
        let mut at = from;
        while at < end {
            let (word, bit) = at.word_and_bit();
            let run = (change(self.word(word)) >> bit).trailing_ones();
            at = at.add(u64::from(run));
            if run.saturating_add(bit) < u64::BITS {
                break;
            }
        }
        (at < end).then_some(at)
    }

    /// Returns the last packet from `from` to before `end` that is not stored. Compares words, not packets.
    pub(crate) fn last_missing(&self, from: Sequence, end: Sequence) -> Option<Sequence> {
        let mut end = end;
        while from < end {
            let last = end.previous();
            let (word, bit) = last.word_and_bit();
            // The bits after it are shifted out.
            let bits = self.word(word) << (u64::BITS.saturating_sub(1)).saturating_sub(bit);
            let run = bits.leading_ones();
            if run <= bit {
                let missing = last.before(u64::from(run));
                return (missing >= from).then_some(missing);
            }
            end = last.before(u64::from(bit));
        }
        None
    }

    fn word(&self, word: usize) -> u64 {
        #[cfg(test)]
        tests::WORDS_COMPARED.set(tests::WORDS_COMPARED.get() + 1);
        self.stored.get(word & self.stored.len().wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// Records that the packet is stored, which was not.
    pub(crate) fn record(&mut self, sequence: Sequence) {
        let (word, bit) = self.bit(sequence);
        if let Some(stored) = self.stored.get_mut(word) {
            *stored |= bit;
            self.count = self.count.saturating_add(1);
        }
    }

    /// Records that the packet is not stored, which was.
    pub(crate) fn forget(&mut self, sequence: Sequence) {
        let (word, bit) = self.bit(sequence);
        if let Some(stored) = self.stored.get_mut(word) {
            *stored &= !bit;
            self.count = self.count.saturating_sub(1);
        }
    }

    /// Removes the packets that follow `expected` without a gap, and returns their number: the packet at `expected`
    /// has arrived.
    pub(crate) fn take_contiguous(&mut self, expected: Sequence) -> u32 {
        let mut taken = 0u32;
        // At most `count` bits are set.
        while self.count > 0 {
            let (word, bit) = expected.add(u64::from(taken).saturating_add(1)).word_and_bit();
            let word = word & self.stored.len().wrapping_sub(1);
            let Some(stored) = self.stored.get_mut(word) else { break };
            let run = (*stored >> bit).trailing_ones();
            if run == 0 {
                break;
            }
            *stored &= !(u64::MAX.checked_shr(u64::BITS.saturating_sub(run)).unwrap_or(0) << bit);
            taken = taken.saturating_add(run);
            self.count = self.count.saturating_sub(run);
        }
        if taken > 0 {
            self.followed = false;
            self.following = Some(expected.next());
        }
        taken
    }

    /// Returns whether a gap was filled and none of the packets that follow has arrived again since.
    pub(crate) const fn is_following(&self) -> bool {
        self.following.is_some() && !self.followed
    }

    /// Returns whether the duplicate at `sequence` is to be written again.
    pub(crate) fn follows(&mut self, sequence: Sequence) -> bool {
        let follows = self.following == Some(sequence);
        if follows {
            self.followed = true;
            self.following = Some(sequence.next());
        }
        follows
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    std::thread_local! {
        /// Words of [`OutOfOrder`] that were compared on this thread.
        pub(in crate::transport) static WORDS_COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Packets that [`out_of_order`] has room for.
    const PACKETS: u64 = 256;

    const fn at(number: u64) -> Sequence {
        Sequence::ZERO.add(number)
    }

    fn out_of_order() -> OutOfOrder {
        OutOfOrder::try_new(PACKETS as u32 - 30).unwrap()
    }

    fn store(out_of_order: &mut OutOfOrder, expected: u64, number: u64) {
        assert_eq!(out_of_order.admit(at(expected), at(number)), Handling::Store, "{number}");
        out_of_order.record(at(number));
    }

    #[test]
    fn the_first_missing_packet_is_found_in_any_word() {
        for first in [100, 127, 128, 250, 256, 300] {
            for missing in 0..130 {
                let mut out_of_order = out_of_order();
                for sequence in (first..first + 130).filter(|&sequence| sequence != first + missing) {
                    out_of_order.record(at(sequence));
                }
                let found = out_of_order.first_missing(at(first), at(first + 130));
                assert_eq!(found, Some(at(first + missing)), "from {first}");
                let end = at(first + missing);
                assert_eq!(out_of_order.first_missing(at(first), end), None, "from {first} to {end:?}");
            }
        }
    }

    /// Around each boundary of words, and of the ring.
    #[test]
    fn the_ends_of_gaps_are_those_that_a_search_of_each_packet_finds() {
        let mut random = 7u64;
        for round in 0..2000 {
            let mut out_of_order = out_of_order();
            let first = 100 + round % 200;
            let stored: Vec<u64> = (first..first + 140)
                .filter(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 33) % 64 < round % 65
                })
                .collect();
            for &sequence in &stored {
                out_of_order.record(at(sequence));
            }
            for (from, end) in [(0, 140), (1, 2), (3, 70), (64, 128), (17, 17)] {
                let mut range = first + from..first + end;
                let last = range.clone().rfind(|sequence| !stored.contains(sequence));
                let found = out_of_order.last_missing(at(range.start), at(range.end));
                assert_eq!(found, last.map(at), "round {round}, {from} to {end}");
                let found = out_of_order.first_stored(at(range.start), at(range.end));
                assert_eq!(found, range.find(|sequence| stored.contains(sequence)).map(at), "round {round}");
            }
        }
    }

    #[test]
    fn packets_without_a_gap_are_taken_together() {
        let mut out_of_order = out_of_order();
        for sequence in [103, 101, 102, 105, 106] {
            store(&mut out_of_order, 100, sequence);
        }
        assert_eq!(out_of_order.take_contiguous(at(100)), 3);
        assert!(!out_of_order.is_empty(), "105 and 106 wait for 104");
        assert_eq!(out_of_order.take_contiguous(at(104)), 2);
        assert!(out_of_order.is_empty());
    }

    /// For each place of the gap within a word, and each length of what follows it up to the room.
    #[test]
    fn as_many_packets_are_stored_as_there_is_room_for() {
        for expected in [0, 1, 63, 64, 100, 255, 256, 1000] {
            for end in [1, 2, 62, 63, 64, 65, 127, 128, 129, 200, PACKETS] {
                let mut out_of_order = out_of_order();
                assert_eq!(out_of_order.admit(at(expected), at(expected)), Handling::Reject, "expected");
                assert_eq!(out_of_order.admit(at(expected), at(expected + PACKETS + 1)), Handling::Reject);
                for sequence in (1..=end).rev() {
                    store(&mut out_of_order, expected, expected + sequence);
                    assert_eq!(out_of_order.admit(at(expected), at(expected + sequence)), Handling::Compare);
                }
                assert_eq!(u64::from(out_of_order.take_contiguous(at(expected))), end, "after {expected}");
                assert!(out_of_order.is_empty());
                assert_eq!(out_of_order.admit(at(expected), at(expected + 1)), Handling::Store);
            }
        }
    }

    #[test]
    fn nothing_is_stored_without_room() {
        let out_of_order = OutOfOrder::EMPTY;
        assert_eq!(out_of_order.admit(at(0), at(1)), Handling::Reject);
    }

    #[test]
    fn a_packet_far_after_the_newest_is_out_of_reach() {
        let mut out_of_order = out_of_order();
        assert!(!out_of_order.reach(at(100), at(101 + REACH)));
        assert!(!out_of_order.reach(at(100), at(101 + REACH)), "it does not extend the reach itself");
        assert!(out_of_order.reach(at(100), at(101)));
        assert!(out_of_order.reach(at(100), at(101 + REACH)));
        assert!(out_of_order.reach(at(100), at(102)));
        assert!(out_of_order.reach(at(100), at(101 + 2 * REACH)), "a late packet does not reduce it");
        assert!(!out_of_order.reach(at(1000), at(1001 + REACH)));
        assert!(out_of_order.reach(at(1000), at(1000 + REACH)), "the expected one extends it");
    }

    #[test]
    fn a_forgotten_packet_is_missing_again() {
        let mut out_of_order = out_of_order();
        for sequence in 101..=104 {
            store(&mut out_of_order, 100, sequence);
        }
        assert_eq!(out_of_order.admit(at(100), at(103)), Handling::Compare);
        out_of_order.forget(at(103));
        assert_eq!(out_of_order.take_contiguous(at(100)), 2);
        assert_eq!(out_of_order.take_contiguous(at(103)), 1);
        assert!(out_of_order.is_empty());
        store(&mut out_of_order, 200, 202);
        out_of_order.clear();
        assert!(out_of_order.is_empty());
        assert_eq!(out_of_order.take_contiguous(at(201)), 0);
        assert_eq!(out_of_order.admit(at(200), at(202)), Handling::Store);
    }

    #[test]
    fn nothing_is_remembered_after_a_clear() {
        let mut out_of_order = out_of_order();
        store(&mut out_of_order, 100, 102);
        out_of_order.clear();
        assert!(out_of_order.is_empty());
        assert_eq!(out_of_order.admit(at(100), at(102)), Handling::Store);
        store(&mut out_of_order, 100, 101);
        assert_eq!(out_of_order.take_contiguous(at(100)), 1);
        out_of_order.clear();
        assert!(!out_of_order.follows(at(101)));
    }

    #[test]
    fn only_packets_in_order_after_a_filled_gap_are_written_again() {
        let mut out_of_order = out_of_order();
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
