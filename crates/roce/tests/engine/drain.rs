// SPDX-License-Identifier: MIT OR Apache-2.0

//! Send queues that are drained (SQD): which requests are completed, which wait, and what can be changed meanwhile.

use core::time::Duration;

use roce::{
    Access, CompletionStatus, KeyState, PostError, QpChange, QpChangeError, QpState, QpUpdate, RequesterSpec,
    SendFlags, SendOperation,
};
use roce_wire::{Path, PathMtu};

use crate::datagrams::{self, Datagram};
use crate::keys::{self, Fast};
use crate::modify::{Direct, requester};
use crate::two_hosts::{Options, TwoHosts, pattern};
use crate::unreliable;

const SUCCESS: CompletionStatus = CompletionStatus::Success;
const DRAIN: QpChange = QpChange::Drain { notify: true };

fn small() -> Options {
    Options { mtu: PathMtu::Bytes256, ..Options::default() }
}

fn update(hosts: &TwoHosts, update: QpUpdate) -> Result<(), QpChangeError> {
    change(hosts, &QpChange::Update(update))
}

fn change(hosts: &TwoHosts, change: &QpChange) -> Result<(), QpChangeError> {
    let side = &hosts.sides[0];
    side.engine.modify_qp(&side.qp, change)
}

/// Returns whether requests of side 0 are awaited, and the state of its queue pair.
fn state(hosts: &TwoHosts) -> (bool, QpState) {
    let qp = &hosts.sides[0].qp;
    (qp.is_draining(), qp.state())
}

/// Returns how many drained send queues side 0 was notified of.
fn drained(hosts: &TwoHosts) -> usize {
    let side = &hosts.sides[0];
    assert!(side.drained_qps.iter().all(|drained| *drained == (side.qp.qpn(), 77)));
    side.drained_qps.len()
}

//= rocev2 §9
#[test]
fn requests_that_have_begun_are_completed_and_no_others_are_begun() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    let [alice, bob] = &hosts.sides;
    let data = pattern(1000, 1);
    let (source, sink) = (alice.source(&data), alice.sink(1000));
    let remote: Vec<_> = (0..5).map(|_| bob.shared(1000)).collect();
    let back = alice.shared(8);
    alice.write(1, &[source.all()], &remote[0], 0);
    alice.write(2, &[source.all()], &remote[1], 0);
    // Half of the first request is sent, and lost.
    assert_eq!(alice.transmit(hosts.now, 2).len(), 2);
    change(hosts, &DRAIN).unwrap();
    assert_eq!(state(hosts), (true, QpState::Sqd));
    assert_eq!(change(hosts, &QpChange::Resume), Err(QpChangeError::State));
    let [alice, bob] = &hosts.sides;
    alice.write(3, &[source.all()], &remote[2], 0);
    alice.read(4, &[sink.all()], &remote[2], 0);
    // The peer is served meanwhile.
    bob.write(5, &[bob.source(b"from bob").all()], &back, 0);
    hosts.run();
    assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Sqd), 1));
    let [alice, bob] = &hosts.sides;
    assert_eq!(alice.outcomes(), [(1, SUCCESS)]);
    assert_eq!((bob.outcomes(), back.read()), (vec![(5, SUCCESS)], b"from bob".to_vec()));
    assert_eq!(remote[0].read(), data);
    assert_eq!(remote[1].read(), [0; 1000]);
    assert_eq!(alice.engine.first_shard().poll_timeout(), None, "nothing is awaited");
    change(hosts, &QpChange::Resume).unwrap();
    assert_eq!(state(hosts), (false, QpState::Rts));
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, SUCCESS), (3, SUCCESS), (4, SUCCESS)]);
    assert_eq!([remote[1].read(), remote[2].read(), sink.read()], [data.clone(), data.clone(), data]);
    assert_eq!(drained(hosts), 1);
}

