// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets after a gap that are stored: the genuine packet wins, and the memory for them is bounded.

use roce::{CompletionStatus, Config, DropReason, QpState, StashLimits, Verdict};
use roce_wire::{Ext, Opcode, RethRepr};

use super::forger::{Forger, Options};

const MTU: usize = 1024;

/// Bytes of a block of the stash at the largest MTU, and of the part of it that a short frame takes.
const BLOCK: u32 = 4096 + 128;
const PART: u32 = BLOCK / 8;

const FORGED: [u8; 8] = [0xEE; 8];

fn genuine(number: u32) -> [u8; 8] {
    [number as u8 + 1; 8]
}

/// Bob's receives, one for each of the messages that alice sends or a forger pretends to.
struct Messages {
    forger: Forger,
    sinks: Vec<roce_testkit::Memory>,
}

impl Messages {
    fn new(config: fn(&mut Config)) -> Self {
        let forger = Forger::new(Options { config, ..Options::default() });
        let bob = &forger.hosts.sides[1];
        let sinks: Vec<_> = (0..5).map(|_| bob.sink(MTU)).collect();
        for (context, sink) in (0..).zip(&sinks) {
            bob.recv(context, &[sink.all()]);
        }
        Self { forger, sinks }
    }

    fn give(&mut self, number: u32, payload: &[u8]) -> Verdict {
        let frame = self.forger.frame(Opcode::SEND_ONLY, self.forger.psn.add(number), Ext::None, payload);
        let verdict = self.forger.give(&frame);
        // What it answers at each step changes nothing.
        self.forger.sent();
        verdict
    }

    /// Asserts that bob has received the first `count` messages and no others, with the genuine content.
    fn assert_genuine(&self, count: u32) {
        self.assert_genuine_after(0, count);
    }

    /// The same for the messages from `first` to before `end`.
    fn assert_genuine_after(&self, first: u32, end: u32) {
        let expected: Vec<_> =
            (u64::from(first)..u64::from(end)).map(|at| (at, CompletionStatus::Success)).collect();
        assert_eq!(self.forger.hosts.sides[1].outcomes(), expected);
        for number in first..end {
            assert_eq!(self.sinks[number as usize].read()[..8], genuine(number), "message {number}");
        }
    }
}

/// Nothing is lost; forged messages come before the genuine ones, in every order.
#[test]
fn of_a_stored_packet_and_the_genuine_one_in_order_the_latter_counts() {
    for forged in [&[1][..], &[2], &[1, 2], &[2, 1], &[1, 3], &[1, 2, 3, 4]] {
        let mut messages = Messages::new(|_| {});
        for &number in forged {
            assert_eq!(messages.give(number, &FORGED), Verdict::Consumed);
        }
        for number in 0..5 {
            messages.give(number, &genuine(number));
        }
        messages.assert_genuine(5);
        assert_eq!(messages.forger.stat("rx_stash_executed"), 0);
    }
}

/// A packet is lost, and behind the gap a forged and a genuine packet have the same PSN.
#[test]
fn of_a_forged_and_a_genuine_packet_behind_a_gap_neither_is_stored() {
    for forged_first in [true, false] {
        let mut messages = Messages::new(|_| {});
        let mut order = [genuine(1), FORGED];
        if forged_first {
            order.reverse();
        }
        messages.give(1, &order[0]);
        assert_eq!(messages.give(1, &order[1]), Verdict::Dropped(DropReason::Sequence));
        messages.give(2, &genuine(2));
        // The peer sends the lost packet again, and the newest.
        messages.give(0, &genuine(0));
        messages.give(2, &genuine(2));
        messages.assert_genuine(1);
        messages.give(1, &genuine(1));
        messages.give(2, &genuine(2));
        messages.assert_genuine_after(1, 3);
    }
}

/// Stored packets count once the gap is filled and a later packet has arrived.
#[test]
fn stored_packets_are_executed_when_a_later_one_arrives() {
    let mut messages = Messages::new(|_| {});
    for number in [1, 2, 3] {
        assert_eq!(messages.give(number, &genuine(number)), Verdict::Consumed);
    }
    messages.give(0, &genuine(0));
    messages.assert_genuine(1);
    messages.give(4, &genuine(4));
    messages.assert_genuine_after(1, 5);
    assert_eq!(messages.forger.stat("rx_stash_executed"), 3);
}

