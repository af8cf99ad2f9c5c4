// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion control: CE marks cause CNPs, CNPs from the peer reduce the rate, CNPs from other sources do
//! not.

use std::time::Duration;

use roce::{CompletionStatus, CongestionMode, DcqcnConfig, DropReason, SendFlags, SendOperation, Verdict};
use roce_wire::{Ext, Headers, MacAddr, Opcode, Packet, Path, PathMtu, Psn, Qpn, Template};

use crate::two_hosts::{Marking, Memory, Options, Switch, TwoHosts, pattern};

const MTU: PathMtu = PathMtu::Bytes4096;

/// Options with which both sides react; the line rate is set to 10 Gb/s.
fn reacting() -> Options {
    let config: fn(&mut roce::Config) = |config| {
        config.congestion.mode = CongestionMode::React;
        config.congestion.reaction.line_rate = 10_000_000_000;
    };
    Options { mtu: MTU, config, ..Options::default() }
}

/// Lets alice write `len` bytes repeatedly for `time`. Returns the number of completed WRITEs.
fn keep_writing(hosts: &mut TwoHosts, source: &Memory, target: &Memory, len: usize, time: Duration) -> usize {
    let end = hosts.now + time;
    let mut done = 0;
    for _ in 0..4 {
        hosts.sides[0].write(0, &[source.sge(0, len)], target, 0);
    }
    while hosts.now < end {
        let left = end.duration_since(hosts.now);
        hosts.run_within(left, |hosts| !hosts.sides[0].cq.is_empty());
        for (_, status) in hosts.sides[0].outcomes() {
            assert_eq!(status, CompletionStatus::Success);
            done += 1;
            hosts.sides[0].write(0, &[source.sge(0, len)], target, 0);
        }
        if hosts.now.duration_since(end) == Duration::ZERO && hosts.sides[0].cq.is_empty() {
            let rest = end.duration_since(hosts.now);
            hosts.run_for(rest.min(Duration::from_micros(100)));
        }
    }
    done
}

//= rocev2 §14
#[test]
fn a_ce_mark_causes_one_cnp_per_interval() {
    for ip in [|n| [10, 0, 0, n].into(), |n| [0xFD00, 0, 0, 0, 0, 0, 0, u16::from(n)].into()] {
        let rate = Some(10_000_000_000);
        let mut hosts = TwoHosts::connected(Options { marks: 1000, rate, ip, ..reacting() });
        let [alice, bob] = &hosts.sides;
        let (source, target) = (alice.source(&pattern(2_000_000, 1)), bob.shared(2_000_000));
        hosts.capture = Some(Vec::new());
        hosts.options.faults_to = [false, true];
        alice.write(1, &[source.all()], &target, 0);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
        assert_eq!(target.read(), pattern(2_000_000, 1));
        let capture = hosts.capture.take().unwrap();
        let mut notifications = 0;
        for (from, frame) in &capture {
            let packet = Packet::parse(frame).unwrap();
            assert!(packet.icrc_valid(roce_wire::icrc::Crc::table()));
            let class = packet.ip().traffic_class();
            if packet.bth().opcode() != Opcode::CNP {
                assert_eq!(class & 3, if packet.bth().opcode().is_rc() { 2 } else { 0 });
                continue;
            }
            notifications += 1;
            assert_eq!((*from, packet.bth().dest_qp()), (1, hosts.sides[0].qp.qpn()));
            assert!(packet.bth().becn() && !packet.bth().ack_req());
            assert_eq!((packet.bth().psn(), class), (Psn::new(0), 48 << 2));
        }
        assert_eq!(hosts.sides[1].stat("tx_cnp"), notifications);
        assert_eq!(hosts.sides[0].stat("rx_cnp"), notifications);
        assert!(hosts.sides[1].stat("rx_congestion_marked") > notifications);
        assert!(notifications > 10 && hosts.sides[0].stat("rate_reductions") > 10);
        assert_eq!(hosts.sides[0].stat("tx_cnp"), 0);
    }
}

