// SPDX-License-Identifier: MIT OR Apache-2.0

//! Responses to scripted packets: duplicates, gaps, packets behind an RNR NAK.

use std::time::Duration;

use roce::{Access, CompletionStatus, DropReason, QpState, ReadLimits, Verdict};
use roce_wire::{AethRepr, Ext, Headers, ImmDtRepr, Opcode, Packet, Path, Psn, Qpn, RethRepr, Template};

use crate::two_hosts::{Memory, Options, TwoHosts, pattern};

/// Bob's peer, which knows bob's ePSN and sends the packets of the test.
pub struct Script {
    pub hosts: TwoHosts,
    path: Path,
    qpn: Qpn,
    /// The next PSN.
    pub psn: Psn,
}

/// A response of bob: opcode, PSN, syndrome and MSN if present, payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub opcode: Opcode,
    pub psn: Psn,
    pub aeth: Option<(u8, u32)>,
    pub payload: Vec<u8>,
}

pub fn acknowledge(psn: Psn, syndrome: u8, msn: u32) -> Answer {
    Answer { opcode: Opcode::ACKNOWLEDGE, psn, aeth: Some((syndrome, msn)), payload: Vec::new() }
}

pub const ACK: u8 = 0x1F;
pub const SEQUENCE: u8 = 0x60;
pub const INVALID: u8 = 0x61;
pub const ACCESS: u8 = 0x62;

impl Script {
    pub fn new(options: Options) -> Self {
        let mut hosts = TwoHosts::connected(options);
        let (source, remote) = (hosts.sides[0].source(b"hi"), hosts.sides[1].shared(2));
        hosts.capture = Some(Vec::new());
        hosts.sides[0].write(1, &[source.all()], &remote, 0);
        hosts.run();
        hosts.sides[0].completions();
        let capture = hosts.capture.take().unwrap();
        let (_, frame) = capture.iter().find(|(from, _)| *from == 0).unwrap();
        let psn = Packet::parse(frame).unwrap().bth().psn().next();
        let (path, qpn) = (hosts.path(0), hosts.sides[1].qp.qpn());
        hosts.cut = [true; 2];
        Self { hosts, path, qpn, psn }
    }

