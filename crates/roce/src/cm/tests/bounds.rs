// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits on connections and answers for unverified sources.

use super::*;
use roce_wire::cm::{DrepRepr, DreqRepr, MraRepr, RejRepr, RepRepr, RespondedMessage, RtuRepr, SidrReqRepr};

fn peer_address(number: u32) -> IpAddr {
    [192, 168, 78, number as u8].into()
}

/// Creates two hosts with limits changed by `adjust`. B listens.
fn bounded(adjust: impl Fn(&mut CmConfig)) -> TwoHosts {
    let mut hosts = TwoHosts::with(adjust);
    hosts
        .b
        .cm
        .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 1000, context: 0xB })
        .unwrap();
    hosts
}

/// Returns B's pending events with their connections.
fn reported(hosts: &mut TwoHosts) -> Vec<(ConnId, CmEventKind)> {
    core::iter::from_fn(|| hosts.b.cm.poll_event()).map(|event| (event.conn, event.kind)).collect()
}

/// Returns the connections of B's pending events, all of which must be requests.
fn requests(hosts: &mut TwoHosts) -> Vec<ConnId> {
    let events = reported(hosts);
    assert!(events.iter().all(|(_, kind)| matches!(kind, CmEventKind::Request { .. })), "{events:?}");
    events.into_iter().map(|(conn, _)| conn).collect()
}

/// Returns the reason of B's next REJ.
fn refusal(hosts: &mut TwoHosts) -> Option<RejReason> {
    let now = hosts.now;
    match next_message(&mut hosts.b, now)?.0 {
        CmMessage::Rej(rej) => Some(rej.reason),
        other => panic!("{other:?}"),
    }
}

//= rocev2 §12
#[test]
fn half_open_connections_per_peer_are_bounded() {
    let mut hosts = bounded(|config| config.max_half_open_per_peer = 4);
    for number in 0..4 {
        assert_eq!(hosts.req_from(peer_address(1), number), Ok(()));
    }
    let first = requests(&mut hosts);
    assert_eq!(first.len(), 4);
    // Further requests of this peer are dropped, accepted or not; other peers are not affected.
    hosts.accept(first[1]);
    for number in 4..20 {
        assert_eq!(hosts.req_from(peer_address(1), number), Err(Ignored::NoRoom));
        assert_eq!(refusal_or_rep(&mut hosts), None, "{number}: dropped, so that a peer tries again");
    }
    assert_eq!(requests(&mut hosts), []);
    assert_eq!(hosts.req_from(peer_address(2), 100), Ok(()));
    assert_eq!(requests(&mut hosts).len(), 1);
    // A connection that completes is no longer half-open.
    hosts.command(Side::B, |cm, now| cm.traffic_seen(now, first[1])).unwrap();
    assert_eq!(reported(&mut hosts), [(first[1], CmEventKind::Established)]);
    assert_eq!(hosts.req_from(peer_address(1), 200), Ok(()));
}

