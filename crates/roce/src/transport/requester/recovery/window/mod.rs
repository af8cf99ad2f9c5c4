// SPDX-License-Identifier: MIT OR Apache-2.0

//! How many packets may be unacknowledged: twice the bandwidth-delay product of the path.
//!
//! A window below the bandwidth-delay product limits the rate, and one far above it fills queues. The product is that of the
//! rate at which packets are acknowledged and of the round trip without queues, as BBR measures it
//! (draft-ietf-ccwg-bbr). While the window is the limit, each round trip acknowledges a whole one, and the window
//! doubles; once the path is full, round trips take longer, and the product stays. So on a short path the window stays
//! at its least, whatever queues there are.
//!
//! # Ports with few buffers
//!
//! The least leaves room for what a host takes to process packets, but is more than a port with few buffers holds for several senders.
//! There it follows losses that meet a round trip with a queue: with the first of a flight it falls to three quarters, with the second to a half,
//! with the third to a third. It rises by a packet in four round trips. As with TCP (RFC 5681), what senders have becomes equal by that. Full ports
//! drop several packets of a flight, paths that lose at random mostly one. A loss in a short round trip says nothing about queues.
//!
//! A sender that begins while there is a queue takes that for the path. So the round trip without queues is what connection management
//! has measured, if that is less; and while the least is low, packets that are delayed by other senders do not raise it.
//!
//! A window that fills a port alone loses nothing, since a frame arrives there whenever another one leaves, and those of other senders find
//! no room (lock-out, RFC 7567). So every now and then the window falls to the bandwidth-delay product for a round trip, as BBR's does,
//! and the queue becomes empty. Where there were losses, what it may have in flight is halved as well: the other senders may find no room
//! until then, so that they alone lose packets, and become smaller. READs are windows of the host that requests them: it sees
//! what its own port has dropped.

mod losses;
pub(crate) mod reads;

use crate::transport::sequence::Sequence;

/// Part of the excess by which the window falls in a round trip that had use for less.
const FALL: u64 = 8;

/// Part of the window by which it may rise in a round trip after it had to fall.
const RISE: u64 = 16;

/// The window of a requester.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Window {
    /// The round trip without queues, in nanoseconds; [`UNMEASURED`] or more before the first one.
    base: u64,
    /// Packets.
    packets: u64,
    /// Falls with losses behind queues, and rises again to `usual`.
    least: u64,
    /// Falls with losses that show that less should be in flight, and rises again slowly.
    most: u64,
    limit: u64,
    /// The first packet that was not sent when the window was made smaller.
    shrunk: Sequence,
    /// The first packet that was not sent at the loss with which the least fell.
    fallen: Sequence,
    /// The last round trip, in nanoseconds.
    latest: u64,
    /// The least without losses.
    usual: u32,
    /// Round trips since the least has risen.
    waited: u8,
    /// Round trips with a queue since the window was drained.
    queued: u8,
    /// How often the least has fallen with losses before `fallen`.
    cuts: u8,
}

/// The least after any number of losses: a packet and one that shows its loss.
const FEWEST_IN_FLIGHT: u64 = 2;

/// A round trip with a queue has this many halves of the one without. A window of twice the bandwidth-delay product makes it two by itself.
const QUEUED: u64 = 5;

/// Round trips in which the least rises by a packet.
const PATIENCE: u8 = 4;

/// Packets that a sender may keep when it is drained: those that have more fill the port.
const SHARE: u64 = 8;

/// Round trips with a queue, in one of which the window is drained.
const DRAIN: u8 = 32;

/// Nanoseconds by which the round trip rises at least.
const LEAST_RISE: u64 = 256;

/// No round trip is as long: 146 years.
const UNMEASURED: u64 = 1 << 62;

impl Window {
    /// Before the peer is known.
    pub(crate) const IDLE: Self = Self {
        packets: 2,
        least: 2,
        most: 2,
        limit: 2,
        shrunk: Sequence::ZERO,
        base: UNMEASURED,
        fallen: Sequence::ZERO,
        latest: 0,
        usual: 2,
        waited: 0,
        queued: 0,
        cuts: 0,
    };

    /// A window of `least` to `most` packets.
    pub(crate) fn new(least: u64, most: u64) -> Self {
        let most = most.max(least);
        Self { packets: least, least, most, limit: most, usual: least as u32, ..Self::IDLE }
    }

    /// Returns how many packets may be unacknowledged.
    #[inline]
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the round trip without queues, in nanoseconds; 0 before the first one.
    pub(crate) const fn round_trip(&self) -> u64 {
        if self.is_unmeasured() { 0 } else { self.base }
    }

    /// Returns whether no round trip was measured.
    #[inline]
    pub(crate) const fn is_unmeasured(&self) -> bool {
        self.base >= UNMEASURED
    }

