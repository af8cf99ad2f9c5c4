// SPDX-License-Identifier: MIT OR Apache-2.0

//! Refused connections and timeouts.

use super::*;
use roce_wire::cm::{CommId, RejRepr, RespondedMessage};

/// Returns the event for a REJ without private data.
fn refused(reason: RejReason) -> CmEventKind {
    CmEventKind::Refused { reason, private_data: padded(b"", 148) }
}

//= R-CONN-6
//= rocev2 §12
#[test]
fn req_to_a_port_without_listener_is_refused() {
    let mut hosts = TwoHosts::new();
    let a = hosts.connect();
    hosts.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
    assert_eq!(hosts.b.cm.connections(), 0, "a refused request leaves nothing");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-59
//= R-CONN-60
//= R-CONN-61
#[test]
fn paused_listener_refuses_until_resumed() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.listen();
    let reported = hosts.connect();
    let b = hosts.request();
    for _ in 0..2 {
        hosts.command(Side::B, |cm, now| cm.pause(now, listener, true)).unwrap();
    }
    let a = hosts.connect();
    hosts.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
    // The request that was reported before is still valid.
    hosts.accept(b);
    hosts.replied(reported);
    hosts.command(Side::B, |cm, now| cm.pause(now, listener, false)).unwrap();
    hosts.connect();
    hosts.request();
}

//= R-CONN-49
#[test]
fn unreported_request_is_refused_when_its_listener_is_removed() {
    for end in ["pause", "unlisten"] {
        let mut hosts = TwoHosts::new();
        let listener = hosts.listen();
        let a = hosts.connect();
        // Until B has handled the REQ; its events are not polled.
        hosts.collect();
        let (_, _, frame) = hosts.wire.remove(0);
        let now = hosts.now;
        hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
        match end {
            "pause" => hosts.b.cm.pause(now, listener, true).unwrap(),
            _ => hosts.b.cm.unlisten(now, listener).unwrap(),
        }
        hosts.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
        assert_eq!(hosts.b.events, []);
        hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
        hosts.nothing_left();
    }
}

#[test]
fn unreported_request_stays_when_another_listener_is_removed() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let other = ListenSpec { ip: None, port: PORT + 1, datagrams: false, backlog: 16, context: 0xD };
    let other = hosts.b.cm.listen(&other).unwrap();
    hosts.connect();
    hosts.collect();
    let (_, _, frame) = hosts.wire.remove(0);
    let now = hosts.now;
    hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
    hosts.b.cm.unlisten(now, other).unwrap();
    hosts.request();
}

//= R-CONN-62
#[test]
fn full_backlog_refuses_until_a_request_is_answered() {
    let mut hosts = TwoHosts::new();
    let spec = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 2, context: 0xB };
    hosts.b.cm.listen(&spec).unwrap();
    let _first = hosts.connect();
    let b = hosts.request();
    let _second = hosts.connect();
    hosts.request();
    let third = hosts.connect();
    hosts.expect(Side::A, third, refused(RejReason::NO_RESOURCES));
    hosts.accept(b);
    hosts.connect();
    hosts.event(Side::A);
    hosts.request();
}

//= R-CONN-53
//= R-CONN-50
#[test]
fn listeners_share_a_port_only_on_different_addresses() {
    let mut hosts = TwoHosts::new();
    let ip = hosts.b.ip;
    let spec = |ip, port| ListenSpec { ip, port, datagrams: false, backlog: 1, context: 0 };
    let cm = &mut hosts.b.cm;
    let exact = cm.listen(&spec(Some(ip), PORT)).unwrap();
    assert_eq!(cm.listen(&spec(Some(ip), PORT)), Err(ConnError::PortInUse));
    assert_eq!(cm.listen(&spec(None, PORT)), Err(ConnError::PortInUse));
    cm.listen(&spec(Some([10, 0, 0, 1].into()), PORT)).unwrap();
    cm.listen(&spec(None, PORT + 1)).unwrap();
    cm.unlisten(Instant::default(), exact).unwrap();
    cm.listen(&spec(Some(ip), PORT)).unwrap();
    assert_eq!(cm.unlisten(Instant::default(), exact), Err(ConnError::Unknown));
}

#[test]
fn listener_on_another_address_gets_no_request() {
    let mut hosts = TwoHosts::new();
    let spec =
        ListenSpec { ip: Some([10, 0, 0, 1].into()), port: PORT, datagrams: false, backlog: 1, context: 0 };
    hosts.b.cm.listen(&spec).unwrap();
    let a = hosts.connect();
    hosts.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
}

//= R-CONN-38
#[test]
fn passive_consumer_rejects_with_private_data() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.command(Side::B, |cm, now| cm.reject(now, b, b"no thanks")).unwrap();
    let private_data = padded(b"no thanks", 148);
    hosts.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    //= R-CONN-40
    assert_eq!(hosts.try_accept(b, b"", READS), Err(ConnError::State));
    hosts.release(a, b);
}

