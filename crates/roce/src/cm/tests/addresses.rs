// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local addresses, and source addresses of datagrams.

use super::*;
use roce_wire::Path;

fn v4(last: u8) -> IpAddr {
    [192, 168, 77, last].into()
}

/// Delivers A's first frame to B, with its path changed by `change`.
fn deliver_first_frame(pair: &mut TwoHosts, change: impl Fn(&mut Path)) -> Result<(), Ignored> {
    pair.collect();
    let (_, _, frame) = pair.wire.remove(0);
    let packet = Packet::parse(&frame).unwrap();
    let mut path = pair.path();
    change(&mut path);
    let mut mad = [0; Mad::LEN];
    mad.copy_from_slice(packet.payload());
    let mut slot = [0; 2048];
    let len = Sender::new(Psn::new(0), 0xC000).emit(Crc::detect(), &mut slot, &path, &mad).unwrap();
    let now = pair.now;
    pair.b.cm.deliver(now, &Packet::parse(&slot[..len]).unwrap())
}

//= rocev2 §13
#[test]
fn req_to_a_foreign_address_is_not_answered() {
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.connect();
    let foreign = deliver_first_frame(&mut pair, |path| path.remote_ip = v4(3));
    assert_eq!(foreign, Err(Ignored::NotLocal));
    assert!(!pair.b.cm.has_transmit() && pair.b.cm.connections() == 0);
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
        let mut pair = TwoHosts::new();
        pair.connect();
        assert_eq!(deliver_first_frame(&mut pair, sender), Err(Ignored::InvalidSource), "sender {number}");
        assert!(!pair.b.cm.has_transmit());
    }
    for source in ["::", "::1", "ff02::1", "::ffff:192.168.77.1"] {
        let mut pair = TwoHosts::between("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap(), |_| {});
        pair.connect();
        let sent = deliver_first_frame(&mut pair, |path| path.local_ip = source.parse().unwrap());
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
    let mut pair = TwoHosts::new();
    let cm = &mut pair.b.cm;
    let v4 = cm.listen(&spec(Some("0.0.0.0"))).unwrap();
    let v6 = cm.listen(&spec(Some("::"))).unwrap();
    for taken in [None, Some("0.0.0.0"), Some("192.168.77.2"), Some("::"), Some("fe80::2")] {
        assert_eq!(cm.listen(&spec(taken)), Err(ConnError::PortInUse), "{taken:?}");
    }
    cm.unlisten(Instant::default(), v6).unwrap();
    cm.listen(&spec(Some("fe80::2"))).unwrap();
    let a = pair.connect();
    let b = pair.request();
    pair.command(Side::B, |cm, now| cm.unlisten(now, v4)).unwrap();
    let other = pair.connect();
    pair.expect(
        Side::A,
        other,
        CmEventKind::Refused { reason: RejReason::INVALID_SERVICE_ID, private_data: padded(b"", 148) },
    );
    pair.accept(b);
    pair.replied(a);
}

/// Removes B's address when a connection has reached stage `depth`. Returns the events of both consumers.
fn events_after_address_removal(depth: usize) -> [Vec<CmEventKind>; 2] {
    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    if depth >= 1 {
        pair.accept(b);
    }
    if depth >= 2 {
        pair.replied(a);
    }
    if depth >= 3 {
        pair.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Established);
    }
    if depth == 4 {
        pair.command(Side::A, |cm, now| cm.disconnect(now, a)).unwrap();
        pair.expect(Side::B, b, CmEventKind::Disconnected);
    }
    if depth == 5 {
        pair.command(Side::B, |cm, now| cm.disconnect(now, b)).unwrap();
        pair.expect(Side::A, a, CmEventKind::Disconnected);
    }
    pair.collect();
    let sent_before = pair.b.sent.len();
    pair.b.cm.set_addresses(&[v4(9)]).unwrap();
    pair.run_for(Duration::from_mins(5));
    assert!(pair.b.sent.len() - sent_before <= 1, "at most one message: {:?}", &pair.b.sent[sent_before..]);
    let events =
        [&mut pair.a, &mut pair.b].map(|host| host.events.drain(..).map(|event| event.kind).collect());
    pair.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
    pair.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
    pair.nothing_left();
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
    let mut pair = TwoHosts::new();
    pair.listen();
    let (a, b) = pair.established();
    let mine = pair.b.ip;
    pair.b.cm.set_addresses(&[v4(9), mine]).unwrap();
    pair.b.cm.set_addresses(&[mine]).unwrap();
    pair.quiet_for(Duration::from_secs(1));
    // Removed, and added again before the search for its connections.
    pair.b.cm.set_addresses(&[]).unwrap();
    pair.b.cm.set_addresses(&[mine]).unwrap();
    pair.quiet_for(Duration::from_secs(1));
    pair.release(a, b);
}

//= R-CONN-101
#[test]
fn address_removal_aborts_a_bounded_number_of_connections_per_call() {
    let mut pair = TwoHosts::new();
    for _ in 0..1000 {
        pair.connect();
    }
    pair.a.cm.set_addresses(&[]).unwrap();
    let mut calls = 0;
    while pair.a.cm.poll_timeout() == Some(Instant::default()) {
        let now = pair.now;
        pair.a.cm.handle_timeout(now);
        calls += 1;
    }
    assert!((3..=5).contains(&calls), "{calls}");
    let aborted = core::iter::from_fn(|| pair.a.cm.poll_event()).filter(|e| e.kind == CmEventKind::Aborted);
    assert_eq!(aborted.count(), 1000);
}

#[test]
fn number_of_addresses_is_bounded() {
    let mut pair = TwoHosts::new();
    let many: Vec<IpAddr> =
        (0..2000u32).map(|i| core::net::Ipv4Addr::from_bits(0x0A00_0000 + i).into()).collect();
    assert_eq!(pair.a.cm.set_addresses(&many), Err(ConnError::TooMany));
    assert_eq!(pair.a.cm.set_addresses(&many[..1024]), Ok(()));
}
