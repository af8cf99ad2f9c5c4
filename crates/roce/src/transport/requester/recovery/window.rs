// SPDX-License-Identifier: MIT OR Apache-2.0

//! How many packets may be unacknowledged: twice the bandwidth-delay product of the path.
//!
//! A window below the bandwidth-delay product limits the rate, and one far above it fills queues. The product is that of the
//! rate at which packets are acknowledged and of the round trip without queues, as BBR measures it
//! (draft-ietf-ccwg-bbr). While the window is the limit, each round trip acknowledges a whole one, and the window
//! doubles; once the path is full, round trips take longer, and the product stays. So on a short path the window stays
//! at its minimum, whatever queues there are.

use super::round_trip::Measured;
use crate::transport::sequence::Sequence;

/// Part of the excess by which the window falls in a round trip that had use for less.
const FALL: u64 = 8;

/// Part of the window by which it may rise in a round trip after it had to fall.
const RISE: u64 = 16;

/// The window of a requester.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Window {
    /// The round trip without queues, in nanoseconds; [`UNMEASURED`] before the first one.
    base: u64,
    /// Packets.
    packets: u64,
    least: u64,
    /// Falls with losses that show that less should be in flight, and rises again slowly.
    most: u64,
    limit: u64,
    /// The first packet that was not sent when the window was made smaller.
    shrunk: Sequence,
}

/// With as many READs granted, the window is requested in as many chunks, and the next one is always on its way.
pub(crate) const MANY_READS: u32 = 4;

/// Packets of a chunk of a READ: with many READs granted, no more than this, so that little is requested again after a loss; and no fewer
/// than this while the window is larger.
const MOST_OF_MANY: u64 = 256;
const FEWEST: u64 = 64;

/// Nanoseconds by which the round trip rises at least.
const LEAST_RISE: u64 = 256;

/// Longer than any round trip.
const UNMEASURED: u64 = 1 << 62;

impl Window {
    /// Before the peer is known.
    pub(crate) const IDLE: Self =
        Self { packets: 2, least: 2, most: 2, limit: 2, shrunk: Sequence::ZERO, base: UNMEASURED };

    /// A window of `least` to `most` packets.
    pub(crate) fn new(least: u64, most: u64) -> Self {
        let most = most.max(least);
        Self { packets: least, least, most, limit: most, shrunk: Sequence::ZERO, base: UNMEASURED }
    }

    /// Returns how many packets may be unacknowledged.
    #[inline]
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns how many packets may be unacknowledged with the responses of a READ request, of which `granted` may be outstanding.
    /// It begins below [`Window::packets`]; while responses are `missing`, it may end above by a whole chunk.
    #[inline]
    pub(crate) fn of_reads(&self, granted: u32, missing: bool) -> u64 {
        let usual = if missing { self.extended() } else { self.with_chunks() };
        if granted == 2 { usual.max(self.chunk(granted).saturating_mul(2)).min(self.limit) } else { usual }
    }

    /// Returns how many packets may be unacknowledged that are requested in chunks: as the window is used in steps, more than
    /// the least one, so that it can rise.
    #[inline]
    fn with_chunks(&self) -> u64 {
        self.packets.max(self.least.saturating_add(self.least / 2).min(self.limit))
    }

    /// Returns how many packets of a READ are requested at once, of a peer that has `granted` as many READs. With [`MANY_READS`], a
    /// quarter of the window. With fewer, the path is empty for the part of a round trip in which a request travels: each is for so much
    /// that this part is small.
    pub(crate) fn chunk(&self, granted: u32) -> u64 {
        let chunk = match granted {
            // A round trip for eleven bandwidth-delay products.
            0 | 1 => self.packets.saturating_mul(6),
            // One and a half while the other is answered.
            2 => self.packets.saturating_mul(3) / 4,
            3 => self.packets / 3,
            granted => {
                let quarter = (self.packets / 4).min(MOST_OF_MANY);
                // A power of two, so that a little more or less of a window does not make more chunks.
                let quarter = 1u64.checked_shl(quarter.checked_ilog2().unwrap_or(0)).unwrap_or(1);
                quarter.max(self.packets.div_ceil(u64::from(granted)))
            }
        };
        chunk.max(FEWEST.min(self.packets.saturating_mul(2) / 3)).min(self.limit).max(1)
    }

    /// Returns how many may be unacknowledged while a loss is repaired: twice as many, if as many may be.
    pub(crate) fn extended(&self) -> u64 {
        self.packets.saturating_mul(2).min(self.limit).max(self.least)
    }

    /// Returns the round trip without queues, in nanoseconds; 0 before the first one.
    pub(crate) const fn round_trip(&self) -> u64 {
        if self.is_unmeasured() { 0 } else { self.base }
    }

    /// Returns whether no round trip was measured.
    #[inline]
    pub(crate) const fn is_unmeasured(&self) -> bool {
        self.base == UNMEASURED
    }

