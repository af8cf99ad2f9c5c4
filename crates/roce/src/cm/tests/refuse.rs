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
    let mut pair = TwoHosts::new();
    let a = pair.connect();
    pair.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
    assert_eq!(pair.b.cm.connections(), 0, "a refused request leaves nothing");
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= R-CONN-59
//= R-CONN-60
//= R-CONN-61
#[test]
fn paused_listener_refuses_until_resumed() {
    let mut pair = TwoHosts::new();
    let listener = pair.listen();
    let reported = pair.connect();
    let b = pair.request();
    for _ in 0..2 {
        pair.command(Side::B, |cm, now| cm.pause(now, listener, true)).unwrap();
    }
    let a = pair.connect();
    pair.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
    // The request that was reported before is still valid.
    pair.accept(b);
    pair.replied(reported);
    pair.command(Side::B, |cm, now| cm.pause(now, listener, false)).unwrap();
    pair.connect();
    pair.request();
}

//= R-CONN-49
#[test]
fn unreported_request_is_refused_when_its_listener_is_removed() {
    for end in ["pause", "unlisten"] {
        let mut pair = TwoHosts::new();
        let listener = pair.listen();
        let a = pair.connect();
        // Until B has handled the REQ; its events are not polled.
        pair.collect();
        let (_, _, frame) = pair.wire.remove(0);
        let now = pair.now;
        pair.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
        match end {
            "pause" => pair.b.cm.pause(now, listener, true).unwrap(),
            _ => pair.b.cm.unlisten(now, listener).unwrap(),
        }
        pair.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
        assert_eq!(pair.b.events, []);
        pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
        pair.nothing_left();
    }
}

#[test]
fn unreported_request_stays_when_another_listener_is_removed() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let other = ListenSpec { ip: None, port: PORT + 1, datagrams: false, backlog: 16, context: 0xD };
    let other = pair.b.cm.listen(&other).unwrap();
    pair.connect();
    pair.collect();
    let (_, _, frame) = pair.wire.remove(0);
    let now = pair.now;
    pair.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
    pair.b.cm.unlisten(now, other).unwrap();
    pair.request();
}

//= R-CONN-62
#[test]
fn full_backlog_refuses_until_a_request_is_answered() {
    let mut pair = TwoHosts::new();
    let spec = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 2, context: 0xB };
    pair.b.cm.listen(&spec).unwrap();
    let _first = pair.connect();
    let b = pair.request();
    let _second = pair.connect();
    pair.request();
    let third = pair.connect();
    pair.expect(Side::A, third, refused(RejReason::NO_RESOURCES));
    pair.accept(b);
    pair.connect();
    pair.event(Side::A);
    pair.request();
}

//= R-CONN-53
//= R-CONN-50
#[test]
fn listeners_share_a_port_only_on_different_addresses() {
    let mut pair = TwoHosts::new();
    let ip = pair.b.ip;
    let spec = |ip, port| ListenSpec { ip, port, datagrams: false, backlog: 1, context: 0 };
    let cm = &mut pair.b.cm;
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
    let mut pair = TwoHosts::new();
    let spec =
        ListenSpec { ip: Some([10, 0, 0, 1].into()), port: PORT, datagrams: false, backlog: 1, context: 0 };
    pair.b.cm.listen(&spec).unwrap();
    let a = pair.connect();
    pair.expect(Side::A, a, refused(RejReason::INVALID_SERVICE_ID));
}

//= R-CONN-38
#[test]
fn passive_consumer_rejects_with_private_data() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.command(Side::B, |cm, now| cm.reject(now, b, b"no thanks")).unwrap();
    let private_data = padded(b"no thanks", 148);
    pair.expect(Side::A, a, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    //= R-CONN-40
    assert_eq!(pair.try_accept(b, b"", READS), Err(ConnError::State));
    pair.release(a, b);
}

//= R-CONN-39
//= R-CONN-36
#[test]
fn active_consumer_rejects_a_reply() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::A, |cm, now| cm.reject(now, a, b"changed my mind")).unwrap();
    let private_data = padded(b"changed my mind", 148);
    pair.expect(Side::B, b, CmEventKind::Refused { reason: RejReason::CONSUMER, private_data });
    pair.release(a, b);
}

