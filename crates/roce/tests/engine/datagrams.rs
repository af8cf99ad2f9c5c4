// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable datagrams: what arrives, what is dropped, what a queue pair refuses.

use fallible::Arc;
use roce::{
    CompletionKind, CompletionStatus, DatagramRequest, DatagramSpec, PostError, Qp, QpChange, QpChangeError,
    QpFault, QpState, RecvRequest, SendData, SendFlags, SendOperation, Sge, SrqSpec,
};
use roce_wire::{Opcode, Packet, Path, PathMtu, Psn, Qpn};

use crate::fields::reseal;
use crate::two_hosts::{Lock, Options, Side, TwoHosts, pattern, poll, spec};

const KEYS: [u32; 2] = [0x1111, 0x2222];
/// Bytes of a received datagram before its payload.
const HEADER: usize = 40;

fn opened(side: &Side, qp: &Arc<Qp<Lock>>, q_key: u32, mtu: PathMtu) {
    side.engine.modify_qp(qp, &QpChange::OpenDatagrams(DatagramSpec { q_key, mtu })).unwrap();
    side.engine.modify_qp(qp, &QpChange::SendUnreliably(Psn::new(0x00FF_FFFF))).unwrap();
}

/// Two hosts whose first queue pairs are open for datagrams.
pub fn open(options: Options) -> TwoHosts {
    let hosts = TwoHosts::new(options);
    for (side, q_key) in hosts.sides.iter().zip(KEYS) {
        opened(side, &side.qp, q_key, hosts.options.mtu);
    }
    hosts
}

/// A datagram from side 0 to the queue pair of side 1.
pub struct Datagram<'a> {
    path: Path,
    qpn: Qpn,
    pub q_key: u32,
    immediate: Option<[u8; 4]>,
    flags: SendFlags,
    sges: &'a [Sge],
}

impl<'a> Datagram<'a> {
    pub fn new(hosts: &TwoHosts, sges: &'a [Sge]) -> Self {
        let qpn = hosts.sides[1].qp.qpn();
        Self { path: hosts.path(0), qpn, q_key: KEYS[1], immediate: None, flags: SendFlags::empty(), sges }
    }

    pub fn post(&self, hosts: &TwoHosts, context: u64) -> Result<(), PostError> {
        let Self { path, qpn, q_key, immediate, flags, sges } = self;
        let data = SendData::Sges(sges);
        let (path, q_key) = (path, *q_key);
        let request =
            DatagramRequest { context, path, qpn: *qpn, q_key, immediate: *immediate, flags: *flags, data };
        hosts.sides[0].engine.post_datagram(&hosts.sides[0].qp, &request)
    }
}

