// SPDX-License-Identifier: MIT OR Apache-2.0

//! IPv6, address changes, and connections of an engine to itself.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use roce::{
    AcceptSpec, Access, CompletionStatus, ConnError, ConnEvent, ConnectSpec, DisconnectOutcome, ListenSpec,
    QpState, Verdict,
};
use roce_wire::{Packet, Path, Qpn};

use crate::two_hosts::{Options, PORT, TwoHosts, pattern, spec};

fn global(number: u8) -> IpAddr {
    Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, number.into()).into()
}

fn link_local(number: u8) -> IpAddr {
    Ipv6Addr::new(0xFE80, 0, 0, 0, 0x5054, 0xFF, 0xFE77, number.into()).into()
}

/// Sends, writes and reads a message of several packets in each direction, then disconnects.
fn use_and_end(hosts: &mut TwoHosts) {
    let data = pattern(5000, 7);
    for side in [0, 1] {
        let (here, there) = (&hosts.sides[side], &hosts.sides[1 - side]);
        let source = here.source(&data);
        let sinks =
            [there.sink(data.len()), there.shared(data.len()), here.memory(data.len(), Access::LOCAL_WRITE)];
        there.recv(1, &[sinks[0].all()]);
        here.write(2, &[source.all()], &sinks[1], 0);
        here.send(3, &[source.all()]);
        here.read(4, &[sinks[2].all()], &sinks[1], 0);
        hosts.run();
        let done =
            [(2, CompletionStatus::Success), (3, CompletionStatus::Success), (4, CompletionStatus::Success)];
        assert_eq!(hosts.sides[side].outcomes(), done);
        assert_eq!(hosts.sides[1 - side].outcomes(), [(1, CompletionStatus::Success)]);
        assert!(sinks.iter().all(|sink| sink.read() == data));
    }
    for side in &hosts.sides {
        side.engine.connections().disconnect(hosts.now, side.conn.unwrap()).unwrap();
    }
    hosts.run();
    for side in 0..2 {
        assert!(
            hosts.has_event(side, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful)))
        );
    }
}

