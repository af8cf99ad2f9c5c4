// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable connections: what arrives, what a gap drops, errors, changes of state.

use std::sync::{Arc as StdArc, Mutex};

use roce::{
    Access, AtomicOperation, AtomicRequest, CompletionKind, CompletionStatus, DropReason, PostError,
    QpChange, QpChangeError, QpFault, QpState, SendData, SendFlags, SendOperation, SendRequest, Sge,
    UnreliableSpec, Verdict,
};
use roce_wire::{Opcode, Packet, Path, PathMtu, Psn};

use crate::fields::reseal;
use crate::two_hosts::{Memory, Options, Side, TwoHosts, pattern};

const SUCCESS: CompletionStatus = CompletionStatus::Success;
/// First PSNs of both sides. The first wraps within a few packets.
const PSNS: [u32; 2] = [0x00FF_FFFE, 0x0012_3456];

pub fn peer(hosts: &TwoHosts, side: usize) -> UnreliableSpec {
    UnreliableSpec {
        path: hosts.path(side),
        qpn: hosts.sides[1 - side].qp.qpn(),
        mtu: hosts.options.mtu,
        receive_psn: Psn::new(PSNS[1 - side]),
        access: Access::REMOTE_WRITE,
    }
}

pub fn change(hosts: &TwoHosts, side: usize, change: &QpChange) -> Result<(), QpChangeError> {
    hosts.sides[side].engine.modify_qp(&hosts.sides[side].qp, change)
}

fn connect_side(hosts: &TwoHosts, side: usize, spec: UnreliableSpec) {
    change(hosts, side, &QpChange::OpenUnreliable(spec)).unwrap();
    change(hosts, side, &QpChange::SendUnreliably(Psn::new(PSNS[side]))).unwrap();
}

/// Resets both queue pairs, and connects them again.
fn connect_again(hosts: &TwoHosts) {
    for side in [0, 1] {
        change(hosts, side, &QpChange::Reset).unwrap();
        change(hosts, side, &QpChange::Initialize).unwrap();
        connect_side(hosts, side, peer(hosts, side));
    }
}

pub fn connected(options: Options) -> TwoHosts {
    let hosts = TwoHosts::new(options);
    for side in [0, 1] {
        connect_side(&hosts, side, peer(&hosts, side));
    }
    hosts
}

pub fn small() -> Options {
    Options { mtu: PathMtu::Bytes256, ..Options::default() }
}

fn write(to: &Memory) -> SendOperation {
    SendOperation::Write { address: to.address(0), key: to.key() }
}

fn post_immediate(side: &Side, context: u64, operation: SendOperation, data: [u8; 4], sges: &[Sge]) {
    let flags = SendFlags::SOLICITED;
    let request = SendRequest { context, operation, flags, data: SendData::Sges(sges) };
    side.engine.post_send_immediate(&side.qp, &request, data).unwrap();
}

/// Loses the frames whose places, in the order in which they are sent, are listed.
fn lose(hosts: &mut TwoHosts, lost: &'static [usize]) {
    let mut place = 0;
    hosts.filter = Some(Box::new(move |_, _| {
        place += 1;
        !lost.contains(&(place - 1))
    }));
}