#[test]
fn a_queue_that_waits_for_nothing_is_drained_at_once() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    change(hosts, &QpChange::Drain { notify: false }).unwrap();
    assert_eq!(state(hosts), (false, QpState::Sqd));
    hosts.run();
    assert_eq!(drained(hosts), 0);
    change(hosts, &QpChange::Resume).unwrap();
    // One that is not begun is not awaited. A report that is not taken before the queue is resumed is obsolete.
    let [alice, bob] = &hosts.sides;
    let remote = bob.shared(10);
    alice.write(1, &[alice.source(&[7; 10]).all()], &remote, 0);
    change(hosts, &DRAIN).unwrap();
    assert_eq!(state(hosts), (false, QpState::Sqd));
    change(hosts, &QpChange::Resume).unwrap();
    hosts.run();
    assert_eq!((drained(hosts), hosts.sides[0].outcomes()), (0, vec![(1, SUCCESS)]));
    change(hosts, &DRAIN).unwrap();
    hosts.run();
    assert_eq!(drained(hosts), 1);
    // Another one is reported once more. A report of before is not taken for it.
    change(hosts, &QpChange::Resume).unwrap();
    change(hosts, &DRAIN).unwrap();
    change(hosts, &QpChange::Resume).unwrap();
    let alice = &hosts.sides[0];
    alice.write(2, &[alice.source(&[7; 10]).all()], &remote, 0);
    drop(alice.transmit(hosts.now, 1));
    change(hosts, &DRAIN).unwrap();
    hosts.take_events(0);
    assert_eq!((state(hosts), drained(hosts)), ((true, QpState::Sqd), 1));
    hosts.run();
    assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Sqd), 2));
}

/// Also those whose responses are copied without the lock, as long ones are.
#[test]
fn reads_that_have_begun_are_completed() {
    for mtu in [PathMtu::Bytes256, PathMtu::Bytes4096] {
        let mut direct = Direct::connected(Options { mtu, ..Options::default() });
        complete_reads(&mut direct.hosts);
    }
}

fn complete_reads(hosts: &mut TwoHosts) {
    let [alice, bob] = &hosts.sides;
    let data = pattern(5000, 3);
    let (sink, later, remote) = (alice.sink(5000), alice.sink(5000), bob.shared(5000));
    remote.write(&data);
    alice.read(1, &[sink.all()], &remote, 0);
    alice.read(2, &[later.all()], &remote, 0);
    let request = alice.transmit(hosts.now, 1);
    change(hosts, &DRAIN).unwrap();
    for frame in request {
        hosts.deliver(1, hosts.now, frame);
    }
    hosts.run();
    assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Sqd), 1));
    assert_eq!((hosts.sides[0].outcomes(), sink.read()), (vec![(1, SUCCESS)], data.clone()));
    assert_eq!(later.read(), [0; 5000]);
    change(hosts, &QpChange::Resume).unwrap();
    hosts.run();
    assert_eq!((hosts.sides[0].outcomes(), later.read()), (vec![(2, SUCCESS)], data));
}

#[test]
fn local_requests_wait_for_the_queue_to_be_resumed() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    let [alice, bob] = &hosts.sides;
    let remote = bob.shared(10);
    let [before, later] = [0, 1].map(|_| Fast::new(alice, 1));
    before.register(alice, 1);
    hosts.run();
    let alice = &hosts.sides[0];
    assert_eq!((alice.outcomes(), before.region.state()), (vec![(1, SUCCESS)], KeyState::Valid));
    alice.write(2, &[alice.source(&[7; 10]).all()], &remote, 0);
    keys::invalidate(alice, 3, before.region.key()).unwrap();
    drop(alice.transmit(hosts.now, 1));
    change(hosts, &DRAIN).unwrap();
    later.register(&hosts.sides[0], 4);
    hosts.run();
    assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Sqd), 1));
    assert_eq!(hosts.sides[0].outcomes(), [(2, SUCCESS)]);
    assert_eq!([&before, &later].map(|fast| fast.region.state()), [KeyState::Valid, KeyState::Free]);
    change(hosts, &QpChange::Resume).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(3, SUCCESS), (4, SUCCESS)]);
    assert_eq!([&before, &later].map(|fast| fast.region.state()), [KeyState::Free, KeyState::Valid]);
}

#[test]
fn a_failure_ends_the_drain() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    let [alice, bob] = &hosts.sides;
    // Memory that the peer may not write.
    let (source, remote) = (alice.source(&[1; 64]), bob.sink(64));
    alice.write(1, &[source.all()], &remote, 0);
    let sent = alice.transmit(hosts.now, 1);
    change(hosts, &DRAIN).unwrap();
    alice_writes_later(hosts);
    for frame in sent {
        hosts.deliver(1, hosts.now, frame);
    }
    hosts.run();
    assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Error), 0));
    let expected = [(1, CompletionStatus::RemoteAccess), (2, CompletionStatus::Flushed)];
    assert_eq!(hosts.sides[0].outcomes(), expected);
    // The owner ends it.
    for ending in [QpChange::Error, QpChange::Reset] {
        let direct = Direct::connected(small());
        let alice = &direct.hosts.sides[0];
        alice.write(1, &[alice.source(&[1; 64]).all()], &direct.hosts.sides[1].shared(64), 0);
        drop(alice.transmit(direct.hosts.now, 1));
        change(&direct.hosts, &DRAIN).unwrap();
        assert!(alice.qp.is_draining());
        change(&direct.hosts, &ending).unwrap();
        assert!(!alice.qp.is_draining());
    }
}

