// SPDX-License-Identifier: MIT OR Apache-2.0

//! Losses of the first message of a connection: its exchange of messages while connecting has measured the round trip, if anything has
//! (RFC 6298).

use std::time::Duration;

use roce::{CompletionStatus, Config, ConnEvent, QpChange, RequesterSpec};
use roce_wire::{Attribute, Mad, Opcode, Packet, PathMtu};

use crate::modify::{Direct, PSNS, requester};
use crate::two_hosts::{Options, TwoHosts, pattern};

/// The minimum retransmission timeout of the driver, and the tick of its timers.
const MIN_RESEND: Duration = Duration::from_micros(15_600);
const TICK: Duration = Duration::from_micros(15_625);

const LENGTH: usize = 16 * 4096;

fn options() -> Options {
    let config: fn(&mut Config) = |config| config.timing.min_resend = MIN_RESEND;
    Options { mtu: PathMtu::Bytes4096, rate: Some(10_000_000_000), config, ..Options::default() }
}

/// Drops the first copies of the last `lost` packets with these opcodes that arrive at one side.
fn lose_tail(hosts: &mut TwoHosts, to: usize, opcodes: &'static [Opcode], lost: u32, count: u32) {
    let (mut first, mut seen) = (None, std::collections::HashSet::new());
    hosts.filter = Some(Box::new(move |side, frame| {
        let bth = Packet::parse(frame).unwrap().bth();
        let (opcode, psn) = (bth.opcode(), bth.psn());
        if side != to || !opcodes.contains(&opcode) {
            return true;
        }
        let number = psn.distance_from(*first.get_or_insert(psn)).cast_unsigned();
        !(seen.insert(number) && number + lost >= count)
    }));
}

const SEND: &[Opcode] = &[Opcode::SEND_FIRST, Opcode::SEND_MIDDLE, Opcode::SEND_LAST];
const WRITE: &[Opcode] = &[Opcode::WRITE_FIRST, Opcode::WRITE_MIDDLE, Opcode::WRITE_LAST];
const RESPONSES: &[Opcode] =
    &[Opcode::READ_RESPONSE_FIRST, Opcode::READ_RESPONSE_MIDDLE, Opcode::READ_RESPONSE_LAST];

/// Posts the first request of `side`, of which packets are lost, and returns the time until it is complete.
fn first_request(hosts: &mut TwoHosts, side: usize, kind: &str, lost: u32) -> Duration {
    let other = 1 - side;
    let (near, far) = (&hosts.sides[side], &hosts.sides[other]);
    let data = pattern(LENGTH, 1);
    let (source, target) = (near.shared(LENGTH), far.shared(LENGTH));
    source.write(&data);
    match kind {
        "SEND" => {
            far.recv(2, &[target.all()]);
            near.send(1, &[source.all()]);
        }
        "WRITE" => near.write(1, &[source.all()], &target, 0),
        _ => near.read(1, &[source.all()], &target, 0),
    }
    match kind {
        "SEND" => lose_tail(hosts, other, SEND, lost, 16),
        "WRITE" => lose_tail(hosts, other, WRITE, lost, 16),
        "READ request" => lose_tail(hosts, other, &[Opcode::READ_REQUEST], 1, 1),
        _ => lose_tail(hosts, side, RESPONSES, lost, 16),
    }
    let start = hosts.now;
    hosts.run_until("the request", |hosts| !hosts.sides[side].cq.is_empty());
    hosts.filter = None;
    assert_eq!(hosts.sides[side].outcomes(), [(1, CompletionStatus::Success)]);
    hosts.now.duration_since(start)
}

/// Losses of the first message: kind, and how many packets at its end.
const LOSSES: [(&str, u32); 7] = [
    ("SEND", 1),
    ("SEND", 16),
    ("WRITE", 1),
    ("WRITE", 16),
    ("READ request", 1),
    ("READ responses", 1),
    ("READ responses", 16),
];

//= rocev2 §7
#[test]
fn a_loss_of_the_first_message_is_repaired_as_soon_as_later_ones() {
    for side in [0, 1] {
        for (kind, lost) in LOSSES {
            let mut hosts = TwoHosts::connected(options());
            let took = first_request(&mut hosts, side, kind, lost);
            // What is lost with the first packet is sent again in runs of 1, 2, 4 and 9 packets.
            let expected = if lost == 1 { 1000 } else { 1100 };
            assert!(took < Duration::from_micros(expected), "side {side}, {kind}, {lost} lost: {took:?}");
            // With timers of 15.6 ms, and nothing else to do.
            let mut hosts = TwoHosts::connected(Options { timer_tick: Some(TICK), ..options() });
            let took = first_request(&mut hosts, side, kind, lost);
            assert!(took < Duration::from_millis(17), "side {side}, {kind}, {lost} lost: {took:?}");
        }
    }
}