    /// Adapts to a packet that was acknowledged `took` nanoseconds after it was sent for the only time; meanwhile, `delivered`
    /// packets were acknowledged with it.
    #[inline]
    pub(crate) fn measure(&mut self, delivered: u64, took: u64) {
        self.latest = took;
        if self.is_low() {
            self.measure_low(delivered, took);
            return;
        }
        self.measure_round_trip(delivered, took);
        self.measure_rate(delivered, took);
    }

    /// Adapts as [`Window::measure`] does, while the least is low.
    #[cold]
    #[inline(never)]
    fn measure_low(&mut self, delivered: u64, took: u64) {
        self.rise();
        self.measure_round_trip(delivered, took);
        self.measure_rate(delivered, took);
    }

    #[inline]
    fn measure_round_trip(&mut self, delivered: u64, took: u64) {
        // Nothing of this queue pair delays a packet before which none was unacknowledged. If it takes longer, the path may have
        // become longer, or the peer was busy once. Where the least is low, other senders delay it.
        let rise = if delivered <= 1 && !self.is_low() { self.base / 4 + LEAST_RISE } else { 0 };
        self.base = took.min(self.base.wrapping_add(rise));
    }

    #[inline]
    fn measure_rate(&mut self, delivered: u64, took: u64) {
        // Usually, the consumer posts less than a window.
        if delivered > self.packets / 2 {
            self.follow(delivered, took, true);
        }
    }

    #[inline(never)]
    fn follow(&mut self, delivered: u64, took: u64, drains: bool) {
        // The clock is coarser than the round trip was.
        if self.base == 0 {
            self.base = took;
        }
        let product = delivered.saturating_mul(self.base) / took.max(1);
        if drains && is_queue(took, self.base) {
            self.queued = self.queued.saturating_add(1);
            if self.queued >= DRAIN {
                self.queued = 0;
                if self.is_low() {
                    self.least = (self.least / 2).max(self.least.min(SHARE));
                }
                self.packets = product.clamp(FEWEST_IN_FLIGHT, self.packets.max(FEWEST_IN_FLIGHT));
                return;
            }
        }
        let wanted = product.saturating_mul(2).max(self.least).min(self.most);
        if wanted == self.most {
            self.most = self.most.saturating_add((self.most / RISE).max(1)).min(self.limit);
        }
        self.packets = if wanted >= self.packets {
            wanted
        } else {
            self.packets.saturating_sub(self.packets.saturating_sub(wanted).div_ceil(FALL))
        };
    }

    /// Returns whether the least has fallen, and has not risen again.
    #[inline]
    pub(crate) const fn is_low(&self) -> bool {
        self.least < self.usual as u64
    }

    /// Returns whether the last round trip had a queue, or none was measured. Without queues, one takes `path` nanoseconds at most.
    pub(crate) fn has_queue(&self, path: u64) -> bool {
        self.is_unmeasured() || is_queue(self.latest, self.base.min(path))
    }

    /// Adapts to the end of a round trip.
    #[inline]
    pub(crate) fn rise(&mut self) {
        if !self.is_low() {
            return;
        }
        self.waited = self.waited.wrapping_add(1);
        if self.waited >= PATIENCE {
            self.waited = 0;
            self.least = self.least.wrapping_add(1);
            self.packets = self.packets.max(self.least);
        }
    }
}