//= rocev2 §4
#[test]
fn messages_of_every_size_arrive() {
    for v6 in [false, true] {
        let ip: fn(u8) -> std::net::IpAddr =
            if v6 { |n| format!("fd00::{n}").parse().unwrap() } else { |n| [10, 0, 0, n].into() };
        let mut hosts = connected(Options { ip, ..small() });
        for (i, size) in (0u8..).zip([0usize, 1, 255, 256, 257, 512, 5 * 256 + 3, 100_000]) {
            let [alice, bob] = &hosts.sides;
            let data = pattern(size, u64::from(i));
            let (source, sink) = (alice.source(&data), [bob.sink(size), bob.sink(size)]);
            let remote = [bob.shared(size), bob.shared(size)];
            bob.recv(1, &[sink[0].all()]);
            bob.recv(2, &[sink[1].sge(0, size / 3), sink[1].sge(size / 3, size - size / 3)]);
            bob.recv(3, &[]);
            let sges = [source.sge(0, size / 2), source.sge(size / 2, size - size / 2)];
            alice.send(11, &sges);
            alice.write(12, &sges, &remote[0], 0);
            post_immediate(alice, 13, SendOperation::Send, [1, 2, 3, i], &sges);
            post_immediate(alice, 14, write(&remote[1]), [4, 5, 6, i], &sges);
            hosts.run();
            let [alice, bob] = &hosts.sides;
            let sent: Vec<_> =
                alice.completions().iter().map(|c| (c.context, c.kind, c.status, c.bytes)).collect();
            let kinds = [CompletionKind::Send, CompletionKind::Write];
            let expected = [(11, kinds[0]), (12, kinds[1]), (13, kinds[0]), (14, kinds[1])];
            assert_eq!(sent, expected.map(|(context, kind)| (context, kind, SUCCESS, size as u32)));
            let received: Vec<_> =
                bob.completions().iter().map(|c| (c.context, c.kind, c.bytes, c.immediate)).collect();
            let (size, receive) = (size as u32, CompletionKind::Receive);
            let expected = [
                (1, receive, size, None),
                (2, receive, size, Some([1, 2, 3, i])),
                (3, CompletionKind::ReceiveWrite, size, Some([4, 5, 6, i])),
            ];
            assert_eq!(received, expected, "{size} bytes");
            let arrived = |memory: &Memory| memory.read()[..data.len()] == data;
            assert!(sink.iter().chain(&remote).all(arrived), "{size} bytes");
        }
    }
}

/// Nothing answers the packets, which have consecutive PSNs and request no ACK.
//= rocev2 §4
#[test]
fn packets_are_of_the_service_and_are_not_answered() {
    let mut hosts = connected(small());
    hosts.capture = Some(Vec::new());
    let [alice, bob] = &hosts.sides;
    let (source, sink, remote) = (alice.source(&pattern(600, 1)), bob.sink(600), bob.shared(600));
    bob.recv(1, &[sink.all()]);
    bob.recv(2, &[]);
    let sges = [source.all()];
    post_immediate(alice, 3, SendOperation::Send, [1; 4], &sges);
    post_immediate(alice, 4, write(&remote), [2; 4], &sges);
    alice.send(5, &[source.sge(0, 3)]);
    hosts.run();
    let frames = hosts.capture.take().unwrap();
    let sent: Vec<_> = frames
        .iter()
        .map(|(from, frame)| {
            let packet = Packet::parse(frame).unwrap();
            let bth = packet.bth();
            assert_eq!((*from, bth.ack_req(), bth.dest_qp()), (0, false, hosts.sides[1].qp.qpn()));
            assert_eq!(bth.solicited(), packet.imm_dt().is_some());
            assert_eq!(packet.reth().map(|reth| reth.length()), packet.reth().map(|_| 600));
            (bth.opcode(), bth.psn().value())
        })
        .collect();
    let expected = [
        (Opcode::UC_SEND_FIRST, 0x00FF_FFFE),
        (Opcode::UC_SEND_MIDDLE, 0x00FF_FFFF),
        (Opcode::UC_SEND_LAST_IMM, 0),
        (Opcode::UC_WRITE_FIRST, 1),
        (Opcode::UC_WRITE_MIDDLE, 2),
        (Opcode::UC_WRITE_LAST_IMM, 3),
        (Opcode::UC_SEND_ONLY, 4),
    ];
    assert_eq!(sent, expected);
}

