// SPDX-License-Identifier: MIT OR Apache-2.0

//! Establishment of connections.

use super::*;
use roce_wire::cm::RtuRepr;

//= rocev2 §12
#[test]
fn three_messages_establish_a_connection() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    let event = hosts.event(Side::B);
    assert_eq!((event.conn, event.kind, event.context), (b, CmEventKind::Established, 0xC));
    assert_eq!(hosts.a.sent, [Attribute::CM_REQ, Attribute::CM_RTU]);
    assert_eq!(hosts.b.sent, [Attribute::CM_REP]);
    hosts.quiet_for(Duration::from_secs(100));
    assert_eq!(hosts.a.sent.len() + hosts.b.sent.len(), 3, "an established connection is silent");
    hosts.release(a, b);
}

//= rocev2 §11
//= rocev2 §8
//= R-CONN-24
//= R-CONN-47
#[test]
fn request_event_has_all_parameters_of_the_peer() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a_qp = hosts.local_qp(Side::A);
    let a = hosts.connect_qp(a_qp, b"hello", ReadLimits { inbound: 3, outbound: 5 }).unwrap();
    let event = hosts.event(Side::B);
    assert_eq!(event.context, 0xB, "the listener's context");
    let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
    assert_eq!((request.local_port, request.remote_port), (PORT, 50_000));
    assert_eq!((request.path.remote_ip, request.path.local_ip), (hosts.a.ip, hosts.b.ip));
    assert_eq!((request.path.remote_mac, request.path.local_mac), (hosts.a.mac, hosts.b.mac));
    assert_eq!(request.mtu, PathMtu::Bytes1024);
    assert_eq!(request.private_data, padded(b"hello", 56));
    // A's responder resources are B's initiator depth, and vice versa.
    assert_eq!(request.reads, ReadLimits { inbound: 5, outbound: 3 });
    assert_eq!((peer.qpn, peer.send_psn), (a_qp.qpn, a_qp.receive_psn));
    assert_eq!((peer.retry_count, peer.rnr_retry_count, peer.ack_timeout), (5, 7, 14));

    let b_qp = hosts.local_qp(Side::B);
    let spec = AcceptSpec { reads: READS, private_data: b"welcome", context: 0xC };
    let now = hosts.now;
    let reads = hosts.b.cm.accept(now, event.conn, &spec, b_qp).unwrap();
    assert_eq!(reads, ReadLimits { inbound: 4, outbound: 3 });
    let event = hosts.event(Side::A);
    assert_eq!((event.conn, event.context), (a, 0xA));
    let CmEventKind::Replied { peer, private_data } = event.kind else { panic!("{event:?}") };
    assert_eq!((peer.qpn, peer.send_psn), (b_qp.qpn, b_qp.receive_psn));
    assert_eq!(private_data, padded(b"welcome", 196));
    //= R-CONN-25
    assert_eq!(peer.reads, ReadLimits { inbound: 3, outbound: 4 });
    assert_eq!((peer.retry_count, peer.rnr_retry_count), (5, 7));
    // The peer's target ACK delay is 2^15 * 4.096 us: the ACK timeout is longer.
    assert_eq!(peer.ack_timeout, 16);
}

//= R-CONN-20
//= R-CONN-21
//= R-CONN-23
#[test]
fn read_limits_are_the_minimum_of_requested_supported_and_granted() {
    let mut hosts = TwoHosts::with(|config| config.reads = ReadLimits { inbound: 8, outbound: 6 });
    hosts.listen();
    let a = hosts.try_connect(b"", ReadLimits { inbound: 255, outbound: 255 }).unwrap();
    let event = hosts.event(Side::B);
    let CmEventKind::Request { request, .. } = event.kind else { panic!("{event:?}") };
    // A requests at most six and serves eight, of which B uses six.
    assert_eq!(request.reads, ReadLimits { inbound: 6, outbound: 6 });
    let none = ReadLimits { inbound: 0, outbound: 1 };
    assert_eq!(hosts.try_accept(event.conn, b"", none), Ok(none));
    let event = hosts.event(Side::A);
    let CmEventKind::Replied { peer, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, peer.reads), (a, ReadLimits { inbound: 1, outbound: 0 }));
}

