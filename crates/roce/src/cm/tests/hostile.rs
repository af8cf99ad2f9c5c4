// SPDX-License-Identifier: MIT OR Apache-2.0

//! Malformed and spoofed messages, and faulty networks.

use proptest::prelude::*;

use super::*;
use roce_wire::cm::{CommId, DreqRepr, RejRepr, RtuRepr};
use roce_wire::{MadHeaderRepr, Vlan};

//= rocev2 §11
#[test]
fn spoofed_messages_with_correct_ids_do_not_end_a_connection() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    let (_, conn) = hosts.b.cm.conns.slots.resolve(b).unwrap();
    let (mine, theirs, qpn, transaction) = (conn.local_id, conn.remote_id, conn.local.qpn, conn.transaction);
    let dreq = |local_comm_id, remote_comm_id, remote_qpn| {
        CmMessage::Dreq(DreqRepr { local_comm_id, remote_comm_id, remote_qpn, private_data: [0; 220] })
    };
    let rej = CmMessage::Rej(RejRepr {
        local_comm_id: theirs,
        remote_comm_id: mine,
        message_rejected: roce_wire::cm::RespondedMessage::OTHER,
        information_len: 0,
        reason: RejReason::CONSUMER,
        information: [0; 72],
        private_data: [0; 148],
    });
    let peer = hosts.a.ip;
    let peer_address = IpAddr::from([192, 168, 77, 66]);
    let other_qpn = Qpn::new(qpn.value() + 1);
    let attempts = [
        (peer_address, datagram(&dreq(theirs, mine, qpn), transaction)),
        (peer_address, datagram(&rej, transaction)),
        (peer, datagram(&rej, transaction ^ 1)),
        (peer, datagram(&dreq(theirs, mine, other_qpn), transaction)),
        (peer, datagram(&dreq(CommId(theirs.0 ^ 1), mine, qpn), transaction)),
        (peer, datagram(&dreq(theirs, CommId(mine.0 ^ 1), qpn), transaction)),
    ];
    for (source, mad) in attempts {
        let frame = frame(&hosts.a, &hosts.b, source, &mad);
        let now = hosts.now;
        assert!(hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).is_err());
        assert_eq!(hosts.b.cm.poll_event(), None);
    }
    // With correct addresses it has an effect.
    let frame = frame(&hosts.a, &hosts.b, peer, &datagram(&dreq(theirs, mine, qpn), 1));
    let now = hosts.now;
    hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.release(a, b);
}

#[test]
fn answers_are_bounded_and_go_to_the_source_of_the_message() {
    let mut hosts = TwoHosts::new();
    for i in 0..1000u32 {
        let dreq = CmMessage::Dreq(DreqRepr {
            local_comm_id: CommId(i + 1),
            remote_comm_id: CommId(!i),
            remote_qpn: Qpn::new(i),
            private_data: [0; 220],
        });
        let source = IpAddr::from([10, 0, (i >> 8) as u8, i as u8]);
        let frame = frame(&hosts.a, &hosts.b, source, &datagram(&dreq, u64::from(i)));
        let now = hosts.now;
        assert!(hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).is_err());
    }
    let mut slot = [0; 2048];
    let mut answers = 0;
    while let Some(len) = hosts.b.cm.poll_transmit(hosts.now, Crc::detect(), &mut slot) {
        let packet = Packet::parse(&slot[..len]).unwrap();
        assert_eq!(packet.destination(), IpAddr::from([10, 0, 0, answers as u8]));
        answers += 1;
    }
    assert_eq!(answers, answer::MAX_ANSWERS);
    assert_eq!(hosts.b.cm.connections(), 0);
}

/// Actions of a consumer on a random connection.
#[derive(Clone, Copy, Debug)]
enum Act {
    Connect,
    Accept,
    Reject,
    Complete,
    Disconnect,
    Abort,
    Traffic,
    Release,
    Wait(u16),
}

fn act() -> impl Strategy<Value = (bool, prop::sample::Index, Act)> {
    let act = prop_oneof![
        3 => Just(Act::Connect),
        3 => Just(Act::Accept),
        1 => Just(Act::Reject),
        3 => Just(Act::Complete),
        2 => Just(Act::Disconnect),
        1 => Just(Act::Abort),
        1 => Just(Act::Traffic),
        1 => Just(Act::Release),
        6 => (0u16..5000).prop_map(Act::Wait),
    ];
    (any::<bool>(), any::<prop::sample::Index>(), act)
}