/// Returns whether a round trip of `took` nanoseconds has a queue. Without, it takes `base`.
const fn is_queue(took: u64, base: u64) -> bool {
    took.saturating_mul(2) >= base.saturating_mul(QUEUED)
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::Measured;
    use super::*;

    pub(super) const MICROSECOND: u64 = 1000;

    /// Measures full windows on a path that carries a packet in a microsecond, until the window no longer changes. Returns it.
    pub(super) fn settle(window: &mut Window, round_trip: u64) -> u64 {
        for _ in 0..200 {
            let packets = window.packets();
            window.measure(packets, packets.max(round_trip) * MICROSECOND);
        }
        window.packets()
    }

    #[test]
    fn the_window_is_twice_the_bandwidth_delay_product() {
        for (round_trip, expected) in [(1, 128), (64, 128), (100, 200), (1000, 2000), (10_000, 8192)] {
            let mut window = Window::new(128, 8192);
            window.measure(1, round_trip * MICROSECOND);
            let settled = settle(&mut window, round_trip);
            assert!(settled.abs_diff(expected) <= 1 + FALL, "{round_trip} us: {settled}");
        }
    }

    /// It doubles in a round trip, and falls slowly.
    #[test]
    fn the_window_follows_a_path_that_changes() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 1000 * MICROSECOND);
        window.measure(128, 1000 * MICROSECOND);
        assert_eq!(window.packets(), 256);
        assert!(settle(&mut window, 1000) >= 2000);
        // At a tenth of the rate.
        window.measure(window.packets(), window.packets() * 10 * MICROSECOND);
        assert!((1700..2000).contains(&window.packets()), "{}", window.packets());
        for _ in 0..200 {
            window.measure(window.packets(), window.packets() * 10 * MICROSECOND);
        }
        assert!((200..=200 + FALL).contains(&window.packets()), "{}", window.packets());
    }

    /// A consumer that posts less than half of the window does not change it.
    #[test]
    fn the_window_is_kept_while_it_is_not_used() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 1000 * MICROSECOND);
        let settled = settle(&mut window, 1000);
        for delivered in [1, 2, 10, settled / 2] {
            window.measure(delivered, 1000 * MICROSECOND);
            assert_eq!(window.packets(), settled);
            // However long it takes.
            window.measure(delivered, 2000 * MICROSECOND);
            assert_eq!(window.packets(), settled);
        }
        for round in 0..20 {
            window.shrink(Sequence::ZERO.add(round), Sequence::ZERO.add(round + 1));
        }
        assert_eq!(window.packets(), 128);
    }

    /// While there is a queue, in one of [`DRAIN`] round trips.
    #[test]
    fn a_window_that_fills_a_queue_is_drained_for_a_round_trip() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 20 * MICROSECOND);
        for _ in 0..3 {
            for _ in 1..DRAIN {
                window.measure(128, 128 * MICROSECOND);
                assert_eq!(window.packets(), 128);
            }
            window.measure(128, 128 * MICROSECOND);
            assert_eq!(window.packets(), 20);
            window.measure(20, 20 * MICROSECOND);
            assert_eq!(window.packets(), 128);
        }
        // A window of twice the bandwidth-delay product is no queue, and neither is a long request of few.
        let took = 128 * MICROSECOND;
        for _ in 0..2 * DRAIN {
            window.measure(128, 49 * MICROSECOND);
            window.measure_responses(Measured { received: 128, took, first: false, last: true });
            assert!(window.packets() >= 128, "{}", window.packets());
        }
        // READs are drained, too, however few are requested.
        for received in [128, 3, 128] {
            for _ in 1..DRAIN {
                window.measure_responses(Measured { received, took, first: true, last: true });
                assert_eq!(window.packets(), 128);
            }
            window.measure_responses(Measured { received, took, first: true, last: true });
            assert_eq!(window.packets(), (received * 20 / 128).max(FEWEST_IN_FLIGHT));
            assert_eq!(window.chunk(16), 64, "that of a whole READ is kept");
            assert_eq!(window.of_reads(16, 0), window.packets());
            window.measure_responses(Measured { received: 2, took, first: true, last: true });
            assert_eq!(window.packets(), 128);
        }
    }

    /// Senders that have lost packets are drained by halves, so that those which find no room get some.
    #[test]
    fn a_low_window_is_halved_when_it_is_drained() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 20 * MICROSECOND);
        window.measure(128, 128 * MICROSECOND);
        window.lose(Sequence::ZERO, Sequence::ZERO.add(1), UNMEASURED);
        assert_eq!(window.packets(), 96);
        for _ in 2..DRAIN {
            window.measure(96, 128 * MICROSECOND);
        }
        let least = 96 + u64::from((DRAIN - 1) / PATIENCE);
        window.measure(96, 128 * MICROSECOND);
        assert_eq!((window.packets(), window.least), (15, least / 2));
        window.measure(15, 20 * MICROSECOND);
        assert_eq!(window.packets(), least / 2 + 1);
        // Those that have little do not fill the port.
        for (least, expected) in [(20, 10), (10, 8), (8, 8), (3, 3)] {
            let mut window = Window { packets: least, least, queued: DRAIN - 1, ..window };
            window.follow(least, 128 * MICROSECOND, true);
            assert_eq!(window.least, expected);
        }
    }

    /// Queues do not make the path longer, a single delay makes it little longer.
    #[test]
    fn the_round_trip_is_that_without_queues() {
        let mut window = Window::new(128, 8192);
        window.measure(1, 100 * MICROSECOND);
        window.measure(60, 1000 * MICROSECOND);
        assert_eq!(window.base, 100 * MICROSECOND);
        window.measure(1, 1000 * MICROSECOND);
        assert_eq!(window.base, 125 * MICROSECOND + LEAST_RISE);
        window.measure(60, 90 * MICROSECOND);
        assert_eq!(window.base, 90 * MICROSECOND);
    }

    #[test]
    fn no_more_is_in_flight_than_the_limit() {
        for (least, most) in [(2, 2), (128, 32), (128, 128), (128, 150), (128, 8192)] {
            let window = Window::new(least, most);
            for packets in [window.packets(), window.with_chunks(), window.extended()] {
                assert!(packets <= most.max(least), "{least}, {most}: {packets}");
            }
        }
    }

    #[test]
    fn a_measurement_of_no_time_is_harmless() {
        let mut window = Window::new(128, 8192);
        window.measure(128, 0);
        window.measure(1, 0);
        window.measure(u64::MAX, u64::MAX);
        assert!((128..=8192).contains(&window.packets()));
        for longest in [UNMEASURED, u64::MAX] {
            let mut window = Window::new(128, 8192);
            window.measure(1, longest);
            assert_eq!(window.round_trip(), 0);
        }
    }
}
