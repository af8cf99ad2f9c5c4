// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic operations on memory of the peer.

use roce::{
    Access, AtomicOperation, AtomicRequest, Completion, CompletionKind, CompletionStatus, PeerSpec,
    PostError, QpChange, ReadLimits, SendFlags, Sge, Verdict,
};
use roce_testkit::Memory;
use roce_wire::{Opcode, Packet, Psn};

use crate::modify::Direct;
use crate::two_hosts::{Options, TwoHosts};

const ATOMIC: Access = Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC);

/// Two hosts whose peers may request atomic operations.
fn connected(options: Options) -> Direct {
    let direct = Direct::new(options);
    for side in [0, 1] {
        let peer = direct.peer(side);
        direct.connect_side(side, PeerSpec { access: peer.access | Access::REMOTE_ATOMIC, ..peer });
    }
    direct
}

fn number(memory: &Memory) -> u64 {
    u64::from_ne_bytes(memory.read()[..8].try_into().unwrap())
}

fn post(hosts: &TwoHosts, side: usize, request: &AtomicRequest) -> Result<(), PostError> {
    let side = &hosts.sides[side];
    side.engine.post_atomic(&side.qp, request)
}

fn request(context: u64, on: &Memory, operation: AtomicOperation, sink: Sge) -> AtomicRequest {
    AtomicRequest {
        context,
        address: on.address(0),
        key: on.key(),
        operation,
        flags: SendFlags::empty(),
        sink,
    }
}

const ADD_ONE: AtomicOperation = AtomicOperation::FetchAdd { add: 1 };

//= rocev2 §6
//= rocev2 §7
#[test]
fn the_number_is_changed_and_what_it_was_is_returned() {
    let mut direct = connected(Options::default());
    for side in [0, 1] {
        let [sink, memory] = [side, 1 - side].map(|at| direct.hosts.sides[at].memory(8, ATOMIC));
        let mut value = 40u64;
        memory.write(&value.to_ne_bytes());
        for (operation, after) in [
            (AtomicOperation::FetchAdd { add: 2 }, 42),
            (AtomicOperation::CompareSwap { compare: 41, swap: 1 }, 42),
            (AtomicOperation::CompareSwap { compare: 42, swap: u64::MAX - 1 }, u64::MAX - 1),
            (AtomicOperation::FetchAdd { add: 3 }, 1),
        ] {
            post(&direct.hosts, side, &request(7, &memory, operation, sink.all())).unwrap();
            direct.hosts.run();
            let [done] = direct.hosts.sides[side].completions()[..] else { panic!("not one completion") };
            let expected = Completion {
                qp_context: 77,
                context: 7,
                kind: match operation {
                    AtomicOperation::CompareSwap { .. } => CompletionKind::CompareSwap,
                    AtomicOperation::FetchAdd { .. } => CompletionKind::FetchAdd,
                },
                status: CompletionStatus::Success,
                bytes: 8,
                immediate: None,
            };
            assert_eq!(done, expected);
            assert_eq!((number(&sink), number(&memory)), (value, after), "{operation:?}");
            value = after;
        }
    }
    assert_eq!(direct.hosts.sides.each_ref().map(|side| side.stat("rx_atomics")), [4, 4]);
}

