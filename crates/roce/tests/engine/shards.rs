// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shards: connections live where their packets arrive.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fallible::Arc;
use roce::{CompletionStatus, Config, DropReason, Instant, SendFlags, SendOperation, Shard, Verdict};
use roce_wire::icrc::Crc;
use roce_wire::{Ext, Headers, Opcode, Packet, Path, Psn, Qpn, Template};

use crate::two_hosts::{Options, Side, TwoHosts, pattern, spec};

fn options() -> Options {
    Options { config: |config: &mut Config| config.shards = 2, ..Options::default() }
}

/// Lets all frames arrive by one shard.
fn steer(hosts: &mut TwoHosts, number: u32) {
    hosts.steer(Box::new(move |_, _| number));
}

/// Returns the shard of each side's queue pair.
fn shards(hosts: &TwoHosts) -> [u32; 2] {
    hosts.sides.each_ref().map(|side| side.engine.shard_of(&side.qp).number())
}

/// Returns the frames that each side has sent and received by a shard.
fn frames(hosts: &TwoHosts, number: u32) -> [(u64, u64); 2] {
    hosts.sides.each_ref().map(|side| {
        let shard = side.engine.shard(number).unwrap();
        (shard.stats().tx_frames.get(), shard.stats().rx_frames.get())
    })
}

/// Returns the deadline of each shard of a side.
fn deadlines(side: &Side) -> [Option<Instant>; 2] {
    [0, 1].map(|number| side.engine.shard(number).unwrap().poll_timeout())
}

/// Sends a message of several packets from side `from` to the other.
fn send(hosts: &mut TwoHosts, from: usize, context: u64) {
    let data = pattern(5000, context);
    let (source, sink) = (hosts.sides[from].source(&data), hosts.sides[1 - from].sink(5000));
    hosts.sides[1 - from].recv(context, &[sink.all()]);
    hosts.sides[from].send(context, &[source.all()]);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(context, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[1].outcomes(), [(context, CompletionStatus::Success)]);
    assert_eq!(sink.read(), data);
}

#[test]
fn a_connection_moves_to_the_shard_by_which_its_packets_arrive_and_stays_there() {
    let mut hosts = TwoHosts::connected(options());
    assert_eq!(shards(&hosts), [0, 0], "the first queue pair begins at the first shard");
    for (context, number) in [(1, 1), (2, 0), (3, 1)] {
        steer(&mut hosts, number);
        send(&mut hosts, 0, context);
        assert_eq!(shards(&hosts), [number; 2]);
        let others = frames(&hosts, 1 - number);
        send(&mut hosts, 1, context + 10);
        assert_eq!(frames(&hosts, 1 - number), others, "a frame of shard {number} touched the other one");
    }
}

#[test]
fn a_connection_keeps_its_source_port_when_it_moves() {
    let mut hosts = TwoHosts::connected(options());
    hosts.capture = Some(Vec::new());
    for number in [0, 1, 0] {
        steer(&mut hosts, number);
        send(&mut hosts, 0, u64::from(number));
    }
    let ports: [BTreeSet<[u8; 2]>; 2] = [0, 1].map(|side| {
        let sent = hosts.capture.as_ref().unwrap().iter().filter(|(from, _)| *from == side);
        let data = sent.filter(|(_, frame)| Packet::parse(frame).unwrap().bth().dest_qp() != Qpn::GSI);
        // After the Ethernet and IPv4 headers.
        data.map(|(_, frame)| [frame[34], frame[35]]).collect()
    });
    assert_eq!(ports[0].len(), 1, "{ports:?}");
    // Both directions have the same one, so that a device that steers by addresses and ports of what is sent finds it.
    assert_eq!(ports[0], ports[1]);
}

#[test]
fn a_post_makes_ready_its_own_shard_only() {
    let mut hosts = TwoHosts::connected(options());
    for number in [0, 1] {
        steer(&mut hosts, number);
        send(&mut hosts, 0, 1);
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(b"x"), bob.sink(1));
        bob.recv(2, &[sink.all()]);
        alice.send(2, &[source.all()]);
        let wanting: Vec<u32> =
            alice.engine.shards().filter(Shard::wants_transmit).map(|shard| shard.number()).collect();
        assert_eq!(wanting, [number]);
        hosts.run();
        hosts.sides.iter().for_each(|side| drop(side.outcomes()));
    }
}

#[test]
fn queue_pairs_without_packets_are_spread_over_the_shards() {
    let hosts = TwoHosts::new(options());
    let side = &hosts.sides[0];
    let numbers: Vec<u32> = (0..6)
        .map(|_| side.engine.create_qp(spec(side.pd, &side.cq, &hosts.options)).unwrap())
        .map(|qp| side.engine.shard_of(&qp).number())
        .collect();
    assert_eq!(numbers, [1, 0, 1, 0, 1, 0]);
}

#[test]
fn the_retransmission_timer_moves_with_its_connection() {
    let mut hosts = TwoHosts::connected(options());
    steer(&mut hosts, 1);
    send(&mut hosts, 0, 1);
    hosts.cut[1] = true;
    let data = pattern(3000, 2);
    let (source, target) = (hosts.sides[0].source(&data), hosts.sides[1].shared(3000));
    hosts.sides[0].write(2, &[source.all()], &target, 0);
    hosts.drive();
    let [None, Some(_)] = deadlines(&hosts.sides[0]) else { panic!("the timer is not in shard 1") };

    // A message of the peer arrives by the other shard.
    steer(&mut hosts, 0);
    let (hello, sink) = (hosts.sides[1].source(b"hello"), hosts.sides[0].sink(5));
    hosts.sides[0].recv(3, &[sink.all()]);
    hosts.sides[1].send(3, &[hello.all()]);
    hosts.run_within(Duration::from_millis(1), |_| false);
    assert_eq!(shards(&hosts)[0], 0);
    let [Some(_), None] = deadlines(&hosts.sides[0]) else { panic!("the timer is not in shard 0") };

    hosts.cut[1] = false;
    let sent_by_one = frames(&hosts, 1)[0];
    hosts.run();
    assert_eq!(frames(&hosts, 1)[0], sent_by_one);
    assert!(hosts.sides[0].outcomes().contains(&(2, CompletionStatus::Success)));
    assert_eq!(target.read(), data);
}

