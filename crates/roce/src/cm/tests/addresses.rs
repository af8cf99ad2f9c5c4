// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local addresses, and source addresses of datagrams.

use super::*;
use roce_wire::Path;

fn v4(last: u8) -> IpAddr {
    [192, 168, 77, last].into()
}

/// Delivers A's first frame to B, with its path changed by `change`.
fn deliver_first_frame(hosts: &mut TwoHosts, change: impl Fn(&mut Path)) -> Result<(), Ignored> {
    hosts.collect();
    let (_, _, frame) = hosts.wire.remove(0);
    let packet = Packet::parse(&frame).unwrap();
    let mut path = hosts.path();
    change(&mut path);
    let mut mad = [0; Mad::LEN];
    mad.copy_from_slice(packet.payload());
    let mut slot = [0; 2048];
    let len = Sender::new(Psn::new(0), 0xC000).emit(Crc::detect(), &mut slot, &path, &mad).unwrap();
    let now = hosts.now;
    hosts.b.cm.deliver(now, &Packet::parse(&slot[..len]).unwrap())
}

//= rocev2 §13
#[test]
fn req_to_a_foreign_address_is_not_answered() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.connect();
    let foreign = deliver_first_frame(&mut hosts, |path| path.remote_ip = v4(3));
    assert_eq!(foreign, Err(Ignored::NotLocal));
    assert!(!hosts.b.cm.has_transmit() && hosts.b.cm.connections() == 0);
}

//= rocev2 §12
#[test]
fn datagrams_from_non_unicast_sources_are_not_answered() {
    let senders: [fn(&mut Path); 6] = [
        |path| path.local_ip = [255; 4].into(),
        |path| path.local_ip = [0; 4].into(),
        |path| path.local_ip = [224, 0, 0, 251].into(),
        |path| path.local_ip = [127, 0, 0, 1].into(),
        |path| path.local_mac = MacAddr([0xFF; 6]),
        |path| path.local_mac = MacAddr([0; 6]),
    ];
    for (number, sender) in senders.into_iter().enumerate() {
        let mut hosts = TwoHosts::new();
        hosts.connect();
        assert_eq!(deliver_first_frame(&mut hosts, sender), Err(Ignored::InvalidSource), "sender {number}");
        assert!(!hosts.b.cm.has_transmit());
    }
    for source in ["::", "::1", "ff02::1", "::ffff:192.168.77.1"] {
        let mut hosts = TwoHosts::between("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap(), |_| {});
        hosts.connect();
        let sent = deliver_first_frame(&mut hosts, |path| path.local_ip = source.parse().unwrap());
        assert_eq!(sent, Err(Ignored::InvalidSource), "{source}");
    }
}

//= R-CONN-53
#[test]
fn wildcard_listens_on_all_addresses_of_its_family() {
    let spec = |ip: Option<&str>| ListenSpec {
        ip: ip.map(|ip| ip.parse().unwrap()),
        port: PORT,
        datagrams: false,
        backlog: 1,
        context: 0,
    };
    let mut hosts = TwoHosts::new();
    let cm = &mut hosts.b.cm;
    let v4 = cm.listen(&spec(Some("0.0.0.0"))).unwrap();
    let v6 = cm.listen(&spec(Some("::"))).unwrap();
    for taken in [None, Some("0.0.0.0"), Some("192.168.77.2"), Some("::"), Some("fe80::2")] {
        assert_eq!(cm.listen(&spec(taken)), Err(ConnError::PortInUse), "{taken:?}");
    }
    cm.unlisten(Instant::default(), v6).unwrap();
    cm.listen(&spec(Some("fe80::2"))).unwrap();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.command(Side::B, |cm, now| cm.unlisten(now, v4)).unwrap();
    let other = hosts.connect();
    hosts.expect(
        Side::A,
        other,
        CmEventKind::Refused { reason: RejReason::INVALID_SERVICE_ID, private_data: padded(b"", 148) },
    );
    hosts.accept(b);
    hosts.replied(a);
}

/// Removes B's address when a connection has reached stage `depth`. Returns the events of both consumers.
fn events_after_address_removal(depth: usize) -> [Vec<CmEventKind>; 2] {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    if depth >= 1 {
        hosts.accept(b);
    }
    if depth >= 2 {
        hosts.replied(a);
    }
    if depth >= 3 {
        hosts.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Established);
    }
    if depth == 4 {
        hosts.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
        hosts.expect(Side::B, b, CmEventKind::Disconnected);
    }
    if depth == 5 {
        hosts.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
        hosts.expect(Side::A, a, CmEventKind::Disconnected);
    }
    hosts.collect();
    let sent_before = hosts.b.sent.len();
    hosts.b.cm.set_addresses(&[v4(9)]).unwrap();
    hosts.run_for(Duration::from_mins(5));
    assert!(hosts.b.sent.len() - sent_before <= 1, "at most one message: {:?}", &hosts.b.sent[sent_before..]);
    let events =
        [&mut hosts.a, &mut hosts.b].map(|host| host.events.drain(..).map(|event| event.kind).collect());
    hosts.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    hosts.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    hosts.nothing_left();
    events
}

