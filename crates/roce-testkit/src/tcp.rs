// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP beside RDMA: a flow with the congestion control of CUBIC where that is as Reno (RFC 9438, section 4.3), and selective
//! acknowledgments. Its segments share the switch's port with the frames of engines; acknowledgments are not delayed.

use std::collections::BTreeMap;
use std::time::Duration;

use roce::Instant;

/// EtherType of the frames, which engines never get.
const ETHER_TYPE: [u8; 2] = [0x88, 0xB5];

/// Bytes of a frame.
const LEN: usize = 1514;

/// Factor of the congestion window after a loss, and its increase in a round trip, in segments.
const DECREASE: f64 = 0.7;
const INCREASE: f64 = 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE);

/// Segments after a missing one that show a loss.
const REORDERED: u64 = 3;

/// Wait without an acknowledgment after which everything is taken for lost: that of a tail loss probe.
const TIMEOUT: Duration = Duration::from_millis(10);

/// Kind of a frame of a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Segment,
    Acknowledgment,
    /// No frame: the flow's timer.
    Timer,
}

/// A flow with data without end.
pub(crate) struct Flow {
    number: u8,
    window: f64,
    threshold: f64,
    next: u64,
    /// Segments in flight, and when they were sent.
    in_flight: BTreeMap<u64, Instant>,
    /// Losses of segments before it are of one event.
    recover: u64,
    heard: Instant,
    /// Bytes of frames that have arrived.
    pub(crate) delivered: u64,
}

impl Flow {
    pub(crate) fn new(number: u8, now: Instant) -> Self {
        Self {
            number,
            window: 10.0,
            threshold: f64::INFINITY,
            next: 0,
            in_flight: BTreeMap::new(),
            recover: 0,
            heard: now,
            delivered: 0,
        }
    }

    /// Returns the segments to send.
    pub(crate) fn send(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while (self.in_flight.len() as f64) < self.window {
            self.in_flight.insert(self.next, now);
            frames.push(frame(Kind::Segment, self.number, self.next));
            self.next += 1;
        }
        frames
    }

    /// Handles the acknowledgment of a segment. Data of lost ones is sent again in new ones.
    pub(crate) fn acknowledge(&mut self, number: u64, now: Instant) {
        self.heard = now;
        if self.in_flight.remove(&number).is_none() {
            return;
        }
        self.delivered += LEN as u64;
        let lost: Vec<_> =
            self.in_flight.range(..number.saturating_sub(REORDERED)).map(|(&number, _)| number).collect();
        if self.lose(&lost) {
            return;
        }
        self.window += if self.window < self.threshold { 1.0 } else { INCREASE / self.window };
    }

    /// Handles the timer. Returns when it is due again.
    pub(crate) fn time_out(&mut self, now: Instant) -> Instant {
        if now.duration_since(self.heard) >= TIMEOUT {
            let all: Vec<_> = self.in_flight.keys().copied().collect();
            self.lose(&all);
            self.heard = now;
        }
        self.heard + TIMEOUT
    }

    fn lose(&mut self, lost: &[u64]) -> bool {
        for number in lost {
            self.in_flight.remove(number);
        }
        let is_event = lost.iter().any(|number| *number >= self.recover);
        if is_event {
            self.window = (self.window * DECREASE).max(2.0);
            self.threshold = self.window;
            self.recover = self.next;
        }
        is_event
    }
}

/// Returns a frame of a flow.
pub(crate) fn frame(kind: Kind, flow: u8, number: u64) -> Vec<u8> {
    let mut frame = vec![0; LEN];
    frame[12..14].copy_from_slice(&ETHER_TYPE);
    (frame[14], frame[15]) = (kind as u8, flow);
    frame[16..24].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns what a frame of a flow is, the number of the flow and that of the segment. `None` for other frames.
pub(crate) fn parse(frame: &[u8]) -> Option<(Kind, u8, u64)> {
    if frame.get(12..14)? != ETHER_TYPE {
        return None;
    }
    let kind = match frame[14] {
        0 => Kind::Segment,
        1 => Kind::Acknowledgment,
        _ => Kind::Timer,
    };
    Some((kind, frame[15], u64::from_be_bytes(frame.get(16..24)?.try_into().ok()?)))
}