fn alice_writes_later(hosts: &TwoHosts) {
    let [alice, bob] = &hosts.sides;
    alice.write(2, &[alice.source(&[2; 64]).all()], &bob.shared(64), 0);
}

/// Draining at any point of a lossy exchange divides the requests into those that are complete and those that wait.
#[test]
fn a_queue_can_be_drained_at_any_time() {
    const SIZE: usize = 6000;
    let (mut begun, mut waiting) = (0, 0);
    for seed in 0..60 {
        let mut direct = Direct::connected(Options { loss: 50, seed, ..small() });
        let hosts = &mut direct.hosts;
        let [alice, bob] = &hosts.sides;
        let data = pattern(SIZE, seed);
        let (source, remote) = (alice.source(&data), bob.shared(SIZE * 16));
        let sinks: Vec<_> = (0..16).map(|_| alice.sink(SIZE)).collect();
        for number in 0..16u64 {
            let offset = SIZE * number as usize;
            if number % 4 == 3 {
                alice.read(number, &[sinks[number as usize].all()], &remote, 0);
            } else {
                alice.write(number, &[source.all()], &remote, offset);
            }
        }
        hosts.run_for(Duration::from_micros(seed * 5));
        change(hosts, &DRAIN).unwrap();
        hosts.run();
        assert_eq!((state(hosts), drained(hosts)), ((false, QpState::Sqd), 1), "seed {seed}");
        let first = hosts.sides[0].outcomes();
        assert_eq!(first, (0..first.len() as u64).map(|number| (number, SUCCESS)).collect::<Vec<_>>());
        for number in (first.len()..16).filter(|number| number % 4 != 3) {
            assert_eq!(remote.read()[SIZE * number..][..SIZE], [0; SIZE], "seed {seed}, request {number}");
        }
        begun += first.len();
        waiting += 16 - first.len();
        change(hosts, &QpChange::Resume).unwrap();
        hosts.run();
        let rest = hosts.sides[0].outcomes();
        assert_eq!(rest, (first.len() as u64..16).map(|number| (number, SUCCESS)).collect::<Vec<_>>());
        assert!(sinks.iter().skip(3).step_by(4).all(|sink| sink.read() == data));
    }
    assert!(begun > 100 && waiting > 100, "{begun} begun, {waiting} waiting");
}

#[test]
fn attributes_change_while_the_queue_is_drained() {
    let mut direct = Direct::connected(small());
    let spec = RequesterSpec { outbound_reads: 0, ..requester(0) };
    let of_drained = [
        QpUpdate { requester: Some(spec), ..QpUpdate::default() },
        QpUpdate { inbound_reads: Some(0), ..QpUpdate::default() },
        QpUpdate { path: Some((direct.hosts.path(0), direct.qp(1).qpn())), ..QpUpdate::default() },
    ];
    let hosts = &mut direct.hosts;
    for change in of_drained {
        assert_eq!(update(hosts, change), Err(QpChangeError::State), "in RTS");
    }
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(&[5; 64]), bob.shared(64));
    alice.write(1, &[source.all()], &remote, 0);
    drop(alice.transmit(hosts.now, 1));
    change(hosts, &DRAIN).unwrap();
    for change in of_drained {
        assert_eq!(update(hosts, change), Err(QpChangeError::State), "not drained");
    }
    hosts.run();
    let too_many = RequesterSpec { retries: 8, ..spec };
    let other = hosts.sides[0].mac;
    for (wrong, expected) in [
        (QpUpdate { q_key: Some(1), ..QpUpdate::default() }, QpChangeError::Invalid),
        (QpUpdate { rnr_timer: Some(32), ..QpUpdate::default() }, QpChangeError::Invalid),
        (QpUpdate { requester: Some(too_many), ..QpUpdate::default() }, QpChangeError::Invalid),
    ] {
        assert_eq!(update(hosts, QpUpdate { access: Some(Access::empty()), ..wrong }), Err(expected));
    }
    // What the peer may do can be changed at any time: the invalid changes had no effect.
    let memory = hosts.sides[0].shared(64);
    bob_writes(hosts, 4, &memory);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(4, SUCCESS)]);
    for change in of_drained {
        update(hosts, change).unwrap();
    }
    let read = SendOperation::Read { address: remote.address(0), key: remote.key() };
    let sink = hosts.sides[0].sink(64);
    let read = |hosts: &TwoHosts| hosts.sides[0].post(2, read, SendFlags::empty(), &[sink.all()]);
    assert_eq!(read(hosts), Err(PostError::NotAllowed));
    update(hosts, QpUpdate { rnr_timer: Some(31), ..QpUpdate::default() }).unwrap();
    // Frames go to another next hop from now on.
    let path = Path { remote_mac: other, ..hosts.path(0) };
    update(hosts, QpUpdate { path: Some((path, hosts.sides[1].qp.qpn())), ..QpUpdate::default() }).unwrap();
    change(hosts, &QpChange::Resume).unwrap();
    let alice = &hosts.sides[0];
    assert_eq!(alice.outcomes(), [(1, SUCCESS)]);
    for change in of_drained {
        assert_eq!(update(hosts, change), Err(QpChangeError::State), "in RTS again");
    }
    assert_eq!(read(hosts), Err(PostError::NotAllowed));
    alice.write(3, &[source.all()], &remote, 0);
    let frames = alice.transmit(hosts.now, 9);
    assert_eq!((frames.len(), &frames[0][..6]), (1, &other.0[..]));
    for frame in frames {
        hosts.deliver(1, hosts.now, frame);
    }
}

