// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that leave gaps open do not hold the stash of others.

use std::time::Duration;

use fallible::Arc;
use roce::{CompletionStatus, Qp, StashLimits, Verdict};
use roce_testkit::{Lock, Options, TwoHosts, pattern};
use roce_wire::{Ext, Opcode, PathMtu, Psn};

use super::forger::frame;

/// Frames of the largest size for which the stash has room.
const ROOM: u32 = 600;

/// Bytes of a message of the honest connection.
const MESSAGE: usize = 1 << 16;

fn options() -> Options {
    Options {
        mtu: PathMtu::Bytes4096,
        rate: Some(10_000_000_000),
        latency: Duration::from_micros(50),
        faults_to: [false, true],
        config: |config| {
            let total = ROOM * (4096 + 128);
            config.stash = StashLimits { per_qp: total / 2, total };
        },
        ..Options::default()
    }
}

/// Sends packets with `payload` bytes after a gap to a queue pair of side 1, whose next PSN is `psn`, until one is not stored.
/// Returns how many were.
fn fill(hosts: &mut TwoHosts, qp: &Arc<Qp<Lock>>, psn: Psn, payload: usize) -> u32 {
    let path = hosts.path(0);
    let bob = &hosts.sides[1].engine;
    let stored = (1..8000)
        .take_while(|&number| {
            let frame =
                frame(&path, qp.qpn(), Opcode::SEND_MIDDLE, psn.add(number), Ext::None, &vec![0xEE; payload]);
            bob.first_shard().handle_frame(hosts.now, &frame) == Verdict::Consumed
        })
        .count();
    // What it answers does not reach the peer, which is dead.
    hosts.cut = [true; 2];
    hosts.drive();
    hosts.cut = [false; 2];
    stored as u32
}

/// Connects `count` queue pairs besides the first. Returns those of side 1 with their next PSNs.
fn connect(hosts: &mut TwoHosts, count: u64) -> Vec<(Arc<Qp<Lock>>, Psn)> {
    (0..count)
        .map(|context| {
            hosts.capture = Some(Vec::new());
            let [_, qp] = hosts.connect_another(context);
            let reply = hosts.capture.take().unwrap().into_iter().find_map(|(from, frame)| {
                match super::forger::message(&frame) {
                    Some(roce_wire::cm::CmMessage::Rep(rep)) if from == 1 => Some(rep.starting_psn),
                    _ => None,
                }
            });
            (qp, reply.unwrap())
        })
        .collect()
}

/// Sends messages on the first connection while one frame of 100 is lost. Returns how long that takes.
fn send(hosts: &mut TwoHosts) -> Duration {
    const COUNT: u64 = 300;
    hosts.options.loss = 10;
    let data = pattern(MESSAGE, 3);
    let (source, sink) = (hosts.sides[0].source(&data), hosts.sides[1].sink(MESSAGE));
    let start = hosts.now;
    let (mut posted, mut done) = (0, 0);
    while done < COUNT {
        while posted < COUNT.min(done + 32) {
            hosts.sides[1].recv(posted, &[sink.all()]);
            hosts.sides[0].send(posted, &[source.all()]);
            posted += 1;
        }
        hosts.run_until("a SEND", |hosts| !hosts.sides[0].cq.is_empty());
        let outcomes = hosts.sides[0].outcomes();
        assert!(outcomes.iter().all(|(_, status)| *status == CompletionStatus::Success));
        done += outcomes.len() as u64;
        hosts.sides[1].completions();
    }
    hosts.options.loss = 0;
    assert_eq!(sink.read(), data);
    hosts.now.duration_since(start)
}

/// Two connections hold what they can get, and their peers are dead.
#[test]
fn dead_peers_leave_the_stash_to_others() {
    let defaults = || Options { config: |_| {}, ..options() };
    let mut quiet = TwoHosts::connected(defaults());
    connect(&mut quiet, 2);
    let alone = send(&mut quiet);
    let mut hosts = TwoHosts::connected(defaults());
    let dead = connect(&mut hosts, 2);
    let stored: Vec<_> = dead.iter().map(|(qp, psn)| fill(&mut hosts, qp, *psn, 4096)).collect();
    // Each as much as it leaves.
    let room = hosts.sides[1].engine.config().stash.total / (4096 + 128);
    assert_eq!(stored, [room / 2, room / 4 + 1]);
    let before = hosts.sides[1].stat("rx_stashed");
    let beside = send(&mut hosts);
    assert!(beside * 95 <= alone * 100, "{beside:?}, {alone:?} without dead peers");
    assert!(hosts.sides[1].stat("rx_stashed") > before);
}

/// The packets of a peer that is dead for longer than a timeout are freed; those of one that sends are not.
#[test]
fn packets_that_wait_for_too_long_are_freed() {
    let mut hosts = TwoHosts::connected(options());
    let [dead, other] = <[_; 2]>::try_from(connect(&mut hosts, 2)).ok().unwrap();
    assert_eq!(fill(&mut hosts, &dead.0, dead.1, 4096), ROOM / 2);
    hosts.run_for(Duration::from_millis(900));
    assert_eq!(fill(&mut hosts, &other.0, other.1, 4096), ROOM / 4);
    hosts.run_for(Duration::from_millis(200));
    // The first ones are free. The later ones are not: only what finds room now is stored anew.
    assert_eq!(fill(&mut hosts, &dead.0, dead.1, 4096), 3 * ROOM / 8);
    let before = hosts.sides[1].stat("rx_stashed");
    let all = u64::from(fill(&mut hosts, &other.0, other.1, 4096));
    assert_eq!(hosts.sides[1].stat("rx_stashed") - before, all - u64::from(ROOM / 4));
    hosts.run_for(Duration::from_secs(3600));
    assert_eq!(fill(&mut hosts, &other.0, other.1, 4096), ROOM / 2);
}

/// Short frames fill no more of the stash than they are long.
#[test]
fn short_packets_take_little_of_the_stash() {
    let mut hosts = TwoHosts::connected(options());
    let [short, long] = <[_; 2]>::try_from(connect(&mut hosts, 2)).ok().unwrap();
    // 600 frames of 300 bytes: a ninth of the stash, less than a seventh with what is lost at their ends.
    let path = hosts.path(0);
    for number in 1..=ROOM {
        let frame =
            frame(&path, short.0.qpn(), Opcode::SEND_MIDDLE, short.1.add(number), Ext::None, &[1; 300]);
        assert_eq!(
            hosts.sides[1].engine.first_shard().handle_frame(hosts.now, &frame),
            Verdict::Consumed,
            "{number}"
        );
    }
    let left = ROOM - ROOM / 8;
    assert_eq!(fill(&mut hosts, &long.0, long.1, 4096), left.div_ceil(2));
}
