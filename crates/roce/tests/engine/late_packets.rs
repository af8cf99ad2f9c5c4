// SPDX-License-Identifier: MIT OR Apache-2.0

//! Properties that a message received with a gap has in common with one that is received in order: its invalidation,
//! its notification, its length. And duplicates and flags that count only where the specification has them.

use roce::{Arm, CompletionKind, SendFlags, SendOperation, Verdict};
use roce_wire::{AtomicEthRepr, Ext, Headers, Opcode, Packet, Psn, RethRepr, Template};

use crate::keys::Fast;
use crate::loss::lose;
use crate::responder::{INVALID, Script, acknowledge, reth};
use crate::two_hosts::{Options, TwoHosts, pattern};

//= R-QP-77
//= rocev2 §6
#[test]
fn an_invalidation_that_arrives_after_a_gap_is_executed_and_reported() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let data = pattern(3000, 1);
    let (fast, sink, source) = (Fast::new(bob, 1), bob.sink(3000), alice.source(&data));
    let key = fast.region.key();
    fast.register(bob, 1);
    bob.recv(2, &[sink.all()]);
    hosts.run();
    hosts.sides[1].completions();
    lose(&mut hosts, 1, Opcode::SEND_MIDDLE, 1);
    let operation = SendOperation::SendInvalidate { key };
    hosts.sides[0].post(3, operation, SendFlags::empty(), &[source.all()]).unwrap();
    hosts.run();
    let received: Vec<_> = hosts.sides[1].completions().iter().map(|c| (c.kind, c.bytes)).collect();
    assert_eq!(received, [(CompletionKind::ReceiveInvalidate { key }, 3000)]);
    assert_eq!(sink.read(), data);
    assert_eq!(hosts.sides[1].stat("rx_invalidations"), 1);
    // The key is no longer valid.
    fast.register(&hosts.sides[1], 4);
    hosts.run();
    assert!(hosts.sides[1].completions().iter().all(|c| c.status == roce::CompletionStatus::Success));
}

//= R-CQ-5
//= rocev2 §6
#[test]
fn a_solicited_message_that_is_received_with_a_gap_notifies() {
    for lost in [Opcode::SEND_FIRST, Opcode::SEND_MIDDLE, Opcode::SEND_LAST] {
        let mut hosts = TwoHosts::connected(Options::default());
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(&pattern(3000, 1)), bob.sink(3000));
        bob.recv(1, &[sink.all()]);
        bob.engine.arm_cq(&bob.cq, Arm::Solicited);
        alice.post(2, SendOperation::Send, SendFlags::SOLICITED, &[source.all()]).unwrap();
        lose(&mut hosts, 1, lost, 1);
        hosts.run();
        assert_eq!(hosts.sides[1].cq_notifications.len(), 1, "{lost:?}");
    }
}

//= R-QP-76
#[test]
fn only_the_last_packet_of_a_message_carries_the_solicited_event() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&pattern(3000, 1)), bob.sink(3000));
    bob.recv(1, &[sink.all()]);
    alice.post(2, SendOperation::Send, SendFlags::SOLICITED, &[source.all()]).unwrap();
    hosts.capture = Some(Vec::new());
    hosts.run();
    let capture = hosts.capture.take().unwrap();
    let sent = capture.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| Packet::parse(frame).unwrap());
    let solicited: Vec<_> = sent.map(|packet| (packet.bth().opcode(), packet.bth().solicited())).collect();
    let expected = [(Opcode::SEND_FIRST, false), (Opcode::SEND_MIDDLE, false), (Opcode::SEND_LAST, true)];
    assert_eq!(solicited, expected);
}

//= rocev2 §4
#[test]
fn a_solicited_event_in_another_packet_than_the_last_does_not_notify() {
    let mut script = Script::new(Options::default());
    let sink = script.hosts.sides[1].sink(4096);
    script.hosts.sides[1].recv(1, &[sink.all()]);
    let bob = &script.hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Solicited);
    let (path, qpn) = (script.hosts.path(0), bob.qp.qpn());
    let packets =
        [(Opcode::SEND_FIRST, true, 1024), (Opcode::SEND_MIDDLE, true, 1024), (Opcode::SEND_LAST, false, 8)];
    for (opcode, solicited, len) in packets {
        let headers = Headers { opcode, solicited, ack_req: true, psn: script.psn, ext: Ext::None };
        let mut slot = vec![0; 1400];
        let template = Template::new(&path, qpn).unwrap();
        let mut frame = template.begin(roce_wire::icrc::Crc::table(), &mut slot, &headers, len).unwrap();
        frame.write(&vec![5; len]);
        let end = frame.finish();
        assert_eq!(script.give(&slot[..end]), Verdict::Consumed);
        script.psn = script.psn.next();
    }
    script.hosts.take_events(1);
    assert_eq!(script.hosts.sides[1].completions().len(), 1);
    assert_eq!(script.hosts.sides[1].cq_notifications, []);
}