#[test]
fn a_frame_from_another_source_does_not_move_a_connection() {
    let mut hosts = TwoHosts::connected(options());
    send(&mut hosts, 0, 1);
    let path = Path { local_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66)), ..hosts.path(0) };
    let (opcode, psn) = (Opcode::SEND_ONLY, Psn::new(0));
    let headers = Headers { opcode, solicited: false, ack_req: true, psn, ext: Ext::None };
    let mut slot = [0; 200];
    let template = Template::new(&path, hosts.sides[1].qp.qpn()).unwrap();
    let len = template.begin(Crc::table(), &mut slot, &headers, 0).unwrap().finish();
    let shard = hosts.sides[1].engine.shard(1).unwrap();
    assert_eq!(shard.handle_frame(hosts.now, &slot[..len]), Verdict::Dropped(DropReason::Address));
    assert_eq!(shards(&hosts), [0, 0]);
}

/// However frames of one connection are distributed, data arrives once and in order, no frame waits for another one, and
/// no timer is left in a shard.
#[test]
fn frames_that_arrive_by_any_shard_deliver_correct_data() {
    for seed in 0..20 {
        let mut hosts = TwoHosts::connected(Options {
            seed,
            loss: if seed < 10 { 0 } else { 20 },
            reordering: 50,
            duplication: 20,
            config: |config| config.shards = 3,
            ..Options::default()
        });
        let mut state = seed | 1;
        hosts.steer(Box::new(move |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 60) as u32 % 3
        }));
        let data: Vec<_> = (0..24).map(|context| pattern(3000, seed << 8 | context)).collect();
        let sinks: Vec<_> = (0..24).map(|context| hosts.sides[1].sink(data[context].len())).collect();
        for (context, (data, sink)) in (0..).zip(data.iter().zip(&sinks)) {
            let source = hosts.sides[0].source(data);
            hosts.sides[1].recv(context, &[sink.all()]);
            hosts.sides[0].send(context, &[source.all()]);
        }
        let begin = hosts.now;
        hosts.run();
        for side in &hosts.sides {
            let done = side.outcomes();
            assert_eq!(done, (0..24).map(|n| (n, CompletionStatus::Success)).collect::<Vec<_>>(), "{seed}");
            assert_eq!(side.engine.shards().filter_map(|shard| shard.poll_timeout()).count(), 0, "{seed}");
        }
        for (data, sink) in data.iter().zip(&sinks) {
            assert_eq!(*data, sink.read(), "{seed}");
        }
        // A queue pair that is ready in no shard would wait for a timeout of 67 ms.
        if seed < 10 {
            assert_eq!(hosts.sides[0].stat("timeouts"), 0, "{seed}: {:?}", hosts.now.duration_since(begin));
        }
    }
}

#[test]
fn statistics_are_summed_over_the_shards() {
    let mut hosts = TwoHosts::connected(options());
    for number in [0, 1] {
        steer(&mut hosts, number);
        send(&mut hosts, 0, 1);
    }
    for side in &hosts.sides {
        let by_shard: Vec<u64> = side.engine.shards().map(|shard| shard.stats().rx_bytes.get()).collect();
        assert_eq!(side.engine.stats().rx_bytes.get(), by_shard.iter().sum());
    }
    assert_eq!(hosts.sides[1].stat("rx_bytes"), 10_000 + hosts.sides[1].stat("rx_datagrams") * 256);
}

/// The slots of the first chunk of the table of queue pairs, which are used one after the other.
const SLOTS: usize = 256;

#[test]
fn a_destroyed_queue_pair_is_in_no_list_and_leaves_its_successor_alone() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [old, _] = hosts.connect_another(7);
    let source = hosts.sides[0].source(b"never sent");
    let sges = [source.all()];
    let request = roce::SendRequest {
        context: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: roce::SendData::Sges(&sges),
    };
    let side = &hosts.sides[0];
    side.engine.post_send(&old, &request).unwrap();
    side.engine.destroy_qp(&old);
    // The connection has the other one until the next event.
    assert_eq!(Arc::count(&old), 2, "a list still has it");
    hosts.run();
    hosts.sides.iter().for_each(|side| drop(side.outcomes()));

    for _ in 0..SLOTS - 2 {
        let side = &hosts.sides[0];
        let qp = side.engine.create_qp(spec(side.pd, &side.cq, &hosts.options)).unwrap();
        side.engine.destroy_qp(&qp);
    }
    // In the slot of the old one.
    let [new, _] = hosts.connect_another(8);
    hosts.cut[1] = true;
    hosts.sides[0].engine.post_send(&new, &request).unwrap();
    hosts.drive();
    let before = hosts.sides[0].engine.first_shard().poll_timeout();
    assert!(before.is_some());
    hosts.sides[0].engine.destroy_qp(&old);
    assert_eq!(
        hosts.sides[0].engine.first_shard().poll_timeout(),
        before,
        "destroying a queue pair twice has stopped another one's timer"
    );
}
