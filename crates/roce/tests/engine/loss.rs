// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recovery from loss, duplication, reordering and corruption, which only counters show.

use std::time::Duration;

use roce::{CompletionKind, CompletionStatus, ReadLimits, SendData, SendFlags, SendOperation, SendRequest};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::two_hosts::{Memory, Options, TwoHosts, pattern};

/// Posts a mix of requests on both sides, runs, and checks completions and memory.
fn exchange(options: Options) -> TwoHosts {
    const REQUESTS: u64 = 24;
    let seed = options.seed;
    let mut hosts = TwoHosts::connected(options);
    let mut expected: [Vec<(u64, CompletionKind)>; 2] = [Vec::new(), Vec::new()];
    let mut checks: Vec<(Memory, Vec<u8>)> = Vec::new();
    let mut keep = Vec::new();
    let mut received: [Vec<(u64, u32)>; 2] = [Vec::new(), Vec::new()];
    for number in 0..REQUESTS {
        for from in 0..2 {
            let size = (hosts.random() % 9000) as usize;
            let data = pattern(size, seed ^ number << 8 ^ from as u64);
            let choice = hosts.random() % 3;
            let (local, remote) = (&hosts.sides[from], &hosts.sides[1 - from]);
            let kind = match choice {
                0 => {
                    let (source, sink) = (local.source(&data), remote.sink(size));
                    remote.recv(number, &[sink.sge(0, size)]);
                    received[1 - from].push((number, size as u32));
                    local.send(number, &[source.sge(0, size)]);
                    keep.push(source);
                    checks.push((sink, data));
                    CompletionKind::Send
                }
                1 => {
                    let (source, sink) = (local.source(&data), remote.shared(size));
                    local.write(number, &[source.sge(0, size)], &sink, 0);
                    keep.push(source);
                    checks.push((sink, data));
                    CompletionKind::Write
                }
                _ => {
                    let (source, sink) = (remote.shared(size), local.sink(size));
                    source.write(&data);
                    local.read(number, &[sink.sge(0, size)], &source, 0);
                    keep.push(source);
                    checks.push((sink, data));
                    CompletionKind::Read
                }
            };
            expected[from].push((number, kind));
        }
    }
    hosts.run();
    for (side, (expected, received)) in hosts.sides.iter().zip(expected.into_iter().zip(received)) {
        let done = side.completions();
        assert!(done.iter().all(|c| c.status == CompletionStatus::Success), "seed {seed}: {done:?}");
        let sent: Vec<_> =
            done.iter().filter(|c| !c.kind.is_receive()).map(|c| (c.context, c.kind)).collect();
        assert_eq!(sent, expected, "seed {seed}");
        let got: Vec<_> = done.iter().filter(|c| c.kind.is_receive()).map(|c| (c.context, c.bytes)).collect();
        assert_eq!(got, received, "seed {seed}");
        assert!(side.qp.is_drained());
    }
    for (memory, data) in checks {
        assert_eq!(&memory.read()[..data.len()], data, "seed {seed}");
    }
    hosts
}

//= R-QP-2
#[test]
fn every_request_completes_once_in_order_over_a_faulty_network() {
    let (mut losses, mut naks) = (0, 0);
    for seed in 0..60 {
        let mtu = PathMtu::ALL[seed as usize % 5];
        let reads = ReadLimits { inbound: 1 + seed as u8 % 5, outbound: 1 + seed as u8 % 7 };
        let hosts = exchange(Options {
            seed,
            mtu,
            reads,
            loss: 20 + seed as u32 % 60,
            duplication: 20,
            reordering: 50,
            corruption: 5,
            ..Options::default()
        });
        losses += hosts.sides.iter().map(|side| side.stat("retransmissions")).sum::<u64>();
        naks += hosts.sides.iter().map(|side| side.stat("rx_nak_sequence")).sum::<u64>();
    }
    assert!(losses > 400 && naks > 40, "{losses} retransmissions, {naks} NAKs: too few faults");
}

#[test]
fn a_reordering_network_loses_nothing() {
    for seed in 0..30 {
        exchange(Options { seed, reordering: 300, ..Options::default() });
    }
}

/// Drops the `nth` packet with this opcode to `side`.
pub fn lose(hosts: &mut TwoHosts, side: usize, opcode: Opcode, nth: usize) {
    let mut seen = 0;
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        if to == side && packet.bth().opcode() == opcode {
            seen += 1;
            return seen != nth;
        }
        true
    }));
}