//= R-CONN-15
//= rocev2 §11
#[test]
fn private_data_is_accepted_up_to_its_maximum_length() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let bytes: Vec<u8> = (1..=225u8).collect();
    let data = |len: usize| &bytes[..len];
    assert_eq!(hosts.try_connect(data(57), READS), Err(ConnError::PrivateDataTooLong));
    let a = hosts.try_connect(data(56), READS).unwrap();
    let event = hosts.event(Side::B);
    let CmEventKind::Request { request, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!(request.private_data.as_slice(), data(56));
    assert_eq!(hosts.try_accept(event.conn, data(197), READS), Err(ConnError::PrivateDataTooLong));
    hosts.try_accept(event.conn, data(196), READS).unwrap();
    let event = hosts.event(Side::A);
    let CmEventKind::Replied { private_data, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, private_data.as_slice()), (a, data(196)));

    let a = hosts.connect();
    let b = hosts.request();
    let too_long = hosts.command(Side::B, |cm, now| cm.reject(now, b, data(149)));
    assert_eq!(too_long, Err(ConnError::PrivateDataTooLong));
    hosts.command(Side::B, |cm, now| cm.reject(now, b, data(148))).unwrap();
    let private_data = PrivateData::new(data(148)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
}

//= rocev2 §13
#[test]
fn connections_use_ipv6_addresses() {
    for (a, b) in [("fd77::1", "fd77::2"), ("fe80::5054:ff:fe77:1", "fe80::5054:ff:fe77:2")] {
        let mut hosts = TwoHosts::between(a.parse().unwrap(), b.parse().unwrap(), |_| {});
        hosts.listen();
        let (a, b) = hosts.established();
        hosts.release(a, b);
    }
}

//= R-CONN-17
#[test]
fn connect_with_mixed_address_families_is_refused() {
    let mut hosts = TwoHosts::between([10, 0, 0, 1].into(), "fd77::2".parse().unwrap(), |_| {});
    assert_eq!(hosts.try_connect(b"", READS), Err(ConnError::Invalid));
}

//= R-CONN-31
#[test]
fn mra_extends_the_timeout_for_a_slow_consumer_on_either_side() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.quiet_for(Duration::from_mins(1));
    hosts.accept(b);
    hosts.replied(a);
    hosts.quiet_for(Duration::from_mins(1));
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    assert!(hosts.a.sent.contains(&Attribute::CM_MRA) && hosts.b.sent.contains(&Attribute::CM_MRA));
    hosts.release(a, b);
}

/// An MRA comes at once, a REP when the peer's consumer has accepted. The answer to a message that was sent twice measures nothing.
//= rocev2 §7
#[test]
fn the_first_answer_to_a_message_that_was_sent_once_measures_the_round_trip() {
    use roce_wire::cm::{MraRepr, RespondedMessage};
    for (mra, accept, expected) in [
        (false, 20, Some(20_100)),
        (true, 20, Some(100)),
        // The REQ is sent again after 1.1 s, which draws an MRA.
        (false, 2000, None),
        (true, 2000, Some(100)),
    ] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let a = hosts.connect();
        let b = hosts.request();
        let (_, conn) = hosts.b.cm.conns.slots.resolve(b).unwrap();
        let (local_comm_id, remote_comm_id, transaction) = (conn.local_id, conn.remote_id, conn.transaction);
        if mra {
            let message_mraed = RespondedMessage::REQ;
            let mra = MraRepr {
                local_comm_id,
                remote_comm_id,
                message_mraed,
                service_timeout: 24,
                private_data: [0; 222],
            };
            let datagram = datagram(&CmMessage::Mra(mra), transaction);
            let frame = frame(&hosts.b, &hosts.a, hosts.b.ip, &datagram);
            hosts.wire.push((hosts.now + LATENCY, Side::A, frame));
        }
        hosts.run_for(Duration::from_millis(accept));
        hosts.accept(b);
        hosts.replied(a);
        let measured = hosts.a.cm.round_trip(a).map(|nanos| nanos / 1000);
        assert_eq!(measured, expected, "{mra} {accept}");
        hosts.run_for(Duration::from_millis(3));
        hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Established);
        assert_eq!(hosts.b.cm.round_trip(b), Some(3_100_000), "{mra} {accept}");
        hosts.release(a, b);
    }
}

//= rocev2 §12
#[test]
fn first_packet_replaces_a_lost_rtu() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.set_fate(|_, message| if message == Attribute::CM_RTU { Fate::Lose } else { Fate::Deliver });
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    hosts.run_for(Duration::from_millis(10));
    hosts.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
    hosts.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    hosts.quiet_for(Duration::from_secs(30));
    hosts.release(a, b);
}

