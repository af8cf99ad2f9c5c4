// SPDX-License-Identifier: MIT OR Apache-2.0

//! Service ID resolution: the queue pair of a datagram service.

use super::*;
use roce_wire::cm::{
    DreqRepr, RejRepr, RepRepr, RespondedMessage, RtuRepr, ServiceId, SidrRepRepr, SidrReqRepr, SidrStatus,
};

const Q_KEY: u32 = 0x0123_4567;
const RESOLVED: LocalQp = LocalQp {
    qpn: Qpn::new(0),
    receive_psn: Psn::new(0),
    srq: false,
    retry_count: 0,
    rnr_retry_count: 0,
    ack_timeout: 0,
    q_key: Some(0),
};

impl TwoHosts {
    fn listen_for_datagrams(&mut self, backlog: u16) -> ListenerId {
        let spec = ListenSpec { ip: None, port: PORT, datagrams: true, backlog, context: 0xB };
        self.b.cm.listen(&spec).unwrap()
    }

    fn resolve(&mut self, data: &[u8]) -> ConnId {
        self.connect_qp(RESOLVED, data, READS).unwrap()
    }

    fn answer(&mut self, conn: ConnId, data: &[u8]) -> Result<ReadLimits, ConnError> {
        let local = LocalQp { qpn: Qpn::new(0x4711), q_key: Some(Q_KEY), ..RESOLVED };
        let spec = AcceptSpec { reads: READS, private_data: data, context: 0xC };
        self.command(Side::B, |cm, now| cm.accept(now, conn, &spec, local))
    }

    /// Runs until A has the queue pair of B.
    fn resolved(&mut self, conn: ConnId) -> PrivateData {
        let event = self.event(Side::A);
        let CmEventKind::Replied { peer, private_data } = event.kind else { panic!("{event:?}") };
        assert_eq!((event.context, peer.mtu), (0xA, PathMtu::Bytes1024));
        assert_eq!((event.conn, peer.qpn, peer.q_key), (conn, Qpn::new(0x4711), Q_KEY));
        assert_eq!(peer.path, self.path());
        private_data
    }

    fn refused(&mut self, conn: ConnId, status: SidrStatus, data: &[u8]) {
        let private_data = padded(data, 136);
        let reason = RejReason(status.0.into());
        self.expect(Side::A, conn, CmEventKind::Refused { reason, private_data });
    }

    /// Delivers a datagram of `source` to a side.
    fn deliver_mad(&mut self, to: Side, source: IpAddr, mad: &[u8; Mad::LEN]) -> Result<(), Ignored> {
        let (from, host) = if to == Side::A { (&self.b, &self.a) } else { (&self.a, &self.b) };
        let frame = frame(from, host, source, mad);
        let now = self.now;
        self.host(to).cm.deliver(now, &Packet::parse(&frame).unwrap())
    }

    /// Returns the SIDR_REQ that A sends next, with its transaction ID.
    fn sidr_req(&mut self) -> (SidrReqRepr, u64) {
        let (now, mut slot) = (self.now, [0; 2048]);
        let len = self.a.cm.poll_transmit(now, Crc::detect(), &mut slot).unwrap();
        let packet = Packet::parse(&slot[..len]).unwrap();
        let mad = Mad::new_checked(packet.payload()).unwrap();
        assert_eq!(mad.header().attribute(), Attribute::CM_SIDR_REQ);
        (SidrReqRepr::parse(&SidrReq::new(mad.body())), mad.header().transaction_id())
    }
}

fn sidr_rep(request_id: CommId, transaction: u64, change: impl FnOnce(&mut SidrRepRepr)) -> [u8; Mad::LEN] {
    let service_id = ServiceId::datagram_port(PORT);
    let mut rep = SidrRepRepr::refusal(request_id, SidrStatus::VALID, service_id);
    (rep.qpn, rep.q_key) = (Qpn::new(0x4711), Q_KEY);
    change(&mut rep);
    let mut mad = [0; Mad::LEN];
    rep.emit_datagram(transaction, &mut mad);
    mad
}