/// Runs a request of 10 packets of 1024 bytes with one packet lost. Returns its duration in round trips.
fn with_a_loss(operation: &str, side: usize, opcode: Opcode, nth: usize) -> u64 {
    let mut hosts = TwoHosts::connected(Options::default());
    // The first request is the requester's first round-trip sample.
    for round in 0..2 {
        let [alice, bob] = &hosts.sides;
        let data = pattern(10 * 1024, round);
        let start = hosts.now;
        if operation == "send" {
            let (source, sink) = (alice.source(&data), bob.sink(data.len()));
            bob.recv(1, &[sink.all()]);
            alice.send(1, &[source.all()]);
            if round == 1 {
                lose(&mut hosts, side, opcode, nth);
            }
            hosts.run_until("the send", |hosts| !hosts.sides[0].cq.is_empty());
            assert_eq!(sink.read(), data);
        } else {
            let (source, sink) = (bob.shared(data.len()), alice.sink(data.len()));
            source.write(&data);
            alice.read(1, &[sink.all()], &source, 0);
            if round == 1 {
                lose(&mut hosts, side, opcode, nth);
            }
            hosts.run_until("the read", |hosts| !hosts.sides[0].cq.is_empty());
            assert_eq!(sink.read(), data);
        }
        for side in &hosts.sides {
            assert!(side.outcomes().iter().all(|(_, status)| *status == CompletionStatus::Success));
        }
        if round == 1 {
            assert!(hosts.sides[0].stat("retransmissions") > 0);
            return hosts.now.duration_since(start).as_micros() as u64 / 100;
        }
    }
    unreachable!()
}

//= rocev2 §7
#[test]
fn a_loss_in_the_middle_costs_a_round_trip() {
    assert_eq!(with_a_loss("send", 1, Opcode::SEND_FIRST, 1), 2);
    assert_eq!(with_a_loss("send", 1, Opcode::SEND_MIDDLE, 4), 2);
    // The requester detects a gap in a READ by the next response.
    assert_eq!(with_a_loss("read", 0, Opcode::READ_RESPONSE_FIRST, 1), 2);
    assert_eq!(with_a_loss("read", 0, Opcode::READ_RESPONSE_MIDDLE, 4), 2);
}

//= rocev2 §7
#[test]
fn a_lost_tail_costs_the_shortest_probe() {
    // In round trips of 100 us.
    let shortest = roce::Timing::default().min_probe.as_micros() as u64 / 100;
    for (operation, side, opcode) in [
        ("send", 1, Opcode::SEND_LAST),
        ("send", 0, Opcode::ACKNOWLEDGE),
        ("read", 1, Opcode::READ_REQUEST),
        ("read", 0, Opcode::READ_RESPONSE_LAST),
    ] {
        let took = with_a_loss(operation, side, opcode, 1);
        assert!((shortest..shortest + 4).contains(&took), "{opcode:?}: {took} round trips");
    }
}

/// Waiting for a receive (RNR NAK) does not raise the timeout: a lost last packet is detected as soon as
/// before.
//= rocev2 §7
#[test]
fn rnr_waits_are_not_round_trip_samples() {
    for waits in 1..=2 {
        let config: fn(&mut roce::Config) = |config| config.timing.rnr_timer = Duration::from_millis(655);
        let mut hosts = TwoHosts::connected(Options { config, ..Options::default() });
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(b"late"), bob.sink(4));
        alice.send(1, &[source.all()]);
        hosts.run_for(Duration::from_millis(1));
        // Sent for the first time after the request that waited.
        hosts.sides[0].send(2, &[source.all()]);
        hosts.run_for(Duration::from_millis(656 * (waits - 1)));
        assert_eq!(hosts.sides[1].stat("tx_nak_rnr"), waits);
        for context in 1..=4 {
            hosts.sides[1].recv(context, &[sink.all()]);
        }
        hosts.run();
        hosts.sides[0].send(3, &[source.all()]);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes().len(), 3);
        lose(&mut hosts, 1, Opcode::SEND_ONLY, 1);
        let start = hosts.now;
        hosts.sides[0].send(4, &[source.all()]);
        hosts.run_until("the send", |hosts| !hosts.sides[0].cq.is_empty());
        let (took, shortest) = (hosts.now.duration_since(start), roce::Timing::default().min_resend);
        assert!(took < shortest * 2, "{waits} waits: {took:?}");
    }
}