/// Of three messages of three packets each, that with the lost packet is missing. Its receive gets the next message.
#[test]
fn a_lost_packet_drops_its_message_and_no_other() {
    const LOST: [&[usize]; 9] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8]];
    for lost in LOST {
        let mut hosts = connected(small());
        let messages = [1, 2, 3].map(|seed| pattern(700, seed));
        let [alice, bob] = &hosts.sides;
        let sinks = [(); 3].map(|()| bob.sink(700));
        (1..).zip(&sinks).for_each(|(context, sink)| bob.recv(context, &[sink.all()]));
        for message in &messages {
            alice.send(9, &[alice.source(message).all()]);
        }
        lose(&mut hosts, lost);
        hosts.run();
        let [alice, bob] = &hosts.sides;
        assert_eq!(alice.outcomes(), [(9, SUCCESS); 3], "the sender does not know");
        assert_eq!(bob.outcomes(), [(1, SUCCESS), (2, SUCCESS)], "{lost:?}");
        let missing = lost[0] / 3;
        let arrived: Vec<_> = (0..3).filter(|&message| message != missing).collect();
        for (sink, message) in sinks.iter().zip(arrived) {
            assert_eq!(sink.read(), messages[message], "{lost:?}");
        }
        // What followed the lost packet.
        assert_eq!(bob.stat("drop_sequence"), 2 - (lost[0] % 3) as u64, "{lost:?}");
    }
}

#[test]
fn a_write_stops_at_the_lost_packet() {
    let mut hosts = connected(small());
    let [alice, bob] = &hosts.sides;
    let (data, remote) = (pattern(1024, 1), bob.shared(1024));
    bob.recv(1, &[]);
    let sges = [alice.source(&data).all()];
    post_immediate(alice, 2, write(&remote), [1; 4], &sges);
    lose(&mut hosts, &[2]);
    hosts.run();
    let memory = remote.read();
    assert_eq!((&memory[..512], &memory[512..]), (&data[..512], &[0; 512][..]));
    let [alice, bob] = &hosts.sides;
    assert!(bob.cq.is_empty() && !bob.qp.is_drained(), "the receive is for the next one");
    post_immediate(alice, 3, write(&remote), [2; 4], &sges);
    hosts.run();
    assert_eq!(hosts.sides[1].completions().iter().map(|c| c.immediate).collect::<Vec<_>>(), [Some([2; 4])]);
    assert_eq!(remote.read(), data);
}

