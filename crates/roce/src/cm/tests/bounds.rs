// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits on connections and answers for unverified sources.

use super::*;
use roce_wire::cm::{DrepRepr, DreqRepr, MraRepr, RejRepr, RepRepr, RespondedMessage, RtuRepr, SidrReqRepr};

fn peer_address(number: u32) -> IpAddr {
    [192, 168, 78, number as u8].into()
}

/// Creates two hosts with limits changed by `adjust`. B listens.
fn bounded(adjust: impl Fn(&mut CmConfig)) -> TwoHosts {
    let mut pair = TwoHosts::with(adjust);
    pair.b
        .cm
        .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 1000, context: 0xB })
        .unwrap();
    pair
}

/// Returns B's pending events with their connections.
fn reported(pair: &mut TwoHosts) -> Vec<(ConnId, CmEventKind)> {
    core::iter::from_fn(|| pair.b.cm.poll_event()).map(|event| (event.conn, event.kind)).collect()
}

/// Returns the connections of B's pending events, all of which must be requests.
fn requests(pair: &mut TwoHosts) -> Vec<ConnId> {
    let events = reported(pair);
    assert!(events.iter().all(|(_, kind)| matches!(kind, CmEventKind::Request { .. })), "{events:?}");
    events.into_iter().map(|(conn, _)| conn).collect()
}

/// Returns the reason of B's next REJ.
fn refusal(pair: &mut TwoHosts) -> Option<RejReason> {
    let now = pair.now;
    match next_message(&mut pair.b, now)?.0 {
        CmMessage::Rej(rej) => Some(rej.reason),
        other => panic!("{other:?}"),
    }
}

//= rocev2 §12
#[test]
fn half_open_connections_per_peer_are_bounded() {
    let mut pair = bounded(|config| config.max_half_open_per_peer = 4);
    for number in 0..4 {
        assert_eq!(pair.req_from(peer_address(1), number), Ok(()));
    }
    let first = requests(&mut pair);
    assert_eq!(first.len(), 4);
    // Further requests of this peer are dropped, accepted or not; other peers are not affected.
    pair.accept(first[1]);
    for number in 4..20 {
        assert_eq!(pair.req_from(peer_address(1), number), Err(Ignored::NoRoom));
        assert_eq!(refusal_or_rep(&mut pair), None, "{number}: dropped, so that a peer tries again");
    }
    assert_eq!(requests(&mut pair), []);
    assert_eq!(pair.req_from(peer_address(2), 100), Ok(()));
    assert_eq!(requests(&mut pair).len(), 1);
    // A connection that completes is no longer half-open.
    pair.command(Side::B, |cm, now| cm.traffic_seen(now, first[1])).unwrap();
    assert_eq!(reported(&mut pair), [(first[1], CmEventKind::Established)]);
    assert_eq!(pair.req_from(peer_address(1), 200), Ok(()));
}

