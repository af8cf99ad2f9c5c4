// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network between the hosts: transmit queues, rate, latency, injected faults, and a switch.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use roce::{Instant, Transmit};

use crate::ecn::mark;
use crate::options::{Bursts, Options};
use crate::random::Random;
use crate::switch::{self, PortStats, transmit_time};
use crate::tcp::{self, Flow, Kind};

/// Filter of frames: gets the receiving side and the frame, which it may change; `false` drops the frame.
pub type Filter = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;

/// Steering of received frames: gets the receiving side and the frame, returns the number of a shard.
pub type Steering = Box<dyn FnMut(usize, &[u8]) -> u32>;

/// A frame in flight.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InFlight {
    pub(crate) at: Instant,
    number: u64,
    /// The receiving host, from 0.
    pub(crate) to: usize,
    /// It arrives at the switch.
    at_switch: bool,
    pub(crate) frame: Vec<u8>,
}

/// All cables, and the switch.
pub(crate) struct Link {
    /// By the sending host.
    ports: Vec<Port>,
    /// Ports of the switch, by the receiving host.
    switch: Vec<switch::Port>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    /// TCP to host 0, from hosts without an engine.
    flows: Vec<Flow>,
    sent: u64,
    /// A frame was corrupted: engines may report any verdict from here on.
    pub(crate) has_corrupted: bool,
    random: Random,
}

/// One host's transmit queue and cable.
#[derive(Default)]
struct Port {
    /// Departure times of the queued frames, oldest first.
    departures: VecDeque<Instant>,
    /// A burst of losses has begun.
    in_burst: bool,
    /// Departure of the last frame.
    last: Instant,
}

/// A line that is idle for so long ends a burst of losses.
const BURST_PAUSE: Duration = Duration::from_micros(200);

impl Link {
    pub(crate) fn new(hosts: usize, seed: u64) -> Self {
        Self {
            ports: (0..hosts).map(|_| Port::default()).collect(),
            switch: (0..hosts).map(|_| switch::Port::default()).collect(),
            in_flight: BinaryHeap::new(),
            flows: Vec::new(),
            sent: 0,
            has_corrupted: false,
            random: Random::new(seed),
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the arrival time of the next frame, at a host or at the switch.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(frame)| frame.at)
    }

    /// Takes the next frame that has arrived at a host by `now`.
    pub(crate) fn arrived(&mut self, now: Instant, options: &Options) -> Option<InFlight> {
        while self.next_arrival()? <= now {
            let Reverse(frame) = self.in_flight.pop()?;
            if frame.at_switch {
                self.forward(frame, options);
            } else if let Some((kind, flow, number)) = tcp::parse(&frame.frame) {
                self.handle_tcp(kind, flow, number, frame.at, options);
            } else {
                return Some(frame);
            }
        }
        None
    }

    /// Begins a TCP flow to host 0.
    pub(crate) fn begin_tcp(&mut self, now: Instant) {
        let number = self.flows.len() as u8;
        self.flows.push(Flow::new(number, now));
        self.ports.push(Port::default());
        self.deliver(0, now, tcp::frame(Kind::Timer, number, 0));
    }

