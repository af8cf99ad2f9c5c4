// SPDX-License-Identifier: MIT OR Apache-2.0

//! Establishment of connections.

use super::*;
use roce_wire::cm::RtuRepr;

//= rocev2 §12
#[test]
fn three_messages_establish_a_connection() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    let event = pair.event(Side::B);
    assert_eq!((event.conn, event.kind, event.context), (b, CmEventKind::Established, 0xC));
    assert_eq!(pair.a.sent, [Attribute::CM_REQ, Attribute::CM_RTU]);
    assert_eq!(pair.b.sent, [Attribute::CM_REP]);
    pair.quiet_for(Duration::from_secs(100));
    assert_eq!(pair.a.sent.len() + pair.b.sent.len(), 3, "an established connection is silent");
    pair.release(a, b);
}

//= rocev2 §11
//= rocev2 §8
//= R-CONN-24
//= R-CONN-47
#[test]
fn request_event_has_all_parameters_of_the_peer() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a_qp = pair.local_qp(Side::A);
    let a = pair.connect_qp(a_qp, b"hello", ReadLimits { inbound: 3, outbound: 5 }).unwrap();
    let event = pair.event(Side::B);
    assert_eq!(event.context, 0xB, "the listener's context");
    let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
    assert_eq!((request.local_port, request.remote_port), (PORT, 50_000));
    assert_eq!((request.path.remote_ip, request.path.local_ip), (pair.a.ip, pair.b.ip));
    assert_eq!((request.path.remote_mac, request.path.local_mac), (pair.a.mac, pair.b.mac));
    assert_eq!(request.mtu, PathMtu::Bytes1024);
    assert_eq!(request.private_data, padded(b"hello", 56));
    // A's responder resources are B's initiator depth, and vice versa.
    assert_eq!(request.reads, ReadLimits { inbound: 5, outbound: 3 });
    assert_eq!((peer.qpn, peer.send_psn), (a_qp.qpn, a_qp.receive_psn));
    assert_eq!((peer.retry_count, peer.rnr_retry_count, peer.ack_timeout), (5, 7, 14));

    let b_qp = pair.local_qp(Side::B);
    let spec = AcceptSpec { reads: READS, private_data: b"welcome", context: 0xC };
    let now = pair.now;
    let reads = pair.b.cm.accept(now, event.conn, &spec, b_qp).unwrap();
    assert_eq!(reads, ReadLimits { inbound: 4, outbound: 3 });
    let event = pair.event(Side::A);
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
    let mut pair = TwoHosts::with(|config| config.reads = ReadLimits { inbound: 8, outbound: 6 });
    pair.listen();
    let a = pair.try_connect(b"", ReadLimits { inbound: 255, outbound: 255 }).unwrap();
    let event = pair.event(Side::B);
    let CmEventKind::Request { request, .. } = event.kind else { panic!("{event:?}") };
    // A requests at most six and serves eight, of which B uses six.
    assert_eq!(request.reads, ReadLimits { inbound: 6, outbound: 6 });
    let none = ReadLimits { inbound: 0, outbound: 1 };
    assert_eq!(pair.try_accept(event.conn, b"", none), Ok(none));
    let event = pair.event(Side::A);
    let CmEventKind::Replied { peer, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, peer.reads), (a, ReadLimits { inbound: 1, outbound: 0 }));
}

//= R-CONN-15
//= rocev2 §11
#[test]
fn private_data_is_accepted_up_to_its_maximum_length() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let bytes: Vec<u8> = (1..=225u8).collect();
    let data = |len: usize| &bytes[..len];
    assert_eq!(pair.try_connect(data(57), READS), Err(ConnError::PrivateDataTooLong));
    let a = pair.try_connect(data(56), READS).unwrap();
    let event = pair.event(Side::B);
    let CmEventKind::Request { request, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!(request.private_data.as_slice(), data(56));
    assert_eq!(pair.try_accept(event.conn, data(197), READS), Err(ConnError::PrivateDataTooLong));
    pair.try_accept(event.conn, data(196), READS).unwrap();
    let event = pair.event(Side::A);
    let CmEventKind::Replied { private_data, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, private_data.as_slice()), (a, data(196)));

    let a = pair.connect();
    let b = pair.request();
    let too_long = pair.command(Side::B, |cm, now| cm.reject(now, b, data(149)));
    assert_eq!(too_long, Err(ConnError::PrivateDataTooLong));
    pair.command(Side::B, |cm, now| cm.reject(now, b, data(148))).unwrap();
    let private_data = PrivateData::new(data(148)).unwrap();
    pair.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
}

//= rocev2 §13
#[test]
fn connections_use_ipv6_addresses() {
    for (a, b) in [("fd77::1", "fd77::2"), ("fe80::5054:ff:fe77:1", "fe80::5054:ff:fe77:2")] {
        let mut pair = TwoHosts::between(a.parse().unwrap(), b.parse().unwrap(), |_| {});
        pair.listen();
        let (a, b) = pair.established();
        pair.release(a, b);
    }
}

//= R-CONN-17
#[test]
fn connect_with_mixed_address_families_is_refused() {
    let mut pair = TwoHosts::between([10, 0, 0, 1].into(), "fd77::2".parse().unwrap(), |_| {});
    assert_eq!(pair.try_connect(b"", READS), Err(ConnError::Invalid));
}

