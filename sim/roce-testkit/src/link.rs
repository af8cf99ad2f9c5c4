// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtual link between two hosts: transmit queues, rate, latency and injected faults.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roce::{Config, Instant, ReadLimits, Transmit};
use roce_wire::PathMtu;

/// Configuration of a [`crate::Pair`]. Probabilities are per frame, in 1/1000.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all randomness, including the engines' random numbers.
    pub seed: u64,
    pub mtu: PathMtu,
    /// One-way latency, counted from the departure of a frame's last bit.
    pub latency: Duration,
    /// Bits per second in each direction; `None` for an unlimited rate.
    pub rate: Option<u64>,
    /// Slots of each port's transmit queue. Without a rate the queue never fills.
    pub slots: usize,
    /// Probability that a frame is dropped.
    pub loss: u32,
    /// Probability that a frame arrives twice.
    pub duplication: u32,
    /// Probability that a frame is delayed by up to three further latencies.
    pub reordering: u32,
    /// Probability that one bit of a frame is flipped.
    pub corruption: u32,
    /// Probability that an ECN-capable frame is marked CE.
    pub marks: u32,
    /// Transmit queue length from which ECN-capable frames are marked CE.
    pub mark_above: Option<usize>,
    /// Sides whose incoming frames are subject to these faults.
    pub faults_to: [bool; 2],
    pub reads: ReadLimits,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub cq_depth: u32,
    pub config: fn(&mut Config),
    /// Address of host 1 and of host 2.
    pub ip: fn(u8) -> IpAddr,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            mtu: PathMtu::Bytes1024,
            latency: Duration::from_micros(50),
            rate: None,
            slots: 256,
            loss: 0,
            duplication: 0,
            reordering: 0,
            corruption: 0,
            marks: 0,
            mark_above: None,
            faults_to: [true; 2],
            reads: ReadLimits { inbound: 4, outbound: 4 },
            send_depth: 64,
            recv_depth: 64,
            cq_depth: 256,
            config: |_| {},
            ip: |number| IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
        }
    }
}

/// Filter of frames: gets the receiving side and the frame, which it may change; `false` drops the frame.
pub type Filter = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;

/// A frame in flight.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InFlight {
    pub(crate) at: Instant,
    number: u64,
    /// 0 or 1.
    pub(crate) to: usize,
    pub(crate) frame: Vec<u8>,
}

/// Both directions of the link.
pub(crate) struct Link {
    ports: [Port; 2],
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sent: u64,
    /// A frame was corrupted: engines may report any verdict from here on.
    pub(crate) has_corrupted: bool,
    random: u64,
}

/// One side's transmit queue.
#[derive(Default)]
struct Port {
    /// Departure times of the queued frames, oldest first.
    departures: VecDeque<Instant>,
}

/// Ethernet overhead per frame in bytes: preamble, frame check sequence, interframe gap.
const FRAMING: u64 = 8 + 4 + 12;

/// Minimum Ethernet frame length in bytes, without the frame check sequence.
const SHORTEST: u64 = 60;

impl Link {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            ports: Default::default(),
            in_flight: BinaryHeap::new(),
            sent: 0,
            has_corrupted: false,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the arrival time of the next frame.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(frame)| frame.at)
    }

    /// Takes the next frame that has arrived by `now`.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<InFlight> {
        if self.next_arrival()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse(frame)| frame)
    }

    /// Returns the number of free slots in a side's transmit queue.
    pub(crate) fn free(&mut self, side: usize, now: Instant, options: &Options) -> usize {
        let departures = &mut self.ports[side].departures;
        while departures.front().is_some_and(|at| *at <= now) {
            departures.pop_front();
        }
        options.slots.saturating_sub(departures.len())
    }

    /// Returns when a slot of a side's transmit queue becomes free, if all are in use.
    pub(crate) fn next_free(&self, side: usize, options: &Options) -> Option<Instant> {
        let departures = &self.ports[side].departures;
        departures.front().filter(|_| departures.len() >= options.slots).copied()
    }

    /// Sends a frame when the link is idle, subject to the faults in `options`.
    pub(crate) fn send(&mut self, from: usize, now: Instant, mut frame: Vec<u8>, options: &Options) {
        let departures = &mut self.ports[from].departures;
        let waiting = departures.len();
        let mut departure = now;
        if let Some(rate) = options.rate {
            let bits = ((frame.len() as u64).max(SHORTEST) + FRAMING) * 8;
            let time = Duration::from_nanos(bits * 1_000_000_000 / rate);
            departure = departures.back().copied().unwrap_or(now).max(now) + time;
            departures.push_back(departure);
        }
        let to = 1 - from;
        let faults = options.faults_to[to];
        if faults && self.chance(options.loss) {
            return;
        }
        if faults && self.chance(options.corruption) {
            let bit = self.random() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            self.has_corrupted = true;
        }
        if options.mark_above.is_some_and(|above| waiting >= above) || faults && self.chance(options.marks) {
            mark(&mut frame);
        }
        let copies = 1 + usize::from(faults && self.chance(options.duplication));
        for _ in 0..copies {
            let extra = if faults && self.chance(options.reordering) { self.random() % 3000 } else { 0 };
            let latency = options.latency + options.latency * extra as u32 / 1000;
            self.deliver(to, departure + latency, frame.clone());
        }
    }

    pub(crate) fn deliver(&mut self, to: usize, at: Instant, frame: Vec<u8>) {
        self.sent += 1;
        self.in_flight.push(Reverse(InFlight { at, number: self.sent, to, frame }));
    }

    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random() % 1000 < u64::from(per_mille)
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }
}

