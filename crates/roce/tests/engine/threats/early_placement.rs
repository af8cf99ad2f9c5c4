// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets with a guessed PSN while a message is open: the genuine packet wins.

use roce::{CompletionStatus, Config, StashLimits, Verdict};
use roce_wire::{AethRepr, Ext, Opcode, RethRepr, Syndrome};

use super::forger::{Forger, Options};

const MTU: usize = 1024;

/// Returns the payload of the genuine packet with this number.
fn genuine(number: u32) -> Vec<u8> {
    vec![number as u8 + 1; MTU]
}

const FORGED: [u8; MTU] = [0xEE; MTU];

/// Packets behind a gap are stored or placed; without room to store it, placed or dropped.
const CONFIGS: [fn(&mut Config); 2] = [|_| {}, |config| config.stash = StashLimits::NONE];

/// A message of five packets to bob, of which some arrive in any order, and some twice with other content.
struct Message {
    forger: Forger,
    memory: roce_testkit::Memory,
    write: bool,
}

impl Message {
    fn new(write: bool, config: fn(&mut Config)) -> Self {
        let forger = Forger::new(Options { config, ..Options::default() });
        let memory = forger.hosts.sides[1].shared(5 * MTU);
        forger.hosts.sides[1].recv(1, &[memory.all()]);
        Self { forger, memory, write }
    }

    fn give(&mut self, number: u32, payload: &[u8]) -> Verdict {
        let (first, middle, last) = if self.write {
            (Opcode::WRITE_FIRST, Opcode::WRITE_MIDDLE, Opcode::WRITE_LAST)
        } else {
            (Opcode::SEND_FIRST, Opcode::SEND_MIDDLE, Opcode::SEND_LAST)
        };
        let reth =
            RethRepr { address: self.memory.address(0), r_key: self.memory.key(), length: 5 * MTU as u32 };
        let (opcode, ext) = match number {
            0 if self.write => (first, Ext::Reth(reth)),
            0 => (first, Ext::None),
            4 => (last, Ext::None),
            _ => (middle, Ext::None),
        };
        let frame = self.forger.frame(opcode, self.forger.psn.add(number), ext, payload);
        self.forger.give(&frame)
    }

    fn genuine(&mut self, numbers: &[u32]) {
        for &number in numbers {
            self.give(number, &genuine(number));
        }
    }

    /// Asserts that the message is complete, with the genuine content.
    fn assert_genuine(&self, what: &str) {
        let expected: Vec<u8> = (0..5).flat_map(genuine).collect();
        let write = self.write;
        assert!(self.memory.read() == expected, "{what}, write: {write}");
        let outcomes = self.forger.hosts.sides[1].outcomes();
        let received = if self.write { vec![] } else { vec![(1, CompletionStatus::Success)] };
        assert_eq!(outcomes, received, "{what}");
        if self.write {
            assert_eq!(self.forger.stat("rx_writes"), 2, "{what}");
        }
    }
}

/// Nothing is lost; forged packets come before the genuine ones.
#[test]
fn genuine_packets_in_order_replace_forged_ones_that_came_first() {
    for (write, config) in [true, false].into_iter().flat_map(|write| CONFIGS.map(|config| (write, config))) {
        for (after, forged) in [(0, &[2][..]), (0, &[3]), (0, &[2, 3]), (0, &[3, 2]), (1, &[3])] {
            let mut message = Message::new(write, config);
            let begin: Vec<u32> = (0..=after).collect();
            message.genuine(&begin);
            for &number in forged {
                message.give(number, &FORGED);
            }
            let rest: Vec<u32> = (after + 1..5).collect();
            message.genuine(&rest);
            message.assert_genuine(&format!("{forged:?} after {after}"));
        }
    }
}

/// A packet is lost; forged packets come before or after the genuine ones behind the gap. What the peer sends again
/// decides.
#[test]
fn of_a_forged_and_a_genuine_packet_behind_a_gap_neither_is_kept() {
    for write in [true, false] {
        for first in [true, false] {
            for forged in [2, 3] {
                let mut message = Message::new(write, |_| {});
                message.genuine(&[0]);
                for number in [2, 3] {
                    if number == forged && first {
                        message.give(number, &FORGED);
                    }
                    message.genuine(&[number]);
                    if number == forged && !first {
                        assert_ne!(message.give(number, &FORGED), Verdict::Consumed);
                    }
                }
                // The peer sends the lost packet again, and what bob asks for then.
                message.genuine(&[1, forged, 3, 4]);
                message.assert_genuine(&format!("{forged}, first: {first}"));
            }
        }
    }
}

