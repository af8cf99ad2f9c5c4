// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adapts the window to losses.

use super::{FEWEST_IN_FLIGHT, Window};
use crate::transport::sequence::Sequence;

/// Parts of the window by which it falls with the first, second and third loss of a flight: to 3/4, 1/2 and 1/3 of it.
const CUTS: [u64; 3] = [4, 3, 3];

/// While the least is this part of the usual one or less, no more packets are sent during a repair than else.
const FEW: u64 = 16;

impl Window {
    /// Returns how many may be unacknowledged while a loss is repaired: twice as many, if as many may be. Not more than else where a port
    /// holds few of them.
    pub(crate) fn extended(&self) -> u64 {
        if self.least.saturating_mul(FEW) <= u64::from(self.usual) {
            return self.packets;
        }
        self.packets.saturating_mul(2).min(self.limit).max(self.least)
    }

    /// Accounts for a packet that was sent again and acknowledged `took` nanoseconds later.
    pub(crate) fn measure_again(&mut self, took: u64) {
        self.latest = took;
    }

    /// Adapts to the loss of the packet at `una`, of packets before `high`. Of those in flight together, as many losses count as [`CUTS`] has
    /// parts, and those in round trips without queues not at all. `path` as in [`Window::has_queue`].
    pub(crate) fn lose(&mut self, una: Sequence, high: Sequence, path: u64) {
        if !self.has_queue(path) {
            return;
        }
        if una >= self.fallen {
            self.fallen = high;
            self.cuts = 0;
        }
        let Some(&part) = CUTS.get(usize::from(self.cuts)) else { return };
        self.cuts = self.cuts.wrapping_add(1);
        if !self.is_unmeasured() {
            self.base = self.base.min(path);
        }
        let reduced = self.packets.saturating_sub(self.packets.div_ceil(part)).max(FEWEST_IN_FLIGHT);
        if self.packets <= self.least {
            self.packets = reduced;
        }
        self.least = self.least.min(reduced);
    }

    /// Adapts to losses from `una` on, of packets before `high`, after which much is sent again: the peer may store less than
    /// there was in flight.
    pub(crate) fn shrink(&mut self, una: Sequence, high: Sequence) {
        if una < self.shrunk {
            return;
        }
        self.shrunk = high;
        self.packets = (self.packets / 2).max(self.least);
        self.most = self.packets.max(u64::from(self.usual));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MICROSECOND, settle};
    use super::super::*;
    use super::*;

    #[test]
    fn losses_of_packets_in_flight_together_halve_the_window_once() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 1000 * MICROSECOND);
        let half = settle(&mut window, 1000) / 2;
        let at = |number| Sequence::ZERO.add(number);
        window.shrink(at(0), at(2000));
        assert_eq!(window.packets(), half);
        window.shrink(at(1999), at(3000));
        assert_eq!(window.packets(), half);
        // It rises again slowly.
        for expected in [half, half + half / RISE] {
            window.measure(window.packets(), 1000 * MICROSECOND);
            assert_eq!(window.packets(), expected);
        }
        let packets = window.packets();
        window.shrink(at(2000), at(3000));
        assert_eq!(window.packets(), packets / 2);
    }

    /// By more with each of three losses of a flight, down to two packets.
    #[test]
    fn losses_behind_queues_lower_the_least_which_rises_slowly() {
        let at = |number| Sequence::ZERO.add(number);
        let mut window = Window::new(128, 8192);
        window.measure(1, 20 * MICROSECOND);
        window.measure(128, 120 * MICROSECOND);
        let losses =
            [(0, 128, 96), (5, 130, 64), (5, 131, 42), (127, 200, 42), (128, 192, 31), (191, 200, 20)];
        for (una, high, expected) in losses {
            window.lose(at(una), at(high), UNMEASURED);
            assert_eq!(window.packets(), expected, "{una}");
        }
        for round in 1..=108 * u64::from(PATIENCE) {
            assert_eq!(window.packets(), 20 + (round - 1) / u64::from(PATIENCE));
            window.measure(1, 120 * MICROSECOND);
        }
        assert_eq!(window.packets(), 128);
        for round in 0..20 {
            window.lose(at(300 + round), at(301 + round), UNMEASURED);
        }
        assert_eq!(window.packets(), FEWEST_IN_FLIGHT);
        // A path that is longer than that fills again.
        window.measure(2, 20 * MICROSECOND);
        window.measure(100, 20 * MICROSECOND);
        assert_eq!(window.packets(), 200);
    }

    /// Neither what it measured first, nor packets that other senders delay, hide a queue.
    #[test]
    fn a_sender_that_begins_behind_a_queue_sees_it_by_the_time_of_connecting() {
        let lose = |window: &mut Window, path| window.lose(Sequence::ZERO, Sequence::ZERO.add(1), path);
        let mut window = Window::new(128, 8192);
        window.measure(1, 100 * MICROSECOND);
        lose(&mut window, 41 * MICROSECOND);
        assert_eq!((window.packets(), window.round_trip()), (128, 100 * MICROSECOND));
        lose(&mut window, 40 * MICROSECOND);
        assert_eq!((window.packets(), window.round_trip()), (96, 40 * MICROSECOND));
        window.measure(1, 100 * MICROSECOND);
        assert_eq!(window.round_trip(), 40 * MICROSECOND);
    }

    /// The time of a packet that was sent again is the newest that is known of the path.
    #[test]
    fn a_packet_that_was_sent_again_shows_the_queue() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 20 * MICROSECOND);
        window.measure_again(50 * MICROSECOND);
        window.lose(Sequence::ZERO, Sequence::ZERO.add(1), UNMEASURED);
        assert_eq!(window.packets(), 96);
    }

    /// While the least is a sixteenth of the usual one.
    #[test]
    fn repairs_send_no_more_than_else_where_a_port_holds_little() {
        for (least, expected) in [(128, 256), (9, 18), (8, 8), (2, 2)] {
            let window = Window { packets: least, least, ..Window::new(128, 8192) };
            assert_eq!(window.extended(), expected);
        }
    }

    /// Nor does a loss in a round trip without queues tell anything about them.
    #[test]
    fn losses_without_queues_do_not_lower_the_least() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 100 * MICROSECOND);
        for took in [100, 249] {
            window.measure(60, took * MICROSECOND);
            window.lose(Sequence::ZERO, Sequence::ZERO.add(1), UNMEASURED);
            assert_eq!(window.packets(), 128, "{took} us");
        }
        window.measure(60, 250 * MICROSECOND);
        window.lose(Sequence::ZERO, Sequence::ZERO.add(1), UNMEASURED);
        assert_eq!(window.packets(), 96);
        // As long as no round trip is known, each loss counts.
        let mut window = Window::new(128, 8192);
        window.lose(Sequence::ZERO, Sequence::ZERO.add(1), UNMEASURED);
        assert_eq!(window.packets(), 96);
    }
}