//= R-CONN-41
#[test]
fn accept_fails_after_the_active_side_gave_up() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Aborted);
    assert_eq!(pair.try_accept(b, b"", READS), Err(ConnError::State));
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.nothing_left();
}

//= R-CONN-29
#[test]
fn complete_fails_after_the_passive_side_gave_up() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.expect(Side::A, a, CmEventKind::Aborted);
    assert_eq!(pair.command(Side::A, |cm, now| cm.complete(now, a)), Err(ConnError::State));
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= R-CONN-7
//= rocev2 §12
#[test]
fn unanswered_req_times_out() {
    let mut pair = TwoHosts::new();
    pair.set_fate(|_, _| Fate::Lose);
    let begun = pair.now;
    let a = pair.connect();
    pair.expect(Side::A, a, CmEventKind::TimedOut);
    assert_eq!(pair.a.sent, [Attribute::CM_REQ; 16], "one transmission and fifteen retries");
    let took = pair.now.duration_since(begun);
    assert!((17..19).contains(&took.as_secs()), "{took:?}");
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.nothing_left();
}

//= R-CONN-42
#[test]
fn unanswered_rep_times_out() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.connect();
    let b = pair.request();
    pair.set_fate(|_, _| Fate::Lose);
    pair.accept(b);
    pair.expect(Side::B, b, CmEventKind::TimedOut);
    assert_eq!(pair.b.sent, [Attribute::CM_REP; 8], "one transmission and seven retries");
}

//= rocev2 §12
#[test]
fn withdrawn_req_sends_rej_with_ca_guid() {
    let mut pair = TwoHosts::new();
    pair.set_fate(|_, _| Fate::Lose);
    let a = pair.connect();
    pair.run_for(Duration::from_secs(3));
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.collect();
    assert_eq!(pair.a.sent.last(), Some(&Attribute::CM_REJ));
    pair.nothing_left();
}

//= rocev2 §12
#[test]
fn req_of_a_reused_queue_pair_challenges_its_stale_connection() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let qp = pair.local_qp(Side::A);
    let old = pair.connect_qp(qp, b"", READS).unwrap();
    let b = pair.request();
    pair.accept(b);
    pair.replied(old);
    pair.command(Side::A, |cm, now| cm.complete(now, old)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Established);
    // A restarts and reuses the same numbers.
    pair.a.crash();
    let new = pair.connect_qp(qp, b"", READS).unwrap();
    pair.expect(Side::A, new, refused(RejReason::STALE_CONNECTION));
    pair.quiet_for(Duration::from_mins(1));
    assert_eq!(pair.b.challenged, [b]);
    // The queue pair gets no answer.
    pair.command(Side::B, |cm, now| cm.abort(now, b)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Aborted);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.command(Side::A, |cm, now| cm.release(now, new)).unwrap();
    pair.nothing_left();
    let again = pair.connect_qp(qp, b"", READS).unwrap();
    let b = pair.request();
    pair.accept(b);
    pair.replied(again);
}

#[test]
fn connections_are_bounded_and_timewait_slots_are_reused() {
    let mut pair = TwoHosts::with(|config| config.max_connections = 16);
    pair.b
        .cm
        .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 100, context: 0 })
        .unwrap();
    let conns: Vec<_> = (0..16).map(|_| pair.connect()).collect();
    assert_eq!(pair.try_connect(b"", READS), Err(ConnError::TooMany));
    let requests: Vec<_> = (0..16).map(|_| pair.request()).collect();
    for (a, b) in conns.into_iter().zip(requests) {
        pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Aborted);
        pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    }
    assert_eq!((pair.a.cm.connections(), pair.b.cm.connections()), (16, 16), "all in TIMEWAIT");
    let (a, b) = pair.established();
    pair.release(a, b);
}