    /// Adapts to a packet that was acknowledged `took` nanoseconds after it was sent for the only time; meanwhile, `delivered`
    /// packets were acknowledged with it.
    #[inline]
    pub(crate) fn measure(&mut self, delivered: u64, took: u64) {
        self.measure_round_trip(delivered, took);
        self.measure_rate(delivered, took);
    }

    /// Adapts to responses of a READ.
    #[inline(never)]
    pub(crate) fn measure_responses(&mut self, measured: Measured) {
        let Measured { received, took, first, last } = measured;
        if first {
            self.measure_round_trip(received, took);
        }
        if last && !self.is_unmeasured() {
            self.measure_rate(received, took);
        }
    }

    #[inline]
    fn measure_round_trip(&mut self, delivered: u64, took: u64) {
        // Nothing of this queue pair delays a packet before which none was unacknowledged. If it takes longer, the path may have
        // become longer, or the peer was busy once.
        let rise = if delivered <= 1 { self.base / 4 + LEAST_RISE } else { 0 };
        self.base = took.min(self.base.wrapping_add(rise)).min(UNMEASURED - 1);
    }

    #[inline]
    fn measure_rate(&mut self, delivered: u64, took: u64) {
        // Usually, the consumer posts less than a window.
        if delivered > self.packets / 2 {
            self.follow(delivered, took);
        }
    }

    #[inline(never)]
    fn follow(&mut self, delivered: u64, took: u64) {
        // The clock is coarser than the round trip was.
        if self.base == 0 {
            self.base = took;
        }
        let product = delivered.saturating_mul(self.base) / took.max(1);
        let wanted = product.saturating_mul(2).max(self.least).min(self.most);
        if wanted == self.most {
            self.most = self.most.saturating_add(self.most / RISE).min(self.limit);
        }
        self.packets = if wanted >= self.packets {
            wanted
        } else {
            self.packets.saturating_sub(self.packets.saturating_sub(wanted).div_ceil(FALL))
        };
    }

    /// Adapts to losses from `una` on, of packets before `high`, after which much is sent again: the peer may store less than
    /// there was in flight.
    pub(crate) fn shrink(&mut self, una: Sequence, high: Sequence) {
        if una < self.shrunk {
            return;
        }
        self.shrunk = high;
        self.packets = (self.packets / 2).max(self.least);
        self.most = self.packets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1000;

    /// Measures full windows on a path that carries a packet in a microsecond, until the window no longer changes. Returns it.
    fn settle(window: &mut Window, round_trip: u64) -> u64 {
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

    /// A quarter of the window with many READs granted, more with few.
    #[test]
    fn few_granted_reads_have_long_chunks() {
        let chunk = |packets, granted| {
            let window = Window { packets, ..Window::new(128, 8192) };
            let chunk = window.chunk(granted);
            let in_flight = chunk * u64::from(granted.min(4));
            assert!(
                granted > 3 || in_flight <= window.of_reads(granted, false).max(chunk),
                "{packets}, {granted}"
            );
            chunk
        };
        for granted in [1, 2, 3, 4, 8, 16] {
            assert_eq!(chunk(2, granted), [12, 1, 1, 1, 1, 1][granted.min(5) as usize - 1], "{granted}");
        }
        assert_eq!([1, 2, 3, 4, 16].map(|granted| chunk(128, granted)), [768, 96, 64, 64, 64]);
        assert_eq!([1, 2, 3, 4, 8, 16].map(|granted| chunk(2000, granted)), [8192, 1500, 666, 500, 256, 256]);
        assert_eq!(Window::new(128, 300).chunk(1), 300);
        let mut window = Window::IDLE;
        window.measure(1, 1000);
        assert_eq!(window.round_trip(), 1000);
    }

    /// Of a peer that answers one READ at a time.
    #[test]
    fn a_chunk_at_a_time_fills_a_path() {
        for (round_trip, expected) in [(20, 128..=128), (100, 170..=200), (1000, 1000..=2000)] {
            let mut window = Window::new(128, 8192);
            for _ in 0..100 {
                let received = window.chunk(1);
                let base = round_trip * MICROSECOND;
                window.measure_responses(Measured { received: 1, took: base, first: true, last: false });
                let took = base + received * MICROSECOND;
                window.measure_responses(Measured { received, took, first: false, last: true });
            }
            assert!(expected.contains(&window.packets()), "{round_trip} us: {}", window.packets());
            let chunk = window.chunk(1);
            assert!(chunk >= 7 * round_trip, "{round_trip} us: {chunk}");
        }
        // The rate says nothing while no round trip is known.
        let mut window = Window::new(128, 8192);
        window.measure_responses(Measured { received: 700, took: MICROSECOND, first: false, last: true });
        assert_eq!(window.packets(), 128);
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
            assert_eq!(window.round_trip(), UNMEASURED - 1);
        }
    }
}
