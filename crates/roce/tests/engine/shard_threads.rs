// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shards on real threads, as a driver with several queue pairs of the NIC has them. `cargo xtask races` runs these tests under
//! ThreadSanitizer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant as Clock};

use fallible::Arc;
use roce::{
    Arm, CompletionKind, CompletionStatus, Config, Instant, PostError, Qp, QpState, RecvRequest, SendData,
    SendFlags, SendOperation, SendRequest, Shard, Transmit,
};

use crate::two_hosts::{Lock, Memory, Options, Side, TwoHosts, pattern, spec};

const SHARDS: usize = 3;

/// Connections; the context of a queue pair is the number of its connection.
const CONNECTIONS: usize = 6;

/// Messages of each connection in each direction, WRITEs and SENDs in turn.
const MESSAGES: usize = 300;

/// Bytes of a message: two packets.
const LENGTH: usize = 1500;

/// Traffic of the connections.
#[derive(Clone, Copy)]
struct Traffic {
    /// Frames after which a transmit queue sends to the next shard of the peer, so that connections move.
    steered: usize,
    /// Each second message is a SEND.
    has_sends: bool,
}

const MOVING: Traffic = Traffic { steered: 40, has_sends: true };

/// Each shard sends to the same shard of the peer, in order, and no message waits for a receive.
const IN_ORDER: Traffic = Traffic { steered: usize::MAX, has_sends: false };

/// The transmit queue of a shard.
struct Tx {
    slot: Vec<u8>,
    peer: Vec<Sender<Vec<u8>>>,
    /// Index of the peer's shard for the first frame.
    first: usize,
    steered: usize,
    sent: usize,
}

impl Transmit for Tx {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        let to = (self.first + self.sent / self.steered) % self.peer.len();
        self.sent += 1;
        let _ = self.peer[to].send(self.slot[..len].to_vec());
    }
}

/// The machine of one side: a queue pair of the NIC for each shard, and the clock.
struct Machine<'a> {
    side: &'a Side,
    queues: Vec<Mutex<Tx>>,
    start: (Instant, Clock),
    has_sends: bool,
    stop: &'a AtomicBool,
}

impl Machine<'_> {
    fn now(&self) -> Instant {
        self.start.0 + self.start.1.elapsed()
    }

    fn transmit(&self, shard: &Shard<'_, Lock>) {
        let mut tx = self.queues[shard.number() as usize].lock().unwrap();
        while shard.poll_transmit(self.now(), &mut *tx, 16) == 16 {}
    }

    /// Runs the processor of a shard.
    fn drive(&self, number: usize, received: &Receiver<Vec<u8>>) {
        let engine = &self.side.engine;
        let shard = engine.shard(number as u32).unwrap();
        while !self.stop.load(Ordering::Relaxed) {
            let first = received.recv_timeout(Duration::from_micros(200)).ok();
            for frame in first.into_iter().chain(received.try_iter().take(15)) {
                shard.handle_frame(self.now(), &frame);
            }
            self.transmit(&shard);
            while let Some(event) = engine.poll_event() {
                drop(event);
            }
            if shard.poll_timeout().is_some_and(|at| at <= self.now()) {
                shard.handle_timeout(self.now());
            }
        }
    }

    /// Posts all messages of a connection and the receives for those of the peer. The poster builds frames, too.
    fn post(&self, qp: &Arc<Qp<Lock>>, source: &Memory, mine: &Memory, theirs: &Memory) {
        let engine = &self.side.engine;
        let (mut sent, mut posted) = (0, 0);
        if !self.has_sends {
            posted = MESSAGES;
        }
        while sent < MESSAGES || posted < MESSAGES {
            if posted < MESSAGES {
                let sges = [mine.sge(posted * LENGTH, LENGTH)];
                let request = RecvRequest { context: posted as u64, sges: &sges };
                // Receives of the SENDs.
                if posted.is_multiple_of(2) || accepted(engine.post_recv(qp, &request)) {
                    posted += 1;
                }
            }
            if sent < MESSAGES {
                let at = sent * LENGTH;
                let operation = if self.has_sends && sent % 2 == 1 {
                    SendOperation::Send
                } else {
                    SendOperation::Write { address: theirs.address(at), key: theirs.key() }
                };
                let sges = [source.sge(at, LENGTH)];
                let data = SendData::Sges(&sges);
                let request =
                    SendRequest { context: sent as u64, operation, flags: SendFlags::empty(), data };
                if accepted(engine.post_send(qp, &request)) {
                    sent += 1;
                    self.transmit(&engine.shard_of(qp));
                }
            }
        }
    }

    /// Polls until all requests have completed, each once and in order.
    fn collect(&self) {
        let deadline = Clock::now() + Duration::from_secs(120);
        let mut seen: BTreeMap<(u64, bool), Vec<u64>> = BTreeMap::new();
        let mut count = 0;
        let of_sends = if self.has_sends { MESSAGES / 2 } else { 0 };
        while count < CONNECTIONS * (MESSAGES + of_sends) {
            assert!(Clock::now() < deadline, "{count} requests have completed");
            self.side.engine.arm_cq(&self.side.cq, Arm::Any);
            for done in self.side.completions() {
                assert_eq!(done.status, CompletionStatus::Success, "{done:?}");
                let received = done.kind == CompletionKind::Receive;
                seen.entry((done.qp_context, received)).or_default().push(done.context);
                count += 1;
            }
            std::thread::yield_now();
        }
        for ((qp, received), contexts) in seen {
            let step = if received { 2 } else { 1 };
            let expected: Vec<_> = (0..MESSAGES as u64).skip(step - 1).step_by(step).collect();
            assert_eq!(contexts, expected, "connection {qp}");
        }
    }
}

