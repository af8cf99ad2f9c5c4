// SPDX-License-Identifier: MIT OR Apache-2.0

//! Strangers get so much and no more.

use super::*;
use roce_wire::cm::{DrepRepr, DreqRepr, MraRepr, RejRepr, RepRepr, RespondedMessage, RtuRepr, SidrReqRepr};

fn stranger(number: u32) -> IpAddr {
    [192, 168, 78, number as u8].into()
}

/// A pair whose B listens and is bounded as `adjust` says.
fn bounded(adjust: impl Fn(&mut Config)) -> Pair {
    let mut pair = Pair::with(adjust);
    pair.b.cm.listen(&ListenSpec { ip: None, port: PORT, backlog: 1000, context: 0xB }).unwrap();
    pair
}

/// What B tells its consumer next, and of whom.
fn told(pair: &mut Pair) -> Vec<(ConnId, EventKind)> {
    core::iter::from_fn(|| pair.b.cm.poll_event()).map(|event| (event.conn, event.kind)).collect()
}

/// The connections that B's consumer was asked for.
fn asked(pair: &mut Pair) -> Vec<ConnId> {
    let events = told(pair);
    assert!(events.iter().all(|(_, kind)| matches!(kind, EventKind::Request { .. })), "{events:?}");
    events.into_iter().map(|(conn, _)| conn).collect()
}

/// What B refuses next, and why.
fn refusal(pair: &mut Pair) -> Option<RejReason> {
    let now = pair.now;
    match spoken(&mut pair.b, now)?.0 {
        CmMessage::Rej(rej) => Some(rej.reason),
        other => panic!("{other:?}"),
    }
}

//= rocev2 §12
#[test]
fn one_peer_gets_so_many_half_open_connections() {
    let mut pair = bounded(|config| config.max_half_open_per_peer = 4);
    for number in 0..4 {
        assert_eq!(pair.stranger(stranger(1), number), Ok(()));
    }
    let first = asked(&mut pair);
    assert_eq!(first.len(), 4);
    // More of them are refused, whether the consumer has accepted or not; others are not kept out.
    pair.accept(first[1]);
    for number in 4..20 {
        assert_eq!(pair.stranger(stranger(1), number), Err(Ignored::Refused));
        let refused = core::iter::from_fn(|| refusal_or_rep(&mut pair)).next();
        assert_eq!(refused, Some(RejReason::NO_RESOURCES), "{number}");
    }
    assert_eq!(asked(&mut pair), []);
    assert_eq!(pair.stranger(stranger(2), 100), Ok(()));
    assert_eq!(asked(&mut pair).len(), 1);
    // One that completes makes room.
    pair.command(Side::B, |cm, now| cm.traffic_seen(now, first[1])).unwrap();
    assert_eq!(told(&mut pair), [(first[1], EventKind::Established)]);
    assert_eq!(pair.stranger(stranger(1), 200), Ok(()));
}

