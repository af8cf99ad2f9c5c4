// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts, the link between them, and a clock that steps from one event to the next.

use std::time::Duration;

use fallible::Arc;
use roce::{AcceptSpec, ConnEvent, ConnectSpec, Instant, ListenSpec, Qp, Srq};
use roce_wire::Path;

use crate::link::{Filter, Steering};
use crate::lock::Lock;
use crate::network::{self, Network, Parts};
use crate::options::Options;
use crate::side::{Side, spec};
use crate::switch::PortStats;
use crate::wire::Wire;

/// Two hosts and the link between them.
pub struct TwoHosts {
    /// Side 0 connects, side 1 listens.
    pub sides: [Side; 2],
    /// Virtual time.
    pub now: Instant,
    pub options: Options,
    /// Applied to each frame before the link's faults.
    pub filter: Option<Filter>,
    /// All frames sent, with the sending side. `None` disables capturing.
    pub capture: Option<Vec<(usize, Vec<u8>)>>,
    /// Frames to a side that is cut are dropped.
    pub cut: [bool; 2],
    wire: Wire,
    /// Number of connections made by [`TwoHosts::connect_another`].
    others: u16,
}

/// Port on which side 1 listens.
pub const PORT: u16 = 445;

/// Source port of side 0's first connection.
const LOCAL_PORT: u16 = 50000;

