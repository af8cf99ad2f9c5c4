// SPDX-License-Identifier: MIT OR Apache-2.0

//! Validation of REQs, and the answers to invalid ones.

use super::*;
use roce_wire::{
    MtuCode,
    cm::{RejRepr, ServiceId, SidrReqRepr, SidrStatus, TransportService},
};

/// Returns B's REJ for a REQ of A changed by `change`; `None` if B accepts the REQ as a request.
fn answer(change: impl Fn(&mut ReqRepr)) -> Option<RejRepr> {
    let mut hosts = TwoHosts::with(|config| config.max_mtu = PathMtu::Bytes2048);
    hosts.listen();
    let (mut req, transaction) = hosts.req();
    change(&mut req);
    let (source, now) = (hosts.a.ip, hosts.now);
    let observed = hosts.deliver(source, &CmMessage::Req(req), transaction);
    let Some((message, answered)) = next_message(&mut hosts.b, now) else {
        assert_eq!(observed, Ok(()));
        hosts.request();
        return None;
    };
    assert_eq!((observed, answered), (Err(Ignored::Refused), transaction));
    assert_eq!((hosts.b.cm.connections(), hosts.b.cm.poll_event()), (0, None), "nothing is left of it");
    let CmMessage::Rej(rej) = message else { panic!("{message:?}") };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId(0), req.local_comm_id));
    Some(rej)
}

/// A change of a REQ.
type Change = Box<dyn Fn(&mut ReqRepr)>;

/// Returns a change of the primary path.
fn path(change: impl Fn(&mut CmPathRepr)) -> impl Fn(&mut ReqRepr) {
    move |req| {
        let mut path = CmPathRepr::parse(&CmPath::new(&req.primary_path));
        change(&mut path);
        path.emit(&mut req.primary_path);
    }
}

//= rocev2 §11
//= rocev2 §12
//= rocev2 §13
#[test]
fn invalid_req_is_refused_with_the_matching_reason() {
    let peer_address = Gid::from(IpAddr::from([192, 168, 77, 66]));
    let v6 = Gid::from("fe80::1".parse::<IpAddr>().unwrap());
    let refusals: Vec<(&str, Change, RejReason)> = vec![
        ("UC", Box::new(|req| req.transport_service = TransportService::UC), RejReason::INVALID_TRANSPORT),
        ("RD", Box::new(|req| req.transport_service = TransportService::RD), RejReason::INVALID_TRANSPORT),
        (
            "XRC",
            Box::new(|req| {
                (req.transport_service, req.extended_transport) = (TransportService::EXTENDED, 1);
            }),
            RejReason::INVALID_TRANSPORT,
        ),
        ("extended", Box::new(|req| req.extended_transport = 1), RejReason::INVALID_TRANSPORT),
        (
            "another port",
            Box::new(|req| req.service_id = ServiceId::port(PORT + 1)),
            RejReason::INVALID_SERVICE_ID,
        ),
        (
            "UDP port space",
            Box::new(|req| req.service_id = ServiceId(0x0111_0000 | u64::from(PORT))),
            RejReason::INVALID_SERVICE_ID,
        ),
        (
            "InfiniBand port space",
            Box::new(|req| req.service_id = ServiceId(0x013F_0000 | u64::from(PORT))),
            RejReason::INVALID_SERVICE_ID,
        ),
        (
            "no IP service",
            Box::new(|req| req.service_id = ServiceId(u64::from(PORT))),
            RejReason::INVALID_SERVICE_ID,
        ),
        (
            "another source GID",
            Box::new(path(move |path| path.local_gid = peer_address)),
            RejReason::INVALID_GID,
        ),
        (
            "another target GID",
            Box::new(path(move |path| path.remote_gid = peer_address)),
            RejReason::INVALID_GID,
        ),
        ("GIDs of IPv6", Box::new(path(move |path| path.local_gid = v6)), RejReason::INVALID_GID),
        ("no GID", Box::new(path(|path| path.local_gid = Gid::default())), RejReason::INVALID_GID),
        ("another IP source", Box::new(|req| req.private_data[19] ^= 1), RejReason::INVALID_GID),
        ("another IP target", Box::new(|req| req.private_data[35] ^= 1), RejReason::INVALID_GID),
        ("IP-CM 1.0", Box::new(|req| req.private_data[0] = 0x10), RejReason::UNSUPPORTED),
        ("IPv5", Box::new(|req| req.private_data[1] = 0x50), RejReason::UNSUPPORTED),
        ("no IP header", Box::new(|req| req.private_data = [0; 92]), RejReason::UNSUPPORTED),
        ("another partition", Box::new(|req| req.p_key = 0x8001), RejReason::UNSUPPORTED),
        ("MTU code 0", Box::new(|req| req.path_mtu = MtuCode(0)), RejReason::INVALID_MTU),
        ("4096 bytes", Box::new(|req| req.path_mtu = MtuCode(5)), RejReason::INVALID_MTU),
        ("MTU code 6", Box::new(|req| req.path_mtu = MtuCode(6)), RejReason::INVALID_MTU),
    ];
    for (what, change, reason) in refusals {
        let rej = answer(change).unwrap_or_else(|| panic!("{what} is taken"));
        assert_eq!(
            (rej.message_rejected, rej.reason),
            (roce_wire::cm::RespondedMessage::REQ, reason),
            "{what}"
        );
        // The largest acceptable MTU, 2048 bytes, encoded as in a REQ.
        let mtu: &[u8] = if reason == RejReason::INVALID_MTU { &[4 << 4] } else { &[] };
        assert_eq!(&rej.information[..usize::from(rej.information_len)], mtu, "{what}");
    }
}