//= rocev2 §6
#[test]
fn a_last_packet_after_a_gap_that_is_too_short_does_not_complete_the_write() {
    let mut script = Script::new(Options::default());
    let data = pattern(3072, 1);
    let target = script.shared(&[0; 3072]);
    let (first, before) = (script.psn, script.stat("rx_writes"));
    script.next(1, Opcode::WRITE_FIRST, Ext::Reth(reth(&target, 0, 3072)), &data[..1024]);
    // It should have 1024 bytes.
    script.send(1, Opcode::WRITE_LAST, Ext::None, &data[2048..2056]);
    script.next(1, Opcode::WRITE_MIDDLE, Ext::None, &data[1024..2048]);
    script.answers();
    assert_eq!(script.stat("rx_writes"), before);
    script.next(1, Opcode::WRITE_LAST, Ext::None, &data[2048..]);
    assert_eq!(script.stat("rx_writes"), before + 1);
    assert_eq!(script.answers(), [acknowledge(first.add(2), 0x1F, 2)]);
    assert_eq!(target.read(), data);
}

/// The peer would send packets again that have arrived.
//= rocev2 §6
#[test]
fn a_gap_that_is_filled_before_its_nak_is_sent_is_not_reported() {
    let mut script = Script::new(Options::default());
    let data = pattern(3072, 1);
    let target = script.shared(&[0; 3072]);
    let first = script.psn;
    script.next(1, Opcode::WRITE_FIRST, Ext::Reth(reth(&target, 0, 3072)), &data[..1024]);
    script.send(1, Opcode::WRITE_LAST, Ext::None, &data[2048..]);
    script.next(1, Opcode::WRITE_MIDDLE, Ext::None, &data[1024..2048]);
    assert_eq!(script.answers(), [acknowledge(first.add(2), 0x1F, 2)]);
    assert_eq!(target.read(), data);
}

//= rocev2 §6
#[test]
fn a_write_behind_a_read_is_acknowledged_after_the_responses() {
    for length in [4, 3000] {
        let mut script = Script::new(Options::default());
        let target = script.shared(&pattern(3000, 1));
        let packets = if length == 4 { 1 } else { 3 };
        script.next(packets, Opcode::READ_REQUEST, Ext::Reth(reth(&target, 0, length)), &[]);
        let write = script.psn;
        script.next(1, Opcode::WRITE_ONLY, Ext::Reth(reth(&target, 0, 4)), b"data");
        let answers = script.answers();
        assert_eq!(answers.len(), packets as usize + 1, "{answers:?}");
        assert_eq!(answers.last(), Some(&acknowledge(write, 0x1F, 3)));
    }
}

/// An atomic is never executed, so a duplicate of one cannot have been.
//= rocev2 §6
#[test]
fn a_duplicate_atomic_is_not_acknowledged() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&[0; 8]);
    let written = script.psn;
    script.next(1, Opcode::WRITE_ONLY, Ext::Reth(reth(&target, 0, 4)), b"data");
    assert_eq!(script.answers().len(), 1);
    let atomic =
        AtomicEthRepr { address: target.address(0), r_key: target.key(), swap_or_add: 1, compare: 0 };
    for opcode in [Opcode::COMPARE_SWAP, Opcode::FETCH_ADD] {
        let frame = script.frame(written, opcode, true, Ext::Atomic(atomic), &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        assert_eq!(script.answers(), []);
    }
}

/// A READ of several packets uses the grant until its last response is sent.
//= rocev2 §6
//= R-QP-54
#[test]
fn a_read_counts_as_pending_until_its_last_response_is_sent() {
    for (sent, accepted) in [(0, false), (1, false), (2, false), (3, true)] {
        let reads = roce::ReadLimits { inbound: 1, outbound: 1 };
        let mut script = Script::new(Options { reads, ..Options::default() });
        let target = script.shared(&pattern(3000, 1));
        let ext = Ext::Reth(reth(&target, 0, 3000));
        script.next(3, Opcode::READ_REQUEST, ext, &[]);
        let now = script.hosts.now;
        assert_eq!(script.hosts.sides[1].transmit(now, sent).len(), sent);
        let second: Psn = script.psn;
        script.next(1, Opcode::READ_REQUEST, Ext::Reth(RethRepr { length: 4, ..reth(&target, 0, 4) }), &[]);
        let refused = script.answers().contains(&acknowledge(second, INVALID, 2));
        assert_eq!(refused, !accepted, "after {sent} responses");
    }
}
