// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections of queue pairs that their owner changes: connection management exchanges the parameters.

use std::time::Duration;

use roce::{
    AcceptSpec, Access, CompletionStatus, ConnError, ConnEvent, ConnId, ConnectSpec, DisconnectOutcome,
    LocalQp, PeerQp, PeerSpec, QpChange, QpState, ReadLimits, RejectReason, RequesterSpec,
};
use roce_wire::{Packet, Psn, Qpn};

use crate::two_hosts::{Options, PORT, TwoHosts, pattern};

const PSNS: [u32; 2] = [0x00FF_FFFF, 0x0000_4711];

/// Returns what a side sends of its first queue pair.
fn local(hosts: &TwoHosts, side: usize) -> LocalQp {
    LocalQp {
        q_key: None,
        qpn: hosts.sides[side].qp.qpn(),
        receive_psn: Psn::new(PSNS[side]),
        srq: false,
        retry_count: 3,
        rnr_retry_count: 5,
        ack_timeout: 14,
    }
}

fn request<'a>(hosts: &TwoHosts, private_data: &'a [u8]) -> ConnectSpec<'a> {
    ConnectSpec {
        path: hosts.path(0),
        local_port: 50000,
        remote_port: PORT,
        mtu: hosts.options.mtu,
        reads: ReadLimits { inbound: 3, outbound: 8 },
        private_data,
        context: 100,
    }
}

/// Sends the REQ of side 0 and runs until side 1 has it. Returns both connections.
fn begin(hosts: &mut TwoHosts) -> [ConnId; 2] {
    hosts.listen();
    let active = hosts.sides[0]
        .engine
        .connections()
        .connect_unbound(hosts.now, local(hosts, 0), &request(hosts, &[0xC0; 56]))
        .unwrap();
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    [active, hosts.sides[1].conn.unwrap()]
}

/// Accepts at side 1 and runs until side 0 has the REP.
fn accept(hosts: &mut TwoHosts, passive: ConnId) {
    let spec = AcceptSpec {
        reads: ReadLimits { inbound: 6, outbound: 2 },
        private_data: &[0xAC; 196],
        context: 200,
    };
    let reads = hosts.sides[1]
        .engine
        .connections()
        .accept_unbound(hosts.now, passive, local(hosts, 1), &spec)
        .unwrap();
    assert_eq!(reads, ReadLimits { inbound: 6, outbound: 2 });
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
}

/// Moves a side's queue pair to RTR, and then to RTS, by what its peer has sent.
fn ready(hosts: &TwoHosts, side: usize, peer: &PeerQp, to_send: bool) {
    let side_psn = Psn::new(PSNS[side]);
    let side = &hosts.sides[side];
    let change = if to_send {
        QpChange::ReadyToSend(RequesterSpec {
            send_psn: peer.send_psn,
            outbound_reads: peer.reads.outbound,
            retries: peer.retry_count,
            rnr_retries: peer.rnr_retry_count,
            ack_timeout: peer.ack_timeout,
        })
    } else {
        QpChange::ReadyToReceive(PeerSpec {
            path: peer.path,
            qpn: peer.qpn,
            mtu: peer.mtu,
            receive_psn: side_psn,
            inbound_reads: peer.reads.inbound,
            rnr_timer: 12,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        })
    };
    side.engine.modify_qp(&side.qp, &change).unwrap();
}