impl TwoHosts {
    /// Creates two hosts that are not connected.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let sides = [Side::new(1, &options), Side::new(2, &options)];
        Self {
            sides,
            now: Instant::from_nanos(1_000_000_000),
            wire: Wire::new(2, options.seed),
            options,
            filter: None,
            capture: None,
            cut: [false; 2],
            others: 0,
        }
    }

    /// Creates two hosts whose queue pairs are connected.
    #[must_use]
    pub fn connected(options: Options) -> Self {
        let mut hosts = Self::new(options);
        hosts.establish();
        hosts
    }

    /// Connects the first queue pairs of both sides.
    pub fn establish(&mut self) {
        self.listen();
        self.connect(b"hello");
        self.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
        self.accept(b"welcome");
        self.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
        self.complete();
        self.run_until("the connection", |hosts| {
            hosts.has_event(1, |e| matches!(e, ConnEvent::Established { .. }))
        });
    }

    /// Lets side 1 listen on [`PORT`].
    pub fn listen(&mut self) {
        let spec = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 16, context: 500 };
        self.sides[1].engine.connections().listen(&spec).unwrap();
    }

    /// Returns the path from one side to the other.
    #[must_use]
    pub fn path(&self, from: usize) -> Path {
        let (local, remote) = (&self.sides[from], &self.sides[1 - from]);
        Path::new(local.mac, remote.mac, local.ip, remote.ip)
    }

    /// Sends a REQ from side 0.
    pub fn connect(&mut self, private_data: &[u8]) {
        let spec = self.connect_spec(LOCAL_PORT, private_data);
        let side = &mut self.sides[0];
        side.conn = Some(side.engine.connections().connect(self.now, &side.qp, &spec).unwrap());
    }

    fn connect_spec<'a>(&self, local_port: u16, private_data: &'a [u8]) -> ConnectSpec<'a> {
        ConnectSpec {
            path: self.path(0),
            local_port,
            remote_port: PORT,
            mtu: self.options.mtu,
            reads: self.options.reads,
            private_data,
            context: 100,
        }
    }

    /// Accepts the connection request at side 1, which sends a REP.
    pub fn accept(&mut self, private_data: &[u8]) {
        let side = &self.sides[1];
        let spec = AcceptSpec { reads: self.options.reads, private_data, context: 200 };
        side.engine.connections().accept(self.now, side.conn.unwrap(), &side.qp, &spec).unwrap();
    }

    /// Completes the connection at side 0, which sends an RTU.
    pub fn complete(&mut self) {
        let side = &self.sides[0];
        side.engine.connections().complete(self.now, side.conn.unwrap()).unwrap();
    }

    /// Connects another queue pair of each side. Both use their side's completion queue and have the context
    /// `context`.
    pub fn connect_another(&mut self, context: u64) -> [Arc<Qp<Lock>>; 2] {
        self.others += 1;
        let conns = self.sides.each_ref().map(|side| side.conn);
        let qps = self.sides.each_ref().map(|side| {
            let spec = roce::QpSpec { context, ..spec(side.pd, &side.cq, &self.options) };
            side.engine.create_qp(spec).unwrap()
        });
        let seen = self.sides.each_ref().map(|side| side.conn_events.len());
        let has_new_event = |hosts: &Self, side: usize, is: fn(&ConnEvent) -> bool| {
            hosts.sides[side].conn_events[seen[side]..].iter().any(|(_, _, event)| is(event))
        };
        let spec = self.connect_spec(LOCAL_PORT + self.others, b"another");
        let client = self.sides[0].engine.connections().connect(self.now, &qps[0], &spec).unwrap();
        self.run_until("another request", |hosts| {
            has_new_event(hosts, 1, |e| matches!(e, ConnEvent::Request(_)))
        });
        let accept = AcceptSpec { reads: self.options.reads, private_data: b"", context: 200 };
        let side = &self.sides[1];
        side.engine.connections().accept(self.now, side.conn.unwrap(), &qps[1], &accept).unwrap();
        self.run_until("another reply", |hosts| {
            has_new_event(hosts, 0, |e| matches!(e, ConnEvent::Replied { .. }))
        });
        self.sides[0].engine.connections().complete(self.now, client).unwrap();
        self.run_until("another connection", |hosts| {
            has_new_event(hosts, 1, |e| matches!(e, ConnEvent::Established { .. }))
        });
        for (side, conn) in self.sides.iter_mut().zip(conns) {
            side.conn = conn;
        }
        qps
    }

    /// Returns whether a side has received a connection event that `is` accepts.
    pub fn has_event(&self, side: usize, is: impl Fn(&ConnEvent) -> bool) -> bool {
        self.sides[side].conn_events.iter().any(|(_, _, event)| is(event))
    }

    /// Stops a side without notice to its peer. Frames in flight still arrive.
    pub fn kill(&mut self, side: usize) {
        self.wire.kill(side);
    }

    /// Runs until no event is left or no frame was in flight for 20 s.
    pub fn run(&mut self) {
        let quiet_limit = Duration::from_secs(20);
        let mut quiet_since = self.now;
        loop {
            self.drive();
            if !self.wire.link.is_quiet() {
                quiet_since = self.now;
            }
            if !self.wire.step(&self.sides, &mut self.now, &self.options)
                || self.now.duration_since(quiet_since) > quiet_limit
            {
                return;
            }
        }
    }

    /// Runs until `done` returns true.
    ///
    /// # Panics
    /// Panics if that takes longer than 300 s of virtual time.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        network::run_until(self, what, done);
    }

    /// Runs until `done` returns true, for at most `time`. Returns whether `done` did.
    pub fn run_within(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        network::run_within(self, time, done)
    }

    /// Runs for `time`.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_within(time, |_| false);
        self.now = end;
    }

    /// Transmits and takes events on both sides, as a driver does after any input.
    pub fn drive(&mut self) {
        network::drive(self);
    }

    /// Takes the pending events of one side's engine.
    pub fn take_events(&mut self, side: usize) {
        self.sides[side].take_events();
    }

    /// Delivers a frame to side `to` at time `at`, from any source.
    pub fn deliver(&mut self, to: usize, at: Instant, frame: Vec<u8>) {
        self.wire.link.deliver(to, at, frame);
    }

    /// Lets `steering` decide by which shard of its engine each frame arrives. Until then it is the first one.
    pub fn steer(&mut self, steering: Steering) {
        self.wire.steering = Some(steering);
    }

    /// Returns what the switch's port to a side did since the last call.
    pub fn take_port_stats(&mut self, to: usize) -> PortStats {
        self.wire.link.take_port_stats(to)
    }

    /// Returns the next number of the run's generator.
    pub fn random(&mut self) -> u64 {
        self.wire.link.random()
    }
}

impl Network for TwoHosts {
    fn parts(&mut self) -> Parts<'_> {
        let Self { sides, wire, now, options, .. } = self;
        Parts { sides, wire, now, options }
    }

    fn send(&mut self, from: usize, mut frame: Vec<u8>) {
        if let Some(capture) = &mut self.capture {
            capture.push((from, frame.clone()));
        }
        if frame.starts_with(&self.sides[from].mac.0) {
            // A frame to the sender's own MAC address is looped back.
            self.wire.link.deliver(from, self.now + self.options.latency, frame);
            return;
        }
        let to = 1 - from;
        if let Some(filter) = &mut self.filter
            && !filter(to, &mut frame)
        {
            return;
        }
        if !self.cut[to] {
            self.wire.link.send(from, to, self.now, frame, &self.options);
        }
    }
}

/// Replaces a side's queue pair by one that receives from `srq`.
pub fn with_srq(hosts: &mut TwoHosts, side: usize, srq: &Arc<Srq<Lock>>) {
    let options = hosts.options.clone();
    let side = &mut hosts.sides[side];
    let mut spec = spec(side.pd, &side.cq, &options);
    spec.srq = Some(srq.clone());
    side.qp = side.engine.create_qp(spec).unwrap();
}