/// Requests, responses and what is behind them are lost, repeated and reordered; the peer serves few at a time.
//= rocev2 §6
#[test]
fn each_operation_is_executed_once_and_in_order() {
    const COUNT: u64 = 120;
    for (seed, granted, keeps) in [(1, 1, true), (2, 4, true), (3, 4, false), (4, 3, true)] {
        let options = Options {
            seed,
            loss: 60,
            duplication: 40,
            reordering: 40,
            keeps_packets: [keeps; 2],
            reads: ReadLimits { inbound: granted, outbound: granted },
            send_depth: 256,
            config: |config| config.max_reads = ReadLimits { inbound: 4, outbound: 4 },
            ..Options::default()
        };
        let mut direct = connected(options);
        let [alice, bob] = &direct.hosts.sides;
        let (sink, memory) = (alice.sink(COUNT as usize * 8), bob.memory(8, ATOMIC | Access::REMOTE_READ));
        let (copy, source) = (alice.sink(8), alice.source(b"between"));
        for context in 0..COUNT {
            let request = request(context, &memory, ADD_ONE, sink.sge(context as usize * 8, 8));
            post(&direct.hosts, 0, &request).unwrap();
            let alice = &direct.hosts.sides[0];
            match context % 8 {
                3 => alice.read(context, &[copy.all()], &memory, 0),
                6 => {
                    direct.hosts.sides[1].recv(context, &[direct.hosts.sides[1].sink(7).all()]);
                    alice.send(context, &[source.all()]);
                }
                _ => {}
            }
        }
        direct.hosts.run();
        let outcomes = direct.hosts.sides[0].outcomes();
        assert!(outcomes.iter().all(|(_, status)| *status == CompletionStatus::Success), "{outcomes:?}");
        assert_eq!(outcomes.len() as u64, COUNT + COUNT / 8 * 2);
        let originals: Vec<u64> =
            sink.read().chunks(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(originals, (0..COUNT).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(number(&memory), COUNT);
        assert!(direct.hosts.sides[0].stat("retransmissions") > 0);
    }
}

/// The result is kept: a repeated request draws the same answer, and one for another number draws none.
//= rocev2 §6
#[test]
fn a_repeated_request_is_answered_from_the_saved_result() {
    let mut direct = connected(Options::default());
    let (sink, memory) = (direct.hosts.sides[0].sink(8), direct.hosts.sides[1].memory(16, ATOMIC));
    direct.hosts.capture = Some(Vec::new());
    post(&direct.hosts, 0, &request(1, &memory, ADD_ONE, sink.all())).unwrap();
    direct.hosts.run();
    let frames = direct.hosts.capture.take().unwrap();
    let [(0, sent), (1, answer)] = &frames[..] else { panic!("{} frames", frames.len()) };
    assert_eq!(Packet::parse(answer).unwrap().bth().opcode(), Opcode::ATOMIC_ACKNOWLEDGE);
    let bob = &direct.hosts.sides[1];
    for _ in 0..3 {
        assert_eq!(bob.engine.first_shard().handle_frame(direct.hosts.now, sent), Verdict::Consumed);
        let answers = bob.transmit(direct.hosts.now, 9);
        let original = Packet::parse(&answers[0]).unwrap().atomic_ack_eth().unwrap().original();
        assert_eq!((answers.len(), original), (1, 0));
    }
    assert_eq!(number(&memory), 1);
    // A READ with its PSN does not reveal memory.
    let path = direct.hosts.path(0);
    let reth = roce_wire::RethRepr { address: memory.address(0), r_key: memory.key(), length: 8 };
    let template = roce_wire::Template::new(&path, bob.qp.qpn()).unwrap();
    let psn = Packet::parse(sent).unwrap().bth().psn();
    let atomic = |address| {
        roce_wire::Ext::Atomic(roce_wire::AtomicEthRepr {
            address,
            r_key: memory.key(),
            swap_or_add: 1,
            compare: 0,
        })
    };
    for (opcode, ext) in
        [(Opcode::READ_REQUEST, roce_wire::Ext::Reth(reth)), (Opcode::FETCH_ADD, atomic(memory.address(8)))]
    {
        let headers = roce_wire::Headers { opcode, solicited: false, ack_req: true, psn, ext };
        let mut slot = [0; 200];
        let mut frame = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 0).unwrap();
        let len = frame.finish();
        bob.engine.first_shard().handle_frame(direct.hosts.now, &slot[..len]);
        assert!(bob.transmit(direct.hosts.now, 9).is_empty(), "{opcode:?}");
    }
    assert_eq!(number(&memory), 1);
}

//= rocev2 §9
//= rocev2 §10
#[test]
fn operations_that_the_peer_does_not_allow_are_refused() {
    let cases: [(Access, Access, usize, CompletionStatus); 4] = [
        (Access::REMOTE_ATOMIC, ATOMIC, 4, CompletionStatus::RemoteInvalidRequest),
        (Access::REMOTE_READ | Access::REMOTE_WRITE, ATOMIC, 0, CompletionStatus::RemoteInvalidRequest),
        (
            Access::REMOTE_ATOMIC,
            Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
            0,
            CompletionStatus::RemoteAccess,
        ),
        (Access::REMOTE_ATOMIC, ATOMIC, 16, CompletionStatus::RemoteAccess),
    ];
    for (of_qp, of_key, offset, status) in cases {
        let mut direct = Direct::new(Options::default());
        for side in [0, 1] {
            direct.connect_side(side, PeerSpec { access: of_qp, ..direct.peer(side) });
        }
        let (sink, memory) = (direct.hosts.sides[0].sink(8), direct.hosts.sides[1].memory(16, of_key));
        let request =
            AtomicRequest { address: memory.address(offset), ..request(1, &memory, ADD_ONE, sink.all()) };
        post(&direct.hosts, 0, &request).unwrap();
        direct.hosts.run();
        assert_eq!(direct.hosts.sides[0].outcomes(), [(1, status)]);
        assert_eq!(memory.read(), [0; 16]);
    }
}

/// A connection of connection management, as NDK consumers have them, gives its peer no right to atomic operations.
#[test]
fn a_managed_connection_serves_no_atomic_operation() {
    let mut hosts = TwoHosts::connected(Options::default());
    let (sink, memory) = (hosts.sides[0].sink(8), hosts.sides[1].memory(8, ATOMIC));
    post(&hosts, 0, &request(1, &memory, ADD_ONE, sink.all())).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RemoteInvalidRequest)]);
    assert_eq!(memory.read(), [0; 8]);
}

