// SPDX-License-Identifier: MIT OR Apache-2.0

//! What somebody sends who is not the peer of a queue pair: found by fuzzing, kept by name.

use roce::{DropReason, SendFlags, SendOperation, Verdict};
use roce_wire::{Ext, Headers, Opcode, Path, Psn, Qpn, Template};
use std::net::{IpAddr, Ipv4Addr};

use crate::pair::{Options, Pair};

/// A frame to bob's queue pair from an address that is not alice's.
fn stranger(pair: &Pair, opcode: Opcode, ext: Ext) -> Vec<u8> {
    frame(&Path { local_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66)), ..pair.path(0) }, bob(pair), opcode, ext)
}

fn bob(pair: &Pair) -> Qpn {
    pair.sides[1].qp.qpn()
}

fn frame(path: &Path, to: Qpn, opcode: Opcode, ext: Ext) -> Vec<u8> {
    let headers = Headers { opcode, solicited: false, ack_req: true, psn: Psn::new(0), ext };
    let mut slot = vec![0; 200];
    let template = Template::new(path, to).unwrap();
    let len = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, 0).unwrap().finish();
    slot.truncate(len);
    slot
}

/// Bob has a deferred request; does it leave?
fn starts(pair: &mut Pair) -> bool {
    pair.capture = Some(Vec::new());
    pair.drive();
    pair.capture.take().unwrap().iter().any(|(from, _)| *from == 1)
}

#[test]
fn a_strangers_frame_does_not_start_what_was_deferred() {
    let mut pair = Pair::connected(Options::default());
    let source = pair.sides[1].source(b"later");
    pair.sides[1].post(1, SendOperation::Send, SendFlags::DEFER, &[source.all()]).unwrap();
    let frame = stranger(&pair, Opcode::SEND_ONLY, Ext::None);
    assert_eq!(pair.sides[1].engine.handle_frame(pair.now, &frame), Verdict::Dropped(DropReason::Address));
    assert!(!starts(&mut pair));
    pair.sides[1].engine.undefer(&pair.sides[1].qp);
    assert!(starts(&mut pair), "deferred, not lost");
}

//= rocev2 §14
#[test]
fn a_congestion_notification_counts_only_from_the_peer() {
    let mut pair = Pair::connected(Options::default());
    let frame_of_stranger = stranger(&pair, Opcode::CNP, Ext::Cnp);
    let engine = &pair.sides[1].engine;
    assert_eq!(engine.handle_frame(pair.now, &frame_of_stranger), Verdict::Dropped(DropReason::Address));
    assert_eq!(pair.sides[1].stat("rx_cnp"), 0);
    let frame_of_peer = frame(&pair.path(0), bob(&pair), Opcode::CNP, Ext::Cnp);
    assert_eq!(engine.handle_frame(pair.now, &frame_of_peer), Verdict::Consumed);
    assert_eq!(pair.sides[1].stat("rx_cnp"), 1);
    assert!(!starts(&mut pair));
}