/// Writes the IPv4 addresses of the IP addressing header as mapped IPv6 ones.
fn map_addresses(req: &mut ReqRepr) {
    let header = &mut req.private_data;
    header[1] = 0x60;
    for address in [4..20, 20..36] {
        header[address][10..12].fill(0xFF);
    }
}

//= rocev2 §11
//= rocev2 §13
#[test]
fn irrelevant_req_fields_are_ignored() {
    let harmless: Vec<(&str, Change)> = vec![
        ("nothing", Box::new(|_| {})),
        ("vendor options", Box::new(|req| req.vendor_id = 0x00AB_CDEF)),
        ("a limited member", Box::new(|req| req.p_key = 0x7FFF)),
        ("end-to-end credits", Box::new(|req| req.end_to_end_flow_control = true)),
        ("datagram contexts", Box::new(|req| (req.local_eecn, req.remote_eecn) = (7, 8))),
        ("a datagram channel", Box::new(|req| req.rdc_exists = true)),
        ("a Q_Key", Box::new(|req| req.local_q_key = 0x8001_0000)),
        ("LIDs", Box::new(path(|path| (path.local_lid, path.remote_lid) = (1, 2)))),
        ("a packet rate", Box::new(path(|path| path.packet_rate = 63))),
        ("a hop limit", Box::new(path(|path| path.hop_limit = 0))),
        ("mapped addresses", Box::new(map_addresses)),
        ("a flow label", Box::new(path(|path| path.flow_label = 0x000F_FFFF))),
        ("256 bytes", Box::new(|req| req.path_mtu = MtuCode(1))),
        ("no retries", Box::new(|req| req.max_cm_retries = 0)),
        ("another path", Box::new(|req| req.alternate_path = req.primary_path)),
    ];
    for (what, change) in harmless {
        assert!(answer(change).is_none(), "{what} is refused");
    }
}

//= rocev2 §11
#[test]
fn alternate_path_is_declined_and_vendor_options_are_ignored() {
    for failover in [false, true] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let (mut req, transaction) = hosts.req();
        req.vendor_id = 0x00AB_CDEF;
        if failover {
            req.alternate_path = req.primary_path;
        }
        let mut mad = datagram(&CmMessage::Req(req), transaction);
        // A nonzero attribute modifier offers vendor options.
        mad[20..24].copy_from_slice(&[1, 2, 3, 4]);
        let frame = frame(&hosts.a, &hosts.b, hosts.a.ip, &mad);
        let now = hosts.now;
        hosts.b.cm.deliver(now, &Packet::parse(&frame).unwrap()).unwrap();
        let b = hosts.request();
        hosts.accept(b);
        let mut slot = [0; 2048];
        let len = hosts.b.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
        let packet = Packet::parse(&slot[..len]).unwrap();
        let mad = Mad::new_checked(packet.payload()).unwrap();
        assert_eq!(mad.header().attribute_modifier(), 0);
        let Some(CmMessage::Rep(rep)) = CmMessage::parse(&mad) else { panic!("no REP") };
        // 1: failover is not supported.
        assert_eq!((rep.vendor_id, rep.failover_accepted), (0, u8::from(failover)));
    }
}

//= rocev2 §1
#[test]
fn traffic_class_comes_from_the_req_without_its_ecn_bits() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (mut req, transaction) = hosts.req();
    path(|path| path.traffic_class = 26 << 2 | 3)(&mut req);
    let source = hosts.a.ip;
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let CmEventKind::Request { peer, .. } = hosts.event(Side::B).kind else { panic!("no request") };
    assert_eq!(peer.path.traffic_class, 26 << 2);
}