    pub fn frame(&self, psn: Psn, opcode: Opcode, ack_req: bool, ext: Ext, payload: &[u8]) -> Vec<u8> {
        let template = Template::new(&self.path, self.qpn).unwrap();
        let headers = Headers { opcode, solicited: false, ack_req, psn, ext };
        let mut slot = vec![0; payload.len() + 200];
        let crc = roce_wire::icrc::Crc::table();
        let mut frame = template.begin(crc, &mut slot, &headers, payload.len()).unwrap();
        frame.write(payload);
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    pub fn give(&mut self, frame: &[u8]) -> Verdict {
        self.hosts.sides[1].engine.first_shard().handle_frame(self.hosts.now, frame)
    }

    /// Sends a packet with a PSN `ahead` of the next one.
    pub fn send(&mut self, ahead: u32, opcode: Opcode, ext: Ext, payload: &[u8]) -> Verdict {
        let frame = self.frame(self.psn.add(ahead), opcode, true, ext, payload);
        self.give(&frame)
    }

    /// Sends the next packet, which must be accepted and takes `packets` PSNs.
    pub fn next(&mut self, packets: u32, opcode: Opcode, ext: Ext, payload: &[u8]) {
        assert_eq!(self.send(0, opcode, ext, payload), Verdict::Consumed);
        self.psn = self.psn.add(packets);
    }

    /// Returns all packets that bob's queue pair sends now.
    pub fn answers(&mut self) -> Vec<Answer> {
        self.hosts.capture = Some(Vec::new());
        self.hosts.drive();
        let capture = self.hosts.capture.take().unwrap();
        let of_bob = capture.iter().filter(|(from, _)| *from == 1);
        of_bob
            .map(|(_, frame)| Packet::parse(frame).unwrap())
            .filter(|packet| packet.bth().dest_qp() != Qpn::GSI)
            .map(|packet| Answer {
                opcode: packet.bth().opcode(),
                psn: packet.bth().psn(),
                aeth: packet
                    .aeth()
                    .map(|aeth| AethRepr::parse(&aeth))
                    .map(|aeth| (aeth.syndrome.0, aeth.msn)),
                payload: packet.payload().to_vec(),
            })
            .collect()
    }

    pub fn stat(&self, name: &str) -> u64 {
        self.hosts.sides[1].stat(name)
    }

    pub fn state(&self) -> QpState {
        self.hosts.sides[1].qp.state()
    }

    pub fn shared(&self, data: &[u8]) -> Memory {
        let memory = self.hosts.sides[1].shared(data.len());
        memory.write(data);
        memory
    }
}

pub fn reth(memory: &Memory, offset: usize, length: usize) -> RethRepr {
    RethRepr { address: memory.address(offset), r_key: memory.key(), length: length as u32 }
}

//= rocev2 §6
#[test]
fn a_send_within_another_message_ends_the_connection() {
    for (opcode, length) in [(Opcode::WRITE_FIRST, 4), (Opcode::WRITE_FIRST, 1024), (Opcode::SEND_FIRST, 4)] {
        let mut script = Script::new(Options::default());
        let (target, sink) = (script.shared(&[0; 2048]), script.hosts.sides[1].sink(4096));
        for context in 1..=2 {
            script.hosts.sides[1].recv(context, &[sink.all()]);
        }
        let ext = if opcode == Opcode::SEND_FIRST { Ext::None } else { Ext::Reth(reth(&target, 0, 2048)) };
        script.next(1, opcode, ext, &[1; 1024]);
        assert_eq!(script.answers(), [acknowledge(script.psn.add(0x00FF_FFFF), ACK, 1)]);
        script.send(0, Opcode::SEND_ONLY, Ext::None, &vec![2; length]);
        assert_eq!(script.answers(), [acknowledge(script.psn, INVALID, 1)], "{opcode:?}, {length} bytes");
        assert_eq!(script.state(), QpState::Error);
        let received = script.hosts.sides[1].outcomes();
        assert!(received.iter().all(|(_, status)| *status != CompletionStatus::Success), "{received:?}");
    }
}

//= rocev2 §6
#[test]
fn duplicates_are_acknowledged_once_and_not_executed_again() {
    let mut script = Script::new(Options::default());
    let (target, sink) = (script.shared(&[0; 8]), script.hosts.sides[1].sink(8));
    for context in 1..=2 {
        script.hosts.sides[1].recv(context, &[sink.all()]);
    }
    let (first, write) = (script.psn, Ext::Reth(reth(&target, 0, 4)));
    script.next(1, Opcode::WRITE_ONLY, write, b"once");
    script.next(1, Opcode::SEND_ONLY, Ext::None, b"sent");
    let last = first.add(1);
    assert_eq!(script.answers(), [acknowledge(last, ACK, 3)]);
    // Again with other content, with and without AckReq.
    for ack_req in [true, false] {
        let again = script.frame(first, Opcode::WRITE_ONLY, ack_req, write, b"more");
        let and_that = script.frame(last, Opcode::SEND_ONLY, ack_req, Ext::None, b"many");
        for _ in 0..3 {
            assert_eq!(script.give(&again), Verdict::Consumed);
            assert_eq!(script.give(&and_that), Verdict::Consumed);
        }
        assert_eq!(script.answers(), [acknowledge(last, ACK, 3)]);
    }
    assert_eq!(target.read(), b"once\0\0\0\0");
    assert_eq!(script.hosts.sides[1].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(script.stat("rx_duplicates"), 12);
    // Half of the PSN space counts as duplicates, except PSNs before the starting PSN.
    let ancient = script.frame(first.add(0x00F0_0000), Opcode::SEND_ONLY, true, Ext::None, b"????");
    assert_eq!(script.give(&ancient), Verdict::Dropped(DropReason::Sequence));
    assert_eq!(script.answers(), []);
}

//= rocev2 §6
#[test]
fn no_acknowledgement_is_sent_without_ack_req() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&[0; 4]);
    let first = script.psn;
    for number in 0..3 {
        let ext = Ext::Reth(reth(&target, 0, 4));
        let frame = script.frame(first.add(number), Opcode::WRITE_ONLY, number == 2, ext, b"data");
        assert_eq!(script.give(&frame), Verdict::Consumed);
        let expected = (number == 2).then(|| acknowledge(first.add(2), ACK, 4));
        assert_eq!(script.answers(), Vec::from_iter(expected));
    }
}

