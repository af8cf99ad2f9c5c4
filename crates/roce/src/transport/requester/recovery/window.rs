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

/// Parts of the window by which it falls with the first, second and third loss of a flight: to 3/4, 1/2 and 1/3 of it.
const CUTS: [u64; 3] = [4, 3, 3];

/// A round trip with a queue has this many halves of the one without. A window of twice the bandwidth-delay product makes it two by itself.
const QUEUED: u64 = 5;

/// While the least is this part of the usual one or less, no more packets are sent during a repair than else.
const FEW: u64 = 16;

/// Round trips in which the least rises by a packet.
const PATIENCE: u8 = 4;

/// Packets that a sender may keep when it is drained: those that have more fill the port.
const SHARE: u64 = 8;

/// Round trips with a queue, in one of which the window is drained.
const DRAIN: u8 = 32;

/// With as many READs granted, the window is requested in as many chunks, and the next one is always on its way.
pub(crate) const MANY_READS: u32 = 4;

/// Packets of a chunk of a READ: with many READs granted, no more than this, so that little is requested again after a loss; and no fewer
/// than this while the window is larger.
const MOST_OF_MANY: u64 = 256;
const FEWEST: u64 = 64;

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

    /// Returns how many packets may be unacknowledged with the responses of a READ request, of which `granted` may be outstanding.
    /// It begins below [`Window::packets`]. Of those, `stored` have arrived behind missing ones.
    #[inline]
    pub(crate) fn of_reads(&self, granted: u32, stored: u64) -> u64 {
        let usual = self.with_chunks();
        let usual = if granted == 2 {
            usual.max(self.chunk(granted).saturating_mul(2)).min(self.limit)
        } else {
            usual
        };
        usual.saturating_add(stored).min(self.limit)
    }

    /// Returns how many packets may be unacknowledged of which `stored` have arrived behind missing ones: those are not in flight.
    pub(crate) fn reaching_over(&self, stored: u64) -> u64 {
        self.packets.saturating_add(stored).min(self.limit)
    }

    /// Returns how many packets may be unacknowledged that are requested in chunks: as the window is used in steps, more than
    /// the least one, so that it can rise.
    #[inline]
    fn with_chunks(&self) -> u64 {
        // Less than the least: it is drained.
        if self.packets < self.least {
            return self.packets;
        }
        self.packets.max(self.least.saturating_add(self.least / 2).min(self.limit))
    }

    /// Returns how many packets of a READ are requested at once, of a peer that has `granted` as many READs. With [`MANY_READS`], a
    /// quarter of the window. With fewer, the path is empty for the part of a round trip in which a request travels: each is for so much
    /// that this part is small.
    pub(crate) fn chunk(&self, granted: u32) -> u64 {
        // Not less while it is drained: it is that of a whole READ.
        let packets = self.packets.max(self.least);
        let chunk = match granted {
            // A round trip for eleven bandwidth-delay products.
            0 | 1 => packets.saturating_mul(6),
            // One and a half while the other is answered.
            2 => packets.saturating_mul(3) / 4,
            3 => packets / 3,
            granted => {
                let quarter = (packets / 4).min(MOST_OF_MANY);
                // A power of two, so that a little more or less of a window does not make more chunks.
                let quarter = 1u64.checked_shl(quarter.checked_ilog2().unwrap_or(0)).unwrap_or(1);
                quarter.max(packets.div_ceil(u64::from(granted)))
            }
        };
        // Others wait for room in the port.
        let part = if self.is_low() && granted >= MANY_READS { 4 } else { 1 };
        chunk.max(FEWEST.min(packets.saturating_mul(2) / 3 / part)).min(self.limit).max(1)
    }

    /// Returns how many may be unacknowledged while a loss is repaired: twice as many, if as many may be. Not more than else where a port
    /// holds few of them.
    pub(crate) fn extended(&self) -> u64 {
        if self.least.saturating_mul(FEW) <= u64::from(self.usual) {
            return self.packets;
        }
        self.packets.saturating_mul(2).min(self.limit).max(self.least)
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

    /// Adapts to responses of a READ.
    #[inline(never)]
    pub(crate) fn measure_responses(&mut self, measured: Measured) {
        let Measured { received, took, first, last } = measured;
        if first {
            self.latest = took;
            self.rise();
            self.measure_round_trip(received, took);
        }
        if last && !self.is_unmeasured() {
            // With few READs granted, the last response comes after all of a long request, which is no queue.
            let is_queued = first && is_queue(took, self.base);
            if self.packets < self.least {
                // It was drained for a round trip.
                self.packets = self.least;
            } else if received > self.packets / 2 || is_queued {
                // However few are requested: responses to others wait behind them.
                self.follow(received, took, is_queued);
            }
        }
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

/// Returns whether a round trip of `took` nanoseconds has a queue. Without, it takes `base`.
const fn is_queue(took: u64, base: u64) -> bool {
    took.saturating_mul(2) >= base.saturating_mul(QUEUED)
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

    /// Responses behind a gap are no longer in flight.
    #[test]
    fn what_has_arrived_behind_a_gap_makes_room() {
        let window = Window::new(128, 400);
        for (stored, reads, packets) in [(0, 192, 128), (100, 292, 228), (1000, 400, 400)] {
            assert_eq!((window.of_reads(16, stored), window.reaching_over(stored)), (reads, packets));
        }
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

    /// A quarter of the window with many READs granted, more with few.
    #[test]
    fn few_granted_reads_have_long_chunks() {
        let chunk = |packets, granted| {
            let window = Window { packets, least: packets.min(128), ..Window::new(128, 8192) };
            let chunk = window.chunk(granted);
            let in_flight = chunk * u64::from(granted.min(4));
            assert!(
                granted > 3 || in_flight <= window.of_reads(granted, 0).max(chunk),
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
            assert_eq!(window.round_trip(), 0);
        }
    }
}