#[test]
fn access_of_the_peer_changes_at_any_time() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    let memory = hosts.sides[0].shared(64);
    bob_writes(hosts, 1, &memory);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(1, SUCCESS)]);
    update(hosts, QpUpdate { access: Some(Access::REMOTE_READ), ..QpUpdate::default() }).unwrap();
    bob_writes(hosts, 2, &memory);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(2, CompletionStatus::RemoteInvalidRequest)]);
    // Not without a peer.
    assert_eq!(update(hosts, QpUpdate::default()), Err(QpChangeError::State));
}

#[test]
fn the_grant_of_reads_changes_while_the_queue_is_drained() {
    let mut direct = Direct::connected(small());
    let hosts = &mut direct.hosts;
    change(hosts, &DRAIN).unwrap();
    update(hosts, QpUpdate { inbound_reads: Some(0), ..QpUpdate::default() }).unwrap();
    let memory = hosts.sides[0].shared(64);
    let bob = &hosts.sides[1];
    bob.read(1, &[bob.sink(64).all()], &memory, 0);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(1, CompletionStatus::RemoteInvalidRequest)]);
}

#[test]
fn a_drained_queue_pair_is_used_again_after_a_reset() {
    let mut direct = Direct::connected(small());
    let (source, remote) = (direct.hosts.sides[0].source(&[3; 64]), direct.hosts.sides[1].shared(64));
    direct.hosts.sides[0].write(1, &[source.all()], &remote, 0);
    drop(direct.hosts.sides[0].transmit(direct.hosts.now, 1));
    change(&direct.hosts, &DRAIN).unwrap();
    for side in [0, 1] {
        direct.change(side, &QpChange::Reset).unwrap();
        direct.change(side, &QpChange::Initialize).unwrap();
        direct.connect_side(side, direct.peer(side));
    }
    direct.hosts.sides[0].write(2, &[source.all()], &remote, 0);
    direct.hosts.run();
    assert_eq!((direct.hosts.sides[0].outcomes(), drained(&direct.hosts)), (vec![(2, SUCCESS)], 0));
}

fn bob_writes(hosts: &TwoHosts, context: u64, to: &crate::two_hosts::Memory) {
    let bob = &hosts.sides[1];
    bob.write(context, &[bob.source(&[9; 64]).all()], to, 0);
}

