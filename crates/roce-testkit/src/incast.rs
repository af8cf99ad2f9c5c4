// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several hosts that send to one, through one port of a switch.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use fallible::Arc;
use roce::{
    AcceptSpec, CompletionStatus, ConnEvent, ConnectSpec, Instant, ListenSpec, Qp, QpSpec, SendData,
    SendFlags, SendOperation, SendRequest,
};
use roce_wire::Path;

use crate::lock::Lock;
use crate::network::{self, Network, Parts};
use crate::options::Options;
use crate::side::{Memory, Side, spec};
use crate::switch::PortStats;
use crate::two_hosts::PORT;
use crate::wire::Wire;

/// One receiver and its senders, each with one connection to it.
pub struct Incast {
    /// Host 0 receives, all others send.
    pub sides: Vec<Side>,
    /// Virtual time.
    pub now: Instant,
    pub options: Options,
    /// The receiver's queue pairs, by sender. Their context is the sender's host number.
    pub receiving: Vec<Arc<Qp<Lock>>>,
    wire: Wire,
    /// When the outstanding messages of each sender were posted.
    posted: Vec<VecDeque<Instant>>,
    /// Bytes of the messages that each sender completed, and the longest time that one took, since the last look.
    done: Vec<(u64, Duration)>,
    stream: Option<Stream>,
}

/// Messages that the senders send repeatedly.
struct Stream {
    kind: Kind,
    /// By sender.
    sources: Vec<Memory>,
    /// By sender, with room for some messages, which take turns.
    targets: Vec<Memory>,
    room: usize,
    /// Number of the next message, by sender.
    next: Vec<Cell<usize>>,
    len: usize,
}

/// How messages get from a sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The sender writes.
    Write,
    /// The receiver reads.
    Read,
}