/// Checks the guarantees of [`Cm`] for the events of each connection.
#[derive(Default)]
struct Ledger {
    seen: Vec<(Side, ConnId, u8)>,
    released: Vec<(Side, ConnId)>,
    open: Vec<(Side, ConnId)>,
}

impl Ledger {
    fn note(&mut self, hosts: &mut TwoHosts) {
        for side in [Side::A, Side::B] {
            for event in core::mem::take(&mut hosts.host(side).events) {
                let order = match event.kind {
                    CmEventKind::Request { .. } => 0,
                    CmEventKind::Replied { .. } => 1,
                    CmEventKind::Established => 2,
                    CmEventKind::Refused { .. } => 3,
                    CmEventKind::Disconnected => 4,
                    CmEventKind::Aborted => 5,
                    CmEventKind::TimedOut => 6,
                    CmEventKind::DisconnectDone { .. } => 7,
                };
                if order == 0 {
                    self.open.push((side, event.conn));
                }
                assert!(!self.released.contains(&(side, event.conn)), "{event:?} after release");
                let before = self.seen.iter().rfind(|(s, conn, _)| (*s, *conn) == (side, event.conn));
                assert!(before.is_none_or(|(_, _, before)| *before < order), "{event:?} after {before:?}");
                let ends = |order: u8| (3..=6).contains(&order);
                assert!(
                    !ends(order) || before.is_none_or(|(_, _, before)| !ends(*before)),
                    "{event:?}: a second end after {before:?}"
                );
                self.seen.push((side, event.conn, order));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_connection_ends_on_a_faulty_network_and_nothing_leaks(
        seed: u64,
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let mut random = seed | 1;
        hosts.set_fate(move |_, _| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match random >> 60 {
                0..=3 => Fate::Lose,
                4..=5 => Fate::Duplicate,
                6..=7 => Fate::Delay,
                _ => Fate::Deliver,
            }
        });
        let mut ledger = Ledger::default();
        for (active, pick, act) in acts {
            match act {
                Act::Wait(millis) => {
                    hosts.run_for(Duration::from_millis(u64::from(millis)));
                    ledger.note(&mut hosts);
                    continue;
                }
                Act::Connect => {
                    let conn = hosts.connect();
                    ledger.open.push((Side::A, conn));
                    continue;
                }
                _ => {}
            }
            let side = if active { Side::A } else { Side::B };
            let mine: Vec<_> = ledger.open.iter().filter(|(s, _)| *s == side).copied().collect();
            if mine.is_empty() {
                continue;
            }
            let (_, conn) = mine[pick.index(mine.len())];
            let local = hosts.local_qp(side);
            let result = hosts.command(side, |cm, now| match act {
                Act::Accept => {
                    cm.accept(now, conn, &AcceptSpec { reads: READS, private_data: b"", context: 1 }, local).map(drop)
                }
                Act::Reject => cm.reject(now, conn, b"no"),
                Act::Complete => cm.complete(now, conn),
                Act::Disconnect => cm.disconnect(now, conn),
                Act::Abort => cm.abort(now, conn),
                Act::Traffic => cm.traffic_seen(now, conn),
                _ => cm.release(now, conn),
            });
            prop_assert!(matches!(result, Ok(()) | Err(ConnError::State)), "{:?}: {:?}", act, result);
            if matches!(act, Act::Release) {
                ledger.open.retain(|open| *open != (side, conn));
                // Events before the release are allowed.
                ledger.note(&mut hosts);
                ledger.released.push((side, conn));
            }
        }
        ledger.note(&mut hosts);
        // The network works again, and all connections are released.
        hosts.set_fate(|_, _| Fate::Deliver);
        hosts.run_for(Duration::from_secs(5));
        ledger.note(&mut hosts);
        for (side, conn) in core::mem::take(&mut ledger.open) {
            hosts.command(side, |cm, now| cm.release(now, conn)).unwrap();
            ledger.released.push((side, conn));
        }
        // Delayed REQs may still arrive and be reported.
        for _ in 0..3 {
            hosts.run_for(Duration::from_mins(1));
            ledger.note(&mut hosts);
            for (side, conn) in core::mem::take(&mut ledger.open) {
                hosts.command(side, |cm, now| cm.release(now, conn)).unwrap();
                ledger.released.push((side, conn));
            }
        }
        prop_assert_eq!((hosts.a.cm.connections(), hosts.b.cm.connections()), (0, 0));
        prop_assert_eq!(hosts.a.cm.poll_timeout(), None);
        prop_assert_eq!(hosts.b.cm.poll_timeout(), None);
    }

    #[test]
    fn arbitrary_messages_are_handled(
        attribute in 0x000Fu16..0x001C,
        transaction: u64,
        body in proptest::collection::vec(any::<u8>(), Mad::BODY_LEN),
        known_id: bool,
        stage in 0usize..4,
    ) {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let a = hosts.connect();
        if stage >= 1 {
            let b = hosts.request();
            if stage >= 2 {
                hosts.accept(b);
            }
            if stage >= 3 {
                hosts.replied(a);
                hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
            }
        }
        for side in [Side::A, Side::B] {
            let mut mad = Vec::from([0; 24]);
            let header = MadHeaderRepr::cm(roce_wire::Attribute(attribute), transaction);
            header.emit(mad.first_chunk_mut().unwrap());
            mad.extend_from_slice(&body);
            if known_id && let Some((_, conn)) = hosts.host(side).cm.any() {
                // Passes the check of the communication ID.
                mad[24..28].copy_from_slice(&conn.remote_id.0.to_be_bytes());
                mad[28..32].copy_from_slice(&conn.local_id.0.to_be_bytes());
                mad[8..16].copy_from_slice(&conn.transaction.to_be_bytes());
            }
            let (from, to) = if side == Side::A { (&hosts.b, &hosts.a) } else { (&hosts.a, &hosts.b) };
            let frame = frame(from, to, from.ip, &mad);
            let now = hosts.now;
            let _ = hosts.host(side).cm.deliver(now, &Packet::parse(&frame).unwrap());
            while hosts.host(side).cm.poll_event().is_some() {}
        }
    }
}

/// The answer is to a message that belongs to no connection.
#[test]
fn answer_is_sent_to_the_vlan_of_the_message() {
    for vlan in [None, Some(Vlan(5))] {
        let mut hosts = TwoHosts::new();
        let (req, transaction) = hosts.req();
        let path = Path { vlan, ..Path::new(hosts.a.mac, hosts.b.mac, hosts.a.ip, hosts.b.ip) };
        let mad = datagram(&CmMessage::Req(req), transaction);
        let frame = frame_on(&path, Qpn::GSI, DethRepr::GSI, &mad);
        assert_eq!(hosts.b.cm.deliver(hosts.now, &Packet::parse(&frame).unwrap()), Err(Ignored::Refused));
        let mut slot = [0; 2048];
        let len = hosts.b.cm.poll_transmit(hosts.now, Crc::detect(), &mut slot).unwrap();
        assert_eq!(Packet::parse(&slot[..len]).unwrap().eth().vlan(), vlan);
    }
}

#[test]
fn datagrams_other_than_cm_messages_are_ignored() {
    let mut hosts = TwoHosts::new();
    let rtu = CmMessage::Rtu(RtuRepr {
        local_comm_id: CommId(1),
        remote_comm_id: CommId(2),
        private_data: [0; 224],
    });
    let mad = datagram(&rtu, 5);
    let handle = |hosts: &mut TwoHosts, mad: &[u8]| {
        let frame = frame(&hosts.a, &hosts.b, hosts.a.ip, mad);
        hosts.b.cm.deliver(hosts.now, &Packet::parse(&frame).unwrap())
    };
    assert_eq!(handle(&mut hosts, &mad), Err(Ignored::Unknown));
    assert_eq!(handle(&mut hosts, &mad[..252]), Err(Ignored::NotCm), "too short");
    for (byte, value) in [(0, 2), (1, 4), (2, 1), (3, 0x81)] {
        let mut mad = mad;
        mad[byte] = value;
        assert_eq!(handle(&mut hosts, &mad), Err(Ignored::NotCm), "header byte {byte}");
    }
    //= rocev2 §11
    let path = Path::new(hosts.a.mac, hosts.b.mac, hosts.a.ip, hosts.b.ip);
    for (to, deth) in [
        (Qpn::new(2), DethRepr::GSI),
        (Qpn::GSI, DethRepr { source_qp: Qpn::new(2), ..DethRepr::GSI }),
        (Qpn::GSI, DethRepr { q_key: 1, ..DethRepr::GSI }),
    ] {
        let frame = frame_on(&path, to, deth, &mad);
        let handled = hosts.b.cm.deliver(hosts.now, &Packet::parse(&frame).unwrap());
        assert_eq!(handled, Err(Ignored::NotCm), "{to:?} {deth:?}");
    }
    //= rocev2 §11
    // LAP, APR, and unknown attributes.
    for attribute in [0x19, 0x1A, 0x30] {
        let mut mad = mad;
        mad[17] = attribute;
        assert_eq!(handle(&mut hosts, &mad), Err(Ignored::Unsupported), "attribute {attribute:#x}");
    }
    assert!(!hosts.b.cm.has_transmit());
}
