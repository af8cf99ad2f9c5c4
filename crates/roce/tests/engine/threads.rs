// SPDX-License-Identifier: MIT OR Apache-2.0

//! Concurrent posts, frames, timeouts, flushes and polls on real threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant as Clock};

use roce::{Access, CompletionStatus, Instant, PostError, QpState, SendFlags, SendOperation, Sge, Transmit};

use crate::two_hosts::{Options, Side, TwoHosts, pattern};

/// A transmit queue that sends to a channel.
struct Tx {
    slot: Vec<u8>,
    wire: Sender<Vec<u8>>,
}

impl Transmit for Tx {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        let _ = self.wire.send(self.slot[..len].to_vec());
    }
}

/// Drives one side until `stop` is set, with a channel for each direction of frames. Counts the frames received.
fn drive(
    side: &Side,
    wire: &Mutex<Receiver<Vec<u8>>>,
    tx: &mut Tx,
    now: impl Fn() -> Instant,
    stop: &AtomicBool,
    received: &AtomicUsize,
) {
    while !stop.load(Ordering::Relaxed) {
        // Few at a time, so that each driver gets some.
        let frames: Vec<_> = {
            let wire = wire.lock().unwrap();
            let first = wire.recv_timeout(Duration::from_micros(200)).ok();
            first.into_iter().chain(wire.try_iter().take(7)).collect()
        };
        received.fetch_add(frames.len(), Ordering::Relaxed);
        for frame in frames {
            side.engine.first_shard().handle_frame(now(), &frame);
        }
        while side.engine.first_shard().poll_transmit(now(), tx, 64) == 64 {}
        while let Some(event) = side.engine.poll_event() {
            drop(event);
        }
        if side.engine.first_shard().poll_timeout().is_some_and(|at| at <= now()) {
            side.engine.first_shard().handle_timeout(now());
        }
    }
}

/// Threads that drive each engine.
const DRIVERS: usize = 2;

/// Number of frames that each driver has received so far.
type Received = [[AtomicUsize; DRIVERS]; 2];

/// Drives each side by two threads while `consumers` runs.
fn with_drivers(hosts: &TwoHosts, consumers: impl FnOnce(&[Side; 2], &Received)) {
    let (to_bob, from_alice) = channel();
    let (to_alice, from_bob) = channel();
    let (start, base) = (Clock::now(), hosts.now);
    let now = || base + start.elapsed();
    let stop = AtomicBool::new(false);
    let ends = [(Mutex::new(from_bob), to_bob), (Mutex::new(from_alice), to_alice)];
    let received = Received::default();
    std::thread::scope(|scope| {
        let stop = &stop;
        for (side, ((from, to), received)) in hosts.sides.iter().zip(ends.iter().zip(&received)) {
            for received in received {
                let mut tx = Tx { slot: vec![0; 4400], wire: to.clone() };
                scope.spawn(move || drive(side, from, &mut tx, now, stop, received));
            }
        }
        consumers(&hosts.sides, &received);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Options with long timeouts, so that a busy machine is not taken for a dead peer.
fn patient() -> Options {
    Options { config: |config| config.timing.ack_timeout = Duration::from_secs(8), ..Options::default() }
}

/// Polls until `count` completions have arrived.
fn collect(side: &Side, count: usize) -> Vec<(u64, CompletionStatus)> {
    let deadline = Clock::now() + Duration::from_secs(60);
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Clock::now() < deadline, "{} of {count} completions arrived", all.len());
        all.extend(side.outcomes());
        std::thread::yield_now();
    }
    all
}

//= R-QP-8
//= R-QP-9
//= R-CQ-18
#[test]
fn concurrent_drivers_deliver_correct_data() {
    let mut hosts = TwoHosts::connected(Options { send_depth: 16, ..patient() });
    hosts.drive();
    with_drivers(&hosts, |[alice, bob], received| {
        // On a busy machine one driver may process everything for a while.
        let all_drove = || received.iter().flatten().all(|frames| frames.load(Ordering::Relaxed) > 0);
        let deadline = Clock::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for (local, remote) in [(alice, bob), (bob, alice)] {
                scope.spawn(move || {
                    let (source, target) = (local.shared(50_000), remote.shared(50_000));
                    let back = local.sink(50_000);
                    for round in 0.. {
                        if round >= 20 {
                            if all_drove() {
                                break;
                            }
                            assert!(Clock::now() < deadline, "a driver received nothing: {received:?}");
                        }
                        source.write(&pattern(50_000, round));
                        local.write(round, &[source.all()], &target, 0);
                        local.read(round, &[back.all()], &target, 0);
                        let done = collect(local, 2);
                        assert_eq!(
                            done,
                            [(round, CompletionStatus::Success), (round, CompletionStatus::Success)]
                        );
                        assert_eq!(back.read(), pattern(50_000, round));
                    }
                });
            }
        });
    });
}

//= R-QP-2
//= R-QP-10
//= R-QP-12
#[test]
fn a_post_concurrent_with_a_flush_fails_or_is_flushed() {
    for round in 0..20 {
        let mut hosts = TwoHosts::connected(Options { send_depth: 64, cq_depth: 4096, ..patient() });
        hosts.drive();
        with_drivers(&hosts, |[alice, bob], _| {
            let (source, target) = (alice.shared(3000), bob.memory(3000, Access::all()));
            let (sge, to) =
                (source.all(), SendOperation::Write { address: target.address(0), key: target.key() });
            let accepted = std::thread::scope(|scope| {
                let poster = scope.spawn(move || post_until_refused(alice, to, sge));
                std::thread::sleep(Duration::from_micros(100 * round));
                alice.engine.flush(&alice.qp);
                poster.join().unwrap()
            });
            let done = collect(alice, accepted as usize);
            let contexts: Vec<_> = done.iter().map(|(context, _)| *context).collect();
            assert_eq!(contexts, (0..accepted).collect::<Vec<_>>());
            let flushed = done.iter().position(|(_, status)| *status != CompletionStatus::Success);
            let tail = flushed.unwrap_or(done.len());
            assert!(done[tail..].iter().all(|(_, status)| *status == CompletionStatus::Flushed));
            assert_eq!(alice.qp.state(), QpState::Error);
            assert!(alice.qp.is_drained());
        });
    }
}

/// Posts WRITEs until the queue pair is in the error state. Returns the number of accepted ones.
fn post_until_refused(side: &Side, operation: SendOperation, sge: Sge) -> u64 {
    let mut accepted = 0;
    while accepted < 4000 {
        match side.post(accepted, operation, SendFlags::empty(), &[sge]) {
            Ok(()) => accepted += 1,
            Err(PostError::QueueFull) => std::thread::yield_now(),
            Err(error) => {
                assert_eq!(error, PostError::NotConnected);
                break;
            }
        }
    }
    accepted
}

//= R-MR-17
#[test]
fn a_deregistered_region_is_not_accessed() {
    let mut hosts = TwoHosts::connected(Options { send_depth: 64, cq_depth: 4096, ..patient() });
    hosts.drive();
    with_drivers(&hosts, |[alice, bob], _| {
        let (source, target) = (alice.shared(60_000), bob.shared(60_000));
        source.write(&pattern(60_000, 1));
        for context in 0..8 {
            alice.write(context, &[source.all()], &target, 0);
        }
        std::thread::sleep(Duration::from_micros(300));
        assert!(bob.engine.memory().deregister(&target.region));
        // From here on the engine does not access the memory.
        let after = target.read();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(target.read(), after);
        collect(alice, 8);
    });
}
