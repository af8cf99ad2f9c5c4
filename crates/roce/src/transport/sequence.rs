// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sequence numbers of one direction, and their PSNs.
//!
//! The transport counts packets in 64 bits, from 0 on, so that order, windows and distances are comparisons of
//! integers; [`SequenceSpace`] translates to and from the 24-bit PSNs of the wire. A connection never sends 2^64
//! packets: [`Sequence::add`] wraps without a check.

use roce_wire::Psn;

/// An unwrapped sequence number: the number of packets before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(u64);

impl Sequence {
    pub(crate) const ZERO: Self = Self(0);
    /// Later than every packet.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// Returns the sequence number `packets` after this one.
    #[inline]
    pub(crate) const fn add(self, packets: u64) -> Self {
        Self(self.0.wrapping_add(packets))
    }

    /// Returns the next sequence number.
    #[inline]
    pub(crate) const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns the previous sequence number; the first one has itself.
    #[inline]
    pub(crate) const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the sequence number `packets` before this one; the first one if there are fewer.
    #[inline]
    pub(crate) const fn before(self, packets: u64) -> Self {
        Self(self.0.saturating_sub(packets))
    }

    /// Returns the number of packets from `earlier` to this one; 0 if `earlier` is later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the number of packets from `earlier` to this one; `None` if `earlier` is later.
    #[inline]
    pub(crate) const fn checked_since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns the place of this packet among bits in words of 64: the number of words before its own, which wraps, and its
    /// bit there.
    #[inline]
    pub(crate) const fn word_and_bit(self) -> (usize, u32) {
        ((self.0 >> 6) as usize, (self.0 & 63) as u32)
    }

    /// Returns whether all bits of `mask` are set.
    #[inline]
    pub(crate) const fn has_all(self, mask: u64) -> bool {
        self.0 & mask == mask
    }
}

/// Translates between the sequence numbers of one direction and their PSNs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceSpace {
    pub(crate) start: Psn,
}

impl SequenceSpace {
    pub(crate) const START_AT_ZERO: Self = Self { start: Psn::new(0) };

    /// Returns the space in which the packet at `sequence` has `psn`.
    pub(crate) fn with(psn: Psn, sequence: Sequence) -> Self {
        Self { start: psn.add((sequence.0 as u32).wrapping_neg()) }
    }

    /// Returns the PSN of `sequence`.
    #[inline]
    pub(crate) fn psn(self, sequence: Sequence) -> Psn {
        self.start.add(sequence.0 as u32)
    }

    /// Returns the sequence number of `psn` that is nearest to `near`; `None` if it is before the first.
    #[inline]
    pub(crate) fn sequence(self, psn: Psn, near: Sequence) -> Option<Sequence> {
        let distance = psn.distance_from(self.psn(near));
        near.0.checked_add_signed(i64::from(distance)).map(Sequence)
    }

    /// Returns the sequence number of the packet that a response with this PSN answers: the nearest to `una`, the oldest
    /// unacknowledged one. `None` if it was not sent: `high` is the first such packet.
    #[inline]
    pub(crate) fn answered(self, psn: Psn, una: Sequence, high: Sequence) -> Option<Sequence> {
        //= rocev2 §7
        self.sequence(psn, una).filter(|&sequence| sequence < high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §5
    #[test]
    fn psns_wrap_at_24_bits_and_sequence_numbers_do_not() {
        let psns = SequenceSpace { start: Psn::new(0x00FF_FFFE) };
        assert_eq!(psns.psn(Sequence(3)), Psn::new(1));
        assert_eq!(psns.sequence(Psn::new(1), Sequence::ZERO), Some(Sequence(3)));
        assert_eq!(psns.sequence(Psn::new(0x00FF_FFFD), Sequence::ZERO), None, "before the first");
        let far = 0x0123_4567_89AB;
        for distance in [-0x0080_0000, -1, 0, 1, 0x007F_FFFF] {
            let sequence = u64::checked_add_signed(far, distance).map(Sequence).unwrap();
            assert_eq!(psns.sequence(psns.psn(sequence), Sequence(far)), Some(sequence));
        }
    }

    #[test]
    fn a_space_may_begin_at_any_sequence_number() {
        for (psn, sequence) in [(5, 0), (5, 7), (0, 1 << 24 | 3), (0x00FF_FFFF, 0x0123_4567_89AB)] {
            let space = SequenceSpace::with(Psn::new(psn), Sequence(sequence));
            assert_eq!(space.psn(Sequence(sequence)), Psn::new(psn));
            assert_eq!(space.psn(Sequence(sequence + 2)), Psn::new(psn + 2));
        }
    }

    #[test]
    fn distances_are_zero_or_none_backward() {
        let (one, five) = (Sequence(1), Sequence(5));
        assert_eq!((five.since(one), one.since(five)), (4, 0));
        assert_eq!((five.checked_since(one), one.checked_since(five)), (Some(4), None));
        assert_eq!((one.next(), Sequence::ZERO.previous()), (Sequence(2), Sequence::ZERO));
    }
}