#[test]
fn a_post_needs_eight_bytes_and_a_peer_that_serves_reads() {
    let direct = connected(Options::default());
    let (sink, memory) = (direct.hosts.sides[0].sink(9), direct.hosts.sides[1].memory(8, ATOMIC));
    for length in [0, 7, 9] {
        let request = request(1, &memory, ADD_ONE, sink.sge(0, length));
        assert_eq!(post(&direct.hosts, 0, &request), Err(PostError::Invalid), "{length}");
    }
    let request = request(1, &memory, ADD_ONE, sink.sge(0, 8));
    let unconnected = TwoHosts::new(Options::default());
    assert_eq!(post(&unconnected, 0, &request), Err(PostError::NotConnected));
    let none = Direct::new(Options::default());
    none.change(0, &QpChange::ReadyToReceive(none.peer(0))).unwrap();
    let requester = roce::RequesterSpec {
        send_psn: Psn::new(1),
        outbound_reads: 0,
        retries: 7,
        rnr_retries: 7,
        ack_timeout: 10,
    };
    none.change(0, &QpChange::ReadyToSend(requester)).unwrap();
    assert_eq!(post(&none.hosts, 0, &request), Err(PostError::NotAllowed));
    direct.change(0, &QpChange::Error).unwrap();
    post(&direct.hosts, 0, &request).unwrap();
    assert_eq!(direct.hosts.sides[0].outcomes(), [(1, CompletionStatus::Flushed)]);
}

/// Both hosts, and a queue pair of the target itself, add to the same number.
#[test]
fn operations_of_several_queue_pairs_do_not_mix() {
    let mut direct = connected(Options::default());
    let [alice, bob] = &direct.hosts.sides;
    let (memory, first, second) = (bob.memory(8, ATOMIC), alice.sink(8), alice.sink(8));
    let ends = [alice, bob].map(|side| {
        let spec = crate::two_hosts::spec(side.pd, &side.cq, &direct.hosts.options);
        side.engine.create_qp(spec).unwrap()
    });
    for side in [0, 1] {
        let here = &direct.hosts.sides[side];
        let peer = PeerSpec { qpn: ends[1 - side].qpn(), access: Access::REMOTE_ATOMIC, ..direct.peer(side) };
        here.engine.modify_qp(&ends[side], &QpChange::ReadyToReceive(peer)).unwrap();
        let requester = roce::RequesterSpec {
            send_psn: direct.peer(1 - side).receive_psn,
            outbound_reads: 4,
            retries: 7,
            rnr_retries: 7,
            ack_timeout: 10,
        };
        here.engine.modify_qp(&ends[side], &QpChange::ReadyToSend(requester)).unwrap();
    }
    for context in 0..20 {
        post(&direct.hosts, 0, &request(context, &memory, ADD_ONE, first.all())).unwrap();
        let other = request(context, &memory, AtomicOperation::FetchAdd { add: 100 }, second.all());
        direct.hosts.sides[0].engine.post_atomic(&ends[0], &other).unwrap();
    }
    direct.hosts.run();
    let outcomes = direct.hosts.sides[0].outcomes();
    assert_eq!(outcomes.len(), 40);
    assert!(outcomes.iter().all(|(_, status)| *status == CompletionStatus::Success));
    assert_eq!(number(&memory), 2020);
}