fn sidr_req(request: &SidrReqRepr, transaction: u64) -> [u8; Mad::LEN] {
    let mut mad = [0; Mad::LEN];
    request.emit_datagram(transaction, &mut mad);
    mad
}

//= rocev2 §11
#[test]
fn a_peer_names_the_queue_pair_of_a_datagram_service() {
    for ips in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let [a, b] = ips.map(|ip| ip.parse().unwrap());
        let mut hosts = TwoHosts::between(a, b, |_| {});
        hosts.listen_for_datagrams(16);
        let a = hosts.resolve(&[5; 180]);
        let event = hosts.event(Side::B);
        let CmEventKind::Request { request, peer } = event.kind else { panic!("{event:?}") };
        assert_eq!((peer.path.remote_ip, peer.path.local_ip), (hosts.a.ip, hosts.b.ip));
        assert_eq!(peer.mtu, CmConfig::new(0, [0; 32]).max_mtu);
        assert_eq!((event.context, request.local_port, request.remote_port), (0xB, PORT, 50_000));
        assert_eq!(request.private_data, padded(&[5; 180], 180));
        assert_eq!(hosts.answer(event.conn, &[6; 136]), Ok(ReadLimits::default()));
        assert_eq!(hosts.b.cm.context(event.conn), Some(0xC));
        assert_eq!(hosts.resolved(a), padded(&[6; 136], 136));
        assert_eq!(hosts.a.sent, [Attribute::CM_SIDR_REQ]);
        assert_eq!(hosts.b.sent, [Attribute::CM_SIDR_REP]);
        hosts.release(a, event.conn);
        assert_eq!((hosts.a.sent.len(), hosts.b.sent.len()), (1, 1), "there is nothing to disconnect");
    }
}

#[test]
fn lost_messages_are_sent_again_and_a_request_is_reported_once() {
    for message in [Attribute::CM_SIDR_REQ, Attribute::CM_SIDR_REP] {
        let mut hosts = TwoHosts::new();
        hosts.listen_for_datagrams(16);
        hosts.set_fate_once(message, Fate::Lose);
        let a = hosts.resolve(b"");
        let b = hosts.request();
        hosts.answer(b, b"").unwrap();
        hosts.resolved(a);
        assert_eq!(hosts.a.sent.len(), 2, "{message:?}");
        hosts.release(a, b);
    }
}