/// Marks an IPv4 frame CE, as a congested switch does.
fn mark(frame: &mut [u8]) {
    frame[15] |= 3;
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    let (less, borrow) = sum.overflowing_sub(3);
    frame[24..26].copy_from_slice(&(less - u16::from(borrow)).to_be_bytes());
}

//= rocev2 §14
#[test]
fn ce_marks_do_not_reduce_the_rate_unless_the_sender_reacts() {
    for mode in [CongestionMode::Ignore, CongestionMode::Notify] {
        let config: fn(&mut roce::Config) = match mode {
            CongestionMode::Ignore => |config| config.congestion.mode = CongestionMode::Ignore,
            _ => |_| {},
        };
        let mut hosts = TwoHosts::connected(Options { config, ..Options::default() });
        let [alice, bob] = &hosts.sides;
        let (source, target) = (alice.source(b"marked"), bob.shared(6));
        // A switch marks the frames although they are not ECN-capable.
        hosts.filter = Some(Box::new(|_, frame| {
            let packet = Packet::parse(frame).unwrap();
            assert_eq!(packet.ip().traffic_class() & 3, 0, "the frame is not ECN-capable");
            if packet.bth().opcode().is_rc() {
                mark(frame);
            }
            true
        }));
        alice.write(1, &[source.all()], &target, 0);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
        assert_eq!(hosts.sides[1].stat("rx_congestion_marked"), 1);
        assert_eq!(hosts.sides[1].stat("tx_cnp"), u64::from(mode == CongestionMode::Notify));
        assert_eq!(hosts.sides[0].stat("rx_cnp"), hosts.sides[1].stat("tx_cnp"));
        assert_eq!(hosts.sides[0].stat("rate_reductions"), 0);
    }
}

/// Runs a bulk transfer through a 1 Gb/s port of a switch that marks when more than a few frames are queued. Returns the
/// latency of a small message behind the transfer, and the bytes transferred in 200 ms.
fn behind_a_stream(options: &Options) -> (Duration, usize) {
    let switch = Switch { rate: 1_000_000_000, queue: 1 << 20, marking: Some(Marking::above(8 * 4096)) };
    let rate = Some(10_000_000_000);
    let mut hosts = TwoHosts::connected(Options { rate, switch: Some(switch), ..options.clone() });
    let [other, _] = hosts.connect_another(5);
    let len = 1 << 20;
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(len, 1)), bob.shared(len));
    let done = keep_writing(&mut hosts, &source, &target, len, Duration::from_millis(200));
    let operation = SendOperation::Write { address: target.address(0), key: target.key() };
    let sges = [source.sge(0, 64)];
    let request = roce::SendRequest {
        context: 9,
        operation,
        flags: SendFlags::empty(),
        data: roce::SendData::Sges(&sges),
    };
    let start = hosts.now;
    hosts.sides[0].engine.post_send(&other, &request).unwrap();
    loop {
        hosts.run_within(Duration::from_secs(1), |hosts| !hosts.sides[0].cq.is_empty());
        let outcomes = hosts.sides[0].outcomes();
        assert!(!outcomes.is_empty());
        if outcomes.contains(&(9, CompletionStatus::Success)) {
            break;
        }
    }
    // Nothing is lost. Queues that grow cost tail probes: one packet in a hundred.
    let [sent_again, probes] = ["retransmissions", "tail_probes"].map(|name| hosts.sides[0].stat(name));
    assert!(sent_again == probes && probes <= 60, "{sent_again} sent again, {probes} probes");
    (hosts.now.duration_since(start), done * len)
}

