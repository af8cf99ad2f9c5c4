// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs and parts of READs that are requested again: which are answered, in which order, and how many wait.

use roce::{QpState, Verdict};
use roce_wire::{Ext, Opcode, Packet, Psn, RethRepr};

use crate::responder::{ACCESS, Script, acknowledge, reth};
use crate::two_hosts::{Memory, Options, pattern};

const MTU: usize = 1024;

/// Creates a script in which bob has answered a READ of `data`. Also returns the READ's first PSN.
fn after_a_read(data: &[u8]) -> (Script, Memory, Psn) {
    // Four READs are granted.
    let config: fn(&mut roce::Config) = |config| config.max_reads.inbound = 4;
    let mut script = Script::new(Options { config, ..Options::default() });
    let target = script.shared(data);
    let first = script.psn;
    let packets = data.len().div_ceil(1024) as u32;
    script.next(packets, Opcode::READ_REQUEST, Ext::Reth(reth(&target, 0, data.len())), &[]);
    assert_eq!(script.answers().len(), packets as usize);
    (script, target, first)
}

//= rocev2 §6
#[test]
fn a_repeated_read_is_answered_from_the_requested_psn() {
    let data = pattern(4000, 3);
    for skip in 0..4 {
        let (mut script, target, first) = after_a_read(&data);
        // The response has the memory's present content.
        let data = pattern(4000, 4);
        target.write(&data);
        let offset = 1024 * skip as usize;
        let again = Ext::Reth(reth(&target, offset, 4000 - offset));
        let frame = script.frame(first.add(skip), Opcode::READ_REQUEST, true, again, &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        let answers = script.answers();
        let opcode = if skip == 3 { Opcode::READ_RESPONSE_ONLY } else { Opcode::READ_RESPONSE_FIRST };
        assert_eq!((answers[0].opcode, answers[0].psn), (opcode, first.add(skip)));
        let read: Vec<_> = answers.into_iter().flat_map(|answer| answer.payload).collect();
        assert_eq!(read, data[offset..]);
    }
}

//= rocev2 §6
#[test]
fn a_repeated_read_that_matches_no_recorded_read_is_not_answered() {
    let (mut script, target, first) = after_a_read(&pattern(4000, 3));
    let good = reth(&target, 1024, 4000 - 1024);
    let others = [
        RethRepr { address: good.address + 4, ..good },
        RethRepr { length: good.length + 1, ..good },
        RethRepr { length: 4000, ..good },
        RethRepr { r_key: good.r_key ^ 0x100, ..good },
    ];
    for other in others {
        let frame = script.frame(first.add(1), Opcode::READ_REQUEST, true, Ext::Reth(other), &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        assert_eq!(script.answers(), [], "{other:?}");
    }
    // The fourth READ after it replaces it in the ring of four.
    let one = script.shared(b"next");
    for number in 0..5 {
        let remembered = number < 4;
        let frame = script.frame(first.add(1), Opcode::READ_REQUEST, true, Ext::Reth(good), &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        let answers = script.answers();
        assert_eq!(!answers.is_empty(), remembered, "{number}");
        script.next(1, Opcode::READ_REQUEST, Ext::Reth(reth(&one, 0, 4)), &[]);
        script.answers();
    }
    assert_eq!(script.state(), QpState::Rts);
}

/// The requester has the data, or the region's owner would not have taken back the key.
//= rocev2 §6
#[test]
fn a_repeated_read_whose_key_is_gone_is_dropped() {
    for len in [4, 2000] {
        let (mut script, target, first) = after_a_read(&pattern(len, 3));
        assert!(script.hosts.sides[1].engine.memory().deregister(&target.region));
        let again = Ext::Reth(reth(&target, 0, len));
        let frame = script.frame(first, Opcode::READ_REQUEST, true, again, &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        assert_eq!(script.answers(), []);
        // A request is sent in its place.
        assert_eq!(script.give(&frame), Verdict::Consumed);
        let bob = &script.hosts.sides[1];
        bob.send(1, &[bob.source(&[1; 8]).all()]);
        let sent = bob.transmit(script.hosts.now, 1);
        let opcodes: Vec<_> = sent.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect();
        assert_eq!(opcodes, [Opcode::SEND_ONLY], "{len} bytes");
        assert_eq!(script.state(), QpState::Rts);
    }
}

//= rocev2 §6
#[test]
fn a_read_whose_key_is_gone_before_its_first_response_is_refused() {
    let mut script = Script::new(Options::default());
    let (target, first) = (script.shared(&pattern(2000, 3)), script.psn);
    script.next(2, Opcode::READ_REQUEST, Ext::Reth(reth(&target, 0, 2000)), &[]);
    assert!(script.hosts.sides[1].engine.memory().deregister(&target.region));
    assert_eq!(script.answers(), [acknowledge(first, ACCESS, 2)]);
    assert_eq!(script.state(), QpState::Error);
}

//= rocev2 §6
#[test]
fn a_repeated_read_behind_a_dropped_one_is_answered() {
    let (mut script, gone, first) = after_a_read(&pattern(2000, 3));
    let (kept, second) = (script.shared(b"kept"), script.psn);
    script.next(1, Opcode::READ_REQUEST, Ext::Reth(reth(&kept, 0, 4)), &[]);
    assert_eq!(script.answers().len(), 1);
    assert!(script.hosts.sides[1].engine.memory().deregister(&gone.region));
    for (psn, again) in [(first, reth(&gone, 0, 2000)), (second, reth(&kept, 0, 4))] {
        let frame = script.frame(psn, Opcode::READ_REQUEST, true, Ext::Reth(again), &[]);
        assert_eq!(script.give(&frame), Verdict::Consumed);
    }
    let answers = script.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].psn, &*answers[0].payload), (second, &b"kept"[..]));
}

/// Numbers and opcodes of the READ responses that bob sends.
fn responses(script: &mut Script, from: Psn) -> Vec<(i32, Opcode)> {
    script.answers().iter().map(|answer| (answer.psn.distance_from(from), answer.opcode)).collect()
}

fn request(script: &mut Script, at: u32, reth: RethRepr) {
    let frame = script.frame(script.psn.add(at), Opcode::READ_REQUEST, true, Ext::Reth(reth), &[]);
    assert_eq!(script.give(&frame), Verdict::Consumed);
}

//= rocev2 §6
#[test]
fn parts_of_a_read_are_answered_in_the_order_of_their_requests() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&pattern(10 * MTU, 1));
    let psn = script.psn;
    request(&mut script, 0, reth(&target, 0, 10 * MTU));
    assert_eq!(responses(&mut script, psn).len(), 10);
    let part = |number: usize, count: usize| reth(&target, number * MTU, count * MTU);
    request(&mut script, 5, part(5, 2));
    request(&mut script, 2, part(2, 1));
    request(&mut script, 0, part(0, 1));
    // The same again, while they wait; a part of one; and a part that reaches beyond it.
    request(&mut script, 5, part(5, 2));
    request(&mut script, 2, part(2, 1));
    request(&mut script, 6, part(6, 1));
    request(&mut script, 6, part(6, 3));
    let (first, middle, last, only) = (
        Opcode::READ_RESPONSE_FIRST,
        Opcode::READ_RESPONSE_MIDDLE,
        Opcode::READ_RESPONSE_LAST,
        Opcode::READ_RESPONSE_ONLY,
    );
    let expected = [(5, first), (6, last), (2, only), (0, only), (6, first), (7, middle), (8, last)];
    assert_eq!(responses(&mut script, psn), expected);
    // One that contains others that wait.
    request(&mut script, 5, part(5, 1));
    request(&mut script, 7, part(7, 2));
    request(&mut script, 1, part(1, 1));
    request(&mut script, 4, part(4, 5));
    let expected = [(1, only), (4, first), (5, middle), (6, middle), (7, middle), (8, last)];
    assert_eq!(responses(&mut script, psn), expected);
    // Another key, another address, beyond the end, without length.
    for wrong in
        [RethRepr { r_key: 1, ..part(3, 1) }, part(4, 1), part(3, 8), RethRepr { length: 0, ..part(3, 1) }]
    {
        request(&mut script, 3, wrong);
        assert_eq!(responses(&mut script, psn), [], "{wrong:?}");
    }
}

