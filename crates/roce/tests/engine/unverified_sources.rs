// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from other sources than the peer of a queue pair: regressions found by fuzzing.

use roce::{DropReason, SendFlags, SendOperation, Verdict};
use roce_wire::{Ext, Headers, Opcode, Path, Psn, Qpn, Template};
use std::net::{IpAddr, Ipv4Addr};

use crate::two_hosts::{Options, TwoHosts};

/// Returns a frame to bob's queue pair from another address than alice's.
fn unverified(hosts: &TwoHosts, opcode: Opcode, ext: Ext) -> Vec<u8> {
    frame(
        &Path { local_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66)), ..hosts.path(0) },
        bob(hosts),
        opcode,
        ext,
    )
}

fn bob(hosts: &TwoHosts) -> Qpn {
    hosts.sides[1].qp.qpn()
}

fn frame(path: &Path, to: Qpn, opcode: Opcode, ext: Ext) -> Vec<u8> {
    let headers = Headers { opcode, solicited: false, ack_req: true, psn: Psn::new(0), ext };
    let mut slot = vec![0; 200];
    let template = Template::new(path, to).unwrap();
    let len = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 0).unwrap().finish();
    slot.truncate(len);
    slot
}

/// Returns whether bob sends a deferred request.
fn sends_deferred(hosts: &mut TwoHosts) -> bool {
    hosts.capture = Some(Vec::new());
    hosts.drive();
    hosts.capture.take().unwrap().iter().any(|(from, _)| *from == 1)
}

#[test]
fn a_frame_from_an_unverified_source_does_not_start_deferred_requests() {
    let mut hosts = TwoHosts::connected(Options::default());
    let source = hosts.sides[1].source(b"later");
    hosts.sides[1].post(1, SendOperation::Send, SendFlags::DEFER, &[source.all()]).unwrap();
    let frame = unverified(&hosts, Opcode::SEND_ONLY, Ext::None);
    assert_eq!(
        hosts.sides[1].engine.first_shard().handle_frame(hosts.now, &frame),
        Verdict::Dropped(DropReason::Address)
    );
    assert!(!sends_deferred(&mut hosts));
    hosts.sides[1].engine.undefer(&hosts.sides[1].qp);
    assert!(sends_deferred(&mut hosts), "the request was deferred, not lost");
}

//= rocev2 §14
#[test]
fn a_cnp_is_accepted_only_from_the_peer() {
    let mut hosts = TwoHosts::connected(Options::default());
    let unverified_frame = unverified(&hosts, Opcode::CNP, Ext::Cnp);
    let engine = &hosts.sides[1].engine;
    assert_eq!(
        engine.first_shard().handle_frame(hosts.now, &unverified_frame),
        Verdict::Dropped(DropReason::Address)
    );
    assert_eq!(hosts.sides[1].stat("rx_cnp"), 0);
    let peer_frame = frame(&hosts.path(0), bob(&hosts), Opcode::CNP, Ext::Cnp);
    assert_eq!(engine.first_shard().handle_frame(hosts.now, &peer_frame), Verdict::Consumed);
    assert_eq!(hosts.sides[1].stat("rx_cnp"), 1);
    assert!(!sends_deferred(&mut hosts));
}

/// The two kinds of frames that are not read header by header if they are of the usual form: changed in nothing but an address, they
/// have no effect.
//= rocev2 §6
#[test]
fn a_short_send_and_its_acknowledgement_are_accepted_only_from_the_peer() {
    let hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"message"), bob.sink(7));
    bob.recv(2, &[sink.all()]);
    alice.send(1, &[source.all()]);
    for (from, to) in [(alice, bob), (bob, alice)] {
        let frames = from.transmit(hosts.now, 64);
        assert_eq!(frames.len(), 1);
        // Of the source and the destination address; the sum of the header's words stays the same.
        for at in [26, 30] {
            let mut forged = frames[0].clone();
            forged.swap(at, at + 2);
            crate::fields::reseal(&mut forged);
            let expected = if at == 26 { Verdict::Dropped(DropReason::Address) } else { Verdict::NotOurs };
            assert_eq!(to.engine.first_shard().handle_frame(hosts.now, &forged), expected);
        }
        assert!(to.cq.is_empty());
        assert_eq!(to.engine.first_shard().handle_frame(hosts.now, &frames[0]), Verdict::Consumed);
        assert_eq!(to.cq.len(), 1);
    }
}
