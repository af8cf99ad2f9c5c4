// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets after a gap: which are placed or stored, which duplicates are written again, and when the next gap is reported.

use roce::{CompletionStatus, DropReason, Verdict};
use roce_wire::{AtomicEthRepr, Ext, ImmDtRepr, Opcode, RethRepr};

use crate::responder::{ACK, Answer, SEQUENCE, Script, acknowledge, reth};
use crate::two_hosts::{Memory, Options, pattern};

const MTU: usize = 1024;
const PACKETS: usize = 7;
const FORGED: [u8; MTU] = [0xEE; MTU];
const IMMEDIATE: Ext = Ext::Imm(ImmDtRepr { data: *b"imm!" });

/// A WRITE of seven packets, of which the peer asks for no answer.
struct Write {
    script: Script,
    target: Memory,
    data: Vec<u8>,
}

impl Write {
    fn new(options: Options) -> Self {
        let script = Script::new(options);
        let target = script.shared(&[0; PACKETS * MTU]);
        Self { script, target, data: pattern(PACKETS * MTU, 3) }
    }

    /// Sends the packets with these numbers.
    fn send(&mut self, numbers: &[usize]) {
        for &number in numbers {
            let (opcode, ext) = match number {
                0 => (Opcode::WRITE_FIRST, Ext::Reth(reth(&self.target, 0, PACKETS * MTU))),
                6 => (Opcode::WRITE_LAST, Ext::None),
                _ => (Opcode::WRITE_MIDDLE, Ext::None),
            };
            let payload = self.data[number * MTU..][..MTU].to_vec();
            self.send_as(number, opcode, ext, &payload);
        }
    }

    /// Sends another packet with the PSN of this one.
    fn send_as(&mut self, number: usize, opcode: Opcode, ext: Ext, payload: &[u8]) -> Verdict {
        let frame = self.script.frame(self.script.psn.add(number as u32), opcode, false, ext, payload);
        self.script.give(&frame)
    }

    /// Returns what is in memory where the payload of this packet belongs.
    fn memory(&self, number: usize) -> Vec<u8> {
        self.target.read()[number * MTU..][..MTU].to_vec()
    }

    fn acknowledge(&self, number: usize, syndrome: u8) -> Answer {
        acknowledge(self.script.psn.add(number as u32), syndrome, 1)
    }