    /// Returns the bytes that arrived by TCP.
    pub(crate) fn tcp_delivered(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.delivered).collect()
    }

    fn handle_tcp(&mut self, kind: Kind, number: u8, segment: u64, now: Instant, options: &Options) {
        let hosts = self.switch.len();
        let flow = &mut self.flows[usize::from(number)];
        match kind {
            Kind::Segment => {
                let acknowledgment = tcp::frame(Kind::Acknowledgment, number, segment);
                return self.deliver(0, now + options.latency, acknowledgment);
            }
            Kind::Acknowledgment => flow.acknowledge(segment, now),
            Kind::Timer => {
                let due = flow.time_out(now);
                let timer = tcp::frame(Kind::Timer, number, 0);
                self.push(0, due.max(now + Duration::from_micros(1)), false, timer);
            }
        }
        for frame in self.flows[usize::from(number)].send(now) {
            self.send(hosts + usize::from(number), 0, now, frame, options);
        }
    }

    /// Forwards a frame that has arrived at the switch.
    fn forward(&mut self, InFlight { at, to, mut frame, .. }: InFlight, options: &Options) {
        let Some(switch) = &options.switch else { return };
        if let Some(departure) = self.switch[to].forward(at, &mut frame, switch, &mut self.random) {
            self.deliver(to, departure + options.latency / 2 + (options.farther)(to), frame);
        }
    }

    /// Returns what the switch's port to a host did since the last call.
    pub(crate) fn take_port_stats(&mut self, to: usize) -> PortStats {
        std::mem::take(&mut self.switch[to].stats)
    }

    /// Returns the number of free slots in a host's transmit queue.
    pub(crate) fn free(&mut self, host: usize, now: Instant, options: &Options) -> usize {
        let departures = &mut self.ports[host].departures;
        while departures.front().is_some_and(|at| *at <= now) {
            departures.pop_front();
        }
        options.slots.saturating_sub(departures.len())
    }

    /// Returns when a slot of a host's transmit queue becomes free, if all are in use.
    pub(crate) fn next_free(&self, host: usize, options: &Options) -> Option<Instant> {
        let departures = &self.ports[host].departures;
        departures.front().filter(|_| departures.len() >= options.slots).copied()
    }

    /// Sends a frame when the cable is idle, subject to the faults in `options`.
    pub(crate) fn send(
        &mut self,
        from: usize,
        to: usize,
        now: Instant,
        mut frame: Vec<u8>,
        options: &Options,
    ) {
        let mut departure = now;
        if let Some(rate) = options.rate {
            let departures = &mut self.ports[from].departures;
            departure = departures.back().copied().unwrap_or(now).max(now) + transmit_time(frame.len(), rate);
            departures.push_back(departure);
        }
        let faults = options.faults_to.get(to).copied().unwrap_or(true);
        if faults
            && (self.random.chance(options.loss, 1000)
                || self.is_lost_in_burst(from, departure, options.bursts))
        {
            return;
        }
        if faults && self.random.chance(options.corruption, 1000) {
            let bit = self.random.next() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            self.has_corrupted = true;
        }
        if faults && self.random.chance(options.marks, 1000) {
            mark(&mut frame);
        }
        let copies = 1 + usize::from(faults && self.random.chance(options.duplication, 1000));
        for _ in 0..copies {
            let reordered = faults && self.random.chance(options.reordering, 1000);
            let extra = if reordered { self.random.next() % 3000 } else { 0 };
            let late = options.latency * extra as u32 / 1000;
            if options.switch.is_some() {
                let latency = options.latency / 2 + (options.farther)(from);
                self.push(to, departure + latency + late, true, frame.clone());
            } else {
                self.push(to, departure + options.latency + late, false, frame.clone());
            }
        }
    }

    /// Begins or ends a burst of losses in the frames of a host. Returns whether the next frame is lost in one.
    fn is_lost_in_burst(&mut self, from: usize, departure: Instant, bursts: Option<Bursts>) -> bool {
        const MILLION: u32 = 1_000_000;
        let port = &mut self.ports[from];
        let Some(bursts) = bursts else {
            port.in_burst = false;
            return false;
        };
        let idle = departure.duration_since(std::mem::replace(&mut port.last, departure));
        port.in_burst &= idle < BURST_PAUSE;
        let change = if port.in_burst { bursts.end } else { bursts.begin };
        port.in_burst ^= self.random.chance(change, MILLION);
        port.in_burst && self.random.chance(bursts.loss, 1000)
    }

    /// Delivers a frame to a host at time `at`.
    pub(crate) fn deliver(&mut self, to: usize, at: Instant, frame: Vec<u8>) {
        self.push(to, at, false, frame);
    }

    fn push(&mut self, to: usize, at: Instant, at_switch: bool, frame: Vec<u8>) {
        self.sent += 1;
        self.in_flight.push(Reverse(InFlight { at, number: self.sent, to, at_switch, frame }));
    }

    /// Returns the next number of the run's generator.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
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
    use crate::options::Switch;
    use crate::switch::FRAMING;

    /// A frame that takes 1000 bytes of the cable's time.
    const LEN: usize = 1000 - FRAMING as usize;

    fn arrivals(link: &mut Link, options: &Options) -> Vec<u64> {
        std::iter::from_fn(|| link.arrived(Instant::from_nanos(1 << 40), options))
            .map(|frame| frame.at.as_nanos())
            .collect()
    }

    #[test]
    fn a_rate_limited_link_delays_frames_and_fills_the_transmit_queue() {
        let options = Options { rate: Some(8_000_000_000), slots: 4, ..Options::default() };
        let mut link = Link::new(2, 1);
        let now = Instant::from_nanos(0);
        for _ in 0..4 {
            assert!(link.free(0, now, &options) > 0);
            link.send(0, 1, now, vec![0; LEN], &options);
        }
        assert_eq!(link.free(0, now, &options), 0);
        // At 8 Gb/s, a byte takes a nanosecond.
        assert_eq!(link.next_free(0, &options), Some(Instant::from_nanos(1000)));
        assert_eq!(link.free(0, Instant::from_nanos(2500), &options), 2);
        assert_eq!(link.next_free(0, &options), None);
        assert_eq!(arrivals(&mut link, &options), [51_000, 52_000, 53_000, 54_000]);
    }

    #[test]
    fn frames_of_several_hosts_wait_for_the_receivers_port_of_the_switch() {
        let switch = Switch { rate: 4_000_000_000, queue: 2 * LEN, marking: None };
        let options = Options { rate: Some(8_000_000_000), switch: Some(switch), ..Options::default() };
        let mut link = Link::new(4, 1);
        for from in [1, 2, 3] {
            link.send(from, 0, Instant::from_nanos(0), vec![0; LEN], &options);
        }
        link.send(0, 1, Instant::from_nanos(100), vec![0; LEN], &options);
        // 25 us to the switch and from it, 1 us for the cable and 2 us for the port; the third frame does not fit.
        assert_eq!(arrivals(&mut link, &options), [53_000, 53_100, 55_000]);
        assert_eq!(link.take_port_stats(0), PortStats { frames: 2, dropped: 1, marked: 0, longest: 2 * LEN });
        assert_eq!(link.take_port_stats(1).frames, 1);
    }

    /// Sends `count` frames and returns the lengths of the runs that are lost.
    fn lost_runs(count: u64, options: &Options) -> Vec<u64> {
        let mut link = Link::new(2, 3);
        let (mut runs, mut run, mut before) = (Vec::new(), 0, 0);
        for number in 0..count {
            link.send(0, 1, Instant::from_nanos(number), vec![0; 60], options);
            let arrived = link.in_flight.len();
            if arrived == before {
                run += 1;
            } else if run > 0 {
                runs.push(std::mem::take(&mut run));
            }
            before = arrived;
        }
        runs
    }

    #[test]
    fn bursts_have_the_configured_share_and_length() {
        for (mean, loss) in [(1, 10), (4, 10), (8, 50)] {
            let options = Options { bursts: Some(Bursts::of_mean(mean, loss)), ..Options::default() };
            let count = 400_000;
            let runs = lost_runs(count, &options);
            let lost: u64 = runs.iter().sum();
            let share = lost as f64 * 1000.0 / count as f64;
            let length = lost as f64 / runs.len() as f64;
            assert!((share / f64::from(loss) - 1.0).abs() < 0.05, "{mean}, {loss}: {share}");
            // Bursts of one frame on average are next to each other at times.
            assert!((length / f64::from(mean) - 1.0).abs() < 0.08, "{mean}, {loss}: {length}");
        }
        assert!(lost_runs(1000, &Options::default()).is_empty());
    }
}
