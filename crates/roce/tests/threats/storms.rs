// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connected peer that means harm, or somebody on the path who plays it: what a flood of its frames costs is
//! bounded, and nothing goes on for ever.

use std::time::Duration;

use roce::{CompletionStatus, QpState, SendData, SendFlags, SendOperation, SendRequest, Verdict};
use roce_wire::{Ext, Opcode, Packet, RethRepr, Syndrome};

use crate::forger::{Forger, Options};

/// Bob has a message of `packets` packets on the wire that nobody has answered.
fn waiting(forger: &mut Forger, packets: usize) {
    let source = forger.pair.sides[1].source(&vec![7; packets * 1024]);
    forger.pair.sides[1].send(50, &[source.all()]);
    assert_eq!(forger.sent().len(), packets);
}

#[test]
fn a_storm_of_acknowledgements_sends_nothing() {
    let mut forger = Forger::new(Options::default());
    waiting(&mut forger, 16);
    for round in 0..1000 {
        // Of packets that were answered long ago, and of the first ones again and again.
        for psn in [forger.bobs.sub(round % 50 + 1), forger.bobs.add(3)] {
            let frame = forger.answer(psn, Syndrome::ACK);
            forger.give(&frame);
        }
        assert_eq!(forger.sent(), Vec::<Vec<u8>>::new());
    }
    assert_eq!(forger.stat("retransmissions"), 0);
    assert_eq!(forger.pair.sides[1].qp.state(), QpState::Rts);
}

/// Each refusal may have the window sent again, but only one in a part of a round trip is heard.
#[test]
fn a_storm_of_sequence_refusals_resends_no_more_than_once_in_a_round_trip() {
    let mut forger = Forger::new(Options::default());
    waiting(&mut forger, 16);
    let resent = resent_for_refusals(&mut forger);
    assert!(resent <= 16, "{resent} frames for 1000 refusals within no time at all");
}

/// How many frames are drawn by a thousand refusals of the oldest packet, all at once.
fn resent_for_refusals(forger: &mut Forger) -> usize {
    let frame = forger.answer(forger.bobs, Syndrome(0x60));
    let mut resent = 0;
    for _ in 0..1000 {
        forger.give(&frame);
        resent += forger.sent().len();
    }
    resent
}

#[test]
fn a_peer_that_refuses_the_same_packet_for_ever_is_given_up() {
    let mut forger = Forger::new(Options::default());
    waiting(&mut forger, 4);
    let begin = forger.pair.now;
    let frame = forger.answer(forger.bobs, Syndrome(0x60));
    while forger.pair.sides[1].qp.state() == QpState::Rts {
        forger.give(&frame);
        forger.sent();
        forger.pair.run_for(Duration::from_millis(5));
        assert!(forger.pair.now.duration_since(begin) < Duration::from_secs(10), "still trying");
    }
    assert_eq!(forger.pair.sides[1].outcomes(), [(50, CompletionStatus::RetryExceeded)]);
}

#[test]
fn a_peer_that_never_has_a_receive_is_given_up() {
    let mut forger = Forger::new(Options::default());
    waiting(&mut forger, 1);
    let begin = forger.pair.now;
    // The longest pause there is: 655 ms.
    let frame = forger.answer(forger.bobs, Syndrome(0x20));
    while forger.pair.sides[1].qp.state() == QpState::Rts {
        forger.give(&frame);
        forger.sent();
        forger.pair.run_for(Duration::from_millis(100));
        assert!(forger.pair.now.duration_since(begin) < Duration::from_secs(60), "still waiting");
    }
    assert_eq!(forger.pair.sides[1].outcomes(), [(50, CompletionStatus::RnrRetryExceeded)]);
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let mut forger = Forger::new(Options::default());
    waiting(&mut forger, 4);
    let begin = forger.pair.now;
    while forger.pair.sides[1].qp.state() == QpState::Rts {
        forger.sent();
        forger.pair.run_for(Duration::from_millis(100));
        assert!(forger.pair.now.duration_since(begin) < Duration::from_secs(10), "still waiting");
    }
    assert_eq!(forger.pair.sides[1].outcomes(), [(50, CompletionStatus::RetryExceeded)]);
}

#[test]
fn a_flood_of_reads_is_served_in_turns_with_requests_of_this_side() {
    let mut forger = Forger::new(Options::default());
    let shared = forger.pair.sides[1].shared(1 << 20);
    let ext = Ext::Reth(RethRepr { address: shared.address(0), r_key: shared.key(), length: 1 << 20 });
    // As many as were granted: 4 MiB of answers for four frames.
    for _ in 0..4 {
        let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        forger.psn = forger.psn.add(1024);
    }
    // Bob's own request leaves among the first frames, not behind thousands.
    let source = forger.pair.sides[1].source(b"urgent");
    forger.pair.sides[1].post(60, SendOperation::Send, SendFlags::empty(), &[source.all()]).unwrap();
    let sent = forger.sent();
    let opcodes: Vec<_> = sent.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect();
    let place = opcodes.iter().position(|&opcode| opcode == Opcode::SEND_ONLY).expect("sent");
    assert!(place <= 2, "sent as number {place}");
    let responses = opcodes.iter().filter(|opcode| **opcode != Opcode::SEND_ONLY).count();
    assert!(responses <= 4 * 1024, "{responses} packets of 4096 that were asked for");
    // One more than was granted ends it.
    let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
    forger.give(&frame);
}

#[test]
fn another_queue_pair_has_its_turn_in_a_flood_of_reads() {
    let mut forger = Forger::new(Options::default());
    forger.pair.cut = [false; 2];
    let [_, other] = forger.pair.connect_another(900);
    forger.pair.cut = [true; 2];
    forger.sent();
    let shared = forger.pair.sides[1].shared(1 << 20);
    let ext = Ext::Reth(RethRepr { address: shared.address(0), r_key: shared.key(), length: 1 << 20 });
    let frame = forger.frame(Opcode::READ_REQUEST, forger.psn, ext, &[]);
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    let source = forger.pair.sides[1].source(b"mine");
    let sges = [source.all()];
    let request = SendRequest {
        context: 61,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&sges),
    };
    forger.pair.sides[1].engine.post_send(&other, &request).unwrap();
    let sent = forger.sent();
    assert!(sent.len() > 1000, "the flood goes on");
    let opcode = |frame: &Vec<u8>| Packet::parse(frame).unwrap().bth().opcode();
    let place = sent.iter().position(|frame| opcode(frame) == Opcode::SEND_ONLY).expect("sent");
    assert!(place <= 64, "sent as number {place}");
}