/// Like [`refusal`], but skips a REP.
fn refusal_or_rep(pair: &mut TwoHosts) -> Option<RejReason> {
    let now = pair.now;
    loop {
        match next_message(&mut pair.b, now)?.0 {
            CmMessage::Rej(rej) => return Some(rej.reason),
            CmMessage::Rep(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

//= rocev2 §12
#[test]
fn only_half_open_connections_older_than_the_grace_period_are_evicted() {
    let mut pair = bounded(|config| config.max_half_open = 8);
    for number in 0..8 {
        assert_eq!(pair.req_from(peer_address(number), number), Ok(()));
        pair.run_for(Duration::from_millis(100));
    }
    let conns: Vec<_> = pair.b.events.drain(..).map(|event| event.conn).collect();
    assert_eq!(
        pair.req_from(peer_address(50), 50),
        Err(Ignored::NoRoom),
        "all are younger than the grace period"
    );
    assert_eq!(refusal(&mut pair), None);
    pair.run_for(Duration::from_millis(1250));
    assert_eq!(pair.req_from(peer_address(51), 51), Ok(()), "the first is older than two seconds");
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES), "the evicted peer gets a REJ");
    let events = reported(&mut pair);
    assert!(events.contains(&(conns[0], CmEventKind::Aborted)), "{events:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(pair.req_from(peer_address(52), 52), Err(Ignored::NoRoom), "the second is not");
    assert_eq!(pair.b.cm.conns.slots.half_open.len(), 8);
}

//= rocev2 §12
#[test]
fn req_flood_does_not_end_established_connections() {
    let mut pair = bounded(|config| {
        (config.max_half_open, config.max_half_open_per_peer) = (8, 2);
        config.max_connections = 32;
    });
    let established: Vec<_> = (0..5).map(|_| pair.established()).collect();
    for number in 0..2000 {
        let _ = pair.req_from(peer_address(number % 200), number);
        let now = pair.now;
        while next_message(&mut pair.b, now).is_some() {}
        pair.now = now + Duration::from_millis(50);
        let now = pair.now;
        pair.b.cm.handle_timeout(now);
        for (conn, kind) in reported(&mut pair) {
            match kind {
                // The consumer accepts some and does not answer others.
                CmEventKind::Request { .. } if number % 3 == 0 => pair.accept(conn),
                CmEventKind::Request { .. } => {}
                CmEventKind::Aborted | CmEventKind::TimedOut | CmEventKind::Refused { .. } => {
                    pair.command(Side::B, |cm, now| cm.release(now, conn)).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(pair.b.cm.conns.slots.half_open.len() <= 8);
    }
    assert!(pair.b.cm.connections() <= 32);
    pair.wire.clear();
    for (a, b) in established {
        pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Disconnected);
        pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
        pair.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
        pair.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    }
}

/// Returns how many of 20 connections of A are established while `rate` spoofed REQs arrive per second, each from an
/// address of its own. The consumer accepts all of them at once.
fn established_during_a_flood(rate: u32) -> usize {
    const CLIENTS: usize = 20;
    let mut pair = bounded(|_| {});
    let mut established = 0;
    let mut begun = Vec::new();
    // The first two seconds fill the table.
    for number in 0..rate * 24 {
        if number < rate * 6 {
            let source = [172, 16, (number >> 8) as u8, number as u8].into();
            let _ = pair.req_from(source, number);
            // Of the host that the test's REQs are made with.
            pair.a.events.clear();
        }
        if begun.len() < CLIENTS && number >= rate * 2 && number % (rate / 5) == 0 {
            begun.push(pair.connect());
        }
        pair.run_for(Duration::from_secs(1) / rate);
        while let Some(event) = pair.a.events.pop_front() {
            match event.kind {
                CmEventKind::Replied { .. } => {
                    pair.command(Side::A, |cm, now| cm.complete(now, event.conn)).unwrap();
                }
                CmEventKind::Refused { .. } | CmEventKind::TimedOut => assert!(begun.contains(&event.conn)),
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = pair.b.events.pop_front() {
            match event.kind {
                CmEventKind::Request { .. } => pair.accept(event.conn),
                CmEventKind::Established => established += 1,
                CmEventKind::Aborted | CmEventKind::TimedOut => {
                    pair.command(Side::B, |cm, now| cm.release(now, event.conn)).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        if established == CLIENTS {
            break;
        }
    }
    established
}

/// A host that tries again gets in between.
#[test]
fn a_req_flood_does_not_lock_out_a_client() {
    for rate in [512, 1000] {
        let established = established_during_a_flood(rate);
        println!("{rate} REQs per second: {established} of 20 connections");
        assert_eq!(established, 20, "{rate} REQs per second");
    }
}

//= rocev2 §12
#[test]
fn connections_per_peer_are_bounded() {
    let mut pair = bounded(|config| config.max_per_peer = 3);
    let established: Vec<_> = (0..3).map(|_| pair.established()).collect();
    let peer = pair.a.ip;
    assert_eq!(pair.req_from(peer, 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    assert_eq!(pair.req_from(peer_address(1), 2), Ok(()), "other peers are not affected");
    assert_eq!(requests(&mut pair).len(), 1);
    // A connection in TIMEWAIT is not counted.
    let (a, b) = established[0];
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.expect(Side::B, b, CmEventKind::Disconnected);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.run_for(Duration::from_millis(10));
    assert_eq!(pair.req_from(peer, 3), Ok(()));
}

/// Requests in a peer's name do not have the peer refused, neither at its limit nor in a full table.
#[test]
fn reqs_are_refused_only_for_established_connections() {
    for per_peer in [true, false] {
        let mut pair = bounded(|config| {
            config.max_per_peer = if per_peer { 4 } else { 100 };
            config.max_connections = if per_peer { 100 } else { 16 };
        });
        let established = if per_peer { 2 } else { 14 };
        let _: Vec<_> = (0..established).map(|_| pair.established()).collect();
        let peer = pair.a.ip;
        for number in 0..2 {
            assert_eq!(pair.req_from(peer, number), Ok(()));
        }
        assert_eq!(pair.req_from(peer, 2), Err(Ignored::NoRoom));
        assert_eq!(refusal(&mut pair), None, "dropped, so that the peer repeats it");
        pair.now = pair.now + Duration::from_secs(2);
        assert_eq!(pair.req_from(peer, 3), Ok(()), "half-open connections give way");
    }
}

//= rocev2 §12
#[test]
fn each_guess_at_a_queue_pair_number_counts_as_half_open() {
    let mut pair = bounded(|config| config.max_half_open_per_peer = 4);
    let (a, b) = pair.established();
    let (peer, guid) = (pair.a.ip, pair.a.cm.conns.config.ca_guid);
    let qpn = pair.a.cm.conns.slots.resolve(a).unwrap().1.local.qpn;
    let (mut req, transaction) = pair.req();
    req.local_ca_guid = guid;
    let mut guess = |pair: &mut TwoHosts, number: u32, qpn: Qpn, port: u16| {
        req.local_comm_id = CommId(0x7000_0000 + number);
        req.local_qpn = qpn;
        req.service_id = roce_wire::cm::ServiceId::port(port);
        pair.deliver(peer, &CmMessage::Req(req), transaction)
    };
    // A REQ to a port without listener reveals nothing and has no effect.
    assert_eq!(guess(&mut pair, 0, qpn, PORT + 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::INVALID_SERVICE_ID));
    for number in 1..=4 {
        assert_eq!(guess(&mut pair, number, Qpn::new(0x9000 + number), PORT), Ok(()));
    }
    // The correct guess, above the limit.
    assert_eq!(guess(&mut pair, 5, qpn, PORT), Err(Ignored::NoRoom));
    assert_eq!(refusal(&mut pair), None);
    assert_eq!(requests(&mut pair).len(), 4);
    assert_eq!(pair.b.cm.conns.slots.resolve(b).unwrap().1.state, State::Established);
}

#[test]
fn full_table_admits_peers_only_in_slots_of_released_connections() {
    let mut pair = bounded(|config| config.max_connections = 16);
    let peers: Vec<_> = (0..16).map(|number| pair.req_from(peer_address(number), number)).collect();
    assert_eq!(peers, [Ok(()); 16]);
    let conns = requests(&mut pair);
    for &conn in &conns {
        pair.accept(conn);
        pair.command(Side::B, |cm, now| cm.traffic_seen(now, conn)).unwrap();
    }
    reported(&mut pair);
    let now = pair.now;
    while next_message(&mut pair.b, now).is_some() {}
    pair.now = now + Duration::from_secs(100);
    assert_eq!(pair.req_from(peer_address(100), 100), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    let left = pair.command(Side::B, |cm, now| cm.release(now, conns[7]));
    assert_eq!(left, Ok(()));
    assert_eq!(pair.req_from(peer_address(101), 101), Err(Ignored::Refused), "its DREQ is not answered yet");
    for conn in [conns[3], conns[9]] {
        let (_, known) = pair.b.cm.conns.slots.resolve(conn).unwrap();
        let rej = RejRepr {
            local_comm_id: known.remote_id,
            remote_comm_id: known.local_id,
            message_rejected: RespondedMessage::OTHER,
            information_len: 0,
            reason: RejReason::CONSUMER,
            information: [0; 72],
            private_data: [0; 148],
        };
        let (source, transaction) = (known.path.remote_ip, known.transaction);
        pair.deliver(source, &CmMessage::Rej(rej), transaction).unwrap();
    }
    assert_eq!(reported(&mut pair).len(), 2);
    assert_eq!(
        pair.req_from(peer_address(102), 102),
        Err(Ignored::Refused),
        "the consumer has not released them"
    );
    pair.command(Side::B, |cm, now| cm.release(now, conns[3])).unwrap();
    assert_eq!(pair.req_from(peer_address(103), 103), Ok(()));
}

/// Returns messages without connection that are answered.
fn answered_messages(pair: &mut TwoHosts) -> Vec<(&'static str, [u8; Mad::LEN])> {
    let (mut req, transaction) = pair.req();
    let ids = (CommId(0x1111_2222), CommId(0x3333_4444));
    let (local_comm_id, remote_comm_id) = ids;
    let dreq = DreqRepr { local_comm_id, remote_comm_id, remote_qpn: Qpn::new(0x77), private_data: [0; 220] };
    let rep = RepRepr {
        local_comm_id,
        remote_comm_id,
        local_q_key: 0,
        local_qpn: Qpn::new(0x55),
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: Psn::new(5),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 0,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 9,
        private_data: [0; 196],
    };
    let mut sidr = datagram(&CmMessage::Dreq(dreq), 9);
    sidr[16..18].copy_from_slice(&Attribute::CM_SIDR_REQ.0.to_be_bytes());
    let ask = SidrReqRepr {
        request_id: local_comm_id,
        p_key: 0xFFFF,
        service_id: roce_wire::cm::ServiceId(5),
        private_data: [0; 216],
    };
    ask.emit(sidr.last_chunk_mut().unwrap());
    let no_listener = datagram(&CmMessage::Req(req), transaction);
    req.path_mtu = roce_wire::MtuCode(9);
    vec![
        ("REQ without listener", no_listener),
        ("REQ of a wrong MTU", datagram(&CmMessage::Req(req), transaction)),
        ("DREQ", datagram(&CmMessage::Dreq(dreq), 1)),
        ("REP", datagram(&CmMessage::Rep(rep), 1)),
        ("SIDR_REQ", sidr),
    ]
}

//= rocev2 §11
#[test]
fn answer_has_the_length_of_its_request_and_is_not_answered() {
    for (a, b) in [("192.168.77.1", "192.168.77.2"), ("fe80::1", "fe80::2")] {
        let mut pair = TwoHosts::between(a.parse().unwrap(), b.parse().unwrap(), |_| {});
        for (what, mad) in answered_messages(&mut pair) {
            let question = frame(&pair.a, &pair.b, pair.a.ip, &mad);
            let now = pair.now;
            assert!(pair.b.cm.deliver(now, &Packet::parse(&question).unwrap()).is_err(), "{what}");
            let mut slot = [0; 2048];
            let len = pair.b.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
            assert_eq!(len, question.len(), "{what}");
            let answer = Packet::parse(&slot[..len]).unwrap();
            assert_eq!(answer.eth().destination(), pair.a.mac, "{what}");
            assert!(!pair.b.cm.has_transmit(), "one answer to {what}");
            // The answer is not answered: a spoofed source cannot start a loop.
            assert!(pair.a.cm.deliver(now, &answer).is_err(), "{what}");
            assert!(!pair.a.cm.has_transmit(), "an answer to the answer to {what}");
        }
    }
}

//= rocev2 §12
#[test]
fn each_duplicate_req_draws_one_answer() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let (req, transaction) = pair.req();
    let (source, now) = (pair.a.ip, pair.now);
    pair.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    pair.request();
    for _ in 0..10 {
        assert_eq!(pair.deliver(source, &CmMessage::Req(req), transaction), Err(Ignored::Duplicate));
        assert!(matches!(next_message(&mut pair.b, now), Some((CmMessage::Mra(_), _))));
        assert_eq!(next_message(&mut pair.b, now), None);
    }
}

//= rocev2 §12
#[test]
fn rep_to_a_spoofed_req_is_retried_at_most_seven_times() {
    for code in [0, 8, 18, 20, 25, 31] {
        let mut pair = TwoHosts::new();
        pair.listen();
        let (mut req, transaction) = pair.req();
        (req.local_cm_response_timeout, req.max_cm_retries) = (code, 15);
        let source = pair.a.ip;
        pair.deliver(source, &CmMessage::Req(req), transaction).unwrap();
        let b = pair.request();
        let begun = pair.now;
        pair.accept(b);
        pair.set_fate(|_, _| Fate::Lose);
        pair.expect(Side::B, b, CmEventKind::TimedOut);
        assert_eq!(pair.b.sent, [Attribute::CM_REP; 8]);
        let took = pair.now.duration_since(begun);
        let between = took / 8;
        let asked = roce_wire::ack_timeout(code);
        let expected = asked.clamp(Duration::from_millis(100), Duration::from_secs(10));
        assert_eq!(between, expected, "code {code}");
    }
}

//= rocev2 §12
#[test]
fn mra_extends_the_timeout_by_at_most_ten_minutes() {
    // 2.4 hours; 69 seconds, as rdma_cm; and the minimum, sent often.
    for (service_timeout, every) in [(31, 1000), (24, 60_000), (0, 500)] {
        let mut pair = TwoHosts::new();
        let a = pair.connect();
        pair.collect();
        let (remote_comm_id, transaction) = {
            let (_, conn) = pair.a.cm.conns.slots.resolve(a).unwrap();
            (conn.local_id, conn.transaction)
        };
        pair.set_fate(|_, _| Fate::Lose);
        pair.wire.clear();
        let begun = pair.now;
        let mra = MraRepr {
            local_comm_id: CommId(5),
            remote_comm_id,
            message_mraed: RespondedMessage::REQ,
            service_timeout,
            private_data: [0; 222],
        };
        let mra_frame = frame(&pair.b, &pair.a, pair.b.ip, &datagram(&CmMessage::Mra(mra), transaction));
        while pair.a.events.is_empty() {
            let now = pair.now;
            let _ = pair.a.cm.deliver(now, &Packet::parse(&mra_frame).unwrap());
            pair.run_for(Duration::from_millis(every));
        }
        let waited = pair.now.duration_since(begun).as_secs();
        assert!((250..720).contains(&waited), "service timeout {service_timeout}: {waited} s");
        pair.expect(Side::A, a, CmEventKind::TimedOut);
    }
}

/// Returns the state of B's connection, including its deadline, as text.
fn conn_state(pair: &TwoHosts, conn: ConnId) -> String {
    let (index, known) = pair.b.cm.conns.slots.resolve(conn).unwrap();
    let Conn {
        state, remote_id, transaction, local, peer, reads, retries, mra_budget, pending, data, ..
    } = known;
    let due = pair.b.cm.conns.slots.deadlines.first().filter(|(_, slot)| *slot == index);
    format!(
        "{state:?} {remote_id:?} {transaction} {local:?} {peer:?} {reads:?} {retries} {mra_budget:?} {pending:?} {data:?} {due:?}"
    )
}

/// Creates two hosts with B's connection at a stage: requested, accepted, established, disconnecting. Returns its IDs,
/// too.
fn pair_at_stage(stage: usize) -> (TwoHosts, ConnId, [CommId; 2], Qpn, u64) {
    let mut pair = TwoHosts::new();
    pair.listen();
    let (req, transaction) = pair.req();
    let source = pair.a.ip;
    pair.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let b = pair.request();
    if stage >= 1 {
        pair.accept(b);
    }
    if stage >= 2 {
        pair.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Established);
    }
    if stage >= 3 {
        pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    }
    pair.collect();
    pair.wire.clear();
    let conn = pair.b.cm.conns.slots.resolve(b).unwrap().1;
    let (ids, qpn) = ([conn.remote_id, conn.local_id], conn.local.qpn);
    (pair, b, ids, qpn, transaction)
}

//= rocev2 §11
//= rocev2 §12
#[test]
fn messages_with_wrong_source_or_ids_have_no_effect() {
    let messages = |[local_comm_id, remote_comm_id]: [CommId; 2], remote_qpn: Qpn| {
        let (information, reason) = ([0; 72], RejReason::CONSUMER);
        let rej = RejRepr {
            local_comm_id,
            remote_comm_id,
            message_rejected: RespondedMessage::REP,
            information_len: 0,
            reason,
            information,
            private_data: [0; 148],
        };
        let mra = |message_mraed| MraRepr {
            local_comm_id,
            remote_comm_id,
            message_mraed,
            service_timeout: 24,
            private_data: [0; 222],
        };
        [
            CmMessage::Rej(rej),
            CmMessage::Mra(mra(RespondedMessage::REQ)),
            CmMessage::Mra(mra(RespondedMessage::REP)),
            CmMessage::Rtu(RtuRepr { local_comm_id, remote_comm_id, private_data: [0; 224] }),
            CmMessage::Dreq(DreqRepr { local_comm_id, remote_comm_id, remote_qpn, private_data: [0; 220] }),
            CmMessage::Drep(DrepRepr { local_comm_id, remote_comm_id, private_data: [0; 224] }),
        ]
    };
    let mut effective = 0;
    for stage in 0..4 {
        for number in 0..6 {
            let (mut pair, b, [theirs, mine], qpn, transaction) = pair_at_stage(stage);
            let before = conn_state(&pair, b);
            let (peer, other_address) = (pair.a.ip, peer_address(66));
            let wrong = CommId(theirs.0 ^ 0x0001_0000);
            let pick = |ids, qpn| messages(ids, qpn)[number];
            let right = pick([theirs, mine], qpn);
            let mut spoofed = vec![
                ("another address", other_address, right, transaction),
                ("another local ID", peer, pick([theirs, CommId(mine.0 ^ 1)], qpn), transaction),
            ];
            // An MRA, and a REJ without sender ID, need only the local ID.
            if !matches!(right, CmMessage::Mra(_)) {
                spoofed.push(("another remote ID", peer, pick([wrong, mine], qpn), transaction));
            }
            if matches!(right, CmMessage::Rej(_) | CmMessage::Mra(_)) {
                spoofed.push(("another transaction", peer, right, transaction ^ 1));
            }
            if matches!(right, CmMessage::Dreq(_)) {
                let other = Qpn::new(qpn.value() + 1);
                spoofed.push(("another queue pair", peer, pick([theirs, mine], other), transaction));
            }
            for (what, source, message, transaction) in spoofed {
                assert!(pair.deliver(source, &message, transaction).is_err(), "{what}: {message:?}");
                assert_eq!(conn_state(&pair, b), before, "stage {stage}, {what}: {message:?}");
                assert_eq!(pair.b.cm.poll_event(), None);
            }
            let _ = pair.deliver(peer, &right, transaction);
            effective += usize::from(conn_state(&pair, b) != before);
        }
    }
    // REJ at any stage; RTU, DREQ and an MRA for the REP once accepted; DREQ once established; DREQ and DREP
    // when disconnecting.
    assert_eq!(effective, 4 + 3 + 1 + 2, "with correct source and IDs they have an effect");
}

//= rocev2 §12
#[test]
fn rep_with_wrong_source_or_ids_is_ignored() {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    let now = pair.now;
    let Some((CmMessage::Rep(rep), transaction)) = next_message(&mut pair.b, now) else { panic!("no REP") };
    let wrong_id = RepRepr { remote_comm_id: CommId(rep.remote_comm_id.0 ^ 1), ..rep };
    let without_id = RepRepr { local_comm_id: CommId(0), ..rep };
    let reserved = RepRepr { local_qpn: Qpn::GSI, ..rep };
    let peer = pair.b.ip;
    let attempts = [
        (peer_address(1), rep, transaction),
        (peer, wrong_id, transaction),
        (peer, rep, transaction ^ 1),
        (peer, without_id, transaction),
        (peer, reserved, transaction),
    ];
    for (source, rep, transaction) in attempts {
        let frame = frame(&pair.b, &pair.a, source, &datagram(&CmMessage::Rep(rep), transaction));
        assert!(pair.a.cm.deliver(now, &Packet::parse(&frame).unwrap()).is_err());
        assert_eq!(pair.a.cm.conns.slots.resolve(a).unwrap().1.state, State::ReqSent);
    }
    let frame = frame(&pair.b, &pair.a, peer, &datagram(&CmMessage::Rep(rep), transaction));
    pair.a.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
    pair.replied(a);
}

#[test]
fn transaction_ids_depend_on_the_seed_and_are_unpredictable() {
    let transactions = |seed: u8| {
        let mut pair = TwoHosts::with(|config| config.seed[0] = seed);
        pair.listen();
        let mut all = Vec::new();
        for _ in 0..10 {
            let (a, b) = pair.established();
            all.push(pair.a.cm.conns.slots.resolve(a).unwrap().1.transaction);
            pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
            pair.expect(Side::B, b, CmEventKind::Disconnected);
            // The DREQ has a transaction ID of its own.
            all.push(pair.b.cm.conns.slots.resolve(b).unwrap().1.transaction);
        }
        all
    };
    assert_eq!(transactions(1), transactions(1));
    let (one, two) = (transactions(1), transactions(2));
    assert!(one.iter().all(|transaction| !two.contains(transaction)));
    let distinct: std::collections::HashSet<_> = one.iter().map(|transaction| transaction >> 32).collect();
    assert_eq!(distinct.len(), 20, "in both halves");
}