//= R-CONN-39
//= R-CONN-36
#[test]
fn active_consumer_rejects_a_reply() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::A, |cm, now| cm.reject(now, a, b"changed my mind")).unwrap();
    let private_data = padded(b"changed my mind", 148);
    hosts.expect(Side::B, b, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    hosts.release(a, b);
}

//= R-CONN-41
#[test]
fn accept_fails_after_the_active_side_gave_up() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Aborted);
    assert_eq!(hosts.try_accept(b, b"", READS), Err(ConnError::State));
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-29
#[test]
fn complete_fails_after_the_passive_side_gave_up() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.expect(Side::A, a, CmEventKind::Aborted);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.complete(now, a)), Err(ConnError::State));
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-7
//= rocev2 §12
#[test]
fn unanswered_req_times_out() {
    let mut hosts = TwoHosts::new();
    hosts.set_fate(|_, _| Fate::Lose);
    let begun = hosts.now;
    let a = hosts.connect();
    hosts.expect(Side::A, a, CmEventKind::TimedOut);
    assert_eq!(hosts.a.sent, [Attribute::CM_REQ; 16], "one transmission and fifteen retries");
    let took = hosts.now.duration_since(begun);
    assert!((17..19).contains(&took.as_secs()), "{took:?}");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

//= R-CONN-42
#[test]
fn unanswered_rep_times_out() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.connect();
    let b = hosts.request();
    hosts.set_fate(|_, _| Fate::Lose);
    hosts.accept(b);
    hosts.expect(Side::B, b, CmEventKind::TimedOut);
    assert_eq!(hosts.b.sent, [Attribute::CM_REP; 8], "one transmission and seven retries");
}

//= rocev2 §12
#[test]
fn withdrawn_req_sends_rej_with_ca_guid() {
    let mut hosts = TwoHosts::new();
    hosts.set_fate(|_, _| Fate::Lose);
    let a = hosts.connect();
    hosts.run_for(Duration::from_secs(3));
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.collect();
    assert_eq!(hosts.a.sent.last(), Some(&Attribute::CM_REJ));
    hosts.nothing_left();
}

/// No queue pair of the passive side was connected.
//= R-QP-74
#[test]
fn queue_pair_of_a_request_that_was_not_accepted_may_connect_at_once() {
    for end in ["reject", "release", "withdraw"] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let qp = hosts.local_qp(Side::A);
        let a = hosts.connect_qp(qp, b"", READS).unwrap();
        let b = hosts.request();
        match end {
            "reject" => hosts.command(Side::B, |cm, now| cm.reject(now, b, b"")).unwrap(),
            "release" => hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap(),
            _ => hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap(),
        }
        match end {
            "withdraw" => hosts.expect(Side::B, b, CmEventKind::Aborted),
            _ => hosts.expect(Side::A, a, refused(RejReason::CONSUMER)),
        }
        let again = hosts.connect_qp(qp, b"", READS).unwrap();
        let b = hosts.request();
        hosts.accept(b);
        hosts.replied(again);
    }
}

//= rocev2 §12
#[test]
fn req_of_a_reused_queue_pair_challenges_its_stale_connection() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let qp = hosts.local_qp(Side::A);
    let old = hosts.connect_qp(qp, b"", READS).unwrap();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(old);
    hosts.command(Side::A, |cm, now| cm.complete(now, old)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    // A restarts and reuses the same numbers.
    hosts.a.crash();
    let new = hosts.connect_qp(qp, b"", READS).unwrap();
    hosts.expect(Side::A, new, refused(RejReason::STALE_CONNECTION));
    hosts.quiet_for(Duration::from_mins(1));
    assert_eq!(hosts.b.challenged, [b]);
    // The queue pair gets no answer.
    hosts.command(Side::B, |cm, now| cm.abort(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Aborted);
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.command(Side::A, |cm, now| cm.release(now, new)).unwrap();
    hosts.nothing_left();
    let again = hosts.connect_qp(qp, b"", READS).unwrap();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(again);
}

#[test]
fn connections_are_bounded_and_timewait_slots_are_reused() {
    let mut hosts = TwoHosts::with(|config| config.max_connections = 16);
    hosts
        .b
        .cm
        .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 100, context: 0 })
        .unwrap();
    let conns: Vec<_> = (0..16).map(|_| hosts.connect()).collect();
    assert_eq!(hosts.try_connect(b"", READS), Err(ConnError::TooMany));
    let requests: Vec<_> = (0..16).map(|_| hosts.request()).collect();
    for (a, b) in conns.into_iter().zip(requests) {
        hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Aborted);
        hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    }
    assert_eq!((hosts.a.cm.connections(), hosts.b.cm.connections()), (16, 16), "all in TIMEWAIT");
    let (a, b) = hosts.established();
    hosts.release(a, b);
}