/// Returns whether there was room.
fn accepted(posted: Result<(), PostError>) -> bool {
    match posted {
        Ok(()) => true,
        Err(PostError::QueueFull) => {
            std::thread::yield_now();
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs `consumers` while each shard of both sides is driven by a thread of its own.
fn with_shards(hosts: &TwoHosts, traffic: Traffic, consumers: impl FnOnce([&Machine<'_>; 2])) {
    let stop = AtomicBool::new(false);
    let start = (hosts.now, Clock::now());
    let wires: [Vec<_>; 2] = [0, 1].map(|_| (0..SHARDS).map(|_| channel()).collect());
    let machines = [0, 1].map(|side: usize| Machine {
        side: &hosts.sides[side],
        queues: (0..SHARDS)
            .map(|shard| {
                let peer = wires[1 - side].iter().map(|(sender, _)| sender.clone()).collect();
                Mutex::new(Tx { slot: vec![0; 4400], peer, first: shard, steered: traffic.steered, sent: 0 })
            })
            .collect(),
        start,
        has_sends: traffic.has_sends,
        stop: &stop,
    });
    std::thread::scope(|scope| {
        for (machine, wires) in machines.iter().zip(wires) {
            for (number, (_, received)) in wires.into_iter().enumerate() {
                scope.spawn(move || machine.drive(number, &received));
            }
        }
        // Also if a consumer panics, or the drivers would run forever.
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| consumers(machines.each_ref())));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn options() -> Options {
    Options {
        send_depth: 16,
        recv_depth: 64,
        cq_depth: 16 << 10,
        config: |config: &mut Config| {
            config.shards = SHARDS as u32;
            // A busy machine is not taken for a dead peer, which is probed and then given up.
            config.timing.ack_timeout = Duration::from_secs(8);
            config.timing.min_resend = Duration::from_secs(8);
            config.timing.min_probe = Duration::from_secs(8);
        },
        ..Options::default()
    }
}

/// Posters and drivers of three shards send all messages of all connections, while other queue pairs are created and destroyed:
/// data arrives once and in order.
fn deliver(traffic: Traffic) -> TwoHosts {
    let mut hosts = TwoHosts::connected(options());
    let qps: Vec<_> = (0..CONNECTIONS).map(|number| hosts.connect_another(number as u64)).collect();
    hosts.drive();
    let memory = |side: usize, number: usize| {
        let data = pattern(MESSAGES * LENGTH, (side * CONNECTIONS + number) as u64);
        (hosts.sides[side].source(&data), hosts.sides[side].shared(MESSAGES * LENGTH), data)
    };
    let memories: Vec<_> = (0..CONNECTIONS).map(|number| [0, 1].map(|side| memory(side, number))).collect();
    with_shards(&hosts, traffic, |machines| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (side, machine) in machines.into_iter().enumerate() {
                let (qps, memories) = (&qps, &memories);
                for half in 0..2 {
                    scope.spawn(move || {
                        for number in (half..CONNECTIONS).step_by(2) {
                            let memories = &memories[number];
                            machine.post(
                                &qps[number][side],
                                &memories[side].0,
                                &memories[side].1,
                                &memories[1 - side].1,
                            );
                        }
                    });
                }
            }
            let (done, options) = (&done, &hosts.options);
            scope.spawn(move || {
                let side = machines[0].side;
                while !done.load(Ordering::Relaxed) {
                    let qp = side.engine.create_qp(spec(side.pd, &side.cq, options)).unwrap();
                    side.engine.destroy_qp(&qp);
                }
            });
            let peer = scope.spawn(|| machines[1].collect());
            machines[0].collect();
            peer.join().unwrap();
            done.store(true, Ordering::Relaxed);
        });
    });
    for (number, memories) in memories.iter().enumerate() {
        for side in 0..2 {
            assert!(memories[1 - side].1.read() == memories[side].2, "connection {number}, from side {side}");
        }
    }
    hosts
}

/// Connections move between the shards all the time. Frames overtake each other, so that some are dropped, asked for again, and
/// sent again.
//= R-QP-8
//= R-QP-9
//= R-CQ-18
#[test]
fn concurrent_shards_deliver_correct_data_of_moving_connections() {
    let hosts = deliver(MOVING);
    for side in &hosts.sides {
        assert!(side.engine.shards().all(|shard| shard.stats().rx_bytes.get() > 0));
    }
}

/// Frames of a connection that stays at its shard leave in order, whether a poster or the driver of the shard builds them, so that
/// nothing is dropped or sent again.
#[test]
fn concurrent_shards_transmit_the_frames_of_a_connection_in_order() {
    let hosts = deliver(IN_ORDER);
    for side in &hosts.sides {
        let stats = side.engine.stats();
        let of_disorder = [
            ("dropped", &stats.drop_sequence),
            ("duplicate", &stats.rx_duplicates),
            ("out of order", &stats.rx_out_of_order),
            ("sequence NAKs", &stats.tx_nak_sequence),
            ("retransmitted", &stats.retransmissions),
            ("timeouts", &stats.timeouts),
        ];
        for (what, counter) in of_disorder {
            assert_eq!(counter.get(), 0, "{what}: {stats:?}");
        }
    }
}

/// A queue pair that is flushed, or destroyed, while it moves, is in no list afterwards.
//= R-QP-2
//= R-QP-10
//= R-QP-12
#[test]
fn a_flush_concurrent_with_a_move_ends_every_request() {
    for round in 0..8 {
        let mut hosts = TwoHosts::connected(options());
        let qps: Vec<_> = (0..CONNECTIONS).map(|number| hosts.connect_another(number as u64)).collect();
        hosts.drive();
        let [alice, bob] = &hosts.sides;
        let source = alice.source(&[1; LENGTH]);
        // Connections do not write to one memory at the same time.
        let targets: Vec<_> = qps.iter().map(|_| bob.shared(LENGTH)).collect();
        with_shards(&hosts, MOVING, |[machine, _]| {
            std::thread::scope(|scope| {
                for ([qp, _], target) in qps.iter().zip(&targets) {
                    let (sges, engine) = ([source.all()], &alice.engine);
                    let operation = SendOperation::Write { address: target.address(0), key: target.key() };
                    scope.spawn(move || {
                        let request = SendRequest {
                            context: 0,
                            operation,
                            flags: SendFlags::SILENT,
                            data: SendData::Sges(&sges),
                        };
                        loop {
                            match engine.post_send(qp, &request) {
                                Ok(()) => machine.transmit(&engine.shard_of(qp)),
                                Err(PostError::QueueFull) => std::thread::yield_now(),
                                Err(_) => break,
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(300 * round));
                for (number, [qp, _]) in qps.iter().enumerate() {
                    if number % 2 == 0 {
                        alice.engine.flush(qp);
                    } else {
                        alice.engine.destroy_qp(qp);
                    }
                    assert_eq!(qp.state(), QpState::Error);
                    assert!(qp.is_drained());
                }
            });
        });
    }
}