/// A requester that rarely sets AckReq does not depend on its timer if an ACK is lost.
//= rocev2 §6
//= rocev2 §15
#[test]
fn an_acknowledgement_is_sent_after_32_packets_without_ack_req() {
    let mut script = Script::new(Options::default());
    let data = pattern(128 * 1024, 1);
    let target = script.shared(&data);
    let first = script.psn;
    let mut acked = Vec::new();
    for (number, packet) in (0..).zip(data.chunks(1024)) {
        let (opcode, ext) = match number {
            0 => (Opcode::WRITE_FIRST, Ext::Reth(reth(&target, 0, data.len()))),
            127 => (Opcode::WRITE_LAST, Ext::None),
            _ => (Opcode::WRITE_MIDDLE, Ext::None),
        };
        let ack_req = number == 66 || number == 127;
        let frame = script.frame(first.add(number), opcode, ack_req, ext, packet);
        assert_eq!(script.give(&frame), Verdict::Consumed);
        acked.extend(script.answers().into_iter().map(|answer| answer.psn));
    }
    assert_eq!(acked, [31, 63, 66, 98, 127].map(|number| first.add(number)));
}

//= rocev2 §6
#[test]
fn the_msn_counts_complete_messages() {
    let mut script = Script::new(Options::default());
    let data = pattern(3000, 1);
    let target = script.shared(&data);
    let first = script.psn;
    script.next(1, Opcode::WRITE_FIRST, Ext::Reth(reth(&target, 0, 2000)), &data[..1024]);
    assert_eq!(script.answers(), [acknowledge(first, ACK, 1)]);
    script.next(1, Opcode::WRITE_LAST, Ext::None, &data[1024..2000]);
    script.next(3, Opcode::READ_REQUEST, Ext::Reth(reth(&target, 0, 3000)), &[]);
    // Responses acknowledge preceding requests; a READ counts in the MSN when it is accepted.
    let answers = script.answers();
    let opcodes: Vec<_> = answers.iter().map(|answer| answer.opcode).collect();
    let expected = [Opcode::READ_RESPONSE_FIRST, Opcode::READ_RESPONSE_MIDDLE, Opcode::READ_RESPONSE_LAST];
    assert_eq!(opcodes, expected);
    assert_eq!((answers[0].psn, answers[0].aeth), (first.add(2), Some((ACK, 3))));
    assert_eq!((answers[2].psn, answers[2].aeth), (first.add(4), Some((ACK, 3))));
    let read: Vec<_> = answers.into_iter().flat_map(|answer| answer.payload).collect();
    assert_eq!(read, data);
}

//= rocev2 §6
#[test]
fn a_gap_causes_one_nak() {
    let mut script = Script::new(Options::default());
    let target = script.shared(&[0; 4]);
    let ext = Ext::Reth(reth(&target, 0, 4));
    for round in 0..2 {
        let expected = script.psn;
        for ahead in [2, 3, 4] {
            let verdict = script.send(ahead, Opcode::WRITE_ONLY, ext, b"late");
            assert_eq!(verdict, Verdict::Consumed);
            let nak = (ahead == 2).then(|| acknowledge(expected, SEQUENCE, 1 + round));
            assert_eq!(script.answers(), Vec::from_iter(nak), "{ahead}");
        }
        script.next(1, Opcode::WRITE_ONLY, ext, b"good");
        // First another gap follows. Then a stored packet does: a later one or its copy tells whether it counts.
        let answer = if round == 0 {
            acknowledge(expected.next(), SEQUENCE, 2)
        } else {
            acknowledge(expected, ACK, 3)
        };
        assert_eq!(script.answers(), [answer]);
    }
    assert_eq!(target.read(), b"good");
    assert_eq!(script.stat("rx_out_of_order"), 6);
}