#[test]
fn an_unreliable_connection_ends_the_message_that_it_has_begun() {
    let mut hosts = unreliable::connected(unreliable::small());
    let [alice, bob] = &hosts.sides;
    let source = alice.source(&pattern(1000, 1));
    for context in [1, 2] {
        bob.recv(context, &[bob.sink(1000).all()]);
        alice.send(context, &[source.all()]);
    }
    let first = alice.transmit(hosts.now, 2);
    change(&hosts, &DRAIN).unwrap();
    assert_eq!(state(&hosts), (true, QpState::UnreliableSqd));
    assert_eq!(change(&hosts, &QpChange::Resume), Err(QpChangeError::State));
    for frame in first {
        hosts.deliver(1, hosts.now, frame);
    }
    hosts.sides[0].send(3, &[]);
    hosts.run();
    assert_eq!((state(&hosts), drained(&hosts)), ((false, QpState::UnreliableSqd), 1));
    assert_eq!([0, 1].map(|side| hosts.sides[side].outcomes()), [vec![(1, SUCCESS)], vec![(1, SUCCESS)]]);
    // Its requests can be served meanwhile, and attributes changed.
    let none = QpUpdate::default();
    for of_reliable in [
        QpUpdate { inbound_reads: Some(1), ..none },
        QpUpdate { requester: Some(requester(0)), ..none },
        QpUpdate { rnr_timer: Some(1), ..none },
    ] {
        assert_eq!(update(&hosts, of_reliable), Err(QpChangeError::Invalid), "nothing is repeated or read");
    }
    let path = Path { remote_mac: hosts.sides[0].mac, ..hosts.path(0) };
    let qpn = hosts.sides[1].qp.qpn();
    update(
        &hosts,
        QpUpdate { path: Some((path, qpn)), access: Some(Access::empty()), ..QpUpdate::default() },
    )
    .unwrap();
    change(&hosts, &QpChange::Resume).unwrap();
    assert_eq!(state(&hosts), (false, QpState::UnreliableRts));
    let frames = hosts.sides[0].transmit(hosts.now, 9);
    assert_eq!((frames.len(), &frames[0][..6]), (5, &hosts.sides[0].mac.0[..]));
    assert_eq!(hosts.sides[0].outcomes(), [(2, SUCCESS), (3, SUCCESS)]);
    // The peer may not write any longer.
    let memory = hosts.sides[0].shared(64);
    bob_writes(&hosts, 4, &memory);
    hosts.run();
    assert_eq!(memory.read(), [0; 64]);
}

#[test]
fn memory_that_cannot_be_read_ends_the_drain_of_an_unreliable_connection() {
    let mut hosts = unreliable::connected(unreliable::small());
    let alice = &hosts.sides[0];
    let memory = alice.source(&[1; 600]);
    alice.send(1, &[memory.all()]);
    drop(alice.transmit(hosts.now, 1));
    change(&hosts, &DRAIN).unwrap();
    assert!(alice.engine.memory().deregister(&memory.region));
    hosts.run();
    assert_eq!((state(&hosts), drained(&hosts)), ((false, QpState::UnreliableSqe), 0));
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::LocalProtection)]);
}

#[test]
fn datagrams_wait_for_the_queue_to_be_resumed() {
    let mut hosts = datagrams::open(Options::default());
    let sink = hosts.sides[1].sink(200);
    for context in [1, 2] {
        hosts.sides[1].recv(context, &[sink.all()]);
    }
    let source = hosts.sides[0].source(b"datagram");
    let sges = [source.all()];
    Datagram::new(&hosts, &sges).post(&hosts, 1).unwrap();
    change(&hosts, &DRAIN).unwrap();
    assert_eq!(state(&hosts), (false, QpState::UnreliableSqd));
    Datagram::new(&hosts, &sges).post(&hosts, 2).unwrap();
    hosts.run();
    assert_eq!((drained(&hosts), hosts.sides[0].outcomes()), (1, vec![]));
    let wrong = QpUpdate { access: Some(Access::empty()), q_key: Some(5), ..QpUpdate::default() };
    assert_eq!(update(&hosts, wrong), Err(QpChangeError::Invalid));
    change(&hosts, &QpChange::Resume).unwrap();
    hosts.run();
    assert_eq!([0, 1].map(|side| hosts.sides[side].outcomes()), [[(1, SUCCESS), (2, SUCCESS)]; 2]);
    // Another Q_Key, for the other direction: at any time.
    let side = &hosts.sides[1];
    let q_key = QpUpdate { q_key: Some(5), ..QpUpdate::default() };
    side.engine.modify_qp(&side.qp, &QpChange::Update(q_key)).unwrap();
    side.recv(3, &[sink.all()]);
    Datagram::new(&hosts, &sges).post(&hosts, 3).unwrap();
    let mut allowed = Datagram::new(&hosts, &sges);
    allowed.q_key = 5;
    allowed.post(&hosts, 4).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(3, SUCCESS)]);
    assert_eq!(hosts.sides[1].stat("drop_qkey"), 1);
}