/// The peer names the largest path MTU that it accepts: the connection is requested with that.
//= rocev2 §11
//= rocev2 §12
#[test]
fn a_request_is_repeated_with_the_path_mtu_that_the_peer_accepts() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.b.cm.conns.config.max_mtu = PathMtu::Bytes512;
    let a = pair.connect();
    let first = pair.a.cm.any().map(|(_, conn)| (conn.local_id, conn.transaction)).unwrap();
    let event = pair.event(Side::B);
    let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
    assert_eq!((request.mtu, peer.mtu), (PathMtu::Bytes512, PathMtu::Bytes512));
    assert_eq!(request.private_data, padded(b"hello", 56));
    let second = pair.a.cm.any().map(|(_, conn)| (conn.local_id, conn.transaction)).unwrap();
    assert!(first.0 != second.0 && first.1 != second.1, "the peer may remember what it has refused");
    let b = event.conn;
    pair.accept(b);
    let event = pair.event(Side::A);
    let CmEventKind::Replied { peer, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((event.conn, peer.mtu), (a, PathMtu::Bytes512));
    pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Established);
    assert_eq!(pair.a.sent, [Attribute::CM_REQ, Attribute::CM_REQ, Attribute::CM_RTU]);
    pair.release(a, b);
}

/// A peer that refuses each path MTU draws few requests. One that names none, or none that is smaller, draws no other.
//= rocev2 §11
#[test]
fn requests_with_smaller_path_mtus_are_bounded() {
    for (codes, requests) in
        [(&[2, 1, 1][..], 3), (&[1, 1], 2), (&[3], 1), (&[4], 1), (&[0], 1), (&[6], 1), (&[], 1)]
    {
        let mut pair = TwoHosts::new();
        let a = pair.connect();
        for code in codes.iter().map(Some).chain([None]) {
            pair.collect();
            pair.wire.clear();
            let (_, conn) = pair.a.cm.any().unwrap();
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
            let frame = frame(&pair.b, &pair.a, pair.b.ip, &datagram(&rej, transaction));
            let now = pair.now;
            let _ = pair.a.cm.deliver(now, &Packet::parse(&frame).unwrap());
        }
        pair.expect(Side::A, a, refused(RejReason::INVALID_MTU));
        assert_eq!(pair.a.sent, vec![Attribute::CM_REQ; requests], "{codes:?}");
    }
}

/// The REJ may be lost: a duplicate REQ draws it again for as long as the peer may repeat the REQ.
//= rocev2 §12
#[test]
fn a_refusal_is_remembered_for_two_intervals_of_the_peer() {
    // Response timeouts of 4.3 s, and of 69 s, of which 5 s count.
    for (code, remembered) in [(20, Duration::from_millis(8500)), (24, Duration::from_millis(9900))] {
        let mut pair = TwoHosts::new();
        pair.listen();
        let (mut req, transaction) = pair.req();
        req.local_cm_response_timeout = code;
        let source = pair.a.ip;
        pair.deliver(source, &CmMessage::Req(req), transaction).unwrap();
        let b = pair.request();
        pair.command(Side::B, |cm, now| cm.reject(now, b, b"no")).unwrap();
        pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
        pair.set_fate(|_, _| Fate::Lose);
        pair.run_for(remembered);
        pair.b.sent.clear();
        assert_eq!(pair.deliver(source, &CmMessage::Req(req), transaction), Err(Ignored::Duplicate));
        pair.collect();
        assert_eq!(pair.b.sent, [Attribute::CM_REJ], "code {code}");
        assert_eq!(pair.b.events, []);
    }
}

/// The REJ by which a peer withdraws its REQ before it knows this side's communication ID.
//= rocev2 §12
#[test]
fn only_a_timeout_rej_that_names_the_request_withdraws_it() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let (req, transaction) = pair.req();
    let (source, local_comm_id, guid) = (pair.a.ip, req.local_comm_id, req.local_ca_guid);
    pair.deliver(source, &CmMessage::Req(req), transaction).unwrap();
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
        assert_eq!(pair.deliver(source, wrong, transaction), Err(Ignored::Unknown), "another {what}");
    }
    assert_eq!(pair.deliver(source, &right, transaction), Ok(()));
}