/// Like [`refusal`], but skips a REP.
fn refusal_or_rep(hosts: &mut TwoHosts) -> Option<RejReason> {
    let now = hosts.now;
    loop {
        match next_message(&mut hosts.b, now)?.0 {
            CmMessage::Rej(rej) => return Some(rej.reason),
            CmMessage::Rep(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

//= rocev2 §12
#[test]
fn only_half_open_connections_older_than_the_grace_period_are_evicted() {
    let mut hosts = bounded(|config| config.max_half_open = 8);
    for number in 0..8 {
        assert_eq!(hosts.req_from(peer_address(number), number), Ok(()));
        hosts.run_for(Duration::from_millis(100));
    }
    let conns: Vec<_> = hosts.b.events.drain(..).map(|event| event.conn).collect();
    assert_eq!(
        hosts.req_from(peer_address(50), 50),
        Err(Ignored::NoRoom),
        "all are younger than the grace period"
    );
    assert_eq!(refusal(&mut hosts), None);
    hosts.run_for(Duration::from_millis(1250));
    assert_eq!(hosts.req_from(peer_address(51), 51), Ok(()), "the first is older than two seconds");
    assert_eq!(refusal(&mut hosts), Some(RejReason::NO_RESOURCES), "the evicted peer gets a REJ");
    let events = reported(&mut hosts);
    assert!(events.contains(&(conns[0], CmEventKind::Aborted)), "{events:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(hosts.req_from(peer_address(52), 52), Err(Ignored::NoRoom), "the second is not");
    assert_eq!(hosts.b.cm.conns.slots.half_open.len(), 8);
}

//= rocev2 §12
#[test]
fn req_flood_does_not_end_established_connections() {
    let mut hosts = bounded(|config| {
        (config.max_half_open, config.max_half_open_per_peer) = (8, 2);
        config.max_connections = 32;
    });
    let established: Vec<_> = (0..5).map(|_| hosts.established()).collect();
    for number in 0..2000 {
        let _ = hosts.req_from(peer_address(number % 200), number);
        let now = hosts.now;
        while next_message(&mut hosts.b, now).is_some() {}
        hosts.now = now + Duration::from_millis(50);
        let now = hosts.now;
        hosts.b.cm.handle_timeout(now);
        for (conn, kind) in reported(&mut hosts) {
            match kind {
                // The consumer accepts some and does not answer others.
                CmEventKind::Request { .. } if number % 3 == 0 => hosts.accept(conn),
                CmEventKind::Request { .. } => {}
                CmEventKind::Aborted | CmEventKind::TimedOut | CmEventKind::Refused { .. } => {
                    hosts.command(Side::B, |cm, now| cm.release(now, conn)).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(hosts.b.cm.conns.slots.half_open.len() <= 8);
    }
    assert!(hosts.b.cm.connections() <= 32);
    hosts.wire.clear();
    for (a, b) in established {
        hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Disconnected);
        hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
        hosts.expect(Side::A, a, CmEventKind::DisconnectDone(DisconnectOutcome::Graceful));
    }
}

/// Returns how many of 20 connections of A are established while `rate` spoofed REQs arrive per second, each from an
/// address of its own. The consumer accepts all of them at once.
fn established_during_a_flood(rate: u32) -> usize {
    const CLIENTS: usize = 20;
    let mut hosts = bounded(|_| {});
    let mut established = 0;
    let mut begun = Vec::new();
    // The first two seconds fill the table.
    for number in 0..rate * 24 {
        if number < rate * 6 {
            let source = [172, 16, (number >> 8) as u8, number as u8].into();
            let _ = hosts.req_from(source, number);
            // Of the host that the test's REQs are made with.
            hosts.a.events.clear();
        }
        if begun.len() < CLIENTS && number >= rate * 2 && number % (rate / 5) == 0 {
            begun.push(hosts.connect());
        }
        hosts.run_for(Duration::from_secs(1) / rate);
        while let Some(event) = hosts.a.events.pop_front() {
            match event.kind {
                CmEventKind::Replied { .. } => {
                    hosts.command(Side::A, |cm, now| cm.complete(now, event.conn)).unwrap();
                }
                CmEventKind::Refused { .. } | CmEventKind::TimedOut => assert!(begun.contains(&event.conn)),
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = hosts.b.events.pop_front() {
            match event.kind {
                CmEventKind::Request { .. } => hosts.accept(event.conn),
                CmEventKind::Established => established += 1,
                CmEventKind::Aborted | CmEventKind::TimedOut => {
                    hosts.command(Side::B, |cm, now| cm.release(now, event.conn)).unwrap();
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
    let mut hosts = bounded(|config| config.max_per_peer = 3);
    let established: Vec<_> = (0..3).map(|_| hosts.established()).collect();
    let peer = hosts.a.ip;
    assert_eq!(hosts.req_from(peer, 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut hosts), Some(RejReason::NO_RESOURCES));
    assert_eq!(hosts.req_from(peer_address(1), 2), Ok(()), "other peers are not affected");
    assert_eq!(requests(&mut hosts).len(), 1);
    // A connection in TIMEWAIT is not counted.
    let (a, b) = established[0];
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.run_for(Duration::from_millis(10));
    assert_eq!(hosts.req_from(peer, 3), Ok(()));
}

/// Requests in a peer's name do not have the peer refused, neither at its limit nor in a full table.
#[test]
fn reqs_are_refused_only_for_established_connections() {
    for per_peer in [true, false] {
        let mut hosts = bounded(|config| {
            config.max_per_peer = if per_peer { 4 } else { 100 };
            config.max_connections = if per_peer { 100 } else { 16 };
        });
        let established = if per_peer { 2 } else { 14 };
        let _: Vec<_> = (0..established).map(|_| hosts.established()).collect();
        let peer = hosts.a.ip;
        for number in 0..2 {
            assert_eq!(hosts.req_from(peer, number), Ok(()));
        }
        assert_eq!(hosts.req_from(peer, 2), Err(Ignored::NoRoom));
        assert_eq!(refusal(&mut hosts), None, "dropped, so that the peer repeats it");
        hosts.now = hosts.now + Duration::from_secs(2);
        assert_eq!(hosts.req_from(peer, 3), Ok(()), "half-open connections give way");
    }
}

//= rocev2 §12
#[test]
fn each_guess_at_a_queue_pair_number_counts_as_half_open() {
    let mut hosts = bounded(|config| config.max_half_open_per_peer = 4);
    let (a, b) = hosts.established();
    let (peer, guid) = (hosts.a.ip, hosts.a.cm.conns.config.ca_guid);
    let qpn = hosts.a.cm.conns.slots.resolve(a).unwrap().1.local.qpn;
    let (mut req, transaction) = hosts.req();
    req.local_ca_guid = guid;
    let mut guess = |hosts: &mut TwoHosts, number: u32, qpn: Qpn, port: u16| {
        req.local_comm_id = CommId(0x7000_0000 + number);
        req.local_qpn = qpn;
        req.service_id = roce_wire::cm::ServiceId::port(port);
        hosts.deliver(peer, &CmMessage::Req(req), transaction)
    };
    // A REQ to a port without listener reveals nothing and has no effect.
    assert_eq!(guess(&mut hosts, 0, qpn, PORT + 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut hosts), Some(RejReason::INVALID_SERVICE_ID));
    for number in 1..=4 {
        assert_eq!(guess(&mut hosts, number, Qpn::new(0x9000 + number), PORT), Ok(()));
    }
    // The correct guess, above the limit.
    assert_eq!(guess(&mut hosts, 5, qpn, PORT), Err(Ignored::NoRoom));
    assert_eq!(refusal(&mut hosts), None);
    assert_eq!(requests(&mut hosts).len(), 4);
    assert_eq!(hosts.b.cm.conns.slots.resolve(b).unwrap().1.state, State::Established);
}

#[test]
fn full_table_admits_peers_only_in_slots_of_released_connections() {
    let mut hosts = bounded(|config| config.max_connections = 16);
    let peers: Vec<_> = (0..16).map(|number| hosts.req_from(peer_address(number), number)).collect();
    assert_eq!(peers, [Ok(()); 16]);
    let conns = requests(&mut hosts);
    for &conn in &conns {
        hosts.accept(conn);
        hosts.command(Side::B, |cm, now| cm.traffic_seen(now, conn)).unwrap();
    }
    reported(&mut hosts);
    let now = hosts.now;
    while next_message(&mut hosts.b, now).is_some() {}
    hosts.now = now + Duration::from_secs(100);
    assert_eq!(hosts.req_from(peer_address(100), 100), Err(Ignored::Refused));
    assert_eq!(refusal(&mut hosts), Some(RejReason::NO_RESOURCES));
    let left = hosts.command(Side::B, |cm, now| cm.release(now, conns[7]));
    assert_eq!(left, Ok(()));
    assert_eq!(hosts.req_from(peer_address(101), 101), Err(Ignored::Refused), "its DREQ is not answered yet");
    for conn in [conns[3], conns[9]] {
        let (_, known) = hosts.b.cm.conns.slots.resolve(conn).unwrap();
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
        hosts.deliver(source, &CmMessage::Rej(rej), transaction).unwrap();
    }
    assert_eq!(reported(&mut hosts).len(), 2);
    assert_eq!(
        hosts.req_from(peer_address(102), 102),
        Err(Ignored::Refused),
        "the consumer has not released them"
    );
    hosts.command(Side::B, |cm, now| cm.release(now, conns[3])).unwrap();
    assert_eq!(hosts.req_from(peer_address(103), 103), Ok(()));
}

/// Returns messages without connection that are answered.
fn answered_messages(hosts: &mut TwoHosts) -> Vec<(&'static str, [u8; Mad::LEN])> {
    let (mut req, transaction) = hosts.req();
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
        let mut hosts = TwoHosts::between(a.parse().unwrap(), b.parse().unwrap(), |_| {});
        for (what, mad) in answered_messages(&mut hosts) {
            let question = frame(&hosts.a, &hosts.b, hosts.a.ip, &mad);
            let now = hosts.now;
            assert!(hosts.b.cm.deliver(now, &Packet::parse(&question).unwrap()).is_err(), "{what}");
            let mut slot = [0; 2048];
            let len = hosts.b.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
            assert_eq!(len, question.len(), "{what}");
            let answer = Packet::parse(&slot[..len]).unwrap();
            assert_eq!(answer.eth().destination(), hosts.a.mac, "{what}");
            assert!(!hosts.b.cm.has_transmit(), "one answer to {what}");
            // The answer is not answered: a spoofed source cannot start a loop.
            assert!(hosts.a.cm.deliver(now, &answer).is_err(), "{what}");
            assert!(!hosts.a.cm.has_transmit(), "an answer to the answer to {what}");
        }
    }
}

//= rocev2 §12
#[test]
fn each_duplicate_req_draws_one_answer() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (req, transaction) = hosts.req();
    let (source, now) = (hosts.a.ip, hosts.now);
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    hosts.request();
    for _ in 0..10 {
        assert_eq!(hosts.deliver(source, &CmMessage::Req(req), transaction), Err(Ignored::Duplicate));
        assert!(matches!(next_message(&mut hosts.b, now), Some((CmMessage::Mra(_), _))));
        assert_eq!(next_message(&mut hosts.b, now), None);
    }
}

//= rocev2 §12
#[test]
fn rep_to_a_spoofed_req_is_retried_at_most_seven_times() {
    for code in [0, 8, 18, 20, 25, 31] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let (mut req, transaction) = hosts.req();
        (req.local_cm_response_timeout, req.max_cm_retries) = (code, 15);
        let source = hosts.a.ip;
        hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
        let b = hosts.request();
        let begun = hosts.now;
        hosts.accept(b);
        hosts.set_fate(|_, _| Fate::Lose);
        hosts.expect(Side::B, b, CmEventKind::TimedOut);
        assert_eq!(hosts.b.sent, [Attribute::CM_REP; 8]);
        let took = hosts.now.duration_since(begun);
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
        let mut hosts = TwoHosts::new();
        let a = hosts.connect();
        hosts.collect();
        let (remote_comm_id, transaction) = {
            let (_, conn) = hosts.a.cm.conns.slots.resolve(a).unwrap();
            (conn.local_id, conn.transaction)
        };
        hosts.set_fate(|_, _| Fate::Lose);
        hosts.wire.clear();
        let begun = hosts.now;
        let mra = MraRepr {
            local_comm_id: CommId(5),
            remote_comm_id,
            message_mraed: RespondedMessage::REQ,
            service_timeout,
            private_data: [0; 222],
        };
        let mra_frame = frame(&hosts.b, &hosts.a, hosts.b.ip, &datagram(&CmMessage::Mra(mra), transaction));
        while hosts.a.events.is_empty() {
            let now = hosts.now;
            let _ = hosts.a.cm.deliver(now, &Packet::parse(&mra_frame).unwrap());
            hosts.run_for(Duration::from_millis(every));
        }
        let waited = hosts.now.duration_since(begun).as_secs();
        assert!((250..720).contains(&waited), "service timeout {service_timeout}: {waited} s");
        hosts.expect(Side::A, a, CmEventKind::TimedOut);
    }
}

/// Returns the state of B's connection, including its deadline, as text.
fn conn_state(hosts: &TwoHosts, conn: ConnId) -> String {
    let (index, known) = hosts.b.cm.conns.slots.resolve(conn).unwrap();
    let Conn {
        state, remote_id, transaction, local, peer, reads, retries, mra_budget, pending, data, ..
    } = known;
    let due = hosts.b.cm.conns.slots.deadlines.first().filter(|(_, slot)| *slot == index);
    format!(
        "{state:?} {remote_id:?} {transaction} {local:?} {peer:?} {reads:?} {retries} {mra_budget:?} {pending:?} {data:?} {due:?}"
    )
}

/// Creates two hosts with B's connection at a stage: requested, accepted, established, disconnecting. Returns its IDs,
/// too.
fn pair_at_stage(stage: usize) -> (TwoHosts, ConnId, [CommId; 2], Qpn, u64) {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (req, transaction) = hosts.req();
    let source = hosts.a.ip;
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let b = hosts.request();
    if stage >= 1 {
        hosts.accept(b);
    }
    if stage >= 2 {
        hosts.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Established);
    }
    if stage >= 3 {
        hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    }
    hosts.collect();
    hosts.wire.clear();
    let conn = hosts.b.cm.conns.slots.resolve(b).unwrap().1;
    let (ids, qpn) = ([conn.remote_id, conn.local_id], conn.local.qpn);
    (hosts, b, ids, qpn, transaction)
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
            let (mut hosts, b, [theirs, mine], qpn, transaction) = pair_at_stage(stage);
            let before = conn_state(&hosts, b);
            let (peer, other_address) = (hosts.a.ip, peer_address(66));
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
                assert!(hosts.deliver(source, &message, transaction).is_err(), "{what}: {message:?}");
                assert_eq!(conn_state(&hosts, b), before, "stage {stage}, {what}: {message:?}");
                assert_eq!(hosts.b.cm.poll_event(), None);
            }
            let _ = hosts.deliver(peer, &right, transaction);
            effective += usize::from(conn_state(&hosts, b) != before);
        }
    }
    // REJ at any stage; RTU, DREQ and an MRA for the REP once accepted; DREQ once established; DREQ and DREP
    // when disconnecting.
    assert_eq!(effective, 4 + 3 + 1 + 2, "with correct source and IDs they have an effect");
}

//= rocev2 §12
#[test]
fn rep_with_wrong_source_or_ids_is_ignored() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    let now = hosts.now;
    let Some((CmMessage::Rep(rep), transaction)) = next_message(&mut hosts.b, now) else { panic!("no REP") };
    let wrong_id = RepRepr { remote_comm_id: CommId(rep.remote_comm_id.0 ^ 1), ..rep };
    let without_id = RepRepr { local_comm_id: CommId(0), ..rep };
    let reserved = RepRepr { local_qpn: Qpn::GSI, ..rep };
    let peer = hosts.b.ip;
    let attempts = [
        (peer_address(1), rep, transaction),
        (peer, wrong_id, transaction),
        (peer, rep, transaction ^ 1),
        (peer, without_id, transaction),
        (peer, reserved, transaction),
    ];
    for (source, rep, transaction) in attempts {
        let frame = frame(&hosts.b, &hosts.a, source, &datagram(&CmMessage::Rep(rep), transaction));
        assert!(hosts.a.cm.deliver(now, &Packet::parse(&frame).unwrap()).is_err());
        assert_eq!(hosts.a.cm.conns.slots.resolve(a).unwrap().1.state, State::ReqSent);
    }
    let frame = frame(&hosts.b, &hosts.a, peer, &datagram(&CmMessage::Rep(rep), transaction));
    hosts.a.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
    hosts.replied(a);
}

#[test]
fn transaction_ids_depend_on_the_seed_and_are_unpredictable() {
    let transactions = |seed: u8| {
        let mut hosts = TwoHosts::with(|config| config.seed[0] = seed);
        hosts.listen();
        let mut all = Vec::new();
        for _ in 0..10 {
            let (a, b) = hosts.established();
            all.push(hosts.a.cm.conns.slots.resolve(a).unwrap().1.transaction);
            hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
            hosts.expect(Side::B, b, CmEventKind::Disconnected);
            // The DREQ has a transaction ID of its own.
            all.push(hosts.b.cm.conns.slots.resolve(b).unwrap().1.transaction);
        }
        all
    };
    assert_eq!(transactions(1), transactions(1));
    let (one, two) = (transactions(1), transactions(2));
    assert!(one.iter().all(|transaction| !two.contains(transaction)));
    let distinct: std::collections::HashSet<_> = one.iter().map(|transaction| transaction >> 32).collect();
    assert_eq!(distinct.len(), 20, "in both halves");
}