/// Connects two queue pairs as librdmacm does for a program that brings its own.
fn connected(options: Options) -> (TwoHosts, [ConnId; 2]) {
    let mut hosts = TwoHosts::new(options);
    let [active, passive] = begin(&mut hosts);
    let peer = hosts.sides[1].engine.connections().peer(passive).unwrap();
    ready(&hosts, 1, &peer, false);
    accept(&mut hosts, passive);
    let peer = hosts.sides[0].engine.connections().peer(active).unwrap();
    ready(&hosts, 0, &peer, false);
    ready(&hosts, 0, &peer, true);
    hosts.sides[0].engine.connections().complete(hosts.now, active).unwrap();
    hosts.run_until("the connection", |p| p.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
    let peer = hosts.sides[1].engine.connections().peer(passive).unwrap();
    ready(&hosts, 1, &peer, true);
    (hosts, [active, passive])
}

//= rocev2 §12
#[test]
fn parameters_are_exchanged_and_the_owner_changes_the_queue_pairs() {
    let (mut hosts, [active, passive]) = connected(Options::default());
    let data = pattern(5000, 3);
    for side in [0, 1] {
        let (here, there) = (&hosts.sides[side], &hosts.sides[1 - side]);
        let (source, sink, remote, back) =
            (here.source(&data), there.sink(5000), there.shared(5000), here.sink(5000));
        there.recv(1, &[sink.all()]);
        here.write(2, &[source.all()], &remote, 0);
        here.send(3, &[source.all()]);
        here.read(4, &[back.all()], &remote, 0);
        hosts.run();
        assert_eq!(
            hosts.sides[side].outcomes(),
            [2, 3, 4].map(|context| (context, CompletionStatus::Success))
        );
        assert_eq!(hosts.sides[1 - side].outcomes(), [(1, CompletionStatus::Success)]);
        assert!([sink, remote, back].iter().all(|memory| memory.read() == data));
    }
    assert_eq!(hosts.sides.each_ref().map(|side| side.stat("connections")), [1, 1]);
    // Each side's owner puts its queue pair in error, and then disconnects.
    for (side, conn) in [(0, active), (1, passive)] {
        let side = &hosts.sides[side];
        side.engine.modify_qp(&side.qp, &QpChange::Error).unwrap();
        side.engine.connections().disconnect(hosts.now, conn).unwrap();
    }
    hosts.run();
    for side in [0, 1] {
        let graceful = |e: &ConnEvent| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful));
        assert!(hosts.has_event(side, graceful));
        assert!(hosts.sides[side].failed_qps.is_empty());
    }
    for (side, conn) in [(0, active), (1, passive)] {
        hosts.sides[side].engine.connections().release(hosts.now, conn);
        assert_eq!(hosts.sides[side].engine.connections().peer(conn), None);
        assert_eq!(hosts.sides[side].engine.objects().connections, 0);
    }
}

/// Private data arrives with the length of its field, as programs on librdmacm expect.
//= rocev2 §11
#[test]
fn each_side_gets_the_parameters_and_private_data_of_the_other() {
    let mut hosts = TwoHosts::new(Options::default());
    let [active, passive] = begin(&mut hosts);
    let (_, 500, ConnEvent::Request(request)) = &hosts.sides[1].conn_events[0] else { panic!("no request") };
    assert_eq!(request.private_data.as_slice(), [0xC0; 56]);
    let alice = local(&hosts, 0);
    let expected = PeerQp {
        q_key: 0,
        qpn: alice.qpn,
        send_psn: alice.receive_psn,
        mtu: hosts.options.mtu,
        reads: ReadLimits { inbound: 8, outbound: 3 },
        retry_count: 3,
        rnr_retry_count: 5,
        ack_timeout: 14,
        path: request.path,
    };
    assert_eq!(hosts.sides[1].engine.connections().peer(passive), Some(expected));
    assert_eq!(hosts.sides[0].engine.connections().peer(active), None, "no REP has come");
    accept(&mut hosts, passive);
    let Some((_, 100, ConnEvent::Replied { reads, private_data })) = hosts.sides[0].conn_events.first()
    else {
        panic!("no reply")
    };
    assert_eq!(private_data.as_slice(), [0xAC; 196]);
    assert_eq!(*reads, ReadLimits { inbound: 2, outbound: 6 });
    let bob = local(&hosts, 1);
    let peer = hosts.sides[0].engine.connections().peer(active).unwrap();
    assert_eq!(
        (peer.qpn, peer.send_psn, peer.reads, peer.path),
        (bob.qpn, bob.receive_psn, *reads, hosts.path(0))
    );
    assert_eq!((peer.retry_count, peer.rnr_retry_count), (3, 5));
    let peer = hosts.sides[1].engine.connections().peer(passive).unwrap();
    assert_eq!(peer.reads, ReadLimits { inbound: 6, outbound: 2 }, "as negotiated");
    // No event has touched a queue pair.
    assert!(hosts.sides.iter().all(|side| side.qp.state() == QpState::Init));
}

