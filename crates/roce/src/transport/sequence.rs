//! Sequence numbers of one direction, and their PSNs.

use roce_wire::Psn;

/// Translates between the sequence numbers of one direction and their PSNs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceSpace {
    pub(super) start: Psn,
}

impl SequenceSpace {
    pub(super) const START_AT_ZERO: Self = Self { start: Psn::new(0) };

    /// Returns the PSN of `sequence`.
    #[inline]
    pub(super) fn psn(self, sequence: u64) -> Psn {
        self.start.add(sequence as u32)
    }

    /// Returns the sequence number of `psn` that is nearest to `near`; `None` if it is before the first.
    #[inline]
    pub(super) fn sequence(self, psn: Psn, near: u64) -> Option<u64> {
        let distance = psn.distance_from(self.psn(near));
        near.checked_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §5
    #[test]
    pub(super) fn psns_wrap_at_24_bits_and_sequence_numbers_do_not() {
        let psns = SequenceSpace { start: Psn::new(0x00FF_FFFE) };
        assert_eq!(psns.psn(3), Psn::new(1));
        assert_eq!(psns.sequence(Psn::new(1), 0), Some(3));
        assert_eq!(psns.sequence(Psn::new(0x00FF_FFFD), 0), None, "before the first");
        let far = 0x0123_4567_89AB;
        for distance in [-0x0080_0000, -1, 0, 1, 0x007F_FFFF] {
            let sequence = u64::checked_add_signed(far, distance).unwrap();
            assert_eq!(psns.sequence(psns.psn(sequence), far), Some(sequence));
        }
    }
}