#[test]
fn commands_are_refused_in_other_states() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let state = Err(ConnError::State);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.complete(now, a)), state, "no reply yet");
    assert_eq!(hosts.command(Side::A, |cm, now| cm.reject(now, a, b"")), state);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.disconnect(now, a)), state);
    let b = hosts.request();
    assert_eq!(hosts.command(Side::B, |cm, now| cm.complete(now, b)), state, "the passive side");
    hosts.accept(b);
    assert_eq!(hosts.try_accept(b, b"", READS), Err(ConnError::State), "accepted already");
    hosts.replied(a);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.disconnect(now, a)), state, "not established yet");
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    assert_eq!(hosts.command(Side::A, |cm, now| cm.complete(now, a)), state, "twice");
    hosts.expect(Side::B, b, CmEventKind::Established);
    hosts.release(a, b);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.disconnect(now, a)), Err(ConnError::Unknown), "released");
}

#[test]
fn communication_ids_depend_on_the_seed_and_are_unpredictable() {
    let ids = |seed: u8| {
        let mut hosts = TwoHosts::with(|config| config.seed[31] = seed);
        let conns: Vec<_> = (0..50).map(|_| hosts.connect()).collect();
        conns
            .iter()
            .map(|&conn| hosts.a.cm.conns.slots.resolve(conn).unwrap().1.local_id.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    let (one, two) = (ids(1), ids(2));
    assert!(one.iter().all(|id| *id != 0 && !two.contains(id)));
    let steps: std::collections::HashSet<_> = one.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    assert!(steps.len() > 45, "consecutive identifiers are predictable");
}

/// The RoCEv2 frames of a capture of Linux.
fn captured(name: &str) -> Vec<Vec<u8>> {
    let file = format!("{}/../roce-wire/tests/vectors/rxe/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let mut reader = pcap_file::pcap::PcapReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let frames = core::iter::from_fn(|| Some(reader.next_packet()?.unwrap().data.into_owned()));
    frames.filter(|frame| Packet::parse(frame).is_ok()).collect()
}

//= rocev2 §12
#[test]
fn request_of_linux_is_withdrawn_when_linux_gives_up() {
    let mut hosts = TwoHosts::new();
    let mut observed = Vec::new();
    for frame in captured("cm_unanswered") {
        let packet = Packet::parse(&frame).unwrap();
        let mad = Mad::new_checked(packet.payload()).unwrap();
        if let Some(CmMessage::Req(req)) = CmMessage::parse(&mad) {
            let port = req.service_id.to_port().unwrap();
            let _ =
                hosts.b.cm.listen(&ListenSpec { ip: None, port, datagrams: false, backlog: 1, context: 0 });
        }
        let now = hosts.now;
        observed.push(hosts.b.cm.deliver(now, &packet));
        if observed.len() == 1 {
            hosts.request();
        }
    }
    // Seven REQs, and a REJ by GUID.
    let mut expected = vec![Err(Ignored::Duplicate); 8];
    (expected[0], expected[7]) = (Ok(()), Ok(()));
    assert_eq!(observed, expected);
    assert_eq!(hosts.b.cm.poll_event().map(|event| event.kind), Some(CmEventKind::Aborted));
}

#[test]
fn req_of_linux_becomes_a_request() {
    let mut hosts = TwoHosts::new();
    hosts
        .b
        .cm
        .listen(&ListenSpec { ip: None, port: 7174, datagrams: false, backlog: 1, context: 0 })
        .unwrap();
    let observed = captured("rping_v4")
        .iter()
        .any(|frame| hosts.b.cm.deliver(Instant::default(), &Packet::parse(frame).unwrap()) == Ok(()));
    assert!(observed);
    let event = hosts.b.cm.poll_event().unwrap();
    let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
    assert_eq!((request.local_port, request.remote_port), (7174, 56122));
    assert_eq!(request.path.remote_ip, IpAddr::from([192, 168, 77, 1]));
    assert_eq!((peer.qpn, peer.send_psn), (Qpn::new(0x11), Psn::new(0x0090_DE00)));
    assert_eq!((peer.mtu, peer.ack_timeout), (PathMtu::Bytes1024, 19));
    assert_eq!((peer.retry_count, peer.rnr_retry_count), (7, 7));
    assert_eq!(peer.reads, ReadLimits { inbound: 1, outbound: 1 });
}

//= rocev2 §12
#[test]
fn an_rtu_that_arrives_twice_is_a_duplicate() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (_, b) = hosts.established();
    let (_, conn) = hosts.b.cm.conns.slots.resolve(b).unwrap();
    let (source, transaction) = (hosts.a.ip, conn.transaction);
    let rtu =
        RtuRepr { local_comm_id: conn.remote_id, remote_comm_id: conn.local_id, private_data: [0; 224] };
    assert_eq!(hosts.deliver(source, &CmMessage::Rtu(rtu), transaction), Err(Ignored::Duplicate));
}