/// Packets that arrive late or twice: only a first packet begins a message.
#[test]
fn late_packets_do_not_mix_with_a_later_message() {
    let mut hosts = connected(small());
    let frames = StdArc::new(Mutex::new(Vec::new()));
    let kept = StdArc::clone(&frames);
    hosts.filter = Some(Box::new(move |_, frame| {
        kept.lock().unwrap().push(frame.clone());
        false
    }));
    let messages = [1, 2].map(|seed| pattern(768, seed));
    let alice = &hosts.sides[0];
    for message in &messages {
        alice.send(1, &[alice.source(message).all()]);
    }
    hosts.run();
    let frames = frames.lock().unwrap().clone();
    assert_eq!(frames.len(), 6);
    let bob = &hosts.sides[1];
    let sinks = [(); 3].map(|()| bob.sink(768));
    (1..).zip(&sinks).for_each(|(context, sink)| bob.recv(context, &[sink.all()]));
    // First, middle; first, middle of the other; the rest of the one; the rest of the other; the one again, whole, twice the middle.
    for place in [0, 1, 3, 4, 2, 5, 0, 1, 2, 0, 1, 1, 2, 3, 4, 5] {
        bob.engine.first_shard().handle_frame(hosts.now, &frames[place]);
    }
    assert_eq!(bob.outcomes(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!([sinks[0].read(), sinks[1].read()], messages);
}

/// A request completes when its last packet is sent, whether there is a peer or not.
#[test]
fn a_request_is_complete_when_it_is_sent() {
    let mut hosts = connected(small());
    hosts.kill(1);
    let alice = &hosts.sides[0];
    let source = alice.source(&pattern(1000, 1));
    alice.post(1, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    alice.send(2, &[source.all()]);
    let first = alice.transmit(hosts.now, 7);
    assert_eq!((first.len(), alice.outcomes()), (7, vec![]));
    assert_eq!(alice.transmit(hosts.now, 7).len(), 1);
    assert_eq!(alice.outcomes(), [(2, SUCCESS)]);
    hosts.run();
    assert_eq!(hosts.sides[0].engine.first_shard().poll_timeout(), None, "nothing is awaited");
    assert_eq!(hosts.sides[0].qp.state(), QpState::UnreliableRts);
}

#[test]
fn memory_that_the_peer_may_not_write_is_not_written() {
    for granted in [false, true] {
        let mut hosts = TwoHosts::new(small());
        connect_side(&hosts, 0, peer(&hosts, 0));
        let access = if granted { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        connect_side(&hosts, 1, UnreliableSpec { access, ..peer(&hosts, 1) });
        let [alice, bob] = &hosts.sides;
        let source = alice.source(&pattern(600, 1));
        let (shared, private) = (bob.shared(600), bob.sink(600));
        let refused = if granted { &private } else { &shared };
        alice.write(1, &[source.all()], refused, 0);
        // Beyond the end.
        alice.write(2, &[source.all()], &shared, 1);
        hosts.run();
        let bob = &hosts.sides[1];
        assert_eq!([shared.read(), private.read()], [vec![0; 600], vec![0; 600]]);
        assert_eq!((bob.stat("drop_access"), bob.stat("drop_sequence")), (2, 4));
        assert_eq!(bob.qp.state(), QpState::UnreliableRts, "the queue pair goes on");
        assert!(bob.failed_qps.is_empty());
    }
}

#[test]
fn a_message_without_a_receive_or_longer_than_it_is_dropped() {
    let mut hosts = connected(small());
    let [alice, bob] = &hosts.sides;
    let source = alice.source(&pattern(600, 1));
    alice.send(1, &[source.all()]);
    post_immediate(alice, 2, write(&bob.shared(600)), [0; 4], &[source.all()]);
    hosts.run();
    assert_eq!(hosts.sides[1].stat("drop_no_receive"), 2);
    let sink = hosts.sides[1].sink(599);
    hosts.sides[1].recv(3, &[sink.all()]);
    hosts.sides[0].send(4, &[source.all()]);
    hosts.sides[0].send(5, &[source.sge(0, 599)]);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(3, SUCCESS)]);
    assert_eq!(sink.read(), source.read()[..599]);
}

/// An error of the send queue leaves receiving as it is, and ends by a change to RTS.
//= rocev2 §9
#[test]
fn memory_that_cannot_be_read_ends_the_send_queue_until_it_is_resumed() {
    let mut hosts = connected(small());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&pattern(600, 1)), alice.sink(600));
    let bad = Sge { key: source.key() ^ 1, ..source.all() };
    alice.recv(1, &[sink.all()]);
    alice.send(2, &[source.all()]);
    alice.send(3, &[source.sge(0, 300), Sge { address: bad.address + 300, length: 300, ..bad }]);
    alice.send(4, &[source.all()]);
    bob.send(5, &[bob.source(&pattern(600, 2)).all()]);
    hosts.run();
    let [alice, _] = &hosts.sides;
    assert_eq!(alice.qp.state(), QpState::UnreliableSqe);
    alice.send(6, &[source.all()]);
    let flushed = CompletionStatus::Flushed;
    let mut outcomes = alice.outcomes();
    outcomes.sort_by_key(|outcome| outcome.0);
    let expected =
        [(1, SUCCESS), (2, SUCCESS), (3, CompletionStatus::LocalProtection), (4, flushed), (6, flushed)];
    assert_eq!(outcomes, expected);
    assert_eq!(sink.read(), pattern(600, 2));
    assert!(alice.failed_qps.is_empty(), "the completion tells");
    change(&hosts, 0, &QpChange::SendUnreliably(Psn::new(0x77))).unwrap();
    hosts.capture = Some(Vec::new());
    let [alice, bob] = &hosts.sides;
    assert_eq!(bob.outcomes(), [(5, SUCCESS)]);
    let sink = bob.sink(600);
    bob.recv(7, &[sink.all()]);
    alice.send(8, &[source.all()]);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(7, SUCCESS)]);
    let psn = |frame: &[u8]| Packet::parse(frame).unwrap().bth().psn().value();
    // Three packets, and one of the request that failed.
    assert_eq!(psn(&hosts.capture.take().unwrap()[0].1), 2, "it goes on where it was");
}

