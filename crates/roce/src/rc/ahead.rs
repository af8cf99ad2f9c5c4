//! What is kept of a message after a packet of it was lost: the payload is in memory, and its number is noted.
//!
//! The standard lets a responder drop whatever comes after a missing packet. Keeping it costs nothing, since
//! every packet of a message that has begun says by its number alone where its payload belongs, and packets
//! of one message never overlap. What was kept counts from the moment that the missing packet comes: until
//! then nothing is acknowledged, completed or answered by it. Packets of later messages are dropped: they may
//! touch the same memory, and have to do so later.

/// The packets kept, all of the current message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Bit n for the packet n + 1 after the one that is expected.
    held: u128,
    tail: Option<Tail>,
}

/// The last packet of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) sequence: u64,
    /// Bytes of payload.
    pub(super) len: u32,
    pub(super) solicited: bool,
}

/// Packets that follow the one that was missing, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Of full length.
    pub(super) full: u32,
    pub(super) tail: Option<Tail>,
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Take its payload, so many packets after the one that is expected.
    Take(u32),
    /// It is there already.
    Held,
    /// It is too far away, or contradicts what is there.
    None,
}

impl Ahead {
    pub(super) const NOTHING: Self = Self { held: 0, tail: None };

    pub(super) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// What to do with the packet at `sequence`, the message's `last` one or not.
    pub(super) fn place(&self, expected: u64, sequence: u64, last: bool) -> Place {
        let Some(distance) = sequence.checked_sub(expected).filter(|&distance| (1..=128).contains(&distance))
        else {
            return Place::None;
        };
        let bit = 1u128 << (distance.saturating_sub(1) as u32 & 127);
        if self.held & bit != 0 {
            return Place::Held;
        }
        // Nothing comes after the last one.
        let beyond =
            if last { self.held > bit } else { self.tail.is_some_and(|tail| tail.sequence < sequence) };
        if beyond { Place::None } else { Place::Take(distance as u32) }
    }

    /// Notes that the packet so many after the expected one is there.
    pub(super) fn note(&mut self, distance: u32, tail: Option<Tail>) {
        self.held |= 1u128 << (distance.saturating_sub(1) & 127);
        self.tail = self.tail.or(tail);
    }

    /// The expected packet at `expected` has come, and takes these with it.
    pub(super) fn follow(&mut self, expected: u64) -> Run {
        let count = self.held.trailing_ones();
        self.held = self.held.checked_shr(count.saturating_add(1)).unwrap_or(0);
        let end = expected.saturating_add(u64::from(count));
        let tail = self.tail.take_if(|tail| tail.sequence <= end);
        Run { full: count.saturating_sub(u32::from(tail.is_some())), tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(ahead: &mut Ahead, expected: u64, sequence: u64, tail: bool) {
        let Place::Take(distance) = ahead.place(expected, sequence, tail) else { panic!("{sequence}") };
        ahead.note(distance, tail.then_some(Tail { sequence, len: 5, solicited: false }));
    }

    #[test]
    fn what_follows_without_a_gap_is_taken_along() {
        let mut ahead = Ahead::NOTHING;
        for sequence in [103, 101, 102, 105, 106] {
            keep(&mut ahead, 100, sequence, sequence == 106);
        }
        assert_eq!(ahead.place(100, 102, false), Place::Held);
        assert_eq!(ahead.follow(100), Run { full: 3, tail: None });
        assert!(!ahead.is_empty(), "105 and 106 wait for 104");
        assert_eq!(ahead.place(104, 105, false), Place::Held);
        let tail = Some(Tail { sequence: 106, len: 5, solicited: false });
        assert_eq!(ahead.follow(104), Run { full: 1, tail });
        assert!(ahead.is_empty());
    }

    #[test]
    fn only_so_much_is_kept_and_nothing_behind_the_end() {
        let mut ahead = Ahead::NOTHING;
        assert_eq!(ahead.place(100, 100, false), Place::None, "that one is not ahead");
        assert_eq!(ahead.place(100, 229, false), Place::None);
        for sequence in 101..=228 {
            keep(&mut ahead, 100, sequence, false);
        }
        assert_eq!(ahead.follow(100), Run { full: 128, tail: None });
        assert!(ahead.is_empty());
        keep(&mut ahead, 300, 305, true);
        assert_eq!(ahead.place(300, 306, false), Place::None);
        keep(&mut ahead, 300, 304, false);
        assert_eq!(ahead.place(300, 303, true), Place::None, "two ends");
        assert_eq!(ahead.follow(300), Run { full: 0, tail: None });
    }
}