/// The peer names the largest path MTU that it accepts: the connection is requested with that.
//= rocev2 §11
//= rocev2 §12
#[test]
fn a_request_is_repeated_with_the_path_mtu_that_the_peer_accepts() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.b.cm.conns.config.max_mtu = PathMtu::Bytes512;
    let a = hosts.connect();
    let first = hosts.a.cm.any().map(|(_, conn)| (conn.local_id, conn.transaction)).unwrap();
    let event = hosts.event(Side::B);
    let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
    assert_eq!((request.mtu, peer.mtu), (PathMtu::Bytes512, PathMtu::Bytes512));
    assert_eq!(request.private_data, padded(b"hello", 56));
    let second = hosts.a.cm.any().map(|(_, conn)| (conn.local_id, conn.transaction)).unwrap();
    assert!(first.0 != second.0 && first.1 != second.1, "the peer may remember what it has refused");
    let b = event.conn;
    hosts.accept(b);
    let event = hosts.event(Side::A);
    let CmEventKind::Replied { peer, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, peer.mtu), (a, PathMtu::Bytes512));
    hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    assert_eq!(hosts.a.sent, [Attribute::CM_REQ, Attribute::CM_REQ, Attribute::CM_RTU]);
    hosts.release(a, b);
}

/// A peer that refuses each path MTU draws few requests. One that names none, or none that is smaller, draws no other.
//= rocev2 §11
#[test]
fn requests_with_smaller_path_mtus_are_bounded() {
    for (codes, requests) in
        [(&[2, 1, 1][..], 3), (&[1, 1], 2), (&[3], 1), (&[4], 1), (&[0], 1), (&[6], 1), (&[], 1)]
    {
        let mut hosts = TwoHosts::new();
        let a = hosts.connect();
        for code in codes.iter().map(Some).chain([None]) {
            hosts.collect();
            hosts.wire.clear();
            let (_, conn) = hosts.a.cm.any().unwrap();
            let (remote_comm_id, transaction) = (conn.local_id, conn.transaction);
            let mut information = [0; 72];
            information[0] = code.map_or(0, |code| code << 4);
            let rej = CmMessage::Rej(RejRepr {
                local_comm_id: CommId(0),
                remote_comm_id,
                message_rejected: RespondedMessage::REQ,
                information_len: u8::from(code.is_some()),
                reason: RejReason::INVALID_MTU,
                information,
                private_data: [0; 148],
            });
            let frame = frame(&hosts.b, &hosts.a, hosts.b.ip, &datagram(&rej, transaction));
            let now = hosts.now;
            let _ = hosts.a.cm.deliver(now, &Packet::parse(&frame).unwrap());
        }
        hosts.expect(Side::A, a, refused(RejReason::INVALID_MTU));
        assert_eq!(hosts.a.sent, vec![Attribute::CM_REQ; requests], "{codes:?}");
    }
}

/// The REJ may be lost: a duplicate REQ draws it again for as long as the peer may repeat the REQ.
//= rocev2 §12
#[test]
fn a_refusal_is_remembered_for_two_intervals_of_the_peer() {
    // Response timeouts of 4.3 s, and of 69 s, of which 5 s count.
    for (code, remembered) in [(20, Duration::from_millis(8500)), (24, Duration::from_millis(9900))] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let (mut req, transaction) = hosts.req();
        req.local_cm_response_timeout = code;
        let source = hosts.a.ip;
        hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
        let b = hosts.request();
        hosts.command(Side::B, |cm, now| cm.reject(now, b, b"no")).unwrap();
        hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
        hosts.set_fate(|_, _| Fate::Lose);
        hosts.run_for(remembered);
        hosts.b.sent.clear();
        assert_eq!(hosts.deliver(source, &CmMessage::Req(req), transaction), Err(Ignored::Duplicate));
        hosts.collect();
        assert_eq!(hosts.b.sent, [Attribute::CM_REJ], "code {code}");
        assert_eq!(hosts.b.events, []);
    }
}

/// The REJ by which a peer withdraws its REQ before it knows this side's communication ID.
//= rocev2 §12
#[test]
fn only_a_timeout_rej_that_names_the_request_withdraws_it() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (req, transaction) = hosts.req();
    let (source, local_comm_id, guid) = (hosts.a.ip, req.local_comm_id, req.local_ca_guid);
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let rej = |reason, information_len, local_comm_id| {
        let mut information = [0; 72];
        information[..8].copy_from_slice(&guid.to_be_bytes());
        CmMessage::Rej(RejRepr {
            local_comm_id,
            remote_comm_id: CommId(0),
            message_rejected: RespondedMessage::OTHER,
            information_len,
            reason,
            information,
            private_data: [0; 148],
        })
    };
    let right = rej(RejReason::TIMEOUT, 8, local_comm_id);
    let other = CommId(local_comm_id.0 ^ 1);
    for (what, wrong, transaction) in [
        ("transaction", &right, transaction + 1),
        ("reason", &rej(RejReason::CONSUMER, 8, local_comm_id), transaction),
        ("length of the GUID", &rej(RejReason::TIMEOUT, 7, local_comm_id), transaction),
        ("communication ID", &rej(RejReason::TIMEOUT, 8, other), transaction),
    ] {
        assert_eq!(hosts.deliver(source, wrong, transaction), Err(Ignored::Unknown), "another {what}");
    }
    assert_eq!(hosts.deliver(source, &right, transaction), Ok(()));
}