/// If the last packet of a SEND is lost, the responder cannot know to which SEND later packets belong.
//= rocev2 §6
#[test]
fn buffered_packets_of_a_send_do_not_complete_the_next_one() {
    let mut script = Script::new(Options::default());
    let sinks = [1, 2].map(|context| {
        let sink = script.hosts.sides[1].sink(4 * 1024);
        script.hosts.sides[1].recv(context, &[sink.all()]);
        sink
    });
    let first = script.psn;
    let messages = [pattern(1500, 1), pattern(1600, 2)];
    let [one, two] = &messages;
    script.next(1, Opcode::SEND_FIRST, Ext::None, &one[..1024]);
    assert_eq!(script.answers(), [acknowledge(first, ACK, 1)]);
    // The last packet of the first message is lost. The last packet of the second must not complete the first.
    let lost = script.psn;
    let begun = script.send(1, Opcode::SEND_FIRST, Ext::None, &two[..1024]);
    assert_eq!(begun, Verdict::Consumed);
    let ended = script.send(2, Opcode::SEND_LAST, Ext::None, &two[1024..]);
    assert_eq!(ended, Verdict::Consumed);
    assert_eq!(script.answers(), [acknowledge(lost, SEQUENCE, 1)]);
    script.next(1, Opcode::SEND_LAST, Ext::None, &one[1024..]);
    script.next(1, Opcode::SEND_FIRST, Ext::None, &two[..1024]);
    assert_eq!(script.answers(), [acknowledge(first.add(2), ACK, 2)]);
    assert_eq!(script.hosts.sides[1].completions().len(), 1, "the second message is not complete");
    script.next(1, Opcode::SEND_LAST, Ext::None, &two[1024..]);
    let done: Vec<_> = script.hosts.sides[1].completions().iter().map(|c| (c.context, c.bytes)).collect();
    assert_eq!(done, [(2, 1600)]);
    for (sink, message) in sinks.iter().zip(&messages) {
        assert_eq!(&sink.read()[..message.len()], message);
    }
}

/// Nothing tells where a SEND ends but its last packet, in order.
//= rocev2 §6
#[test]
fn the_last_packet_of_a_send_is_not_buffered() {
    let mut script = Script::new(Options::default());
    let sink = script.hosts.sides[1].sink(8 * 1024);
    script.hosts.sides[1].recv(1, &[sink.all()]);
    let data = pattern(1024, 1);
    script.next(1, Opcode::SEND_FIRST, Ext::None, &data);
    for ahead in [1, 2, 1] {
        let verdict = script.send(ahead, Opcode::SEND_LAST, Ext::None, &data[..100]);
        assert_eq!(verdict, Verdict::Consumed);
    }
    script.next(1, Opcode::SEND_MIDDLE, Ext::None, &data);
    assert_eq!(script.hosts.sides[1].completions().len(), 0);
    script.next(1, Opcode::SEND_LAST, Ext::None, &data[..10]);
    let done: Vec<_> = script.hosts.sides[1].completions().iter().map(|c| c.bytes).collect();
    assert_eq!(done, [2058]);
}

//= rocev2 §6
#[test]
fn packets_behind_an_rnr_nak_are_not_executed() {
    let mut script = Script::new(Options::default());
    let (target, sink) = (script.shared(&[0; 4]), script.hosts.sides[1].sink(8));
    let first = script.psn;
    let imm = ImmDtRepr { data: *b"imm!" };
    let only = Opcode::WRITE_ONLY_IMM;
    let ext = Ext::RethImm(reth(&target, 0, 4), imm);
    // Twice: the ePSN has not advanced.
    for _ in 0..2 {
        assert_eq!(script.send(0, only, ext, b"late"), Verdict::Consumed);
        // RNR timer code 12: 0.64 ms.
        assert_eq!(script.answers(), [acknowledge(first, 0x20 | 0x0C, 1)]);
        for ahead in 1..4 {
            script.send(ahead, Opcode::WRITE_ONLY, Ext::Reth(reth(&target, 0, 4)), b"more");
            assert_eq!(script.answers(), []);
        }
    }
    assert_eq!(target.read(), [0; 4], "the WRITE was not executed");
    script.hosts.sides[1].recv(1, &[sink.all()]);
    script.next(1, only, ext, b"data");
    assert_eq!(script.answers(), [acknowledge(first, ACK, 2)]);
    let completions = script.hosts.sides[1].completions();
    assert_eq!(completions.len(), 1);
    assert_eq!((completions[0].immediate, completions[0].bytes), (Some(imm.data), 4));
    assert_eq!(target.read(), b"data");
    assert_eq!(script.stat("rx_rnr"), 2);
}