//= R-CONN-31
#[test]
fn mra_extends_the_timeout_for_a_slow_consumer_on_either_side() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.quiet_for(Duration::from_mins(1));
    pair.accept(b);
    pair.replied(a);
    pair.quiet_for(Duration::from_mins(1));
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Established);
    assert!(pair.a.sent.contains(&Attribute::CM_MRA) && pair.b.sent.contains(&Attribute::CM_MRA));
    pair.release(a, b);
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
        let mut pair = TwoHosts::new();
        pair.listen();
        let a = pair.connect();
        let b = pair.request();
        let (_, conn) = pair.b.cm.conns.slots.resolve(b).unwrap();
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
            let frame = frame(&pair.b, &pair.a, pair.b.ip, &datagram);
            pair.wire.push((pair.now + LATENCY, Side::A, frame));
        }
        pair.run_for(Duration::from_millis(accept));
        pair.accept(b);
        pair.replied(a);
        let measured = pair.a.cm.round_trip(a).map(|nanos| nanos / 1000);
        assert_eq!(measured, expected, "{mra} {accept}");
        pair.run_for(Duration::from_millis(3));
        pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Established);
        assert_eq!(pair.b.cm.round_trip(b), Some(3_100_000), "{mra} {accept}");
        pair.release(a, b);
    }
}

//= rocev2 §12
#[test]
fn first_packet_replaces_a_lost_rtu() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.set_fate(|_, message| if message == Attribute::CM_RTU { Fate::Lose } else { Fate::Deliver });
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    pair.run_for(Duration::from_millis(10));
    pair.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
    pair.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Established);
    pair.quiet_for(Duration::from_secs(30));
    pair.release(a, b);
}

#[test]
fn commands_are_refused_in_other_states() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let state = Err(ConnError::State);
    assert_eq!(pair.command(Side::A, |cm, now| cm.complete(now, a)), state, "no reply yet");
    assert_eq!(pair.command(Side::A, |cm, now| cm.reject(now, a, b"")), state);
    assert_eq!(pair.command(Side::A, |cm, now| cm.disconnect(now, a)), state);
    let b = pair.request();
    assert_eq!(pair.command(Side::B, |cm, now| cm.complete(now, b)), state, "the passive side");
    pair.accept(b);
    assert_eq!(pair.try_accept(b, b"", READS), Err(ConnError::State), "accepted already");
    pair.replied(a);
    assert_eq!(pair.command(Side::A, |cm, now| cm.disconnect(now, a)), state, "not established yet");
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    assert_eq!(pair.command(Side::A, |cm, now| cm.complete(now, a)), state, "twice");
    pair.expect(Side::B, b, CmEventKind::Established);
    pair.release(a, b);
    assert_eq!(pair.command(Side::A, |cm, now| cm.disconnect(now, a)), Err(ConnError::Unknown), "released");
}

#[test]
fn communication_ids_depend_on_the_seed_and_are_unpredictable() {
    let ids = |seed: u8| {
        let mut pair = TwoHosts::with(|config| config.seed[31] = seed);
        let conns: Vec<_> = (0..50).map(|_| pair.connect()).collect();
        conns
            .iter()
            .map(|&conn| pair.a.cm.conns.slots.resolve(conn).unwrap().1.local_id.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    let (one, two) = (ids(1), ids(2));
    assert!(one.iter().all(|id| *id != 0 && !two.contains(id)));
    let steps: std::collections::HashSet<_> =
        one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
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
    let mut pair = TwoHosts::new();
    let mut observed = Vec::new();
    for frame in captured("cm_unanswered") {
        let packet = Packet::parse(&frame).unwrap();
        let mad = Mad::new_checked(packet.payload()).unwrap();
        if let Some(CmMessage::Req(req)) = CmMessage::parse(&mad) {
            let port = req.service_id.to_port().unwrap();
            let _ =
                pair.b.cm.listen(&ListenSpec { ip: None, port, datagrams: false, backlog: 1, context: 0 });
        }
        let now = pair.now;
        observed.push(pair.b.cm.deliver(now, &packet));
        if observed.len() == 1 {
            pair.request();
        }
    }
    // Seven REQs, and a REJ by GUID.
    let mut expected = vec![Err(Ignored::Duplicate); 8];
    (expected[0], expected[7]) = (Ok(()), Ok(()));
    assert_eq!(observed, expected);
    assert_eq!(pair.b.cm.poll_event().map(|event| event.kind), Some(CmEventKind::Aborted));
}

#[test]
fn req_of_linux_becomes_a_request() {
    let mut pair = TwoHosts::new();
    pair.b.cm.listen(&ListenSpec { ip: None, port: 7174, datagrams: false, backlog: 1, context: 0 }).unwrap();
    let observed = captured("rping_v4")
        .iter()
        .any(|frame| pair.b.cm.deliver(Instant::default(), &Packet::parse(frame).unwrap()) == Ok(()));
    assert!(observed);
    let event = pair.b.cm.poll_event().unwrap();
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
    let mut pair = TwoHosts::new();
    pair.listen();
    let (_, b) = pair.established();
    let (_, conn) = pair.b.cm.conns.slots.resolve(b).unwrap();
    let (source, transaction) = (pair.a.ip, conn.transaction);
    let rtu =
        RtuRepr { local_comm_id: conn.remote_id, remote_comm_id: conn.local_id, private_data: [0; 224] };
    assert_eq!(pair.deliver(source, &CmMessage::Rtu(rtu), transaction), Err(Ignored::Duplicate));
}