#[test]
fn a_service_that_is_not_offered_is_refused() {
    let mut hosts = TwoHosts::new();
    // Connections have ports of their own.
    let connections = hosts.listen();
    let a = hosts.resolve(b"");
    hosts.refused(a, SidrStatus::UNSUPPORTED, b"");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.command(Side::B, |cm, now| cm.unlisten(now, connections)).unwrap();
    let datagrams = hosts.listen_for_datagrams(16);
    let a = hosts.connect();
    let reason = RejReason::INVALID_SERVICE_ID;
    let refused = CmEventKind::Refused { reason, private_data: padded(b"", 148) };
    hosts.expect(Side::A, a, refused);
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.command(Side::B, |cm, now| cm.pause(now, datagrams, true)).unwrap();
    let a = hosts.resolve(b"");
    hosts.refused(a, SidrStatus::UNSUPPORTED, b"");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

#[test]
fn a_consumer_refuses_or_gives_up() {
    let mut hosts = TwoHosts::new();
    hosts.listen_for_datagrams(16);
    let a = hosts.resolve(b"");
    let b = hosts.request();
    let too_long = hosts.command(Side::B, |cm, now| cm.reject(now, b, &[1; 137]));
    assert_eq!(too_long, Err(ConnError::PrivateDataTooLong));
    hosts.command(Side::B, |cm, now| cm.reject(now, b, &[1; 136])).unwrap();
    hosts.refused(a, SidrStatus::REJECTED, &[1; 136]);
    assert_eq!(hosts.answer(b, b""), Err(ConnError::State));
    hosts.release(a, b);
    // Released without an answer.
    let a = hosts.resolve(b"");
    let b = hosts.request();
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.refused(a, SidrStatus::REJECTED, b"");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
    // The peer asks no longer, and gets no answer.
    let sent = hosts.a.sent.len();
    let a = hosts.resolve(b"");
    let b = hosts.request();
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.answer(b, b"").unwrap();
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.nothing_left();
    assert_eq!(hosts.a.sent.len(), sent + 1);
}

#[test]
fn a_request_without_answer_times_out() {
    let mut hosts = TwoHosts::new();
    hosts.set_fate(|_, _| Fate::Lose);
    let a = hosts.resolve(b"");
    hosts.expect(Side::A, a, CmEventKind::TimedOut);
    assert_eq!(hosts.a.sent.len(), 16, "one request, and its retries");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.nothing_left();
}

#[test]
fn commands_with_invalid_parameters_change_nothing() {
    let mut hosts = TwoHosts::new();
    hosts.listen_for_datagrams(16);
    let too_long = hosts.connect_qp(RESOLVED, &[0; 181], READS);
    assert_eq!(too_long, Err(ConnError::PrivateDataTooLong));
    let a = hosts.resolve(b"");
    let b = hosts.request();
    assert_eq!(hosts.answer(b, &[0; 137]), Err(ConnError::PrivateDataTooLong));
    // A connection's queue pair; one that cannot have datagrams.
    assert_eq!(hosts.try_accept(b, b"", READS), Err(ConnError::Invalid));
    let spec = AcceptSpec { reads: READS, private_data: b"", context: 0xC };
    let gsi = LocalQp { qpn: Qpn::GSI, ..RESOLVED };
    assert_eq!(hosts.command(Side::B, |cm, now| cm.accept(now, b, &spec, gsi)), Err(ConnError::Invalid));
    assert_eq!(hosts.command(Side::B, |cm, now| cm.complete(now, b)), Err(ConnError::State));
    assert_eq!(hosts.command(Side::B, |cm, now| cm.disconnect(now, b)), Err(ConnError::State));
    hosts.answer(b, b"").unwrap();
    assert_eq!(hosts.answer(b, b""), Err(ConnError::State));
    hosts.resolved(a);
    assert_eq!(hosts.command(Side::A, |cm, now| cm.complete(now, a)), Err(ConnError::State));
    hosts.release(a, b);
    // A connection is not answered with a queue pair for datagrams.
    hosts.listen();
    hosts.connect();
    let b = hosts.request();
    assert_eq!(hosts.answer(b, b""), Err(ConnError::Invalid));
}

#[test]
fn answers_of_other_hosts_and_to_other_requests_are_ignored() {
    let mut hosts = TwoHosts::new();
    let a = hosts.resolve(b"");
    let (request, transaction) = hosts.sidr_req();
    let (id, b, other) = (request.request_id, hosts.b.ip, "10.9.9.9".parse().unwrap());
    let good = sidr_rep(id, transaction, |_| {});
    let bad = [
        (other, good, Ignored::Unknown),
        (b, sidr_rep(id, transaction ^ 1, |_| {}), Ignored::Unknown),
        (b, sidr_rep(CommId(id.0 ^ 1), transaction, |_| {}), Ignored::Unknown),
        (b, sidr_rep(id, transaction, |rep| rep.qpn = Qpn::GSI), Ignored::Malformed),
    ];
    for (source, mad, reason) in bad {
        assert_eq!(hosts.deliver_mad(Side::A, source, &mad), Err(reason));
    }
    // Messages of connections.
    let (remote_comm_id, local_comm_id) = (id, CommId(5));
    let rej = RejRepr {
        local_comm_id,
        remote_comm_id,
        message_rejected: RespondedMessage::REQ,
        information_len: 0,
        reason: RejReason::CONSUMER,
        information: [0; 72],
        private_data: [0; 148],
    };
    let rep = RepRepr {
        local_comm_id,
        remote_comm_id,
        local_q_key: 0,
        local_qpn: Qpn::new(7),
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: Psn::new(1),
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
    let dreq = DreqRepr { local_comm_id, remote_comm_id, remote_qpn: Qpn::new(0), private_data: [0; 220] };
    let rtu = RtuRepr { local_comm_id, remote_comm_id, private_data: [0; 224] };
    let messages =
        [CmMessage::Rej(rej), CmMessage::Dreq(dreq), CmMessage::Rtu(rtu)].map(|m| (m, Err(Ignored::Unknown)));
    for (message, observed) in messages.into_iter().chain([(CmMessage::Rep(rep), Err(Ignored::Refused))]) {
        let mad = datagram(&message, transaction);
        assert_eq!(hosts.deliver_mad(Side::A, b, &mad), observed, "{message:?}");
    }
    assert_eq!(hosts.a.events, []);
    assert_eq!(hosts.deliver_mad(Side::A, b, &good), Ok(()));
    hosts.resolved(a);
    assert_eq!(hosts.deliver_mad(Side::A, b, &good), Err(Ignored::Duplicate));
    // One to a connection.
    let a = hosts.connect();
    let now = hosts.now;
    let mut req = None;
    while let Some(sent) = next_message(&mut hosts.a, now) {
        req = Some(sent);
    }
    let Some((CmMessage::Req(req), transaction)) = req else { panic!("no REQ") };
    let answer = sidr_rep(req.local_comm_id, transaction, |_| {});
    assert_eq!(hosts.deliver_mad(Side::A, b, &answer), Err(Ignored::Unknown));
    assert_eq!(hosts.a.cm.context(a), Some(0xA));
}

#[test]
fn invalid_requests_are_refused_and_requests_are_bounded() {
    let mut hosts = TwoHosts::with(|config| config.max_half_open_per_peer = 3);
    hosts.listen_for_datagrams(2);
    hosts.resolve(b"");
    let (request, transaction) = hosts.sidr_req();
    let source = hosts.a.ip;
    let changed = |change: fn(&mut SidrReqRepr)| {
        let mut request = request;
        change(&mut request);
        sidr_req(&request, transaction)
    };
    let invalid = [
        changed(|request| request.request_id = CommId(0)),
        changed(|request| request.p_key = 0x7FFE),
        // The version of the header, and the last bytes of its addresses.
        changed(|request| request.private_data[0] = 0x10),
        changed(|request| request.private_data[19] ^= 1),
        changed(|request| request.private_data[35] ^= 1),
        changed(|request| request.service_id = ServiceId::port(PORT)),
        changed(|request| request.service_id = ServiceId::datagram_port(PORT + 1)),
    ];
    for mad in invalid {
        assert_eq!(hosts.deliver_mad(Side::B, source, &mad), Err(Ignored::Refused));
    }
    assert_eq!(hosts.b.cm.connections(), 0);
    let numbered = |number: u32| {
        let request = SidrReqRepr { request_id: CommId(0x100 + number), ..request };
        sidr_req(&request, transaction + u64::from(number))
    };
    for number in 0..2 {
        assert_eq!(hosts.deliver_mad(Side::B, source, &numbered(number)), Ok(()));
        assert_eq!(hosts.deliver_mad(Side::B, source, &numbered(number)), Err(Ignored::Duplicate));
    }
    assert_eq!(
        hosts.deliver_mad(Side::B, source, &numbered(2)),
        Err(Ignored::Refused),
        "the backlog is full"
    );
    let second = ListenSpec { ip: None, port: PORT + 1, datagrams: true, backlog: 9, context: 0xB };
    hosts.b.cm.listen(&second).unwrap();
    let other = |number: u32| {
        let (request_id, service_id) = (CommId(0x200 + number), ServiceId::datagram_port(PORT + 1));
        sidr_req(&SidrReqRepr { request_id, service_id, ..request }, 7)
    };
    assert_eq!(hosts.deliver_mad(Side::B, source, &other(0)), Ok(()));
    // The peer repeats it.
    assert_eq!(hosts.deliver_mad(Side::B, source, &other(1)), Err(Ignored::NoRoom));
    assert_eq!(hosts.b.cm.connections(), 3);
}

#[test]
fn duplicates_have_number_transaction_and_host_of_their_request() {
    let mut hosts = TwoHosts::new();
    hosts.listen_for_datagrams(16);
    hosts.resolve(b"");
    let (request, transaction) = hosts.sidr_req();
    let own = hosts.a.ip;
    let mad = sidr_req(&request, transaction);
    assert_eq!(hosts.deliver_mad(Side::B, own, &mad), Ok(()));
    assert_eq!(hosts.deliver_mad(Side::B, own, &mad), Err(Ignored::Duplicate));
    let of_another = sidr_req(&request, transaction ^ 1);
    assert_eq!(hosts.deliver_mad(Side::B, own, &of_another), Ok(()));
    let IpAddr::V4(ip) = own else { panic!("{own}") };
    let neighbor = IpAddr::from((u32::from(ip) ^ 1).to_be_bytes());
    let mut from_neighbor = request;
    from_neighbor.private_data[19] ^= 1;
    assert_eq!(hosts.deliver_mad(Side::B, neighbor, &sidr_req(&from_neighbor, transaction)), Ok(()));
    hosts.resolve(b"");
    assert_ne!(hosts.sidr_req().1, transaction);
}

#[test]
fn an_answer_is_kept_while_the_peer_repeats_its_request() {
    // The peer repeats it after 4.3 s.
    let mut hosts = TwoHosts::with(|config| config.response_timeout = 20);
    hosts.listen_for_datagrams(16);
    hosts.resolve(b"");
    let (request, transaction) = hosts.sidr_req();
    let (source, mad) = (hosts.a.ip, sidr_req(&request, transaction));
    assert_eq!(hosts.deliver_mad(Side::B, source, &mad), Ok(()));
    let b = hosts.request();
    // It has no answer yet.
    assert_eq!(hosts.deliver_mad(Side::B, source, &mad), Err(Ignored::Duplicate));
    hosts.collect();
    assert_eq!(hosts.b.sent, []);
    hosts.answer(b, b"").unwrap();
    hosts.collect();
    hosts.run_for(Duration::from_secs(5));
    assert_eq!(hosts.deliver_mad(Side::B, source, &mad), Err(Ignored::Duplicate));
    hosts.collect();
    assert_eq!(hosts.b.sent.last(), Some(&Attribute::CM_SIDR_REP));
    assert!(hosts.b.sent.len() >= 2, "{:?}", hosts.b.sent);
}

#[test]
fn requests_that_end_without_their_consumer_are_refused_with_the_reason() {
    let mut hosts = TwoHosts::with(|config| config.max_half_open_per_peer = 1);
    let listener = hosts.listen_for_datagrams(16);
    let a = hosts.resolve(b"");
    let (request, transaction) = hosts.sidr_req();
    let (now, source) = (hosts.now, hosts.a.ip);
    // Its event is not polled.
    hosts.deliver_mad(Side::B, source, &sidr_req(&request, transaction)).unwrap();
    hosts.b.cm.unlisten(now, listener).unwrap();
    hosts.refused(a, SidrStatus::UNSUPPORTED, b"");
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    assert_eq!(hosts.b.events, []);
    // One that makes room for another.
    hosts.listen_for_datagrams(16);
    let a = hosts.resolve(b"");
    hosts.request();
    hosts.run_for(Duration::from_secs(1));
    hosts.resolve(b"");
    hosts.refused(a, SidrStatus::NO_QP, b"");
}