impl Incast {
    /// Creates a receiver and `senders` hosts that are connected to it.
    #[must_use]
    pub fn connected(senders: u8, options: Options) -> Self {
        let sides: Vec<_> = (1..=senders + 1).map(|number| Side::new(number, &options)).collect();
        let wire = Wire::new(sides.len(), options.seed);
        let now = Instant::from_nanos(1_000_000_000);
        let posted = vec![VecDeque::new(); sides.len()];
        let done = vec![(0, Duration::ZERO); sides.len()];
        let mut incast =
            Self { sides, now, options, receiving: Vec::new(), wire, posted, done, stream: None };
        let listen = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 16, context: 500 };
        incast.sides[0].engine.connections().listen(&listen).unwrap();
        for sender in 1..incast.sides.len() {
            incast.connect(sender);
        }
        incast
    }

    fn connect(&mut self, sender: usize) {
        let [to, from] = [&self.sides[0], &self.sides[sender]];
        let connect = ConnectSpec {
            path: Path::new(from.mac, to.mac, from.ip, to.ip),
            local_port: 50000,
            remote_port: PORT,
            mtu: self.options.mtu,
            reads: self.options.reads,
            private_data: b"",
            context: 100,
        };
        let client = from.engine.connections().connect(self.now, &from.qp, &connect).unwrap();
        let seen = to.conn_events.len();
        self.run_until("a request", |incast| incast.sides[0].conn_events.len() > seen);
        let to = &self.sides[0];
        let queue_pair = QpSpec { context: sender as u64, ..spec(to.pd, &to.cq, &self.options) };
        let qp = to.engine.create_qp(queue_pair).unwrap();
        let accept = AcceptSpec { reads: self.options.reads, private_data: b"", context: 200 };
        to.engine.connections().accept(self.now, to.conn.unwrap(), &qp, &accept).unwrap();
        self.receiving.push(qp);
        self.run_until("a reply", |incast| {
            incast.sides[sender]
                .conn_events
                .iter()
                .any(|(.., event)| matches!(event, ConnEvent::Replied { .. }))
        });
        self.sides[sender].engine.connections().complete(self.now, client).unwrap();
        self.run_until("the connection", |incast| {
            matches!(incast.sides[0].conn_events.last(), Some((.., ConnEvent::Established { .. })))
        });
    }

    /// Lets each sender write messages of `len` bytes to the receiver for `warm_up`, and then for as many periods of
    /// `period` as `periods` says, `outstanding` messages at a time. Returns the payload bytes that each sender sent in
    /// each of these periods, with what it sent again.
    ///
    /// # Panics
    /// Panics if a request fails.
    pub fn write_for(
        &mut self,
        len: usize,
        outstanding: usize,
        warm_up: Duration,
        period: Duration,
        periods: usize,
    ) -> Vec<Vec<u64>> {
        let stream = self.begin(Kind::Write, len, outstanding, outstanding);
        self.send_until(self.now + warm_up, &stream);
        self.take_port_stats();
        let sent = |incast: &Self| -> Vec<_> {
            incast.sides[1..].iter().map(|side| side.stat("tx_bytes")).collect()
        };
        let mut before = sent(self);
        let sent = (0..periods)
            .map(|_| {
                self.send_until(self.now + period, &stream);
                let after = sent(self);
                let bytes = after.iter().zip(&before).map(|(after, before)| after - before).collect();
                before = after;
                bytes
            })
            .collect();
        self.stream = Some(stream);
        sent
    }

    /// Lets the receiver read messages of `len` bytes from each sender for `time`, `outstanding` messages at a time, into memory with
    /// room for `room` of them: READs into the same memory wait for each other after a loss.
    ///
    /// # Panics
    /// Panics if a request fails.
    pub fn read_for(&mut self, len: usize, outstanding: usize, room: usize, time: Duration) {
        let stream = self.begin(Kind::Read, len, outstanding, room);
        self.send_until(self.now + time, &stream);
        self.stream = Some(stream);
    }

    /// Lets the senders go on after [`Incast::write_for`] or [`Incast::read_for`].
    ///
    /// # Panics
    /// Panics if a request fails.
    pub fn go_on(&mut self, time: Duration) {
        let stream = self.stream.take().expect("a stream");
        self.send_until(self.now + time, &stream);
        self.stream = Some(stream);
    }

    /// Posts the first `outstanding` requests for each sender.
    fn begin(&mut self, kind: Kind, len: usize, outstanding: usize, room: usize) -> Stream {
        let sources: Vec<_> = self.sides[1..].iter().map(|side| side.shared(len)).collect();
        let targets = sources.iter().map(|_| self.sides[0].shared(len * room)).collect();
        let next = sources.iter().map(|_| Cell::new(0)).collect();
        let stream = Stream { kind, sources, targets, room, next, len };
        for sender in 1..self.sides.len() {
            for _ in 0..outstanding {
                self.post(sender, &stream);
            }
        }
        stream
    }

    fn post(&mut self, sender: usize, stream: &Stream) {
        self.posted[sender].push_back(self.now);
        let (source, target) = (&stream.sources[sender - 1], &stream.targets[sender - 1]);
        let number = stream.next[sender - 1].replace(stream.next[sender - 1].get() + 1);
        let target = target.sge(number % stream.room * stream.len, stream.len);
        let (side, qp, near, far) = match stream.kind {
            Kind::Write => (&self.sides[sender], &self.sides[sender].qp, source.all(), target),
            Kind::Read => (&self.sides[0], &self.receiving[sender - 1], target, source.all()),
        };
        let (address, key) = (far.address, far.key);
        let operation = match stream.kind {
            Kind::Write => SendOperation::Write { address, key },
            Kind::Read => SendOperation::Read { address, key },
        };
        let (flags, data) = (SendFlags::empty(), SendData::Sges(&[near]));
        side.engine.post_send(qp, &SendRequest { context: sender as u64, operation, flags, data }).unwrap();
    }

    /// Posts a request for each that completes, until `end`.
    fn send_until(&mut self, end: Instant, stream: &Stream) {
        while self.run_within(end.duration_since(self.now), |incast| {
            incast.sides.iter().any(|side| !side.cq.is_empty())
        }) {
            for side in 0..self.sides.len() {
                for (sender, status) in self.sides[side].outcomes() {
                    assert_eq!(status, CompletionStatus::Success, "sender {sender}");
                    let sender = sender as usize;
                    let took = self.posted[sender]
                        .pop_front()
                        .map_or(Duration::ZERO, |at| self.now.duration_since(at));
                    let (bytes, longest) = &mut self.done[sender];
                    *bytes += stream.len as u64;
                    *longest = took.max(*longest);
                    self.post(sender, stream);
                }
            }
        }
        self.now = end;
    }

    /// Begins a TCP flow to the receiver through the same port, from a host of its own.
    pub fn begin_tcp(&mut self) {
        self.wire.link.begin_tcp(self.now);
    }

    /// Returns the bytes that each TCP flow has delivered.
    #[must_use]
    pub fn tcp_delivered(&self) -> Vec<u64> {
        self.wire.link.tcp_delivered()
    }

    /// Returns the bytes of the messages that each sender completed since the last call, and the longest time that one of them took,
    /// or that an outstanding one takes so far.
    pub fn take_done(&mut self) -> Vec<(u64, Duration)> {
        let now = self.now;
        let done = self.done.iter_mut().zip(&self.posted).skip(1);
        done.map(|(done, posted)| {
            let (bytes, longest) = std::mem::take(done);
            (bytes, posted.front().map_or(longest, |&at| longest.max(now.duration_since(at))))
        })
        .collect()
    }

    /// Returns what the switch's port to the receiver did since the last call.
    pub fn take_port_stats(&mut self) -> PortStats {
        self.wire.link.take_port_stats(0)
    }

    /// Returns the sum of a statistics counter over all senders.
    #[must_use]
    pub fn senders_stat(&self, name: &str) -> u64 {
        self.sides[1..].iter().map(|side| side.stat(name)).sum()
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
}

impl Network for Incast {
    fn parts(&mut self) -> Parts<'_> {
        let Self { sides, wire, now, options, .. } = self;
        Parts { sides, wire, now, options }
    }

    /// Senders send to the receiver, the receiver to the host that the frame's destination address names.
    fn send(&mut self, from: usize, frame: Vec<u8>) {
        let to = self.sides.iter().position(|side| frame.starts_with(&side.mac.0)).unwrap();
        self.wire.link.send(from, to, self.now, frame, &self.options);
    }
}