//= rocev2 §14
#[test]
fn a_reacting_sender_keeps_queues_short_and_fills_the_link() {
    let (slow, _) = behind_a_stream(&Options { mtu: MTU, ..Options::default() });
    let (quick, bytes) = behind_a_stream(&reacting());
    // Without CNPs, a window of packets is queued ahead of the message.
    assert!(slow > Duration::from_millis(3), "{slow:?}");
    assert!(quick < Duration::from_millis(1), "{quick:?}");
    let full = 1_000_000_000 / 8 / 5;
    assert!(bytes > full * 7 / 10, "{bytes} of {full}");
}

//= rocev2 §14
#[test]
fn a_reduced_rate_recovers_without_marks() {
    let mut hosts = TwoHosts::connected(Options { marks: 1000, faults_to: [false, true], ..reacting() });
    let len = 400_000;
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(len, 1)), bob.shared(len));
    let took = |hosts: &mut TwoHosts| {
        let start = hosts.now;
        hosts.sides[0].write(1, &[source.all()], &target, 0);
        hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
        hosts.now.duration_since(start)
    };
    took(&mut hosts);
    let slow = took(&mut hosts);
    assert!(slow > Duration::from_millis(5), "{slow:?}");
    hosts.options.marks = 0;
    let reductions = hosts.sides[0].stat("rate_reductions");
    let mut times = vec![slow];
    // Steps of 40 Mb/s each 55 us: 10 Gb/s are not reached, but every step is an increase.
    for _ in 0..6 {
        times.push(took(&mut hosts));
    }
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    hosts.run_for(Duration::from_millis(100));
    let quick = took(&mut hosts);
    // One round trip per window.
    assert!(quick < Duration::from_micros(200), "{quick:?}");
    assert_eq!(hosts.sides[0].stat("rate_reductions"), reductions);
    assert_eq!(hosts.sides[0].stat("retransmissions"), 0);
}

/// The responder of a READ sends the data, so its rate is reduced.
#[test]
fn read_responses_are_paced() {
    let mut hosts = TwoHosts::connected(Options { marks: 1000, faults_to: [true, false], ..reacting() });
    let len = 2_000_000;
    let [alice, bob] = &hosts.sides;
    let (sink, remote) = (alice.sink(len), bob.shared(len));
    remote.write(&pattern(len, 1));
    let start = hosts.now;
    for context in 0..2 {
        alice.read(context, &[sink.all()], &remote, 0);
    }
    hosts.run_until("the reads", |hosts| hosts.sides[0].qp.is_drained());
    assert_eq!(hosts.sides[0].outcomes(), [(0, CompletionStatus::Success), (1, CompletionStatus::Success)]);
    assert_eq!(sink.read(), pattern(len, 1));
    assert!(
        hosts.now.duration_since(start) > Duration::from_millis(5),
        "{:?}",
        hosts.now.duration_since(start)
    );
    assert!(hosts.sides[1].stat("rate_reductions") > 3);
    assert_eq!(hosts.sides[0].stat("rate_reductions"), 0, "the requester sends no data");
    assert_eq!(hosts.sides[0].stat("retransmissions"), 0, "slow responses are not lost");
}

/// At the minimum rate, a message arrives late and without retransmission.
#[test]
fn a_sender_at_its_minimum_rate_does_not_retransmit() {
    let config: fn(&mut roce::Config) = |config| {
        config.congestion.mode = CongestionMode::React;
        // The rate does not recover within the test.
        config.congestion.reaction.increase_interval = Duration::from_secs(100);
        config.congestion.reaction.alpha_interval = Duration::from_secs(100);
    };
    let mut hosts = TwoHosts::connected(Options { marks: 1000, config, ..reacting() });
    let len = 2_000_000;
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(len, 1)), bob.shared(len));
    let start = hosts.now;
    alice.write(1, &[source.all()], &target, 0);
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    let took = hosts.now.duration_since(start);
    // 16 Mbit at 10 Mb/s, less what was sent before the first CNPs.
    assert!(took > Duration::from_millis(300) && took < Duration::from_millis(1700), "{took:?}");
    assert_eq!(hosts.sides[0].stat("retransmissions"), 0);
    assert_eq!(target.read(), pattern(len, 1));
}

