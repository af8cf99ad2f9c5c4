// SPDX-License-Identifier: MIT OR Apache-2.0

//! A malicious peer, or an attacker on the path: the cost of a flood of frames is bounded, and every request
//! ends.

use std::time::Duration;

use roce::{CompletionStatus, QpState, SendData, SendFlags, SendOperation, SendRequest, Verdict};
use roce_wire::{Ext, Opcode, Packet, RethRepr, Syndrome};

use super::forger::{Forger, Options};

/// Lets bob send a message of `packets` packets that stays unacknowledged.
fn send_unacked(forger: &mut Forger, packets: usize) {
    let source = forger.hosts.sides[1].source(&vec![7; packets * 1024]);
    forger.hosts.sides[1].send(50, &[source.all()]);
    assert_eq!(forger.sent().len(), packets);
}

#[test]
fn a_flood_of_acknowledgements_causes_no_retransmission() {
    let mut forger = Forger::new(Options::default());
    send_unacked(&mut forger, 16);
    for round in 0..1000 {
        // For packets acknowledged long ago, and repeatedly for the first outstanding ones.
        for psn in [forger.bobs.sub(round % 50 + 1), forger.bobs.add(3)] {
            let frame = forger.answer(psn, Syndrome::ACK);
            forger.give(&frame);
        }
        assert_eq!(forger.sent(), Vec::<Vec<u8>>::new());
    }
    assert_eq!(forger.stat("retransmissions"), 0);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
}

/// A NAK causes retransmission of the unacked window, but at most once per part of a round trip.
#[test]
fn a_flood_of_sequence_naks_causes_at_most_one_retransmission_per_round_trip() {
    let mut forger = Forger::new(Options::default());
    send_unacked(&mut forger, 16);
    let resent = resent_for_naks(&mut forger);
    assert!(resent <= 16, "{resent} frames for 1000 NAKs at the same time");
}

/// Returns the number of frames sent in response to 1000 NAKs of the oldest packet at once.
fn resent_for_naks(forger: &mut Forger) -> usize {
    let frame = forger.answer(forger.bobs, Syndrome(0x60));
    let mut resent = 0;
    for _ in 0..1000 {
        forger.give(&frame);
        resent += forger.sent().len();
    }
    resent
}

#[test]
fn repeated_naks_of_one_packet_exceed_the_retry_limit() {
    let mut forger = Forger::new(Options::default());
    send_unacked(&mut forger, 4);
    let begin = forger.hosts.now;
    let frame = forger.answer(forger.bobs, Syndrome(0x60));
    while forger.hosts.sides[1].qp.state() == QpState::Rts {
        forger.give(&frame);
        forger.sent();
        forger.hosts.run_for(Duration::from_millis(5));
        assert!(forger.hosts.now.duration_since(begin) < Duration::from_secs(10), "still trying");
    }
    assert_eq!(forger.hosts.sides[1].outcomes(), [(50, CompletionStatus::RetryExceeded)]);
}

#[test]
fn repeated_rnr_naks_exceed_the_retry_limit() {
    let mut forger = Forger::new(Options::default());
    send_unacked(&mut forger, 1);
    let begin = forger.hosts.now;
    // The longest RNR timer value: 655 ms.
    let frame = forger.answer(forger.bobs, Syndrome(0x20));
    while forger.hosts.sides[1].qp.state() == QpState::Rts {
        forger.give(&frame);
        forger.sent();
        forger.hosts.run_for(Duration::from_millis(100));
        assert!(forger.hosts.now.duration_since(begin) < Duration::from_secs(60), "still waiting");
    }
    assert_eq!(forger.hosts.sides[1].outcomes(), [(50, CompletionStatus::RnrRetryExceeded)]);
}

#[test]
fn a_silent_peer_exceeds_the_retry_limit() {
    let mut forger = Forger::new(Options::default());
    send_unacked(&mut forger, 4);
    let begin = forger.hosts.now;
    while forger.hosts.sides[1].qp.state() == QpState::Rts {
        forger.sent();
        forger.hosts.run_for(Duration::from_millis(100));
        assert!(forger.hosts.now.duration_since(begin) < Duration::from_secs(10), "still waiting");
    }
    assert_eq!(forger.hosts.sides[1].outcomes(), [(50, CompletionStatus::RetryExceeded)]);
}

#[test]
fn a_flood_of_reads_is_served_in_turn_with_own_requests() {
    let mut forger = Forger::new(Options::default());
    let shared = forger.hosts.sides[1].shared(1 << 20);
    let ext = Ext::Reth(RethRepr { address: shared.address(0), r_key: shared.key(), length: 1 << 20 });
    // The granted number of READs: 4 MiB of responses to four frames.
    for _ in 0..4 {
        let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        forger.psn = forger.psn.add(1024);
    }
    // Bob's own request is among the first frames.
    let source = forger.hosts.sides[1].source(b"urgent");
    forger.hosts.sides[1].post(60, SendOperation::Send, SendFlags::empty(), &[source.all()]).unwrap();
    let sent = forger.sent();
    let opcodes: Vec<_> = sent.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect();
    let place = opcodes.iter().position(|&opcode| opcode == Opcode::SEND_ONLY).expect("sent");
    assert!(place <= 2, "sent as number {place}");
    let responses = opcodes.iter().filter(|opcode| **opcode != Opcode::SEND_ONLY).count();
    assert!(responses <= 4 * 1024, "{responses} response packets of 4096 requested");
    // One READ more than granted ends the connection.
    let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
    forger.give(&frame);
}

#[test]
fn a_flood_of_reads_is_served_in_turn_with_other_queue_pairs() {
    let mut forger = Forger::new(Options::default());
    forger.hosts.cut = [false; 2];
    let [_, other] = forger.hosts.connect_another(900);
    forger.hosts.cut = [true; 2];
    forger.sent();
    let shared = forger.hosts.sides[1].shared(1 << 20);
    let ext = Ext::Reth(RethRepr { address: shared.address(0), r_key: shared.key(), length: 1 << 20 });
    let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    let source = forger.hosts.sides[1].source(b"mine");
    let sges = [source.all()];
    let request = SendRequest {
        context: 61,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&sges),
    };
    forger.hosts.sides[1].engine.post_send(&other, &request).unwrap();
    let sent = forger.sent();
    assert!(sent.len() > 1000, "the READ responses are sent");
    let opcode = |frame: &Vec<u8>| Packet::parse(frame).unwrap().bth().opcode();
    let place = sent.iter().position(|frame| opcode(frame) == Opcode::SEND_ONLY).expect("sent");
    assert!(place <= 64, "sent as number {place}");
}