/// Like [`refusal`], past a REP that is on its way.
fn refusal_or_rep(pair: &mut Pair) -> Option<RejReason> {
    let now = pair.now;
    loop {
        match spoken(&mut pair.b, now)?.0 {
            CmMessage::Rej(rej) => return Some(rej.reason),
            CmMessage::Rep(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

//= rocev2 §12
#[test]
fn old_half_open_connections_give_way_to_new_ones_and_young_ones_do_not() {
    let mut pair = bounded(|config| config.max_half_open = 8);
    for number in 0..8 {
        assert_eq!(pair.stranger(stranger(number), number), Ok(()));
        pair.run_for(Duration::from_millis(100));
    }
    let conns: Vec<_> = pair.b.events.drain(..).map(|event| event.conn).collect();
    assert_eq!(pair.stranger(stranger(50), 50), Err(Ignored::Refused), "all are young");
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    pair.run_for(Duration::from_millis(1250));
    assert_eq!(pair.stranger(stranger(51), 51), Ok(()), "the first has had its two seconds");
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES), "which it is told");
    let events = told(&mut pair);
    assert!(events.contains(&(conns[0], EventKind::Aborted)), "{events:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(pair.stranger(stranger(52), 52), Err(Ignored::Refused), "the second has not");
    assert_eq!(pair.b.cm.half_open.len(), 8);
}

//= rocev2 §12
#[test]
fn a_flood_does_not_end_what_stands() {
    let mut pair = bounded(|config| {
        (config.max_half_open, config.max_half_open_per_peer) = (8, 2);
        config.max_connections = 32;
    });
    let standing: Vec<_> = (0..5).map(|_| pair.established()).collect();
    for number in 0..2000 {
        let _ = pair.stranger(stranger(number % 200), number);
        let now = pair.now;
        while spoken(&mut pair.b, now).is_some() {}
        pair.now = now + Duration::from_millis(50);
        let now = pair.now;
        pair.b.cm.handle_timeout(now);
        for (conn, kind) in told(&mut pair) {
            match kind {
                // The consumer is slow with some, and lets others go.
                EventKind::Request { .. } if number % 3 == 0 => pair.accept(conn),
                EventKind::Request { .. } => {}
                EventKind::Aborted | EventKind::TimedOut | EventKind::Refused { .. } => {
                    pair.command(Side::B, |cm, now| cm.release(now, conn)).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(pair.b.cm.half_open.len() <= 8);
    }
    assert!(pair.b.cm.connections() <= 32);
    pair.wire.clear();
    for (a, b) in standing {
        pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
        pair.expect(Side::B, b, EventKind::Disconnected);
        pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
        pair.expect(Side::B, b, EventKind::DisconnectDone { graceful: true });
        pair.expect(Side::A, a, EventKind::DisconnectDone { graceful: true });
    }
}

//= rocev2 §12
#[test]
fn one_peer_gets_so_many_connections() {
    let mut pair = bounded(|config| config.max_per_peer = 3);
    let standing: Vec<_> = (0..3).map(|_| pair.established()).collect();
    let peer = pair.a.ip;
    assert_eq!(pair.stranger(peer, 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    assert_eq!(pair.stranger(stranger(1), 2), Ok(()), "others are not kept out");
    assert_eq!(asked(&mut pair).len(), 1);
    // One that is over is not counted, though it waits for late messages.
    let (a, b) = standing[0];
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.expect(Side::B, b, EventKind::Disconnected);
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.run_for(Duration::from_millis(10));
    assert_eq!(pair.stranger(peer, 3), Ok(()));
}

//= rocev2 §12
#[test]
fn whoever_guesses_queue_pairs_of_others_takes_room_for_each_guess() {
    let mut pair = bounded(|config| config.max_half_open_per_peer = 4);
    let (a, b) = pair.established();
    let (peer, guid) = (pair.a.ip, pair.a.cm.config.ca_guid);
    let qpn = pair.a.cm.resolve(a).unwrap().1.local.qpn;
    let (mut req, transaction) = pair.req();
    req.local_ca_guid = guid;
    let mut guess = |pair: &mut Pair, number: u32, qpn: Qpn, port: u16| {
        req.local_comm_id = CommId(0x7000_0000 + number);
        req.local_qpn = qpn;
        req.service_id = roce_wire::cm::ServiceId::port(port);
        pair.hear(peer, &CmMessage::Req(req), transaction)
    };
    // At a port that nobody listens on, nothing is found out, and nothing done.
    assert_eq!(guess(&mut pair, 0, qpn, PORT + 1), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::INVALID_SERVICE_ID));
    for number in 1..=4 {
        assert_eq!(guess(&mut pair, number, Qpn::new(0x9000 + number), PORT), Ok(()));
    }
    // The right one, too late.
    assert_eq!(guess(&mut pair, 5, qpn, PORT), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    assert_eq!(asked(&mut pair).len(), 4);
    assert_eq!(pair.b.cm.resolve(b).unwrap().1.state, State::Established);
}

#[test]
fn a_full_table_takes_strangers_only_in_the_place_of_those_who_left() {
    let mut pair = bounded(|config| config.max_connections = 16);
    let peers: Vec<_> = (0..16).map(|number| pair.stranger(stranger(number), number)).collect();
    assert_eq!(peers, [Ok(()); 16]);
    let conns = asked(&mut pair);
    for &conn in &conns {
        pair.accept(conn);
        pair.command(Side::B, |cm, now| cm.traffic_seen(now, conn)).unwrap();
    }
    told(&mut pair);
    let now = pair.now;
    while spoken(&mut pair.b, now).is_some() {}
    pair.now = now + Duration::from_secs(100);
    assert_eq!(pair.stranger(stranger(100), 100), Err(Ignored::Refused));
    assert_eq!(refusal(&mut pair), Some(RejReason::NO_RESOURCES));
    let left = pair.command(Side::B, |cm, now| cm.release(now, conns[7]));
    assert_eq!(left, Ok(()));
    assert_eq!(pair.stranger(stranger(101), 101), Err(Ignored::Refused), "its DREQ is not answered yet");
    for conn in [conns[3], conns[9]] {
        let (_, known) = pair.b.cm.resolve(conn).unwrap();
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
        pair.hear(source, &CmMessage::Rej(rej), transaction).unwrap();
    }
    assert_eq!(told(&mut pair).len(), 2);
    assert_eq!(pair.stranger(stranger(102), 102), Err(Ignored::Refused), "the consumer still has them");
    pair.command(Side::B, |cm, now| cm.release(now, conns[3])).unwrap();
    assert_eq!(pair.stranger(stranger(103), 103), Ok(()));
}

/// Everything that draws an answer from someone who knows nothing of it.
fn questions(pair: &mut Pair) -> Vec<(&'static str, [u8; Mad::LEN])> {
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
    let mut sidr = say(&CmMessage::Dreq(dreq), 9);
    sidr[16..18].copy_from_slice(&Attribute::CM_SIDR_REQ.0.to_be_bytes());
    let ask = SidrReqRepr {
        request_id: local_comm_id,
        p_key: 0xFFFF,
        service_id: roce_wire::cm::ServiceId(5),
        private_data: [0; 216],
    };
    ask.emit(sidr.last_chunk_mut().unwrap());
    let nobody = say(&CmMessage::Req(req), transaction);
    req.path_mtu = roce_wire::MtuCode(9);
    vec![
        ("REQ to nobody", nobody),
        ("REQ of a wrong MTU", say(&CmMessage::Req(req), transaction)),
        ("DREQ", say(&CmMessage::Dreq(dreq), 1)),
        ("REP", say(&CmMessage::Rep(rep), 1)),
        ("SIDR_REQ", sidr),
    ]
}

//= rocev2 §11
#[test]
fn an_answer_is_one_as_long_as_its_question_and_is_not_answered() {
    for (a, b) in [("192.168.77.1", "192.168.77.2"), ("fe80::1", "fe80::2")] {
        let mut pair = Pair::between(a.parse().unwrap(), b.parse().unwrap(), |_| {});
        for (what, mad) in questions(&mut pair) {
            let question = frame(&pair.a, &pair.b, pair.a.ip, &mad);
            let now = pair.now;
            assert!(pair.b.cm.hear(now, &Packet::parse(&question).unwrap()).is_err(), "{what}");
            let mut slot = [0; 2048];
            let len = pair.b.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
            assert_eq!(len, question.len(), "{what}");
            let answer = Packet::parse(&slot[..len]).unwrap();
            assert_eq!(answer.eth().destination(), pair.a.mac, "{what}");
            assert!(!pair.b.cm.has_transmit(), "one answer to {what}");
            // Whom it reaches knows nothing of it, and keeps silent: nobody can be made to talk to himself.
            assert!(pair.a.cm.hear(now, &answer).is_err(), "{what}");
            assert!(!pair.a.cm.has_transmit(), "an answer to the answer to {what}");
        }
    }
}

//= rocev2 §12
#[test]
fn a_repeated_request_draws_one_message_for_each() {
    let mut pair = Pair::new();
    pair.listen();
    let (req, transaction) = pair.req();
    let (source, now) = (pair.a.ip, pair.now);
    pair.hear(source, &CmMessage::Req(req), transaction).unwrap();
    pair.request();
    for _ in 0..10 {
        assert_eq!(pair.hear(source, &CmMessage::Req(req), transaction), Err(Ignored::Duplicate));
        assert!(matches!(spoken(&mut pair.b, now), Some((CmMessage::Mra(_), _))));
        assert_eq!(spoken(&mut pair.b, now), None);
    }
}

//= rocev2 §12
#[test]
fn a_reply_that_nobody_asked_for_is_repeated_seven_times_at_most() {
    for code in [0, 8, 18, 20, 25, 31] {
        let mut pair = Pair::new();
        pair.listen();
        let (mut req, transaction) = pair.req();
        (req.local_cm_response_timeout, req.max_cm_retries) = (code, 15);
        let source = pair.a.ip;
        pair.hear(source, &CmMessage::Req(req), transaction).unwrap();
        let b = pair.request();
        let begun = pair.now;
        pair.accept(b);
        pair.meddle(|_, _| Fate::Lose);
        pair.expect(Side::B, b, EventKind::TimedOut);
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
fn whoever_asks_for_patience_gets_ten_minutes_at_most() {
    // 2.4 hours at a time; as rdma_cm does, 69 seconds; and nothing, but all the time.
    for (service_timeout, every) in [(31, 1000), (24, 60_000), (0, 500)] {
        let mut pair = Pair::new();
        let a = pair.connect();
        pair.collect();
        let (remote_comm_id, transaction) = {
            let (_, conn) = pair.a.cm.resolve(a).unwrap();
            (conn.local_id, conn.transaction)
        };
        pair.meddle(|_, _| Fate::Lose);
        pair.wire.clear();
        let begun = pair.now;
        let mra = MraRepr {
            local_comm_id: CommId(5),
            remote_comm_id,
            message_mraed: RespondedMessage::REQ,
            service_timeout,
            private_data: [0; 222],
        };
        let patience = frame(&pair.b, &pair.a, pair.b.ip, &say(&CmMessage::Mra(mra), transaction));
        while pair.a.events.is_empty() {
            let now = pair.now;
            let _ = pair.a.cm.hear(now, &Packet::parse(&patience).unwrap());
            pair.run_for(Duration::from_millis(every));
        }
        let waited = pair.now.duration_since(begun).as_secs();
        assert!((250..720).contains(&waited), "service timeout {service_timeout}: {waited} s");
        pair.expect(Side::A, a, EventKind::TimedOut);
    }
}

/// How B's connection stands, its deadline included.
fn standing(pair: &Pair, conn: ConnId) -> String {
    let (index, known) = pair.b.cm.resolve(conn).unwrap();
    let Conn {
        state, remote_id, transaction, local, peer, reads, retries, mra_budget, pending, data, ..
    } = known;
    let due = pair.b.cm.deadlines.first().filter(|(_, slot)| *slot == index);
    format!(
        "{state:?} {remote_id:?} {transaction} {local:?} {peer:?} {reads:?} {retries} {mra_budget:?} {pending:?} {data:?} {due:?}"
    )
}

/// B's connection, so far along: asked, accepted, established, being disconnected; and its ids.
fn so_far(stage: usize) -> (Pair, ConnId, [CommId; 2], Qpn, u64) {
    let mut pair = Pair::new();
    pair.listen();
    let (req, transaction) = pair.req();
    let source = pair.a.ip;
    pair.hear(source, &CmMessage::Req(req), transaction).unwrap();
    let b = pair.request();
    if stage >= 1 {
        pair.accept(b);
    }
    if stage >= 2 {
        pair.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
        pair.expect(Side::B, b, EventKind::Established);
    }
    if stage >= 3 {
        pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    }
    pair.collect();
    pair.wire.clear();
    let conn = pair.b.cm.resolve(b).unwrap().1;
    let (ids, qpn) = ([conn.remote_id, conn.local_id], conn.local.qpn);
    (pair, b, ids, qpn, transaction)
}

//= rocev2 §11
//= rocev2 §12
#[test]
fn messages_of_others_and_with_wrong_numbers_change_nothing() {
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
            let (mut pair, b, [theirs, mine], qpn, transaction) = so_far(stage);
            let before = standing(&pair, b);
            let (peer, stranger) = (pair.a.ip, stranger(66));
            let wrong = CommId(theirs.0 ^ 0x0001_0000);
            let pick = |ids, qpn| messages(ids, qpn)[number];
            let right = pick([theirs, mine], qpn);
            let mut spoofed = vec![
                ("another address", stranger, right, transaction),
                ("another id of ours", peer, pick([theirs, CommId(mine.0 ^ 1)], qpn), transaction),
            ];
            // These need only know our name for it: an MRA, and a REJ of somebody who made none.
            if !matches!(right, CmMessage::Mra(_)) {
                spoofed.push(("another id of theirs", peer, pick([wrong, mine], qpn), transaction));
            }
            if matches!(right, CmMessage::Rej(_) | CmMessage::Mra(_)) {
                spoofed.push(("another transaction", peer, right, transaction ^ 1));
            }
            if matches!(right, CmMessage::Dreq(_)) {
                let other = Qpn::new(qpn.value() + 1);
                spoofed.push(("another queue pair", peer, pick([theirs, mine], other), transaction));
            }
            for (what, source, message, transaction) in spoofed {
                assert!(pair.hear(source, &message, transaction).is_err(), "{what}: {message:?}");
                assert_eq!(standing(&pair, b), before, "stage {stage}, {what}: {message:?}");
                assert_eq!(pair.b.cm.poll_event(), None);
            }
            let _ = pair.hear(peer, &right, transaction);
            effective += usize::from(standing(&pair, b) != before);
        }
    }
    // REJ at any stage; RTU, DREQ and an MRA for the REP once accepted; DREQ once established; DREQ and DREP
    // when disconnecting.
    assert_eq!(effective, 4 + 3 + 1 + 2, "with the right numbers they work");
}

//= rocev2 §12
#[test]
fn a_reply_of_somebody_else_is_not_taken_for_the_peers() {
    let mut pair = Pair::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    let now = pair.now;
    let Some((CmMessage::Rep(rep), transaction)) = spoken(&mut pair.b, now) else { panic!("no REP") };
    let wrong_id = RepRepr { remote_comm_id: CommId(rep.remote_comm_id.0 ^ 1), ..rep };
    let peer = pair.b.ip;
    let attempts =
        [(stranger(1), rep, transaction), (peer, wrong_id, transaction), (peer, rep, transaction ^ 1)];
    for (source, rep, transaction) in attempts {
        let frame = frame(&pair.b, &pair.a, source, &say(&CmMessage::Rep(rep), transaction));
        assert!(pair.a.cm.hear(now, &Packet::parse(&frame).unwrap()).is_err());
        assert_eq!(pair.a.cm.resolve(a).unwrap().1.state, State::ReqSent);
    }
    let frame = frame(&pair.b, &pair.a, peer, &say(&CmMessage::Rep(rep), transaction));
    pair.a.cm.hear(now, &Packet::parse(&frame).unwrap()).unwrap();
    pair.replied(a);
}

#[test]
fn transactions_follow_from_the_seed_and_not_from_each_other() {
    let transactions = |seed: u8| {
        let mut pair = Pair::with(|config| config.seed[0] = seed);
        pair.listen();
        let mut all = Vec::new();
        for _ in 0..10 {
            let (a, b) = pair.established();
            all.push(pair.a.cm.resolve(a).unwrap().1.transaction);
            pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
            pair.expect(Side::B, b, EventKind::Disconnected);
            // The DREQ has its sender's own.
            all.push(pair.b.cm.resolve(b).unwrap().1.transaction);
        }
        all
    };
    assert_eq!(transactions(1), transactions(1));
    let (one, two) = (transactions(1), transactions(2));
    assert!(one.iter().all(|transaction| !two.contains(transaction)));
    let distinct: std::collections::HashSet<_> = one.iter().map(|transaction| transaction >> 32).collect();
    assert_eq!(distinct.len(), 20, "in both halves");
}