//= rocev2 §4
#[test]
fn a_write_with_immediate_completes_with_its_total_length() {
    let mut script = Script::new(Options::default());
    let data = pattern(2500, 7);
    let (target, sink) = (script.shared(&[0; 2500]), script.hosts.sides[1].sink(8));
    script.hosts.sides[1].recv(1, &[sink.all()]);
    script.next(1, Opcode::WRITE_FIRST, Ext::Reth(reth(&target, 0, 2500)), &data[..1024]);
    script.next(1, Opcode::WRITE_MIDDLE, Ext::None, &data[1024..2048]);
    assert_eq!(script.hosts.sides[1].outcomes(), []);
    let imm = ImmDtRepr { data: [9; 4] };
    script.next(1, Opcode::WRITE_LAST_IMM, Ext::Imm(imm), &data[2048..]);
    let completions = script.hosts.sides[1].completions();
    let seen: Vec<_> = completions.iter().map(|c| (c.context, c.bytes, c.immediate)).collect();
    assert_eq!(seen, [(1, 2500, Some([9; 4]))]);
    assert_eq!(target.read(), data);
    assert_eq!(sink.read(), [0; 8], "the receive's memory is not touched");
}

/// A range is checked before the first byte of it is sent or written.
//= rocev2 §6
#[test]
fn ranges_and_lengths_are_checked_with_the_first_packet() {
    const LONGEST: u32 = 1 << 31;
    for (opcode, length, payload, syndrome) in [
        (Opcode::WRITE_FIRST, 1024, 1024, INVALID),
        (Opcode::WRITE_FIRST, 2049, 1024, ACCESS),
        (Opcode::WRITE_FIRST, LONGEST, 1024, ACCESS),
        (Opcode::WRITE_FIRST, LONGEST + 1, 1024, INVALID),
        (Opcode::READ_REQUEST, 2049, 0, ACCESS),
        (Opcode::READ_REQUEST, LONGEST, 0, ACCESS),
        (Opcode::READ_REQUEST, LONGEST + 1, 0, INVALID),
    ] {
        let mut script = Script::new(Options::default());
        let target = script.shared(&[0; 2048]);
        let range = RethRepr { length, ..reth(&target, 0, 0) };
        script.send(0, opcode, Ext::Reth(range), &vec![1; payload]);
        assert_eq!(script.answers(), [acknowledge(script.psn, syndrome, 1)], "{opcode:?}, {length} bytes");
        assert_eq!(target.read(), [0; 2048]);
    }
}

/// Repeated READs do not count against the limit, pending READs do.
//= rocev2 §6
//= R-QP-54
#[test]
fn the_read_limit_counts_pending_reads() {
    for (granted, answered_between, taken) in [(1, true, 3), (1, false, 1), (2, false, 2), (0, true, 0)] {
        // In both directions: a requester is limited to what the responder grants.
        let reads = ReadLimits { inbound: granted, outbound: granted };
        let mut script = Script::new(Options { reads, ..Options::default() });
        let target = script.shared(b"read");
        let first = script.psn;
        let mut answers = Vec::new();
        for number in 0..3 {
            script.send(number, Opcode::READ_REQUEST, Ext::Reth(reth(&target, 0, 4)), &[]);
            if answered_between {
                answers.extend(script.answers());
            }
        }
        answers.extend(script.answers());
        let read = answers.iter().filter(|answer| answer.opcode == Opcode::READ_RESPONSE_ONLY).count();
        assert_eq!(read, taken, "{granted} granted");
        let refusal = acknowledge(first.add(taken as u32), INVALID, 1 + taken as u32);
        assert_eq!(answers.last() == Some(&refusal), taken < 3);
        assert_eq!(script.state() == QpState::Error, taken < 3);
    }
}