/// A stored packet that cannot come next, and so is forged, does not end the connection.
#[test]
fn a_stored_packet_that_cannot_come_next_is_forgotten() {
    let mut messages = Messages::new(|_| {});
    let psn = messages.forger.psn;
    let middle = messages.forger.frame(Opcode::SEND_MIDDLE, psn.next(), Ext::None, &[7; MTU]);
    assert_eq!(messages.forger.give(&middle), Verdict::Consumed);
    messages.give(0, &genuine(0));
    messages.give(2, &genuine(2));
    assert_eq!(messages.forger.hosts.sides[1].qp.state(), QpState::Rts);
    messages.give(1, &genuine(1));
    messages.give(2, &genuine(2));
    messages.assert_genuine(3);
}

#[test]
fn without_early_placement_nothing_is_stored() {
    let mut messages = Messages::new(|config| config.early_placement = false);
    assert_eq!(messages.give(1, &FORGED), Verdict::Dropped(DropReason::Sequence));
    assert_eq!(messages.forger.stat("rx_stashed"), 0);
}

/// A flood of packets after a gap takes a bounded part of the stash, which is free again once the gap is filled.
#[test]
fn the_stash_is_bounded_per_queue_pair_and_in_all() {
    let limits: [fn(&mut Config); 2] = [
        |config| config.stash = StashLimits { per_qp: 4 * PART + PART / 2, total: 100 * BLOCK },
        // Half of it: a queue pair leaves as much for others.
        |config| config.stash = StashLimits { per_qp: 100 * BLOCK, total: BLOCK + BLOCK / 2 },
    ];
    for config in limits {
        let mut messages = Messages::new(config);
        for round in 1..=3 {
            for number in 2..10 {
                let stored = messages.give(number, &FORGED) == Verdict::Consumed;
                assert_eq!(stored, number <= 5, "{number}");
            }
            assert_eq!(messages.forger.stat("rx_stashed"), 4 * round);
            // Empty WRITEs, to leave the receives.
            for _ in 0..6 {
                let reth = Ext::Reth(RethRepr { address: 0, r_key: 0, length: 0 });
                let frame = messages.forger.frame(Opcode::WRITE_ONLY, messages.forger.psn, reth, &[]);
                assert_eq!(messages.forger.give(&frame), Verdict::Consumed);
                messages.forger.psn = messages.forger.psn.next();
            }
        }
    }
}

/// However many packets wait, one that arrives causes a bounded number of them to be executed; the others follow without another
/// packet, and the peer gets an answer to all of them.
#[test]
fn stored_packets_are_executed_in_turns() {
    const STORED: u32 = 600;
    let mut forger = Forger::new(Options::default());
    let before = forger.stat("rx_writes");
    let empty = Ext::Reth(RethRepr { address: 0, r_key: 0, length: 0 });
    let write =
        |forger: &Forger, number| forger.frame(Opcode::WRITE_ONLY, forger.psn.add(number), empty, &[]);
    for number in (1..=STORED).chain([0]) {
        let frame = write(&forger, number);
        assert_eq!(forger.give(&frame), Verdict::Consumed, "{number}");
        forger.sent();
    }
    assert_eq!(forger.stat("rx_writes"), before + 1);
    let frame = write(&forger, STORED + 1);
    forger.give(&frame);
    assert_eq!(forger.stat("rx_stash_executed"), 512);
    let answers = forger.sent();
    assert_eq!(forger.stat("rx_stash_executed"), u64::from(STORED) + 1);
    assert_eq!(forger.stat("rx_writes"), before + u64::from(STORED) + 2);
    let last = roce_wire::Packet::parse(answers.last().unwrap()).unwrap();
    assert_eq!(last.bth().psn(), forger.psn.add(STORED + 1));
    assert!(answers.len() <= 4, "{} answers", answers.len());
}

/// A guessed PSN has to be near the newest packet, however far that is after the gap.
#[test]
fn packets_too_far_after_a_gap_are_not_stored() {
    let mut messages = Messages::new(|_| {});
    assert_eq!(messages.give(129, &FORGED), Verdict::Dropped(DropReason::Sequence));
    assert_eq!(messages.give(128, &FORGED), Verdict::Consumed);
    assert_eq!(messages.give(257, &FORGED), Verdict::Dropped(DropReason::Sequence));
    assert_eq!(messages.give(256, &FORGED), Verdict::Consumed);
}
