// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers in the frames that a connection manager sends.

use super::*;
use roce_wire::cm::{CmMessage, RespondedMessage};

/// Transmits what A has pending.
fn frames(hosts: &mut TwoHosts) -> Vec<Vec<u8>> {
    let mut slot = [0; 2048];
    let next =
        || hosts.a.cm.poll_transmit(hosts.now, Crc::detect(), &mut slot).map(|len| slot[..len].to_vec());
    std::iter::from_fn(next).collect()
}

#[test]
fn frames_have_consecutive_psns_and_the_configured_source_port() {
    let mut hosts = TwoHosts::with(|config| config.source_port = 0xC123);
    for _ in 0..3 {
        hosts.connect();
    }
    let frames = frames(&mut hosts);
    let packets: Vec<_> = frames.iter().map(|frame| Packet::parse(frame).unwrap()).collect();
    assert!(packets.iter().all(|packet| packet.udp().source_port() == 0xC123));
    let psns: Vec<_> = packets.iter().map(|packet| packet.bth().psn()).collect();
    assert_eq!(psns, [psns[0], psns[0].next(), psns[0].next().next()]);
}

/// Returns the paths in the REQs that A has pending.
fn paths(hosts: &mut TwoHosts) -> Vec<CmPathRepr> {
    let now = hosts.now;
    let next = || match next_message(&mut hosts.a, now)? {
        (CmMessage::Req(req), _) => Some(CmPathRepr::parse(&CmPath::new(&req.primary_path))),
        (message, _) => panic!("{message:?}"),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn requests_have_flow_labels_of_their_own() {
    let mut hosts = TwoHosts::new();
    for _ in 0..2 {
        hosts.connect();
    }
    let paths = paths(&mut hosts);
    assert_ne!(paths[0].flow_label, paths[1].flow_label);
}

#[test]
fn the_service_level_of_a_request_is_the_precedence_of_its_traffic_class() {
    let mut hosts = TwoHosts::new();
    let spec = ConnectSpec {
        path: Path { traffic_class: 0x68, ..hosts.path() },
        local_port: 50_000,
        remote_port: PORT,
        mtu: PathMtu::Bytes1024,
        reads: READS,
        private_data: &[],
        context: 0xA,
    };
    let local = hosts.local_qp(Side::A);
    hosts.command(Side::A, |cm, now| cm.connect(now, &spec, local)).unwrap();
    let path = paths(&mut hosts)[0];
    assert_eq!((path.traffic_class, path.service_level), (0x68, 3));
}

/// Returns the message that the pending REJ of a host refuses.
fn rejected(host: &mut Host, now: Instant) -> RespondedMessage {
    match next_message(host, now) {
        Some((CmMessage::Rej(rej), _)) => rej.message_rejected,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rej_names_the_message_that_it_refuses() {
    let mut hosts = TwoHosts::new();
    hosts.listen();
    hosts.connect();
    let b = hosts.request();
    hosts.command(Side::B, |cm, now| cm.reject(now, b, &[])).unwrap();
    let now = hosts.now;
    assert_eq!(rejected(&mut hosts.b, now), RespondedMessage::REQ);

    let mut hosts = TwoHosts::new();
    hosts.listen();
    let a = hosts.connect();
    let b = hosts.request();
    hosts.accept(b);
    hosts.replied(a);
    hosts.command(Side::A, |cm, now| cm.reject(now, a, &[])).unwrap();
    let now = hosts.now;
    assert_eq!(rejected(&mut hosts.a, now), RespondedMessage::REP);
}

#[test]
fn zero_is_no_communication_id() {
    let hosts = TwoHosts::new();
    let cm = &hosts.a.cm;
    let zero = cm.conns.slots.prf.unpermute(0);
    let id = cm.conns.slots.comm_id(zero & 0xFFFF, zero >> 16);
    // The same slot, in another generation.
    assert_eq!(id, CommId(cm.conns.slots.prf.permute(zero ^ 0x8000_0000)));
    assert_ne!(id, CommId(0));
}