/// A paced frame sets the timer to its send time, and no work is pending before.
#[test]
fn a_paced_queue_pair_waits_for_its_send_time() {
    let mut hosts = TwoHosts::connected(Options { marks: 1000, faults_to: [false, true], ..reacting() });
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(400_000, 1)), bob.shared(400_000));
    // The first one is sent before a CNP arrives.
    alice.write(1, &[source.all()], &target, 0);
    hosts.run_until("the first one", |hosts| !hosts.sides[0].cq.is_empty());
    hosts.sides[0].write(2, &[source.all()], &target, 0);
    hosts.run_for(Duration::from_millis(1));
    let mut slept = 0;
    for _ in 0..50 {
        hosts.run_for(Duration::from_micros(7));
        let alice = &hosts.sides[0].engine;
        assert!(!alice.first_shard().wants_transmit());
        let next = alice.first_shard().poll_timeout().unwrap();
        slept += u32::from(next > hosts.now);
    }
    assert_eq!(slept, 50);
    assert_eq!(hosts.sides[0].outcomes().len(), 1, "the second one is on its way");
}

/// Returns a CNP along `path`.
fn notification(path: &Path, qpn: Qpn) -> Vec<u8> {
    let headers =
        Headers { opcode: Opcode::CNP, solicited: false, ack_req: false, psn: Psn::new(0), ext: Ext::Cnp };
    let mut slot = vec![0; 200];
    let template = Template::new(path, qpn).unwrap();
    let len = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 0).unwrap().finish();
    slot.truncate(len);
    slot
}

/// Returns the frame without BECN, which the ICRC does not cover.
fn without_becn(notification: &[u8]) -> Vec<u8> {
    let mut frame = notification.to_vec();
    frame[14 + 20 + 8 + 4] = 0;
    frame
}

/// Returns the bytes that arrive within 50 ms from a sender on a link of 10 Gb/s that is notified of congestion all the time: by
/// notifications that an attacker forges, or marks that it sets.
fn under_attack(mode: CongestionMode, marks: u32, attacks: bool) -> usize {
    let config: fn(&mut roce::Config) = match mode {
        CongestionMode::React => |config| {
            config.congestion.mode = CongestionMode::React;
            config.congestion.reaction = DcqcnConfig::for_line_rate(10_000_000_000);
        },
        _ => |_| {},
    };
    let mut hosts = TwoHosts::connected(Options { marks, config, ..reacting() });
    let len = 20_000;
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(len, 1)), bob.shared(len));
    let forged = notification(&hosts.path(1), alice.qp.qpn());
    let mut done = 0;
    let write = |hosts: &TwoHosts| hosts.sides[0].write(0, &[source.all()], &target, 0);
    (0..12).for_each(|_| write(&hosts));
    // The rate falls in the first 10 ms, which are not counted.
    for round in 0..2400 {
        if attacks {
            hosts.deliver(0, hosts.now, forged.clone());
        }
        hosts.run_for(Duration::from_micros(25));
        for (_, status) in hosts.sides[0].outcomes() {
            assert_eq!(status, CompletionStatus::Success);
            done += usize::from(round >= 400);
            write(&hosts);
        }
    }
    done * len
}

#[test]
fn forged_notifications_and_marks_slow_a_connection_by_256_at_most() {
    // 50 ms at 10 Gb/s, less the headers of frames.
    let full = 58_000_000;
    let undisturbed = under_attack(CongestionMode::Notify, 0, false);
    assert!(undisturbed > full, "{undisturbed}");
    // The default takes no notice.
    assert_eq!(under_attack(CongestionMode::Notify, 0, true), undisturbed);
    for (marks, attacks) in [(0, true), (1000, false), (1000, true)] {
        let kept = under_attack(CongestionMode::React, marks, attacks);
        assert!((full / 256..full / 20).contains(&kept), "{kept} bytes");
    }
}