//= rocev2 §9
#[test]
fn a_queue_pair_in_error_is_silent() {
    let mut script = Script::new(Options::default());
    let target = script.shared(b"safe");
    let broken = script.psn;
    script.next(1, Opcode::SEND_MIDDLE, Ext::None, &[0; 1024]);
    assert_eq!(script.answers(), [acknowledge(broken, INVALID, 1)]);
    assert_eq!(script.state(), QpState::Error);
    let before = script.stat("drop_state");
    let write = Ext::Reth(reth(&target, 0, 4));
    let ghosts = [
        script.frame(script.psn, Opcode::WRITE_ONLY, true, write, b"evil"),
        script.frame(broken, Opcode::WRITE_ONLY, true, write, b"evil"),
        script.frame(script.psn, Opcode::READ_REQUEST, true, write, &[]),
        script.frame(script.psn, Opcode::SEND_ONLY, true, Ext::None, b"evil"),
        script.frame(script.psn, Opcode::CNP, false, Ext::Cnp, &[]),
    ];
    for ghost in &ghosts {
        assert_eq!(script.give(ghost), Verdict::Dropped(DropReason::State));
    }
    assert_eq!(script.stat("drop_state"), before + ghosts.len() as u64);
    assert_eq!(script.answers(), []);
    assert_eq!(target.read(), b"safe");
}

//= rocev2 §12
//= rocev2 §13
#[test]
fn queue_pair_numbers_are_not_reused_soon() {
    let hosts = TwoHosts::new(Options::default());
    let side = &hosts.sides[0];
    let mut seen = std::collections::HashSet::from([side.qp.qpn().value()]);
    for _ in 0..5000 {
        let qp = side.engine.create_qp(crate::two_hosts::spec(side.pd, &side.cq, &hosts.options)).unwrap();
        assert!(seen.insert(qp.qpn().value()), "a number was reused after {}", seen.len());
        assert!(qp.qpn().value() > 0xFF && qp.qpn() != Qpn::new(0x00FF_FFFF));
        side.engine.destroy_qp(&qp);
    }
}

//= rocev2 §6
#[test]
fn a_packet_to_a_destroyed_queue_pair_is_dropped() {
    let mut script = Script::new(Options::default());
    let target = script.shared(b"safe");
    let write = script.frame(script.psn, Opcode::WRITE_ONLY, true, Ext::Reth(reth(&target, 0, 4)), b"evil");
    let bob = &script.hosts.sides[1];
    bob.engine.destroy_qp(&bob.qp);
    assert_eq!(script.give(&write), Verdict::Dropped(DropReason::NoQp));
    assert_eq!(script.answers(), []);
    assert_eq!(target.read(), b"safe");
}

/// Only the rights of the region apply.
//= rocev2 §10
#[test]
fn access_past_the_end_of_the_address_space_is_rejected() {
    let mut script = Script::new(Options::default());
    let target = script.hosts.sides[1].memory(4096, Access::all());
    let broken = script.psn;
    let wrapping = RethRepr { address: u64::MAX - 3, r_key: target.key(), length: 8 };
    script.next(1, Opcode::WRITE_ONLY, Ext::Reth(wrapping), &[1; 8]);
    assert_eq!(script.answers(), [acknowledge(broken, ACCESS, 1)]);
    assert_eq!(target.read(), [0; 4096]);
}

/// Responses and requests take turns; a pause ends the turn of the requests.
#[test]
fn an_acknowledgement_goes_before_a_request_after_a_pause() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sinks) = (alice.source(&pattern(64, 1)), [alice.sink(64), bob.sink(64), bob.sink(64)]);
    alice.recv(1, &[sinks[0].all()]);
    bob.recv(1, &[sinks[1].all()]);
    bob.recv(2, &[sinks[2].all()]);
    alice.send(1, &[source.all()]);
    hosts.run_for(Duration::from_micros(900));
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    // A request arrives while one is posted.
    hosts.cut = [true, true];
    hosts.capture = Some(Vec::new());
    hosts.sides[0].send(2, &[source.all()]);
    hosts.run_for(Duration::from_micros(100));
    let (_, request) = hosts.capture.replace(Vec::new()).unwrap().remove(0);
    let answer = hosts.sides[1].source(&pattern(64, 2));
    hosts.sides[1].send(3, &[answer.all()]);
    assert_eq!(hosts.sides[1].engine.first_shard().handle_frame(hosts.now, &request), Verdict::Consumed);
    hosts.run_for(Duration::from_micros(100));
    let frames = hosts.capture.take().unwrap();
    let sent = frames.iter().filter(|(from, _)| *from == 1).map(|(_, frame)| Packet::parse(frame).unwrap());
    let opcodes: Vec<_> = sent.map(|packet| packet.bth().opcode()).collect();
    assert_eq!(opcodes, [Opcode::ACKNOWLEDGE, Opcode::SEND_ONLY]);
}