/// Connects two hosts whose consumers take some time to accept and to complete. If `lost`, the first REP is lost.
fn connected_slowly(accept: Duration, complete: Duration, lost: bool) -> TwoHosts {
    let mut hosts = TwoHosts::new(options());
    let mut lost = lost;
    hosts.filter = Some(Box::new(move |_, frame| {
        let packet = Packet::parse(frame).unwrap();
        let attribute = Mad::new_checked(packet.payload()).unwrap().header().attribute();
        attribute != Attribute::CM_REP || !std::mem::take(&mut lost)
    }));
    hosts.listen();
    hosts.connect(b"hello");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.run_for(accept);
    hosts.accept(b"welcome");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.run_for(complete);
    hosts.complete();
    hosts.run_until("the connection", |hosts| {
        hosts.has_event(1, |e| matches!(e, ConnEvent::Established { .. }))
    });
    hosts
}

/// The answer to a message counts as a round trip, however long the peer's consumer takes; not if the message was sent twice (Karn's
/// algorithm). Without a measurement, the first probe is sent after a minimum retransmission timeout.
//= rocev2 §7
#[test]
fn a_consumer_that_takes_long_delays_the_repair_by_a_tick_at_most() {
    let (soon, later) = (Duration::ZERO, Duration::from_millis(3));
    let long = Duration::from_millis(60);
    let probed = 15_600..16_300;
    let soonest = 500..1100;
    let cases = [
        // Time to accept and to complete, whether a REP is lost; microseconds until the repair at each side.
        (soon, soon, false, [soonest.clone(), soonest.clone()]),
        (later, soon, false, [9300..10_000, soonest.clone()]),
        (soon, later, false, [soonest, 9300..10_000]),
        (long, long, false, [probed.clone(), probed.clone()]),
        (soon, soon, true, [probed.clone(), probed]),
    ];
    for (accept, complete, lost, expected) in cases {
        for side in [0, 1] {
            let mut hosts = connected_slowly(accept, complete, lost);
            let took = first_request(&mut hosts, side, "WRITE", 16);
            let case = format!("side {side}, {accept:?}, {complete:?}, {lost}: {took:?}");
            assert!(expected[side].contains(&took.as_micros()), "{case}");
        }
    }
}

/// Nothing measures the path of a queue pair that its owner has connected before its first answer.
//= rocev2 §7
#[test]
fn a_queue_pair_without_connection_management_probes_after_the_minimum_timeout() {
    for (kind, lost) in LOSSES.into_iter().filter(|(kind, lost)| *lost == 16 || *kind == "READ request") {
        let mut hosts = Direct::connected(options()).hosts;
        let took = first_request(&mut hosts, 0, kind, lost);
        assert!((15_600..16_800).contains(&took.as_micros()), "{kind}, {lost} lost: {took:?}");
    }
    // A path that is longer costs a probe with each message, until the probes wait for longer.
    let direct = Direct::new(Options { latency: Duration::from_millis(20), ..options() });
    for side in [0, 1] {
        direct.change(side, &QpChange::ReadyToReceive(direct.peer(side))).unwrap();
        let spec = RequesterSpec { ack_timeout: 18, ..requester(PSNS[side]) };
        direct.change(side, &QpChange::ReadyToSend(spec)).unwrap();
    }
    let mut hosts = direct.hosts;
    let target = hosts.sides[1].shared(64);
    let source = hosts.sides[0].source(&[7; 64]);
    let probes: Vec<_> = (0..4)
        .map(|context| {
            hosts.sides[0].write(context, &[source.all()], &target, 0);
            hosts.run_until("a write", |hosts| !hosts.sides[0].cq.is_empty());
            hosts.sides[0].completions();
            hosts.sides[0].stat("retransmissions")
        })
        .collect();
    assert_eq!(probes, [1, 2, 2, 2]);
    assert_eq!(hosts.sides[0].stat("timeouts"), 0);
}

/// A READ request behind other requests has no probe, which is not waited for.
//= rocev2 §7
#[test]
fn a_lost_read_behind_a_lost_write_is_sent_again_after_the_minimum_timeout() {
    let mut hosts = Direct::connected(options()).hosts;
    let [near, far] = &hosts.sides;
    let (source, target) = (near.shared(64), far.shared(64));
    near.write(1, &[source.all()], &target, 0);
    near.read(2, &[source.all()], &target, 0);
    let mut lost = 0;
    hosts.filter = Some(Box::new(move |_, _| {
        lost += 1;
        lost > 2
    }));
    let start = hosts.now;
    hosts.run_until("the requests", |hosts| hosts.sides[0].qp.is_drained());
    let took = hosts.now.duration_since(start);
    assert!((15_600..16_000).contains(&took.as_micros()), "{took:?}");
    assert_eq!(hosts.sides[0].outcomes().len(), 2);
}