#[test]
fn a_datagram_arrives_with_its_sender_behind_the_header() {
    for v6 in [false, true] {
        let ip: fn(u8) -> std::net::IpAddr =
            if v6 { |n| format!("fd00::{n}").parse().unwrap() } else { |n| [10, 0, 0, n].into() };
        let mut hosts = open(Options { ip, mtu: PathMtu::Bytes1024, ..Options::default() });
        let source_qpn = hosts.sides[0].qp.qpn();
        for (i, size) in [0usize, 1, 500, 1023, 1024].into_iter().enumerate() {
            let [alice, bob] = &hosts.sides;
            let data = pattern(size, i as u64);
            let (source, sink) = (alice.source(&data), bob.sink(HEADER + 1024));
            bob.recv(7, &[sink.sge(0, 10), sink.sge(10, HEADER + 1014)]);
            let sges = [source.sge(0, size / 2), source.sge(size / 2, size - size / 2)];
            let immediate = (i % 2 == 1).then_some([1, 2, 3, 4]);
            Datagram { immediate, ..Datagram::new(&hosts, &sges) }.post(&hosts, 5).unwrap();
            hosts.run();
            let [alice, bob] = &hosts.sides;
            assert_eq!(alice.outcomes(), [(5, CompletionStatus::Success)]);
            let received = bob.completions();
            let kind = CompletionKind::ReceiveDatagram { source: source_qpn };
            let got: Vec<_> = received.iter().map(|c| (c.context, c.kind, c.bytes, c.immediate)).collect();
            assert_eq!(got, [(7, kind, (HEADER + size) as u32, immediate)], "{size} bytes");
            let memory = sink.read();
            assert_eq!(&memory[HEADER..HEADER + size], data);
            // The addresses, by which the receiver finds the sender.
            if v6 {
                assert_eq!(memory[0] >> 4, 6);
                assert_eq!((memory[23], memory[39]), (1, 2));
            } else {
                assert_eq!(memory[..20], [0; 20]);
                assert_eq!((&memory[32..36], &memory[36..40]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
            }
        }
    }
}

//= rocev2 §4
#[test]
fn frames_have_consecutive_psns_and_their_own_q_key() {
    let mut hosts = open(Options::default());
    hosts.capture = Some(Vec::new());
    let source = hosts.sides[0].source(b"data");
    let sges = [source.all()];
    let base = Datagram::new(&hosts, &sges);
    let (path, qpn) = (base.path, base.qpn);
    // With the most significant bit, the key of the sending queue pair is used.
    for (context, q_key) in [(0, 0x7FFF_FFFF), (1, 0x8000_0000)] {
        Datagram { q_key, flags: SendFlags::SOLICITED, path, qpn, immediate: None, sges: &sges }
            .post(&hosts, context)
            .unwrap();
    }
    hosts.run();
    let frames = hosts.capture.take().unwrap();
    let sent: Vec<_> = frames
        .iter()
        .map(|(from, frame)| {
            let packet = Packet::parse(frame).unwrap();
            let (bth, deth) = (packet.bth(), packet.deth().unwrap());
            assert_eq!(deth.source_qp(), hosts.sides[0].qp.qpn());
            assert_eq!((bth.dest_qp(), bth.ack_req(), bth.solicited()), (qpn, false, true));
            (*from, bth.opcode(), bth.psn().value(), deth.q_key())
        })
        .collect();
    let expected =
        [(0, Opcode::UD_SEND_ONLY, 0x00FF_FFFF, 0x7FFF_FFFF), (0, Opcode::UD_SEND_ONLY, 0, KEYS[0])];
    assert_eq!(sent, expected);
    assert_eq!(hosts.sides[1].stat("drop_qkey"), 2);
}

/// A datagram that cannot be received is dropped and counted. The queue pair goes on.
#[test]
fn what_cannot_be_received_is_dropped() {
    let mut hosts = open(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    let source = hosts.sides[0].source(&pattern(256, 1));
    let sges = [source.all()];
    // No receive.
    Datagram::new(&hosts, &sges).post(&hosts, 1).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[1].stat("drop_no_receive"), 1);
    // A receive that is too short.
    let sink = hosts.sides[1].sink(1000);
    hosts.sides[1].recv(2, &[sink.sge(0, HEADER + 255)]);
    hosts.sides[1].recv(3, &[sink.sge(0, HEADER + 256)]);
    for context in [2, 3] {
        Datagram::new(&hosts, &sges).post(&hosts, context).unwrap();
    }
    // Another address than that of the host, another queue pair, another service.
    for change in [
        (|datagram| datagram.path.remote_ip = [10, 0, 0, 77].into()) as fn(&mut Datagram<'_>),
        |datagram| datagram.qpn = Qpn::new(0x0012_3456),
        |datagram| datagram.q_key = KEYS[0],
    ] {
        let mut datagram = Datagram::new(&hosts, &sges);
        change(&mut datagram);
        datagram.post(&hosts, 9).unwrap();
    }
    hosts.sides[1].recv(4, &[sink.all()]);
    hosts.run();
    let outcomes = hosts.sides[1].outcomes();
    assert_eq!(outcomes, [(2, CompletionStatus::LocalLength), (3, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[1].qp.state(), QpState::UnreliableRts);
    assert_eq!(hosts.sides[0].outcomes().len(), 6, "each datagram was sent");
}

/// Packets of connections do not reach a queue pair for datagrams, nor datagrams one of a connection.
#[test]
fn services_do_not_mix() {
    let mut hosts = TwoHosts::connected(Options::default());
    let engines = hosts.sides.each_ref().map(|side| side.engine.clone());
    let others = hosts.sides.each_ref().map(|side| {
        let qp = side.engine.create_qp(spec(side.pd, &side.cq, &hosts.options)).unwrap();
        opened(side, &qp, 5, PathMtu::Bytes1024);
        qp
    });
    hosts.sides[1].recv(1, &[hosts.sides[1].sink(100).all()]);
    let path = hosts.path(0);
    let request = DatagramRequest {
        context: 1,
        path: &path,
        qpn: hosts.sides[1].qp.qpn(),
        q_key: 5,
        immediate: None,
        flags: SendFlags::empty(),
        data: SendData::Inline(&[b"to a connection"]),
    };
    engines[0].post_datagram(&others[0], &request).unwrap();
    hosts.run();
    assert!(hosts.sides[1].cq.is_empty() && hosts.sides[1].qp.state() == QpState::Rts);
    assert_eq!(engines[0].post_datagram(&hosts.sides[0].qp, &request), Err(PostError::NotConnected));
    // And the other way: a connection's packet, sent to the queue pair for datagrams.
    hosts.capture = Some(Vec::new());
    let source = hosts.sides[0].source(b"to datagrams");
    hosts.sides[0].send(2, &[source.all()]);
    hosts.run();
    let (_, mut forged) = hosts.capture.take().unwrap().remove(0);
    // The destination queue pair in the BTH, behind Ethernet, IPv4 and UDP.
    forged[47..50].copy_from_slice(&others[1].qpn().value().to_be_bytes()[1..]);
    reseal(&mut forged);
    let verdict = engines[1].first_shard().handle_frame(hosts.now, &forged);
    assert_eq!(verdict, roce::Verdict::Dropped(roce::DropReason::Opcode));
}

#[test]
fn a_queue_pair_for_datagrams_refuses_other_requests() {
    let hosts = open(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    let side = &hosts.sides[0];
    let source = side.source(&[0; 300]);
    for operation in [SendOperation::Send, SendOperation::Read { address: 0, key: 1 }] {
        let posted = side.post(1, operation, SendFlags::empty(), &[source.sge(0, 1)]);
        assert_eq!(posted, Err(PostError::NotConnected));
    }
    let too_long = [source.sge(0, 257)];
    assert_eq!(Datagram::new(&hosts, &too_long).post(&hosts, 2), Err(PostError::TooLong));
    let none = [];
    let mut mixed = Datagram::new(&hosts, &none);
    mixed.path.remote_ip = "fd00::1".parse().unwrap();
    assert_eq!(mixed.post(&hosts, 3), Err(PostError::Invalid));
    let deferred = Datagram { flags: SendFlags::DEFER, ..Datagram::new(&hosts, &none) };
    for context in 0..u64::from(hosts.options.send_depth) {
        deferred.post(&hosts, context).unwrap();
    }
    assert_eq!(deferred.post(&hosts, 99), Err(PostError::QueueFull));
    assert!(!side.engine.first_shard().wants_transmit());
    side.engine.undefer(&side.qp);
    assert!(side.engine.first_shard().wants_transmit());
    let wide = DatagramSpec { q_key: 1, mtu: PathMtu::Bytes4096 };
    let narrow =
        TwoHosts::new(Options { config: |config| config.max_mtu = PathMtu::Bytes2048, ..Options::default() });
    let opened = narrow.sides[0].engine.modify_qp(&narrow.sides[0].qp, &QpChange::OpenDatagrams(wide));
    assert_eq!(opened, Err(QpChangeError::Invalid));
}

/// Memory that cannot be read ends the send queue, memory that cannot be written the queue pair; then it is used again.
#[test]
fn memory_errors_end_the_send_queue_or_the_queue_pair_until_it_is_reset() {
    let mut hosts = open(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, read_only) = (alice.source(b"data"), bob.source(&[0; 100]));
    bob.recv(1, &[read_only.all()]);
    bob.recv(2, &[]);
    let sges = [source.all()];
    Datagram::new(&hosts, &sges).post(&hosts, 3).unwrap();
    hosts.run();
    let bad = [Sge { key: source.key() ^ 1, ..source.all() }];
    Datagram::new(&hosts, &bad).post(&hosts, 4).unwrap();
    Datagram::new(&hosts, &sges).post(&hosts, 5).unwrap();
    hosts.run();
    Datagram::new(&hosts, &sges).post(&hosts, 6).unwrap();
    let [alice, bob] = &hosts.sides;
    let flushed = CompletionStatus::Flushed;
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::LocalProtection), (2, flushed)]);
    let failed = CompletionStatus::LocalProtection;
    assert_eq!(alice.outcomes(), [(3, CompletionStatus::Success), (4, failed), (5, flushed), (6, flushed)]);
    assert_eq!([alice.qp.state(), bob.qp.state()], [QpState::UnreliableSqe, QpState::Error]);
    assert_eq!(alice.failed_qps, [], "the completion tells");
    assert_eq!(bob.failed_qps.iter().map(|failed| failed.2).collect::<Vec<_>>(), [QpFault::Request]);
    for side in &hosts.sides {
        side.engine.modify_qp(&side.qp, &QpChange::Reset).unwrap();
        side.engine.modify_qp(&side.qp, &QpChange::Initialize).unwrap();
        opened(side, &side.qp, KEYS[1], PathMtu::Bytes1024);
    }
    let sink = hosts.sides[1].sink(100);
    hosts.sides[1].recv(7, &[sink.all()]);
    Datagram::new(&hosts, &sges).post(&hosts, 8).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(7, CompletionStatus::Success)]);
    assert_eq!(&sink.read()[HEADER..HEADER + 4], b"data");
}

#[test]
fn queue_pairs_share_receives() {
    let mut hosts = TwoHosts::new(Options::default());
    let bob = &hosts.sides[1];
    let srq = bob.engine.create_srq(&SrqSpec { depth: 8, sges: 1, threshold: 0, context: 3 }).unwrap();
    let qps = [(); 2].map(|()| {
        let spec = roce::QpSpec { srq: Some(srq.clone()), ..spec(bob.pd, &bob.cq, &hosts.options) };
        let qp = bob.engine.create_qp(spec).unwrap();
        opened(bob, &qp, KEYS[1], PathMtu::Bytes1024);
        qp
    });
    opened(&hosts.sides[0], &hosts.sides[0].qp, KEYS[0], PathMtu::Bytes1024);
    let sink = bob.sink(400);
    for (at, context) in [(0, 1), (200, 2)] {
        bob.engine.post_srq(&srq, &RecvRequest { context, sges: &[sink.sge(at, 200)] }).unwrap();
    }
    let source = hosts.sides[0].source(b"shared");
    let sges = [source.all()];
    for qp in &qps {
        Datagram { qpn: qp.qpn(), ..Datagram::new(&hosts, &sges) }.post(&hosts, 1).unwrap();
    }
    hosts.run();
    let received: Vec<_> = poll(&hosts.sides[1].cq).iter().map(|c| (c.context, c.status)).collect();
    assert_eq!(received, [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
    assert_eq!(&sink.read()[200 + HEADER..200 + HEADER + 6], b"shared");
}
