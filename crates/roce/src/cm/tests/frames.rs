// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers in the frames that a connection manager sends.

use super::*;
use roce_wire::cm::{CmMessage, RespondedMessage};

/// Transmits what A has pending.
fn frames(pair: &mut TwoHosts) -> Vec<Vec<u8>> {
    let mut slot = [0; 2048];
    let next = || pair.a.cm.poll_transmit(pair.now, Crc::detect(), &mut slot).map(|len| slot[..len].to_vec());
    std::iter::from_fn(next).collect()
}

#[test]
fn frames_have_consecutive_psns_and_the_configured_source_port() {
    let mut pair = TwoHosts::with(|config| config.source_port = 0xC123);
    for _ in 0..3 {
        pair.connect();
    }
    let frames = frames(&mut pair);
    let packets: Vec<_> = frames.iter().map(|frame| Packet::parse(frame).unwrap()).collect();
    assert!(packets.iter().all(|packet| packet.udp().source_port() == 0xC123));
    let psns: Vec<_> = packets.iter().map(|packet| packet.bth().psn()).collect();
    assert_eq!(psns, [psns[0], psns[0].next(), psns[0].next().next()]);
}

/// Returns the paths in the REQs that A has pending.
fn paths(pair: &mut TwoHosts) -> Vec<CmPathRepr> {
    let now = pair.now;
    let next = || match next_message(&mut pair.a, now)? {
        (CmMessage::Req(req), _) => Some(CmPathRepr::parse(&CmPath::new(&req.primary_path))),
        (message, _) => panic!("{message:?}"),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn requests_have_flow_labels_of_their_own() {
    let mut pair = TwoHosts::new();
    for _ in 0..2 {
        pair.connect();
    }
    let paths = paths(&mut pair);
    assert_ne!(paths[0].flow_label, paths[1].flow_label);
}

#[test]
fn the_service_level_of_a_request_is_the_precedence_of_its_traffic_class() {
    let mut pair = TwoHosts::new();
    let spec = ConnectSpec {
        path: Path { traffic_class: 0x68, ..pair.path() },
        local_port: 50_000,
        remote_port: PORT,
        mtu: PathMtu::Bytes1024,
        reads: READS,
        private_data: &[],
        context: 0xA,
    };
    let local = pair.local_qp(Side::A);
    pair.command(Side::A, |cm, now| cm.connect(now, &spec, local)).unwrap();
    let path = paths(&mut pair)[0];
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
    let mut pair = TwoHosts::new();
    pair.listen();
    pair.connect();
    let b = pair.request();
    pair.command(Side::B, |cm, now| cm.reject(now, b, &[])).unwrap();
    let now = pair.now;
    assert_eq!(rejected(&mut pair.b, now), RespondedMessage::REQ);

    let mut pair = TwoHosts::new();
    pair.listen();
    let a = pair.connect();
    let b = pair.request();
    pair.accept(b);
    pair.replied(a);
    pair.command(Side::A, |cm, now| cm.reject(now, a, &[])).unwrap();
    let now = pair.now;
    assert_eq!(rejected(&mut pair.a, now), RespondedMessage::REP);
}

#[test]
fn zero_is_no_communication_id() {
    let pair = TwoHosts::new();
    let cm = &pair.a.cm;
    let zero = cm.conns.slots.prf.unpermute(0);
    let id = cm.conns.slots.comm_id(zero & 0xFFFF, zero >> 16);
    // The same slot, in another generation.
    assert_eq!(id, CommId(cm.conns.slots.prf.permute(zero ^ 0x8000_0000)));
    assert_ne!(id, CommId(0));
}