//= rocev2 §11
#[test]
fn sidr_req_is_answered_with_unsupported() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let ask = SidrReqRepr {
        request_id: CommId(0x1234),
        p_key: 0xFFFF,
        service_id: ServiceId(0x0111_0000 | u64::from(PORT)),
        private_data: [7; 216],
    };
    let mut mad = datagram(
        &CmMessage::Rtu(roce_wire::cm::RtuRepr {
            local_comm_id: CommId(0),
            remote_comm_id: CommId(0),
            private_data: [0; 224],
        }),
        99,
    );
    mad[16..18].copy_from_slice(&Attribute::CM_SIDR_REQ.0.to_be_bytes());
    ask.emit(mad.last_chunk_mut().unwrap());
    let question = frame(&hosts.a, &hosts.b, hosts.a.ip, &mad);
    let now = hosts.now;
    let observed = hosts.b.cm.deliver(now, &Packet::parse(&question).unwrap());
    assert_eq!(observed, Err(Ignored::Refused));
    let mut slot = [0; 2048];
    let len = hosts.b.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
    assert_eq!(len, question.len());
    let packet = Packet::parse(&slot[..len]).unwrap();
    let mad = Mad::new_checked(packet.payload()).unwrap();
    assert_eq!(mad.header().attribute(), Attribute::CM_SIDR_REP);
    assert_eq!(mad.header().transaction_id(), 99);
    let rep = roce_wire::cm::SidrRepRepr::parse(&roce_wire::cm::SidrRep::new(mad.body()));
    assert_eq!((rep.request_id, rep.service_id), (ask.request_id, ask.service_id));
    assert_eq!(rep.status, SidrStatus::UNSUPPORTED);
}

/// Creates an accepted connection whose active side is played by the test. Returns its REQ, REP, transaction ID and
/// B's handle.
fn accepted(hosts: &mut TwoHosts) -> (ReqRepr, roce_wire::cm::RepRepr, u64, ConnId) {
    hosts.listen();
    let (req, transaction) = hosts.req();
    let (source, now) = (hosts.a.ip, hosts.now);
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let b = hosts.request();
    hosts.accept(b);
    let Some((CmMessage::Rep(rep), _)) = next_message(&mut hosts.b, now) else { panic!("no REP") };
    (req, rep, transaction, b)
}

//= rocev2 §11
#[test]
fn private_data_of_rtu_mra_dreq_and_drep_is_ignored() {
    use roce_wire::cm::{DreqRepr, MraRepr, RespondedMessage, RtuRepr};
    let mut hosts = TwoHosts::new();
    let (req, rep, transaction, b) = accepted(&mut hosts);
    let (source, now) = (hosts.a.ip, hosts.now);
    let (local_comm_id, remote_comm_id) = (req.local_comm_id, rep.local_comm_id);
    let mra = MraRepr {
        local_comm_id,
        remote_comm_id,
        message_mraed: RespondedMessage::REP,
        service_timeout: 20,
        private_data: [0xA5; 222],
    };
    hosts.deliver(source, &CmMessage::Mra(mra), transaction).unwrap();
    let rtu = RtuRepr { local_comm_id, remote_comm_id, private_data: [0xA5; 224] };
    hosts.deliver(source, &CmMessage::Rtu(rtu), transaction).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    let dreq =
        DreqRepr { local_comm_id, remote_comm_id, remote_qpn: rep.local_qpn, private_data: [0xA5; 220] };
    hosts.deliver(source, &CmMessage::Dreq(dreq), transaction ^ 7).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Disconnected);
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    let Some((CmMessage::Drep(answer), answered)) = next_message(&mut hosts.b, now) else {
        panic!("no DREP")
    };
    assert_eq!((answer.remote_comm_id, answered), (local_comm_id, transaction ^ 7), "its own transaction");
    assert_eq!(answer.private_data, [0; 224]);
}

//= rocev2 §12
#[test]
fn queue_pair_number_is_stale_until_timewait_is_over() {
    let mut hosts = TwoHosts::new();
    let (req, _, transaction, b) = accepted(&mut hosts);
    let source = hosts.a.ip;
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.collect();
    hosts.wire.clear();
    // A duplicate of the request, and another one of the same queue pair.
    let other = ReqRepr { local_comm_id: CommId(req.local_comm_id.0 ^ 1), ..req };
    for (again, reason) in [(req, RejReason::CONSUMER), (other, RejReason::STALE_CONNECTION)] {
        let _ = hosts.deliver(source, &CmMessage::Req(again), transaction);
        let now = hosts.now;
        let Some((CmMessage::Rej(rej), _)) = next_message(&mut hosts.b, now) else { panic!("no REJ") };
        assert_eq!((rej.reason, rej.remote_comm_id), (reason, again.local_comm_id));
    }
    hosts.run_for(Duration::from_secs(5));
    hosts.deliver(source, &CmMessage::Req(other), transaction).unwrap();
    hosts.request();
}