/// Marks an ECN-capable frame CE, as a congested switch does (RFC 3168).
fn mark(frame: &mut [u8]) {
    const ETHERNET: usize = 14;
    const NOT_CAPABLE: u8 = 0;
    const EXPERIENCED: u8 = 0b11;
    match (frame.get(12..ETHERNET), frame.get(ETHERNET + 1).copied()) {
        (Some([0x08, 0x00]), Some(class)) if class & EXPERIENCED != NOT_CAPABLE => {
            frame[ETHERNET + 1] |= EXPERIENCED;
            // The IPv4 header checksum covers the mark: subtract the difference in ones' complement.
            let added = u16::from(frame[ETHERNET + 1] - class);
            let Some(Ok(sum)) = frame.get(ETHERNET + 10..ETHERNET + 12).map(<[u8; 2]>::try_from) else {
                return;
            };
            let (less, borrow) = u16::from_be_bytes(sum).overflowing_sub(added);
            frame[ETHERNET + 10..ETHERNET + 12]
                .copy_from_slice(&(less.wrapping_sub(u16::from(borrow))).to_be_bytes());
        }
        // Bits 5-4 of the second byte are the low bits of the traffic class.
        (Some([0x86, 0xDD]), Some(byte)) if byte >> 4 & EXPERIENCED != NOT_CAPABLE => {
            frame[ETHERNET + 1] |= EXPERIENCED << 4;
        }
        _ => {}
    }
}

/// Transmit queue of one `poll_transmit` call.
pub(crate) struct Slots<'a> {
    pub(crate) slot: &'a mut [u8],
    pub(crate) free: usize,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Transmit for Slots<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.frames.len() < self.free).then_some(&mut *self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce_wire::{Ext, Headers, MacAddr, Opcode, Packet, Path, Psn, Qpn, Template};
    use std::net::IpAddr;

    fn frame(local: IpAddr, remote: IpAddr, traffic_class: u8) -> Vec<u8> {
        let path = Path { traffic_class, ..Path::new(MacAddr([2; 6]), MacAddr([4; 6]), local, remote) };
        let headers = Headers {
            opcode: Opcode::SEND_ONLY,
            solicited: false,
            ack_req: true,
            psn: Psn::new(7),
            ext: Ext::None,
        };
        let template = Template::new(&path, Qpn::new(0x1234)).unwrap();
        let mut slot = vec![0; 200];
        let mut frame = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 4).unwrap();
        frame.write(b"data");
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    //= rocev2 §14
    #[test]
    fn a_ce_mark_keeps_the_frame_valid_and_only_ecn_capable_frames_are_marked() {
        let v4 = |n| IpAddr::from([10, 0, 0, n]);
        let v6 = |n| IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, n]);
        for (local, remote) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            for class in [0x68, 0x69, 0x6A, 0xFE] {
                let mut frame = frame(local, remote, class);
                mark(&mut frame);
                let packet = Packet::parse(&frame).unwrap();
                assert!(packet.icrc_valid(roce_wire::icrc::Crc::table()));
                assert_eq!(packet.congestion_experienced(), class & 3 != 0, "{class:#x}");
            }
        }
    }

    #[test]
    fn a_rate_limited_link_delays_frames_and_fills_the_transmit_queue() {
        let options = Options { rate: Some(8_000_000_000), slots: 4, ..Options::default() };
        let mut link = Link::new(1);
        let now = Instant::from_nanos(0);
        for _ in 0..4 {
            assert!(link.free(0, now, &options) > 0);
            link.send(0, now, vec![0; 1000 - FRAMING as usize], &options);
        }
        assert_eq!(link.free(0, now, &options), 0);
        // At 8 Gb/s, a byte takes a nanosecond.
        assert_eq!(link.next_free(0, &options), Some(Instant::from_nanos(1000)));
        assert_eq!(link.free(0, Instant::from_nanos(2500), &options), 2);
        assert_eq!(link.next_free(0, &options), None);
        let arrivals: Vec<_> = std::iter::from_fn(|| link.arrived(Instant::from_nanos(1 << 40)))
            .map(|frame| frame.at.as_nanos())
            .collect();
        assert_eq!(arrivals, [51_000, 52_000, 53_000, 54_000]);
    }
}