/// If a packet and its NAK are lost, only the timer detects it. New requests do not restart the timer.
//= rocev2 §7
#[test]
fn new_packets_do_not_delay_the_retransmission_of_a_lost_one() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(b"data"), bob.shared(4));
    alice.write(0, &[source.all()], &remote, 0);
    hosts.run();
    hosts.sides[0].completions();
    let (mut lost, mut naks) = (false, 0);
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        let nak = to == 0 && packet.bth().opcode() == Opcode::ACKNOWLEDGE;
        naks += u32::from(nak);
        if nak { naks > 1 } else { to == 0 || std::mem::replace(&mut lost, true) }
    }));
    let (start, shortest) = (hosts.now, roce::Timing::default().min_resend);
    let mut posted = 0;
    while hosts.sides[0].cq.is_empty() && posted < 20 {
        posted += 1;
        hosts.sides[0].write(posted, &[source.all()], &remote, 0);
        hosts.run_within(shortest * 9 / 10, |hosts| !hosts.sides[0].cq.is_empty());
    }
    let took = hosts.now.duration_since(start);
    assert!(posted > 1 && took < shortest * 2, "{took:?} after {posted} writes");
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes().len() as u64, posted);
}

#[test]
fn what_is_lost_again_is_resent_again_without_a_timeout() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(&pattern(40_000, 1)), bob.shared(40_000));
    alice.write(1, &[source.all()], &remote, 0);
    // The fifth packet, three times.
    let mut psn = None;
    let (mut seen, mut lost) = (0, 0);
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        if to == 1 {
            seen += 1;
            if seen == 5 {
                psn = Some(packet.bth().psn());
            }
            if psn == Some(packet.bth().psn()) && lost < 3 {
                lost += 1;
                return false;
            }
        }
        true
    }));
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(remote.read(), pattern(40_000, 1));
    assert_eq!(hosts.sides[0].stat("timeouts"), 0);
    assert_eq!(hosts.sides[0].stat("rx_nak_sequence"), 3);
}

#[test]
fn duplicates_are_not_executed_again() {
    let mut hosts = TwoHosts::connected(Options { duplication: 1000, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&pattern(3000, 1)), bob.sink(3000));
    for i in 0..4 {
        bob.recv(i, &[sink.all()]);
        alice.post(i, SendOperation::Send, SendFlags::empty(), &[source.all()]).unwrap();
    }
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes().len(), 4);
    assert_eq!(hosts.sides[1].stat("rx_sends"), 4);
    assert!(hosts.sides[1].stat("rx_duplicates") >= 12);
}

/// If a peer becomes slower, the requester retransmits a few times, one packet each, until the timeout has
/// adapted.
//= rocev2 §7
#[test]
fn the_timeout_adapts_to_a_slower_peer() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(&pattern(20_000, 1)), bob.shared(20_000));
    let write = |hosts: &mut TwoHosts| {
        let before = hosts.sides[0].stat("retransmissions");
        hosts.sides[0].write(1, &[source.all()], &remote, 0);
        hosts.run_until("a write", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
        hosts.sides[0].stat("retransmissions") - before
    };
    for _ in 0..10 {
        assert_eq!(write(&mut hosts), 0);
    }
    hosts.options.latency *= 500;
    let again: Vec<_> = (0..40).map(|_| write(&mut hosts)).collect();
    // 50 ms: after 1, 2, 4 ... ms.
    assert!(again[0] <= 7, "{again:?}");
    assert!(again[39] <= 1, "{again:?}");
}

/// More than are loaded into the cache at the same time.
#[test]
fn the_timers_of_many_queue_pairs_expire_together() {
    let mut hosts = TwoHosts::connected(Options::default());
    let mut qps = vec![hosts.sides[0].qp.clone()];
    qps.extend((0..20).map(|context| hosts.connect_another(context)[0].clone()));
    let (source, sink) = (hosts.sides[0].source(&[1; 8]), hosts.sides[1].shared(8));
    let alice = &hosts.sides[0];
    let operation = SendOperation::Write { address: sink.address(0), key: sink.key() };
    let sges = [source.all()];
    for qp in &qps {
        let (flags, data) = (SendFlags::empty(), SendData::Sges(&sges));
        alice.engine.post_send(qp, &SendRequest { context: 1, operation, flags, data }).unwrap();
    }
    assert_eq!(alice.transmit(hosts.now, 100).len(), qps.len());
    // After all of their timeouts.
    let later = hosts.now + Duration::from_millis(100);
    alice.engine.first_shard().handle_timeout(later);
    assert_eq!(alice.stat("tail_probes"), qps.len() as u64);
    assert_eq!(alice.transmit(later, 100).len(), qps.len());
}