#[test]
fn a_request_or_a_reply_can_be_refused() {
    let refused = |hosts: &TwoHosts, side: usize| {
        hosts.sides[side].conn_events.iter().find_map(|(_, _, event)| match event {
            ConnEvent::Refused { reason, private_data } => Some((*reason, private_data.as_slice().to_vec())),
            _ => None,
        })
    };
    for refusing in [1, 0] {
        let mut hosts = TwoHosts::new(Options::default());
        let conns = begin(&mut hosts);
        if refusing == 0 {
            accept(&mut hosts, conns[1]);
        }
        hosts.sides[refusing].engine.connections().reject(hosts.now, conns[refusing], &[0xEE; 148]).unwrap();
        hosts.run_until("a REJ", |hosts| refused(hosts, 1 - refusing).is_some());
        assert_eq!(refused(&hosts, 1 - refusing), Some((RejectReason::CONSUMER, vec![0xEE; 148])));
        assert_eq!(hosts.sides[0].engine.connections().complete(hosts.now, conns[0]), Err(ConnError::State));
    }
}

/// The owner of the queue pair has seen a packet, and the RTU was lost.
//= rocev2 §12
#[test]
fn a_packet_of_the_peer_stands_for_a_lost_rtu() {
    let mut hosts = TwoHosts::new(Options::default());
    let [active, passive] = begin(&mut hosts);
    accept(&mut hosts, passive);
    hosts.filter = Some(Box::new(|_, frame| Packet::parse(frame).unwrap().deth().is_none()));
    hosts.sides[0].engine.connections().complete(hosts.now, active).unwrap();
    hosts.run_for(Duration::from_millis(1));
    assert!(!hosts.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
    for _ in 0..2 {
        hosts.sides[1].engine.connections().establish(hosts.now, passive).unwrap();
    }
    hosts.take_events(1);
    let established =
        hosts.sides[1].conn_events.iter().filter(|(_, _, e)| matches!(e, ConnEvent::Established { .. }));
    assert_eq!(established.count(), 1);
    hosts.sides[1].engine.connections().release(hosts.now, passive);
    assert_eq!(hosts.sides[1].engine.connections().establish(hosts.now, passive), Err(ConnError::Unknown));
}

#[test]
fn parameters_that_no_message_can_carry_are_refused() {
    let mut hosts = TwoHosts::new(Options::default());
    let good = local(&hosts, 0);
    let bad = [
        LocalQp { qpn: Qpn::new(0), ..good },
        LocalQp { qpn: Qpn::GSI, ..good },
        LocalQp { qpn: Qpn::new(0x00FF_FFFF), ..good },
        LocalQp { retry_count: 8, ..good },
        LocalQp { rnr_retry_count: 8, ..good },
        LocalQp { ack_timeout: 32, ..good },
    ];
    for local in bad {
        let alice = &hosts.sides[0].engine;
        assert_eq!(
            alice.connections().connect_unbound(hosts.now, local, &request(&hosts, b"")),
            Err(ConnError::Invalid),
            "{local:?}"
        );
    }
    let long =
        hosts.sides[0].engine.connections().connect_unbound(hosts.now, good, &request(&hosts, &[0; 57]));
    assert_eq!(long, Err(ConnError::PrivateDataTooLong));
    let [_, passive] = begin(&mut hosts);
    let bob = &hosts.sides[1].engine;
    let spec = AcceptSpec { reads: ReadLimits::default(), private_data: b"", context: 0 };
    for local in bad {
        assert_eq!(
            bob.connections().accept_unbound(hosts.now, passive, local, &spec),
            Err(ConnError::Invalid),
            "{local:?}"
        );
    }
    let long = AcceptSpec { private_data: &[0; 197], ..spec };
    assert_eq!(
        bob.connections().accept_unbound(hosts.now, passive, good, &long),
        Err(ConnError::PrivateDataTooLong)
    );
    bob.connections().accept_unbound(hosts.now, passive, good, &spec).unwrap();
    assert_eq!(bob.connections().accept_unbound(hosts.now, passive, good, &spec), Err(ConnError::State));
    assert_eq!(bob.connections().reject(hosts.now, passive, b""), Err(ConnError::State));
}