//= rocev2 §14
#[test]
fn a_cnp_without_becn_or_from_an_unverified_source_has_no_effect() {
    let mut hosts = TwoHosts::connected(reacting());
    let qpn = hosts.sides[0].qp.qpn();
    let good = notification(&hosts.path(1), qpn);
    let unverified = Path { local_ip: [10, 0, 0, 66].into(), ..hosts.path(1) };
    let spoofed_mac = Path { local_mac: MacAddr([6; 6]), ..unverified };
    let without = without_becn(&good);
    let mut broken = good.clone();
    broken[60] ^= 1;
    let cases = [
        (notification(&unverified, qpn), Verdict::Dropped(DropReason::Address)),
        (notification(&spoofed_mac, qpn), Verdict::Dropped(DropReason::Address)),
        (without, Verdict::Dropped(DropReason::Opcode)),
        (broken, Verdict::Dropped(DropReason::Malformed(roce_wire::DropReason::Icrc))),
    ];
    for (frame, verdict) in cases {
        assert_eq!(hosts.sides[0].engine.first_shard().handle_frame(hosts.now, &frame), verdict);
        assert_eq!(hosts.sides[0].stat("rate_reductions"), 0);
    }
    assert_eq!(hosts.sides[0].engine.first_shard().handle_frame(hosts.now, &good), Verdict::Consumed);
    assert_eq!(hosts.sides[0].stat("rate_reductions"), 1);
    hosts.drive();
}

/// A CNP has no effect on the rate of CNPs.
//= rocev2 §14
#[test]
fn a_ce_mark_on_a_cnp_causes_no_cnp() {
    let mut hosts = TwoHosts::connected(reacting());
    let good = notification(&hosts.path(1), hosts.sides[0].qp.qpn());
    let without = without_becn(&good);
    for (mut frame, verdict) in [(good, Verdict::Consumed), (without, Verdict::Dropped(DropReason::Opcode))] {
        mark(&mut frame);
        assert_eq!(hosts.sides[0].engine.first_shard().handle_frame(hosts.now, &frame), verdict);
        hosts.drive();
        assert_eq!(hosts.sides[0].stat("rx_congestion_marked"), 0);
        assert_eq!(hosts.sides[0].stat("tx_cnp"), 0);
    }
}

/// Options with a sender that stays at 100 Mb/s once it has received CNPs.
fn slow() -> Options {
    let config: fn(&mut roce::Config) = |config| {
        config.congestion.mode = CongestionMode::React;
        let reaction = &mut config.congestion.reaction;
        (reaction.line_rate, reaction.min_rate) = (10_000_000_000, 100_000_000);
        reaction.increase_interval = Duration::from_secs(100);
        reaction.alpha_interval = Duration::from_secs(100);
        reaction.increase_bytes = u64::MAX;
    };
    Options { mtu: MTU, marks: 1000, faults_to: [false, true], config, ..Options::default() }
}

/// Writes until alice has received enough CNPs.
fn lower_rate(hosts: &mut TwoHosts, source: &Memory, target: &Memory) {
    for _ in 0..3 {
        hosts.sides[0].write(1, &[source.all()], target, 0);
        hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
        hosts.sides[0].completions();
    }
}

/// A sender that had nothing to send makes up for little of that time.
#[test]
fn an_idle_sender_has_no_credit() {
    let mut hosts = TwoHosts::connected(slow());
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(400_000, 1)), bob.shared(400_000));
    // At 100 Mb/s, 125,000 bytes take 10 ms.
    lower_rate(&mut hosts, &source, &target);
    for pause in [0, 15] {
        hosts.run_for(Duration::from_millis(pause));
        let start = hosts.now;
        hosts.sides[0].write(1, &[source.sge(0, 125_000)], &target, 0);
        hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
        hosts.sides[0].completions();
        let took = hosts.now.duration_since(start);
        assert!(took >= Duration::from_micros(9800), "after {pause} ms: {took:?}");
    }
}