//= rocev2 §13
//= rocev2 §1
#[test]
fn requests_and_disconnect_work_over_ipv6() {
    for ip in [global as fn(u8) -> IpAddr, link_local] {
        let mut hosts = TwoHosts::new(Options { ip, ..Options::default() });
        hosts.capture = Some(Vec::new());
        hosts.listen();
        hosts.connect(&[0xC0; 56]);
        hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
        let Some((_, _, ConnEvent::Request(request))) = hosts.sides[1].conn_events.first() else {
            panic!("no request")
        };
        assert_eq!((request.path.local_ip, request.path.remote_ip), (ip(2), ip(1)));
        assert_eq!(request.private_data.as_slice(), [0xC0; 56]);
        hosts.accept(&[0xAC; 196]);
        hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
        hosts.complete();
        hosts.run_until("the connection", |p| p.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
        use_and_end(&mut hosts);
        for (from, frame) in hosts.capture.take().unwrap() {
            let packet = Packet::parse(&frame).unwrap();
            assert_eq!((packet.source(), packet.destination()), (ip(1 + from as u8), ip(2 - from as u8)));
        }
    }
}

//= rocev2 §13
#[test]
fn network_faults_are_recovered_over_ipv6() {
    for seed in 0..5 {
        let bad =
            Options { seed, loss: 50, duplication: 20, reordering: 50, corruption: 5, ..Options::default() };
        use_and_end(&mut TwoHosts::connected(Options { ip: link_local, ..bad }));
    }
}

//= R-CONN-2
//= rocev2 §13
#[test]
fn connect_requires_a_local_source_and_a_unicast_destination() {
    let hosts = TwoHosts::new(Options::default());
    let alice = &hosts.sides[0];
    let connect = |local_ip: IpAddr, remote_ip: IpAddr| {
        let path = Path { local_ip, remote_ip, ..hosts.path(0) };
        let spec = ConnectSpec {
            path,
            local_port: 50000,
            remote_port: PORT,
            mtu: hosts.options.mtu,
            reads: hosts.options.reads,
            private_data: b"",
            context: 0,
        };
        alice.engine.connections().connect(hosts.now, &alice.qp, &spec)
    };
    assert_eq!(connect([10, 0, 0, 9].into(), [10, 0, 0, 2].into()), Err(ConnError::NotLocal));
    assert_eq!(connect(global(1), global(2)), Err(ConnError::NotLocal));
    for not_unicast in [[255; 4], [0; 4], [224, 0, 0, 1], [127, 0, 0, 1]] {
        assert_eq!(
            connect([10, 0, 0, 1].into(), not_unicast.into()),
            Err(ConnError::Invalid),
            "{not_unicast:?}"
        );
    }
    alice.engine.connections().set_addresses(&[[10, 0, 0, 1].into(), [10, 0, 0, 9].into()]).unwrap();
    assert!(connect([10, 0, 0, 9].into(), [10, 0, 0, 2].into()).is_ok());
}

/// By configuration: no frame of a network has such an address.
//= rocev2 §13
#[test]
fn loopback_addresses_connect_where_they_are_allowed() {
    let ips: [fn(u8) -> IpAddr; 3] =
        [|number| [127, 0, 0, number].into(), |_| [127, 0, 0, 1].into(), |_| Ipv6Addr::LOCALHOST.into()];
    for ip in ips {
        let allowed = |config: &mut roce::Config| config.loopback = true;
        let mut hosts = TwoHosts::connected(Options { ip, config: allowed, ..Options::default() });
        use_and_end(&mut hosts);
        let refused = TwoHosts::new(Options { ip, ..Options::default() });
        let alice = &refused.sides[0];
        let spec = ConnectSpec {
            path: refused.path(0),
            local_port: 50000,
            remote_port: PORT,
            mtu: refused.options.mtu,
            reads: refused.options.reads,
            private_data: b"",
            context: 0,
        };
        assert_eq!(
            alice.engine.connections().connect(refused.now, &alice.qp, &spec),
            Err(ConnError::Invalid)
        );
    }
}

//= R-CONN-101
#[test]
fn a_wildcard_listener_ignores_requests_to_other_addresses() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.sides[1].engine.connections().set_addresses(&[[10, 0, 0, 77].into()]).unwrap();
    hosts.connect(b"");
    hosts.run_for(Duration::from_secs(5));
    assert!(hosts.sides[1].conn.is_none());
    assert_eq!(hosts.sides[1].stat("tx_datagrams"), 0, "there is no listener at this address");
    // The address is added while the REQ is still retransmitted.
    let mine = hosts.sides[1].ip;
    hosts.sides[1].engine.connections().set_addresses(&[[10, 0, 0, 77].into(), mine]).unwrap();
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
}

/// The network stack gets such frames: the counters of RDMA say nothing of them.
#[test]
fn frames_to_other_addresses_are_not_counted() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.capture = Some(Vec::new());
    hosts.connect(b"");
    hosts.drive();
    let (_, request) = hosts.capture.take().unwrap().remove(0);
    let bob = &hosts.sides[1].engine;
    assert!(Packet::parse(&request).unwrap().bth().dest_qp() == Qpn::GSI);
    bob.connections().set_addresses(&[[10, 0, 0, 77].into()]).unwrap();
    let counters = || {
        let mut all = Vec::new();
        bob.stats().each(&mut |name, value| all.push((name, value)));
        all
    };
    let before = counters();
    assert_eq!(bob.first_shard().handle_frame(hosts.now, &request), Verdict::NotOurs);
    assert_eq!(counters(), before);
}