/// A response that is not sent yet is not sent twice.
//= rocev2 §6
#[test]
fn a_part_of_a_read_that_is_being_answered_is_sent_again_as_far_as_it_was_sent() {
    let mut script = Script::new(Options::default());
    let data = pattern(10 * MTU, 1);
    let target = script.shared(&data);
    let psn = script.psn;
    request(&mut script, 0, reth(&target, 0, 10 * MTU));
    let now = script.hosts.now;
    assert_eq!(script.hosts.sides[1].transmit(now, 4).len(), 4);
    for (at, count) in [(2, 8), (6, 2), (1, 1)] {
        request(&mut script, at, reth(&target, at as usize * MTU, count * MTU));
    }
    let sent = responses(&mut script, psn);
    assert_eq!(sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 1, 4, 5, 6, 7, 8, 9]);
    assert_eq!(sent[1].1, Opcode::READ_RESPONSE_MIDDLE, "the answer goes on");
    assert_eq!(sent[8].1, Opcode::READ_RESPONSE_LAST);
}

/// Requests for parts of a READ cost their sender a packet each; few of them wait.
//= rocev2 §6
#[test]
fn few_parts_of_a_read_wait_for_an_answer() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&pattern(200 * MTU, 1));
    let psn = script.psn;
    request(&mut script, 0, reth(&target, 0, 200 * MTU));
    assert_eq!(responses(&mut script, psn).len(), 200);
    for round in 0..2 {
        for at in 0..200 {
            request(&mut script, at, reth(&target, at as usize * MTU, MTU));
        }
        assert_eq!(
            responses(&mut script, psn),
            (0..64).map(|at| (at, Opcode::READ_RESPONSE_ONLY)).collect::<Vec<_>>(),
            "{round}"
        );
    }
}