/// A receive whose memory cannot be written is an error of its queue pair.
#[test]
fn a_receive_that_cannot_be_written_ends_the_queue_pair_until_it_is_reset() {
    let mut hosts = connected(small());
    let [alice, bob] = &hosts.sides;
    let source = alice.source(&pattern(600, 1));
    bob.recv(1, &[bob.source(&[0; 600]).all()]);
    bob.recv(2, &[]);
    alice.send(3, &[source.all()]);
    hosts.run();
    let bob = &hosts.sides[1];
    bob.send(4, &[]);
    let flushed = CompletionStatus::Flushed;
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::LocalProtection), (2, flushed), (4, flushed)]);
    assert_eq!(bob.failed_qps, [(bob.qp.qpn(), 77, QpFault::Request)]);
    connect_again(&hosts);
    let sink = hosts.sides[1].sink(600);
    hosts.sides[1].recv(5, &[sink.all()]);
    hosts.sides[0].send(6, &[source.all()]);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(5, SUCCESS)]);
    assert_eq!(sink.read(), source.read());
}

/// A reset in the middle of a message in either direction leaves nothing of it.
#[test]
fn a_reset_forgets_messages_that_are_half_sent_and_half_received() {
    let mut hosts = connected(small());
    let [alice, bob] = &hosts.sides;
    let source = alice.source(&pattern(1000, 1));
    bob.recv(1, &[bob.sink(1000).all()]);
    alice.send(2, &[source.all()]);
    for frame in alice.transmit(hosts.now, 2) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    connect_again(&hosts);
    let sink = hosts.sides[1].sink(1000);
    hosts.sides[1].recv(3, &[sink.all()]);
    hosts.sides[0].send(4, &[source.all()]);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(4, SUCCESS)]);
    assert_eq!(hosts.sides[1].outcomes(), [(3, SUCCESS)]);
    assert_eq!(sink.read(), source.read());
}

/// Each change in each state.
//= rocev2 §9
#[test]
fn a_change_out_of_order_is_refused_and_changes_nothing() {
    let steps: [fn(&TwoHosts) -> QpChange; 4] = [
        |_| QpChange::Reset,
        |_| QpChange::Initialize,
        |hosts| QpChange::OpenUnreliable(peer(hosts, 0)),
        |_| QpChange::SendUnreliably(Psn::new(5)),
    ];
    let states = [QpState::Reset, QpState::Init, QpState::UnreliableRtr, QpState::UnreliableRts];
    for (reached, state) in states.into_iter().enumerate() {
        for (wanted, step) in steps.iter().enumerate() {
            let hosts = TwoHosts::new(Options::default());
            for step in &steps[..=reached] {
                change(&hosts, 0, &step(&hosts)).unwrap();
            }
            let side = &hosts.sides[0];
            assert_eq!(side.qp.state(), state);
            let posted = side.post(1, SendOperation::Send, SendFlags::empty(), &[]);
            assert_eq!(posted.is_ok(), state == QpState::UnreliableRts, "{state:?}");
            let changed = change(&hosts, 0, &step(&hosts));
            let allowed = wanted == 0 || wanted == reached + 1;
            assert_eq!(
                changed,
                if allowed { Ok(()) } else { Err(QpChangeError::State) },
                "{wanted} in {state:?}"
            );
            if !allowed {
                assert_eq!(side.qp.state(), state);
            }
        }
    }
    let hosts =
        TwoHosts::new(Options { config: |config| config.max_mtu = PathMtu::Bytes1024, ..Options::default() });
    let spec = UnreliableSpec { mtu: PathMtu::Bytes1024, ..peer(&hosts, 0) };
    let elsewhere = Path { local_ip: [10, 0, 0, 99].into(), ..spec.path };
    let mixed = Path { remote_ip: "fe80::1".parse().unwrap(), ..spec.path };
    for (spec, error) in [
        (UnreliableSpec { mtu: PathMtu::Bytes2048, ..spec }, QpChangeError::Invalid),
        (UnreliableSpec { path: mixed, ..spec }, QpChangeError::Invalid),
        (UnreliableSpec { path: elsewhere, ..spec }, QpChangeError::NotLocal),
    ] {
        assert_eq!(change(&hosts, 0, &QpChange::OpenUnreliable(spec)), Err(error), "{spec:?}");
        assert_eq!(hosts.sides[0].qp.state(), QpState::Init);
    }
}

