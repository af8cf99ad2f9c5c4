// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of the hosts and of the network between them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roce::{Config, ReadLimits};
use roce_wire::PathMtu;

/// Configuration of a [`crate::TwoHosts`] or an [`crate::Incast`]. Probabilities are per frame, in 1/1000.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all randomness, including the engines' random numbers.
    pub seed: u64,
    pub mtu: PathMtu,
    /// One-way latency, counted from the departure of a frame's last bit. With a switch, half of it is before the
    /// switch and half behind it.
    pub latency: Duration,
    /// Latency between each host, counted from 0, and the switch besides `latency`.
    pub farther: fn(usize) -> Duration,
    /// Bits per second at which each host sends; `None` for an unlimited rate.
    pub rate: Option<u64>,
    /// Slots of each host's transmit queue. Without a rate the queue never fills.
    pub slots: usize,
    /// The switch between the hosts; `None` for a cable.
    pub switch: Option<Switch>,
    /// Probability that a frame is dropped.
    pub loss: u32,
    /// Losses in bursts, besides `loss`.
    pub bursts: Option<Bursts>,
    /// Probability that a frame arrives twice.
    pub duplication: u32,
    /// Probability that a frame is delayed by up to three further latencies.
    pub reordering: u32,
    /// Probability that one bit of a frame is flipped.
    pub corruption: u32,
    /// Probability that an ECN-capable frame is marked CE.
    pub marks: u32,
    /// Sides whose incoming frames are subject to the faults above, from `loss` on.
    pub faults_to: [bool; 2],
    /// Resolution of the hosts' timers: they expire at multiples of it, counted from a time that differs from host to
    /// host. `None` for exact timers.
    pub timer_tick: Option<Duration>,
    /// Sides that keep packets that arrive after a gap. Others drop them, as a responder of the specification does.
    pub keeps_packets: [bool; 2],
    pub reads: ReadLimits,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub cq_depth: u32,
    pub config: fn(&mut Config),
    /// Address of host 1, host 2 and so on.
    pub ip: fn(u8) -> IpAddr,
}

/// Losses in bursts: the model of Gilbert and Elliott. Before each frame of a direction, a burst may begin or end;
/// it ends, too, when the line is idle for 200 us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Probability that a burst begins, in 1/1,000,000.
    pub begin: u32,
    /// Probability that a burst ends, in 1/1,000,000.
    pub end: u32,
    /// Probability that a frame is dropped during a burst, in 1/1000.
    pub loss: u32,
}

/// A switch with one port per host. A frame waits in the queue of its receiver's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Bits per second of each port.
    pub rate: u64,
    /// Bytes that the queue of a port holds. A frame that does not fit is dropped (tail drop).
    pub queue: usize,
    /// ECN marking by queue length.
    pub marking: Option<Marking>,
}

/// ECN marking of a switch (random early detection): the probability rises linearly with the length of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes in the queue up to which no frame is marked.
    pub min: usize,
    /// Bytes in the queue from which each ECN-capable frame is marked.
    pub max: usize,
    /// Probability just below `max`, in 1/1000.
    pub most: u32,
}

impl Bursts {
    /// Returns bursts of `mean` frames on average, all of which are lost, that drop `loss`/1000 of the frames.
    ///
    /// # Panics
    /// Panics unless `loss` is below 1000 and `mean` is at least 1.
    #[must_use]
    pub fn of_mean(mean: u32, loss: u32) -> Self {
        assert!(loss < 1000 && mean > 0, "{loss}/1000 lost in bursts of {mean}");
        let end = 1_000_000 / mean;
        // The share of frames in a burst is begin / (begin + end).
        let begin = u64::from(end) * u64::from(loss) / u64::from(1000 - loss);
        Self { begin: begin as u32, end, loss: 1000 }
    }
}

impl Marking {
    /// Returns marking of each frame that finds `bytes` bytes or more in the queue.
    #[must_use]
    pub const fn above(bytes: usize) -> Self {
        Self { min: bytes, max: bytes, most: 1000 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            mtu: PathMtu::Bytes1024,
            latency: Duration::from_micros(50),
            farther: |_| Duration::ZERO,
            rate: None,
            slots: 256,
            switch: None,
            loss: 0,
            bursts: None,
            duplication: 0,
            reordering: 0,
            corruption: 0,
            marks: 0,
            faults_to: [true; 2],
            timer_tick: None,
            keeps_packets: [true; 2],
            reads: ReadLimits { inbound: 4, outbound: 4 },
            send_depth: 64,
            recv_depth: 64,
            cq_depth: 256,
            config: |_| {},
            ip: |number| IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
        }
    }
}