/// Messages that are too short to be copied without the lock are paced as others. ACKs are not.
#[test]
fn short_messages_are_paced_and_acks_are_not() {
    let mut hosts = TwoHosts::connected(slow());
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(400_000, 1)), bob.shared(400_000));
    let sinks = [alice.sink(64), bob.sink(64)];
    lower_rate(&mut hosts, &source, &target);
    let start = hosts.now;
    for context in 0..64 {
        hosts.sides[1].recv(context, &[sinks[1].all()]);
        hosts.sides[0].send(context, &[source.sge(0, 64)]);
    }
    hosts.run_until("the messages", |hosts| hosts.sides[0].qp.is_drained());
    // 64 frames of 64 bytes and headers.
    let took = hosts.now.duration_since(start);
    assert!(took > Duration::from_micros(500), "{took:?}");
    hosts.sides[0].completions();
    hosts.sides[1].completions();
    // While alice waits for her time.
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    for _ in 0..20 {
        hosts.run_for(Duration::from_micros(130));
        hosts.sides[0].recv(1, &[sinks[0].all()]);
        let sent = hosts.now;
        hosts.sides[1].send(1, &[sinks[1].all()]);
        hosts.run_until("the message", |hosts| !hosts.sides[1].cq.is_empty());
        hosts.sides[1].completions();
        assert_eq!(hosts.now.duration_since(sent), 2 * hosts.options.latency, "a round trip");
    }
}

/// READ responses have no ACKs that would send the next burst, and a peer reads again when it has them: with late timers, each
/// READ is answered with the credit of all of the time before it.
#[test]
fn late_timers_do_not_lower_the_rate_of_read_responses() {
    let timer_tick = Some(Duration::from_micros(15_625));
    let mut hosts = TwoHosts::connected(Options { faults_to: [true, false], timer_tick, ..slow() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (bob.source(&pattern(400_000, 1)), alice.sink(400_000));
    let target = alice.shared(400_000);
    for _ in 0..3 {
        hosts.sides[1].write(1, &[source.all()], &target, 0);
        hosts.run_until("the write", |hosts| !hosts.sides[1].cq.is_empty());
        hosts.sides[1].completions();
    }
    let remote = hosts.sides[1].shared(400_000);
    // At 100 Mb/s, 12,500 bytes take 1 ms.
    for (len, count) in [(400_000, 5), (12_500, 160)] {
        let start = hosts.now;
        for _ in 0..count {
            hosts.sides[0].read(1, &[sink.sge(0, len)], &remote, 0);
            hosts.run_until("the READ", |hosts| !hosts.sides[0].cq.is_empty());
            hosts.sides[0].completions();
        }
        // Both take 160 ms at the rate. The first frames of a READ wait for a tick at most.
        let took = hosts.now.duration_since(start);
        assert!(took <= Duration::from_millis(180), "{count} READs of {len} bytes: {took:?}");
    }
}

/// The credit for a late timer is spent in bursts that ACKs clock, and ends with what was to be sent.
#[test]
fn late_timers_neither_lower_nor_raise_the_rate_of_writes() {
    let tick = Duration::from_micros(15_625);
    let mut hosts = TwoHosts::connected(Options { timer_tick: Some(tick), ..slow() });
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(400_000, 1)), bob.shared(400_000));
    lower_rate(&mut hosts, &source, &target);
    for (len, ticks) in [(400_000, 5), (8_000, 10)] {
        let start = hosts.now;
        for _ in 0..10 {
            hosts.sides[0].write(1, &[source.sge(0, len)], &target, 0);
            hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
            hosts.sides[0].completions();
        }
        // 80 ns for a byte. Each short WRITE waits for a tick.
        let at_rate = Duration::from_nanos(10 * 80 * len as u64);
        let took = hosts.now.duration_since(start);
        assert!(took >= at_rate && took <= at_rate + ticks * tick, "{len} bytes: {took:?}");
    }
}