//= R-CONN-101
#[test]
fn removing_an_address_aborts_its_connections() {
    let refused = CmEventKind::Refused { reason: RejReason::CONSUMER, private_data: padded(b"", 148) };
    let done = CmEventKind::DisconnectDone;
    assert_eq!(events_after_address_removal(0), [vec![refused], vec![CmEventKind::Aborted]], "asked");
    assert_eq!(events_after_address_removal(1)[1], [CmEventKind::Aborted], "accepted");
    assert_eq!(
        events_after_address_removal(2),
        [vec![CmEventKind::Aborted], vec![CmEventKind::Aborted]],
        "replied"
    );
    assert_eq!(
        events_after_address_removal(3),
        [vec![CmEventKind::Disconnected], vec![CmEventKind::Aborted]],
        "established"
    );
    assert_eq!(
        events_after_address_removal(4),
        [vec![done(DisconnectOutcome::Graceful)], vec![]],
        "the peer was first"
    );
    assert_eq!(
        events_after_address_removal(5),
        [vec![], vec![done(DisconnectOutcome::AddressRemoved)]],
        "this side was first"
    );
}

//= R-CONN-101
#[test]
fn connections_at_remaining_addresses_are_not_aborted() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    let (a, b) = hosts.established();
    let mine = hosts.b.ip;
    hosts.b.cm.set_addresses(&[v4(9), mine]).unwrap();
    hosts.b.cm.set_addresses(&[mine]).unwrap();
    hosts.quiet_for(Duration::from_secs(1));
    // Removed, and added again before the search for its connections.
    hosts.b.cm.set_addresses(&[]).unwrap();
    hosts.b.cm.set_addresses(&[mine]).unwrap();
    hosts.quiet_for(Duration::from_secs(1));
    hosts.release(a, b);
}

//= R-CONN-101
#[test]
fn address_removal_aborts_a_bounded_number_of_connections_per_call() {
    let mut hosts = TwoHosts::new();
    for _ in 0..1000 {
        hosts.connect();
    }
    hosts.a.cm.set_addresses(&[]).unwrap();
    let mut calls = 0;
    while hosts.a.cm.poll_timeout() == Some(Instant::default()) {
        let now = hosts.now;
        hosts.a.cm.handle_timeout(now);
        calls += 1;
    }
    assert!((3..=5).contains(&calls), "{calls}");
    let aborted = core::iter::from_fn(|| hosts.a.cm.poll_event()).filter(|e| e.kind == CmEventKind::Aborted);
    assert_eq!(aborted.count(), 1000);
}

#[test]
fn number_of_addresses_is_bounded() {
    let mut hosts = TwoHosts::new();
    let many: Vec<IpAddr> =
        (0..2000u32).map(|i| core::net::Ipv4Addr::from_bits(0x0A00_0000 + i).into()).collect();
    assert_eq!(hosts.a.cm.set_addresses(&many), Err(ConnError::TooMany));
    assert_eq!(hosts.a.cm.set_addresses(&many[..1024]), Ok(()));
}