    /// Packets that do not continue the WRITE.
    fn others(&self) -> [(Opcode, Ext, &'static [u8]); 5] {
        let reth = Ext::Reth(reth(&self.target, 0, PACKETS * MTU));
        [
            (Opcode::WRITE_FIRST, reth, &FORGED),
            (Opcode::WRITE_LAST, Ext::None, &FORGED),
            (Opcode::WRITE_LAST_IMM, IMMEDIATE, &FORGED),
            (Opcode::SEND_MIDDLE, Ext::None, &FORGED),
            (Opcode::WRITE_MIDDLE, Ext::None, &FORGED[..8]),
        ]
    }
}

//= rocev2 §6
#[test]
fn packets_that_do_not_continue_the_write_are_not_placed() {
    for number in 0..5 {
        let mut write = Write::new(Options::default());
        write.send(&[0]);
        let (opcode, ext, payload) = write.others()[number];
        write.send_as(2, opcode, ext, payload);
        assert!(write.memory(2) == [0; MTU], "{opcode:?}");
        write.send(&[1, 2, 3, 4, 5, 6]);
        assert!(write.target.read() == write.data, "{opcode:?}");
        assert_eq!(write.script.stat("rx_writes"), 2, "{opcode:?}");
    }
}

/// The immediate data is part of the last packet.
//= rocev2 §4
#[test]
fn the_end_of_a_write_with_immediate_is_stored_with_its_immediate() {
    let mut write = Write::new(Options::default());
    write.script.hosts.sides[1].recv(1, &[]);
    write.send(&[0]);
    let last = write.data[6 * MTU..].to_vec();
    assert_eq!(write.send_as(6, Opcode::WRITE_LAST_IMM, IMMEDIATE, &last), Verdict::Consumed);
    write.send(&[1, 2, 3, 4, 5]);
    assert_eq!(write.script.hosts.sides[1].outcomes(), []);
    // A later packet tells that it counts.
    let nothing = Ext::Reth(RethRepr { address: 0, r_key: 0, length: 0 });
    write.send_as(7, Opcode::WRITE_ONLY, nothing, &[]);
    let completions = write.script.hosts.sides[1].completions();
    let seen: Vec<_> = completions.iter().map(|c| (c.context, c.bytes, c.immediate)).collect();
    assert_eq!(seen, [(1, (PACKETS * MTU) as u32, Some(*b"imm!"))]);
    assert_eq!(write.target.read(), write.data);
}

//= rocev2 §6
#[test]
fn only_duplicates_that_follow_a_filled_gap_are_written() {
    let mut write = Write::new(Options::default());
    write.send(&[0, 1, 2]);
    for number in [1, 2] {
        write.send_as(number, Opcode::WRITE_MIDDLE, Ext::None, &FORGED);
        assert!(write.memory(number) == write.data[number * MTU..][..MTU], "there was no gap");
    }
    // Of the two that were placed before the gap was filled, the first one arrives again at once.
    write.send(&[4, 5, 3]);
    for (opcode, ext, payload) in write.others() {
        write.send_as(4, opcode, ext, payload);
        assert!(write.memory(4) == write.data[4 * MTU..5 * MTU], "{opcode:?}");
    }
    write.send_as(5, Opcode::WRITE_MIDDLE, Ext::None, &FORGED);
    assert!(write.memory(5) == write.data[5 * MTU..6 * MTU], "the one before it has not arrived");
    write.send_as(4, Opcode::WRITE_MIDDLE, Ext::None, &FORGED);
    assert!(write.memory(4) == FORGED, "in order it could have been forged as well");
    write.send_as(4, Opcode::WRITE_MIDDLE, Ext::None, &[1; MTU]);
    assert!(write.memory(4) == FORGED, "once");
    write.send(&[5, 6]);
    assert!(write.memory(5) == write.data[5 * MTU..6 * MTU]);
    assert_eq!(write.script.stat("rx_writes"), 2);
}

//= rocev2 §6
#[test]
fn packets_placed_after_a_gap_are_acknowledged_when_it_is_filled() {
    let mut write = Write::new(Options::default());
    write.send(&[0, 2]);
    assert_eq!(write.script.answers(), [], "2 may have overtaken 1");
    write.send(&[1]);
    assert_eq!(write.script.answers(), [write.acknowledge(2, ACK)]);
    // Nothing is placed, and so nothing to be acknowledged.
    let mut write =
        Write::new(Options { config: |config| config.early_placement = false, ..Options::default() });
    write.send(&[0, 2, 1]);
    assert_eq!(write.script.answers(), []);
}

//= rocev2 §6
#[test]
fn the_next_gap_is_reported_when_packets_before_it_were_placed() {
    let mut write = Write::new(Options::default());
    write.send(&[0, 2, 4, 1]);
    assert_eq!(write.script.answers(), [write.acknowledge(3, SEQUENCE)]);
    // 3 may be in flight: nothing before it was missing but 1.
    let mut write = Write::new(Options::default());
    write.send(&[0, 3, 1]);
    assert_eq!(write.script.answers(), []);
}

/// A peer that sends again what was missing, and nothing else, may have nothing in flight that would cause another NAK.
//= rocev2 §6
#[test]
fn a_gap_is_reported_twice_to_a_peer_that_repeats_selectively() {
    for repeated in [&[][..], &[2]] {
        let mut write = Write::new(Options::default());
        write.send(&[0, 2, 1]);
        write.send(repeated);
        write.script.answers();
        write.send(&[6]);
        let naks = if repeated.is_empty() { 2 } else { 1 };
        let answers: Vec<_> = (0..naks).map(|_| write.acknowledge(3, SEQUENCE)).collect();
        assert_eq!(write.script.answers(), answers, "repeated: {repeated:?}");
    }
}

/// A packet that is stored for the first time was overtaken; one that is sent again shows that the gap was lost again.
//= rocev2 §6
#[test]
fn a_late_packet_does_not_report_the_gap_again() {
    let mut write = Write::new(Options::default());
    write.send(&[0, 5]);
    assert_eq!(write.script.answers(), [write.acknowledge(1, SEQUENCE)]);
    write.send(&[4]);
    assert_eq!(write.script.answers(), []);
    write.send(&[4]);
    assert_eq!(write.script.answers(), [write.acknowledge(1, SEQUENCE)]);
}

/// Many stored packets are executed in several turns; the gap behind them is reported by the last one.
//= rocev2 §6
#[test]
fn the_gap_behind_many_stored_packets_is_reported() {
    const STORED: u32 = 514;
    let mut script = Script::new(Options::default());
    let target = script.shared(&[0; 4]);
    let ext = Ext::Reth(reth(&target, 0, 4));
    // None asks for an answer, which would report the gap by itself.
    let mut send = |ahead| {
        let frame = script.frame(script.psn.add(ahead), Opcode::WRITE_ONLY, false, ext, b"data");
        assert_eq!(script.give(&frame), Verdict::Consumed, "{ahead}");
        script.answers()
    };
    for ahead in (1..=STORED).chain([STORED + 2]) {
        send(ahead);
    }
    // They are executed when a later packet arrives, part of them in a turn of their own.
    assert_eq!(send(0), []);
    let answers = send(STORED + 3);
    let missing = acknowledge(script.psn.add(STORED + 1), SEQUENCE, STORED + 2);
    assert_eq!(answers.last(), Some(&missing));
}

//= R-QP-6
#[test]
fn stored_packets_without_a_receive_are_sent_again() {
    let mut script = Script::new(Options::default());
    let sink = script.hosts.sides[1].sink(8);
    for context in 0..2 {
        script.hosts.sides[1].recv(context, &[sink.all()]);
    }
    for ahead in [1, 2, 3, 0, 4] {
        script.send(ahead, Opcode::SEND_ONLY, Ext::None, &[ahead as u8; 8]);
    }
    let success = |context| (context, CompletionStatus::Success);
    assert_eq!(script.hosts.sides[1].outcomes(), [success(0), success(1)]);
    assert_eq!(script.stat("rx_stash_executed"), 1, "the one without a receive was not");
    for context in 2..5 {
        script.hosts.sides[1].recv(context, &[sink.all()]);
    }
    for ahead in 2..5 {
        script.send(ahead, Opcode::SEND_ONLY, Ext::None, &[ahead as u8; 8]);
    }
    assert_eq!(script.hosts.sides[1].outcomes(), [success(2), success(3), success(4)]);
    assert_eq!(script.stat("rx_stash_executed"), 1);
}

//= rocev2 §6
#[test]
fn what_cannot_be_executed_after_a_gap_is_not_stored() {
    let mut script = Script::new(Options::default());
    let dropped = Verdict::Dropped(DropReason::Sequence);
    let atomic = Ext::Atomic(AtomicEthRepr { address: 0, r_key: 0, swap_or_add: 0, compare: 0 });
    assert_eq!(script.send(1, Opcode::FETCH_ADD, atomic, &[]), dropped);
    // After an RNR NAK, the peer sends everything again.
    assert_eq!(script.send(0, Opcode::SEND_ONLY, Ext::None, b"none"), Verdict::Consumed);
    assert_eq!(script.send(1, Opcode::SEND_ONLY, Ext::None, b"more"), dropped);
    assert_eq!(script.stat("rx_stashed"), 0);
}