//= R-CONN-101
//= R-CONN-87
#[test]
fn removing_an_address_aborts_its_connections() {
    let mut hosts = TwoHosts::connected(Options::default());
    for side in &hosts.sides {
        side.recv(5, &[side.sink(8).all()]);
    }
    hosts.sides[1].engine.connections().set_addresses(&[[10, 0, 0, 77].into()]).unwrap();
    hosts.run_until("the end", |hosts| hosts.has_event(1, |e| matches!(e, ConnEvent::Aborted)));
    assert_eq!(hosts.sides[1].outcomes(), [(5, CompletionStatus::Flushed)]);
    assert_eq!(hosts.sides[1].qp.state(), QpState::Error);
    hosts.run_until("a DREQ", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Disconnected)));
    // Datagrams to the removed address are ignored, and none are sent from it.
    let sent = hosts.sides[1].stat("tx_datagrams");
    let alice = &hosts.sides[0];
    alice.engine.connections().disconnect(hosts.now, alice.conn.unwrap()).unwrap();
    hosts.run();
    assert!(hosts.has_event(0, |e| matches!(e, ConnEvent::DisconnectDone { .. })));
    assert_eq!(hosts.sides[1].stat("tx_datagrams"), sent);
    assert_eq!(sent, 2, "a REP and a DREQ");
}

/// An engine connects to itself, at one address or between two of its addresses.
//= rocev2 §12
#[test]
fn an_engine_can_connect_to_itself() {
    for other in [[10, 0, 0, 1], [10, 0, 0, 5]] {
        let mut hosts = TwoHosts::new(Options { loss: 0, ..Options::default() });
        let path = {
            let alice = &hosts.sides[0];
            alice.engine.connections().set_addresses(&[alice.ip, other.into()]).unwrap();
            alice
                .engine
                .connections()
                .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 1, context: 500 })
                .unwrap();
            Path::new(alice.mac, alice.mac, alice.ip, other.into())
        };
        let passive_qp =
            hosts.sides[0].engine.create_qp(spec(hosts.sides[0].pd, &hosts.sides[0].cq, &hosts.options));
        let passive_qp = passive_qp.unwrap();
        let request = ConnectSpec {
            path,
            local_port: 50000,
            remote_port: PORT,
            mtu: hosts.options.mtu,
            reads: hosts.options.reads,
            private_data: b"me",
            context: 100,
        };
        let alice = &hosts.sides[0];
        let active = alice.engine.connections().connect(hosts.now, &alice.qp, &request).unwrap();
        hosts.run_until("a request", |hosts| hosts.sides[0].conn.is_some());
        let passive = hosts.sides[0].conn.unwrap();
        let answer = AcceptSpec { reads: hosts.options.reads, private_data: b"", context: 200 };
        hosts.sides[0].engine.connections().accept(hosts.now, passive, &passive_qp, &answer).unwrap();
        hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
        hosts.sides[0].engine.connections().complete(hosts.now, active).unwrap();
        hosts.run_until("both ends", |hosts| {
            hosts.has_event(0, |e| matches!(e, ConnEvent::Established { .. }))
        });
        let alice = &hosts.sides[0];
        let (source, sink) = (alice.source(&pattern(3000, 1)), alice.sink(3000));
        let receive = roce::RecvRequest { context: 8, sges: &[sink.all()] };
        alice.engine.post_recv(&passive_qp, &receive).unwrap();
        alice.send(9, &[source.all()]);
        hosts.run();
        let mut outcomes = hosts.sides[0].outcomes();
        outcomes.sort_by_key(|(context, _)| *context);
        assert_eq!(outcomes, [(8, CompletionStatus::Success), (9, CompletionStatus::Success)]);
        assert_eq!(sink.read(), pattern(3000, 1));
        hosts.sides[0].engine.connections().disconnect(hosts.now, active).unwrap();
        hosts.run_until("a DREQ", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Disconnected)));
        hosts.sides[0].engine.connections().disconnect(hosts.now, passive).unwrap();
        hosts.run();
        let ends = hosts.sides[0].conn_events.iter();
        let ends = ends
            .filter(|(_, _, event)| matches!(event, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful)));
        assert_eq!(ends.count(), 2);
        assert_eq!(hosts.sides[1].stat("rx_datagrams"), 0);
    }
}
