// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts, the link between them, and a clock that steps from one event to the next.

use std::time::Duration;

use fallible::Arc;
use roce::{AcceptSpec, ConnEvent, ConnectSpec, Instant, ListenSpec, Qp, Srq, Verdict};
use roce_wire::{Packet, Path};

use crate::link::{Filter, Link, Options, Slots};
use crate::side::{Lock, Side, spec};

pub struct Pair {
    pub sides: [Side; 2],
    pub now: Instant,
    pub options: Options,
    pub filter: Option<Filter>,
    /// Every frame that was sent, with its sender, as long as that is wanted.
    pub capture: Option<Vec<(usize, Vec<u8>)>>,
    /// Frames to such a side do not arrive.
    pub cut: [bool; 2],
    /// Such a side has died: it does nothing any more.
    dead: [bool; 2],
    link: Link,
    slot: Box<[u8]>,
    /// Pairs of queue pairs that were connected by [`Pair::another`].
    others: u16,
}

/// Where the second side listens.
pub const PORT: u16 = 445;

/// Where the first side connects from.
const LOCAL_PORT: u16 = 50000;

/// The longest frame: path MTU and what surrounds it.
const SLOT: usize = 4096 + 200;

impl Pair {
    /// Two strangers.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let sides = [Side::new(1, &options), Side::new(2, &options)];
        Self {
            sides,
            now: Instant::from_nanos(1_000_000_000),
            link: Link::new(options.seed),
            options,
            filter: None,
            capture: None,
            cut: [false; 2],
            dead: [false; 2],
            slot: vec![0xEE; SLOT].into(),
            others: 0,
        }
    }

    /// Two hosts whose queue pairs are connected.
    #[must_use]
    pub fn connected(options: Options) -> Self {
        let mut pair = Self::new(options);
        pair.listen();
        pair.connect(b"hello");
        pair.run_until("a request", |pair| pair.sides[1].conn.is_some());
        pair.accept(b"welcome");
        pair.run_until("a reply", |pair| pair.told(0, |e| matches!(e, ConnEvent::Replied { .. })));
        pair.complete();
        pair.run_until("the connection", |pair| pair.told(1, |e| matches!(e, ConnEvent::Established { .. })));
        pair
    }

    pub fn listen(&mut self) {
        let spec = ListenSpec { ip: None, port: PORT, backlog: 16, context: 500 };
        self.sides[1].engine.listen(&spec).unwrap();
    }

    pub fn path(&self, from: usize) -> Path {
        let (local, remote) = (&self.sides[from], &self.sides[1 - from]);
        Path::new(local.mac, remote.mac, local.ip, remote.ip)
    }

    pub fn connect(&mut self, private_data: &[u8]) {
        let spec = self.connect_spec(LOCAL_PORT, private_data);
        let side = &mut self.sides[0];
        side.conn = Some(side.engine.connect(self.now, &side.qp, &spec).unwrap());
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

    pub fn accept(&mut self, private_data: &[u8]) {
        let side = &self.sides[1];
        let spec = AcceptSpec { reads: self.options.reads, private_data, context: 200 };
        side.engine.accept(self.now, side.conn.unwrap(), &side.qp, &spec).unwrap();
    }

    pub fn complete(&mut self) {
        let side = &self.sides[0];
        side.engine.complete(self.now, side.conn.unwrap()).unwrap();
    }

    /// One more queue pair on each side, connected like the first ones; their completions go to the same
    /// queues and carry `context`.
    pub fn another(&mut self, context: u64) -> [Arc<Qp<Lock>>; 2] {
        self.others += 1;
        let conns = self.sides.each_ref().map(|side| side.conn);
        let qps = self.sides.each_ref().map(|side| {
            let spec = roce::QpSpec { context, ..spec(side.pd, &side.cq, &self.options) };
            side.engine.create_qp(spec).unwrap()
        });
        let told = self.sides.each_ref().map(|side| side.conn_events.len());
        let news = |pair: &Self, side: usize, is: fn(&ConnEvent) -> bool| {
            pair.sides[side].conn_events[told[side]..].iter().any(|(_, _, event)| is(event))
        };
        let spec = self.connect_spec(LOCAL_PORT + self.others, b"another");
        let client = self.sides[0].engine.connect(self.now, &qps[0], &spec).unwrap();
        self.run_until("another request", |pair| news(pair, 1, |e| matches!(e, ConnEvent::Request(_))));
        let accept = AcceptSpec { reads: self.options.reads, private_data: b"", context: 200 };
        let side = &self.sides[1];
        side.engine.accept(self.now, side.conn.unwrap(), &qps[1], &accept).unwrap();
        self.run_until("another reply", |pair| news(pair, 0, |e| matches!(e, ConnEvent::Replied { .. })));
        self.sides[0].engine.complete(self.now, client).unwrap();
        self.run_until("another connection", |pair| {
            news(pair, 1, |e| matches!(e, ConnEvent::Established { .. }))
        });
        for (side, conn) in self.sides.iter_mut().zip(conns) {
            side.conn = conn;
        }
        qps
    }

    /// Whether a side was told of such an event.
    pub fn told(&self, side: usize, is: impl Fn(&ConnEvent) -> bool) -> bool {
        self.sides[side].conn_events.iter().any(|(_, _, event)| is(event))
    }

    /// Ends a side without a word to the other. What it has sent is still on its way.
    pub fn kill(&mut self, side: usize) {
        self.dead[side] = true;
    }

    /// Lets everything happen that happens within 20 s of silence.
    pub fn run(&mut self) {
        let patience = Duration::from_secs(20);
        let mut quiet_since = self.now;
        loop {
            self.drive();
            if !self.link.is_quiet() {
                quiet_since = self.now;
            }
            if !self.step() || self.now.duration_since(quiet_since) > patience {
                return;
            }
        }
    }

    /// Lets things happen until `done`; it is an error if that takes longer than 300 s.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        assert!(self.run_within(Duration::from_secs(300), done), "{what} takes too long");
    }

    /// Lets things happen until `done`, or for `time`; whether it was the former.
    pub fn run_within(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let limit = self.now + time;
        loop {
            self.drive();
            if done(self) {
                return true;
            }
            match self.next_moment() {
                Some(next) if next <= limit => self.step(),
                _ => return false,
            };
        }
    }

    /// Lets `time` pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_within(time, |_| false);
        self.now = end;
    }

    /// What an engine's driver does after any input.
    pub fn drive(&mut self) {
        /// Frames per call.
        const BUDGET: usize = 64;
        for from in 0..2 {
            if self.dead[from] {
                continue;
            }
            loop {
                let free = self.link.free(from, self.now, &self.options);
                let mut slots = Slots { slot: &mut self.slot, free, frames: Vec::new() };
                let sent = self.sides[from].engine.poll_transmit(self.now, &mut slots, BUDGET);
                for frame in slots.frames {
                    self.put_on_wire(from, frame);
                }
                if sent < BUDGET {
                    break;
                }
            }
            self.take_events(from);
        }
    }

    pub fn take_events(&mut self, side: usize) {
        self.sides[side].take_events();
    }

    fn put_on_wire(&mut self, from: usize, mut frame: Vec<u8>) {
        if let Some(capture) = &mut self.capture {
            capture.push((from, frame.clone()));
        }
        if frame.starts_with(&self.sides[from].mac.0) {
            // A NIC brings back what is sent to itself.
            self.link.deliver(from, self.now + self.options.latency, frame);
            return;
        }
        let to = 1 - from;
        if let Some(filter) = &mut self.filter
            && !filter(to, &mut frame)
        {
            return;
        }
        if !self.cut[to] {
            self.link.send(from, self.now, frame, &self.options);
        }
    }

    /// A frame that comes in at `to` at `at`, whoever sent it.
    pub fn deliver(&mut self, to: usize, at: Instant, frame: Vec<u8>) {
        self.link.deliver(to, at, frame);
    }

    fn next_moment(&self) -> Option<Instant> {
        let alive = || (0..2).filter(|&side| !self.dead[side]).map(|side| (side, &self.sides[side].engine));
        let timers = alive().filter_map(|(_, engine)| engine.poll_timeout());
        let slots = alive()
            .filter(|(_, engine)| engine.wants_transmit())
            .filter_map(|(side, _)| self.link.next_free(side, &self.options));
        timers.chain(slots).chain(self.link.next_arrival()).min()
    }

    /// Goes to the next moment at which something happens; `false` when there is none.
    fn step(&mut self) -> bool {
        let Some(next) = self.next_moment() else { return false };
        self.now = self.now.max(next);
        while let Some(frame) = self.link.arrived(self.now) {
            if self.dead[frame.to] {
                continue;
            }
            let verdict = self.sides[frame.to].engine.handle_frame(self.now, &frame.frame);
            assert!(
                verdict != Verdict::NotOurs || self.link.has_corrupted,
                "not ours: {:?}",
                Packet::parse(&frame.frame)
            );
        }
        for (side, dead) in self.sides.iter().zip(self.dead) {
            if !dead && side.engine.poll_timeout().is_some_and(|at| at <= self.now) {
                side.engine.handle_timeout(self.now);
            }
        }
        true
    }

    pub fn random(&mut self) -> u64 {
        self.link.random()
    }
}

/// A second queue pair's receive queue shared, for tests that want one.
pub fn with_srq(pair: &mut Pair, side: usize, srq: &Arc<Srq<Lock>>) {
    let options = pair.options.clone();
    let side = &mut pair.sides[side];
    let mut spec = spec(side.pd, &side.cq, &options);
    spec.srq = Some(srq.clone());
    side.qp = side.engine.create_qp(spec).unwrap();
}