//= rocev2 §12
#[test]
fn duplicate_req_after_the_end_is_refused_as_stale() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (req, transaction) = hosts.req();
    let source = hosts.a.ip;
    hosts.deliver(source, &CmMessage::Req(req), transaction).unwrap();
    let b = hosts.request();
    hosts.accept(b);
    hosts.command(Side::B, |cm, now| cm.traffic_seen(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::Established);
    hosts.set_fate(|_, _| Fate::Lose);
    hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
    hosts.expect(Side::B, b, CmEventKind::DisconnectDone(DisconnectOutcome::TimedOut));
    assert_eq!(hosts.deliver(source, &CmMessage::Req(req), transaction), Err(Ignored::Refused));
    let now = hosts.now;
    let Some((CmMessage::Rej(rej), _)) = next_message(&mut hosts.b, now) else { panic!("no REJ") };
    assert_eq!(rej.reason, RejReason::STALE_CONNECTION);
}

//= rocev2 §12
#[test]
fn unexpected_rep_is_refused() {
    // To a host without the connection, and to one that gave up before the REP arrived.
    for crash in [true, false] {
        let mut hosts = TwoHosts::new();
        hosts.listen();
        let a = hosts.connect();
        let b = hosts.request();
        if crash {
            hosts.a.crash();
        } else {
            hosts
                .set_fate(|_, message| if message == Attribute::CM_REJ { Fate::Lose } else { Fate::Deliver });
            hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
            hosts.collect();
            hosts.set_fate(|_, _| Fate::Deliver);
        }
        let begun = hosts.now;
        hosts.accept(b);
        let reason = if crash { RejReason::INVALID_COMM_ID } else { RejReason::TIMEOUT };
        hosts.expect(Side::B, b, CmEventKind::Refused { reason, private_data: padded(b"", 148) });
        assert!(hosts.now.duration_since(begun) < Duration::from_millis(1), "at once");
        hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
        hosts.nothing_left();
    }
}

//= rocev2 §12
#[test]
fn rep_of_a_stale_queue_pair_is_refused_and_connect_can_be_repeated() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (old, _) = hosts.established();
    // B restarts and reuses the same queue pair numbers.
    hosts.b.crash();
    hosts.b.next_qpn -= 1;
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    let stale = CmEventKind::Refused { reason: RejReason::STALE_CONNECTION, private_data: padded(b"", 148) };
    let CmEvent { conn, kind: CmEventKind::Refused { reason, .. }, .. } = hosts.event(Side::A) else {
        panic!("not refused")
    };
    assert_eq!((conn, reason), (a, RejReason::STALE_CONNECTION));
    hosts.expect(Side::B, b, stale);
    hosts.quiet_for(Duration::from_mins(1));
    assert_eq!(hosts.a.challenged, [old]);
    hosts.command(Side::A, |cm, now| cm.abort(now, old)).unwrap();
    hosts.expect(Side::A, old, CmEventKind::Aborted);
    for conn in [old, a] {
        hosts.command(Side::A, |cm, now| cm.release(now, conn)).unwrap();
    }
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.nothing_left();
    hosts.b.next_qpn -= 1;
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
}

/// Nothing keeps a host from naming the GUID, the communication ID and the queue pair of another one.
//= rocev2 §12
#[test]
fn a_req_with_the_numbers_of_another_hosts_connection_is_one_of_its_own() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    for address in ["192.0.2.21", "192.0.2.22"] {
        assert_eq!(hosts.req_from(address.parse().unwrap(), 1), Ok(()), "{address}");
    }
    assert_eq!(hosts.b.cm.connections(), 2);
}

//= rocev2 §11
//= rocev2 §13
#[test]
fn a_req_without_communication_id_or_with_a_reserved_queue_pair_is_malformed() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let source = hosts.a.ip;
    for (id, qpn) in [(0, 0x5000), (7, 0), (7, 1), (7, 0x00FF_FFFF)] {
        let (mut req, transaction) = hosts.req();
        (req.local_comm_id, req.local_qpn) = (CommId(id), Qpn::new(qpn));
        let handled = hosts.deliver(source, &CmMessage::Req(req), transaction);
        assert_eq!(handled, Err(Ignored::Malformed), "{id} {qpn:#x}");
    }
    assert_eq!(hosts.b.cm.connections(), 0);
}