/// The end of a SEND is where its last packet is; a forged one must not move it.
#[test]
fn a_forged_last_packet_behind_a_gap_does_not_end_a_send() {
    for config in CONFIGS {
        let mut message = Message::new(false, config);
        message.genuine(&[0]);
        let psn = message.forger.psn.add(2);
        let last = message.forger.frame(Opcode::SEND_LAST, psn, Ext::None, &FORGED[..8]);
        message.forger.give(&last);
        message.genuine(&[1, 2, 3, 4]);
        message.assert_genuine("a forged last packet");
    }
}

/// The last packet of a WRITE or a READ that was placed early ends it: a guessed PSN must be exactly its own.
#[test]
fn a_last_packet_with_the_psn_of_another_one_is_not_placed() {
    for number in [2, 3] {
        let mut message = Message::new(true, |_| {});
        message.genuine(&[0]);
        let psn = message.forger.psn.add(number);
        let last = message.forger.frame(Opcode::WRITE_LAST, psn, Ext::None, &FORGED);
        message.forger.give(&last);
        assert_eq!(message.memory.read()[MTU..], [0; 4 * MTU], "{number}");
        message.genuine(&[1, 2, 3, 4]);
        message.assert_genuine("a forged last packet");
    }
    for number in [1, 2] {
        let mut forger = Forger::new(Options::default());
        let bob = &forger.hosts.sides[1];
        let (sink, remote) = (bob.sink(4 * MTU), forger.hosts.sides[0].shared(4 * MTU));
        bob.read(9, &[sink.all()], &remote, 0);
        assert_eq!(forger.sent().len(), 1);
        let aeth = Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 });
        for opcode in [Opcode::READ_RESPONSE_LAST, Opcode::READ_RESPONSE_ONLY] {
            let frame = forger.frame(opcode, forger.bobs.add(number), aeth, &FORGED);
            forger.give(&frame);
        }
        assert_eq!(sink.read(), [0; 4 * MTU], "{number}");
        assert_eq!(forger.hosts.sides[1].outcomes(), [], "{number}");
    }
}

#[test]
fn without_early_placement_nothing_behind_a_gap_is_written() {
    for write in [true, false] {
        let mut message = Message::new(write, |config| config.early_placement = false);
        message.genuine(&[0]);
        for number in 2..5 {
            assert_ne!(message.give(number, &FORGED), Verdict::Consumed);
        }
        assert_eq!(message.memory.read()[MTU..], [0; 4 * MTU]);
        message.genuine(&[1, 2, 3, 4]);
        message.assert_genuine("without early placement");
    }
}

/// The same for the responses of a READ.
#[test]
fn genuine_read_responses_replace_forged_ones() {
    // Numbers of forged and genuine responses, in order of their arrival.
    let cases: [&[(u32, bool)]; 7] = [
        // A copy of one that arrived in order is not written.
        &[(0, true), (1, true), (1, false), (2, true), (3, true)],
        &[(1, false), (0, true), (1, true), (2, true), (3, true)],
        &[(0, true), (2, false), (1, true), (2, true), (3, true)],
        &[(2, false), (1, false), (0, true), (1, true), (2, true), (3, true)],
        // The first is lost. Of two with the same number neither is kept: the repeated READ brings them again.
        &[(1, true), (2, true), (2, false), (0, true), (1, true), (2, true), (3, true)],
        &[(2, false), (2, true), (0, true), (1, true), (3, true), (2, true)],
        // One that arrives twice is kept.
        &[(2, true), (2, true), (0, true), (1, true), (3, true)],
    ];
    for case in cases {
        let mut forger = Forger::new(Options::default());
        let bob = &forger.hosts.sides[1];
        let (sink, remote) = (bob.sink(4 * MTU), forger.hosts.sides[0].shared(4 * MTU));
        bob.read(9, &[sink.all()], &remote, 0);
        assert_eq!(forger.sent().len(), 1);
        for &(number, is_genuine) in case {
            let aeth = Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 });
            let (opcode, ext) = match number {
                0 => (Opcode::READ_RESPONSE_FIRST, aeth),
                3 => (Opcode::READ_RESPONSE_LAST, aeth),
                _ => (Opcode::READ_RESPONSE_MIDDLE, Ext::None),
            };
            let payload = if is_genuine { genuine(number) } else { FORGED.to_vec() };
            let frame = forger.frame(opcode, forger.bobs.add(number), ext, &payload);
            forger.give(&frame);
        }
        assert_eq!(forger.hosts.sides[1].outcomes(), [(9, CompletionStatus::Success)], "{case:?}");
        let expected: Vec<u8> = (0..4).flat_map(genuine).collect();
        assert!(sink.read() == expected, "{case:?}");
    }
}