/// The service has neither READs nor atomic operations nor invalidation.
#[test]
fn operations_of_a_reliable_connection_are_refused() {
    let hosts = connected(small());
    let alice = &hosts.sides[0];
    let sink = alice.sink(8);
    for operation in [
        SendOperation::Read { address: 0, key: 1 },
        SendOperation::SendInvalidate { key: 1 },
        SendOperation::Invalidate { key: 1 },
    ] {
        let sges: &[Sge] = if operation.is_local() { &[] } else { &[sink.all()] };
        assert_eq!(alice.post(1, operation, SendFlags::empty(), sges), Err(PostError::NotAllowed));
    }
    let operation = AtomicOperation::FetchAdd { add: 1 };
    let flags = SendFlags::empty();
    let request = AtomicRequest { context: 1, address: 0, key: 1, operation, flags, sink: sink.all() };
    assert_eq!(alice.engine.post_atomic(&alice.qp, &request), Err(PostError::NotConnected));
    let too_long = [Sge { length: u32::MAX, ..sink.all() }];
    assert_eq!(alice.post(1, SendOperation::Send, flags, &too_long), Err(PostError::TooLong));
    assert!(!alice.engine.first_shard().wants_transmit() && alice.cq.is_empty());
}

/// Packets of one service do not reach a queue pair of another one, nor packets from elsewhere.
//= rocev2 §4
#[test]
fn packets_of_other_services_and_peers_are_dropped() {
    let mut hosts = connected(small());
    hosts.sides[1].recv(1, &[hosts.sides[1].sink(600).all()]);
    hosts.capture = Some(Vec::new());
    hosts.filter = Some(Box::new(|_, _| false));
    let source = hosts.sides[0].source(b"data");
    hosts.sides[0].send(2, &[source.all()]);
    hosts.run();
    let (_, frame) = hosts.capture.take().unwrap().remove(0);
    let bob = &hosts.sides[1];
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut forged = frame.clone();
        change(&mut forged);
        reseal(&mut forged);
        bob.engine.first_shard().handle_frame(hosts.now, &forged)
    };
    // The opcode in the BTH, behind Ethernet, IPv4 and UDP; another source address with the same header checksum.
    for opcode in [Opcode::SEND_ONLY, Opcode(0x7F), Opcode::UC_SEND_MIDDLE] {
        let verdict = with(&|frame| frame[42] = opcode.0);
        assert!(matches!(verdict, Verdict::Dropped(_)), "{opcode:?}");
    }
    assert_eq!(with(&|frame| frame[42] = 4), Verdict::Dropped(DropReason::Opcode));
    assert_eq!(
        with(&|frame| frame[26..30].copy_from_slice(&[9, 255, 0, 2])),
        Verdict::Dropped(DropReason::Address)
    );
    assert!(bob.cq.is_empty());
    assert_eq!(with(&|_| {}), Verdict::Consumed);
    assert_eq!(bob.outcomes(), [(1, SUCCESS)]);
    // And a packet of this service to a reliable connection.
    let mut reliable = TwoHosts::connected(small());
    reliable.capture = Some(Vec::new());
    let source = reliable.sides[0].source(b"data");
    reliable.sides[1].recv(1, &[reliable.sides[1].sink(100).all()]);
    reliable.filter = Some(Box::new(|_, _| false));
    reliable.sides[0].send(2, &[source.all()]);
    reliable.run_for(core::time::Duration::from_micros(10));
    let (_, mut forged) = reliable.capture.take().unwrap().remove(0);
    forged[42] |= 0x20;
    reseal(&mut forged);
    let verdict = reliable.sides[1].engine.first_shard().handle_frame(reliable.now, &forged);
    assert_eq!(verdict, Verdict::Dropped(DropReason::Opcode));
    assert!(reliable.sides[1].cq.is_empty());
}
