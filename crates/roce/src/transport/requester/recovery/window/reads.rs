// SPDX-License-Identifier: MIT OR Apache-2.0

//! The window of a requester of READs: what is requested at once, and what their responses tell.

use super::{Window, is_queue};
use crate::transport::requester::recovery::round_trip::Measured;

/// With as many READs granted, the window is requested in as many chunks, and the next one is always on its way.
pub(crate) const MANY_READS: u32 = 4;

/// Packets of a chunk of a READ: with many READs granted, no more than this, so that little is requested again after a loss; and no fewer
/// than this while the window is larger.
const MOST_OF_MANY: u64 = 256;
const FEWEST: u64 = 64;

impl Window {
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
    pub(super) fn with_chunks(&self) -> u64 {
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
}

#[cfg(test)]
mod tests {
    use super::super::tests::MICROSECOND;
    use super::*;

    /// Responses behind a gap are no longer in flight.
    #[test]
    fn what_has_arrived_behind_a_gap_makes_room() {
        let window = Window::new(128, 400);
        for (stored, reads, packets) in [(0, 192, 128), (100, 292, 228), (1000, 400, 400)] {
            assert_eq!((window.of_reads(16, stored), window.reaching_over(stored)), (reads, packets));
        }
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
}
