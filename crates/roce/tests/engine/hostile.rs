// SPDX-License-Identifier: MIT OR Apache-2.0

//! Invalid frames are dropped or rejected and have no other effect.

use roce::{Access, CompletionStatus, DropReason, QpState, Verdict};
use roce_wire::{Ext, Headers, ImmDtRepr, MacAddr, Opcode, Packet, Path, Psn, Qpn, RethRepr, Template};
use std::net::{IpAddr, Ipv4Addr};

use crate::responder::Script;
use crate::two_hosts::{Options, TwoHosts, pattern};
use roce_wire::DropReason as MalformedReason;

/// Two connected hosts, and the ePSN of bob as an observer of alice's packets knows it.
struct Forger {
    hosts: TwoHosts,
    path: Path,
    psn: Psn,
}

impl Forger {
    fn new() -> Self {
        let mut hosts = TwoHosts::connected(Options::default());
        let (source, remote) = (hosts.sides[0].source(b"hi"), hosts.sides[1].shared(2));
        hosts.capture = Some(Vec::new());
        hosts.sides[0].write(1, &[source.all()], &remote, 0);
        hosts.run();
        hosts.sides[0].completions();
        let capture = hosts.capture.take().unwrap();
        let (_, frame) = capture.iter().find(|(from, _)| *from == 0).unwrap();
        let psn = Packet::parse(frame).unwrap().bth().psn().next();
        let path = hosts.path(0);
        Self { hosts, path, psn }
    }

    fn frame(&self, opcode: Opcode, ext: Ext, payload: &[u8]) -> Vec<u8> {
        Self::frame_to(self.hosts.sides[1].qp.qpn(), &self.path, self.psn, opcode, ext, payload)
    }

    fn frame_to(qpn: Qpn, path: &Path, psn: Psn, opcode: Opcode, ext: Ext, payload: &[u8]) -> Vec<u8> {
        let template = Template::new(path, qpn).unwrap();
        let headers = Headers { opcode, solicited: false, ack_req: true, psn, ext };
        let mut slot = vec![0; payload.len() + 200];
        let crc = roce_wire::icrc::Crc::table();
        let mut frame = template.begin(crc, &mut slot, &headers, payload.len()).unwrap();
        frame.write(payload);
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    fn give(&mut self, frame: &[u8]) -> Verdict {
        self.hosts.sides[1].engine.first_shard().handle_frame(self.hosts.now, frame)
    }

    /// Returns opcode and syndrome of bob's next packet.
    fn answer(&mut self) -> Option<(Opcode, Option<u8>)> {
        self.hosts.capture = Some(Vec::new());
        self.hosts.options.loss = 1000;
        self.hosts.drive();
        let capture = self.hosts.capture.take().unwrap();
        let (_, frame) = capture
            .iter()
            .find(|(from, frame)| *from == 1 && Packet::parse(frame).unwrap().bth().dest_qp() != Qpn::GSI)?;
        let packet = Packet::parse(frame).unwrap();
        Some((packet.bth().opcode(), packet.aeth().map(|aeth| aeth.syndrome().0)))
    }

    /// Asserts that bob rejects the packet with this syndrome and enters the error state.
    fn assert_rejected(opcode: Opcode, ext: Ext, payload: &[u8], syndrome: u8) {
        let mut forger = Self::new();
        let sink = forger.hosts.sides[1].sink(8);
        forger.hosts.sides[1].recv(5, &[sink.all()]);
        let frame = forger.frame(opcode, ext, payload);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        assert_eq!(forger.answer(), Some((Opcode::ACKNOWLEDGE, Some(syndrome))), "{opcode:?}");
        assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Error, "{opcode:?}");
        assert_eq!(forger.hosts.sides[1].outcomes(), [(5, CompletionStatus::Flushed)]);
    }
}

fn reth(length: u32) -> Ext {
    Ext::Reth(RethRepr { address: 0, r_key: 0, length })
}

//= rocev2 §6
#[test]
fn invalid_requests_are_rejected() {
    const INVALID: u8 = 0x61;
    const ACCESS: u8 = 0x62;
    let atomic = Ext::Atomic(roce_wire::AtomicEthRepr { address: 0, r_key: 0, swap_or_add: 0, compare: 0 });
    Forger::assert_rejected(Opcode::COMPARE_SWAP, atomic, &[], INVALID);
    Forger::assert_rejected(Opcode::FETCH_ADD, atomic, &[], INVALID);
    Forger::assert_rejected(Opcode::SEND_MIDDLE, Ext::None, &[0; 1024], INVALID);
    Forger::assert_rejected(Opcode::SEND_LAST, Ext::None, &[0; 8], INVALID);
    Forger::assert_rejected(Opcode::WRITE_LAST, Ext::None, &[0; 8], INVALID);
    Forger::assert_rejected(Opcode::SEND_FIRST, Ext::None, &[0; 1000], INVALID);
    Forger::assert_rejected(Opcode::SEND_ONLY, Ext::None, &[0; 1028], INVALID);
    Forger::assert_rejected(Opcode::WRITE_ONLY, reth(8), &[0; 4], ACCESS);
    Forger::assert_rejected(Opcode::WRITE_ONLY, reth(0), &[0; 4], INVALID);
    Forger::assert_rejected(Opcode::WRITE_ONLY, reth(u32::MAX), &[0; 4], INVALID);
    Forger::assert_rejected(Opcode::READ_REQUEST, reth(u32::MAX), &[], INVALID);
    Forger::assert_rejected(Opcode::READ_REQUEST, reth(8), &[], ACCESS);
}

#[test]
fn a_write_of_other_than_its_announced_length_is_rejected() {
    for (first, second) in [(1025, 2), (1026, 1), (3000, 1024)] {
        let mut forger = Forger::new();
        let target = forger.hosts.sides[1].memory(4096, Access::all());
        let ext = Ext::Reth(RethRepr { address: target.address(0), r_key: target.key(), length: first });
        let frame = forger.frame(Opcode::WRITE_FIRST, ext, &[1; 1024]);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        forger.psn = forger.psn.next();
        let frame = forger.frame(Opcode::WRITE_LAST, Ext::None, &vec![2; second]);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        assert_eq!(forger.answer(), Some((Opcode::ACKNOWLEDGE, Some(0x61))), "{first}, {second}");
        assert_eq!(target.read()[1024..], [0; 3072], "{first}, {second}");
    }
}

//= rocev2 §4
#[test]
fn immediate_data_reaches_the_receive_completion() {
    let mut forger = Forger::new();
    let (sink, target) = (forger.hosts.sides[1].sink(8), forger.hosts.sides[1].shared(8));
    for context in 1..=2 {
        forger.hosts.sides[1].recv(context, &[sink.all()]);
    }
    let imm = ImmDtRepr { data: *b"now!" };
    let frame = forger.frame(Opcode::SEND_ONLY_IMM, Ext::Imm(imm), b"sent");
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    forger.psn = forger.psn.next();
    let reth = RethRepr { address: target.address(2), r_key: target.key(), length: 4 };
    let frame = forger.frame(Opcode::WRITE_ONLY_IMM, Ext::RethImm(reth, imm), b"here");
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    let done = forger.hosts.sides[1].completions();
    let seen: Vec<_> = done.iter().map(|c| (c.context, c.bytes, c.immediate, c.status)).collect();
    let imm = Some(*b"now!");
    assert_eq!(seen, [(1, 4, imm, CompletionStatus::Success), (2, 4, imm, CompletionStatus::Success)]);
    assert_eq!(target.read(), b"\0\0here\0\0");
    assert_eq!(forger.answer(), Some((Opcode::ACKNOWLEDGE, Some(0x1F))));
}

//= R-QP-54
#[test]
fn more_reads_than_granted_are_rejected() {
    let mut forger = Forger::new();
    let target = forger.hosts.sides[1].shared(8);
    let ext = Ext::Reth(RethRepr { address: target.address(0), r_key: target.key(), length: 8 });
    for _ in 0..4 {
        let frame = forger.frame(Opcode::READ_REQUEST, ext, &[]);
        assert_eq!(forger.give(&frame), Verdict::Consumed);
        forger.psn = forger.psn.next();
    }
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
    let frame = forger.frame(Opcode::READ_REQUEST, ext, &[]);
    forger.give(&frame);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Error);
}

#[test]
fn invalid_and_unverified_frames_are_dropped_and_counted() {
    let mut forger = Forger::new();
    let before = forger.hosts.sides[1].qp.state();
    let qpn = forger.hosts.sides[1].qp.qpn();
    let (path, psn) = (forger.path, forger.psn);
    let only =
        |qpn, path: &Path, psn| Forger::frame_to(qpn, path, psn, Opcode::SEND_ONLY, Ext::None, b"evil");
    let other_ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
    let spoofed = Path { remote_ip: path.remote_ip, local_ip: other_ip, ..path };
    let cases = [
        (only(qpn, &spoofed, psn), DropReason::Address, "drop_address"),
        (only(Qpn::new(qpn.value() ^ 1), &path, psn), DropReason::NoQp, "drop_no_qp"),
        (only(Qpn::new(0), &path, psn), DropReason::NoQp, "drop_no_qp"),
        (only(qpn, &path, psn.add(129)), DropReason::Sequence, "drop_sequence"),
    ];
    for (frame, reason, counter) in cases {
        let count = forger.hosts.sides[1].stat(counter);
        assert_eq!(forger.give(&frame), Verdict::Dropped(reason));
        assert_eq!(forger.hosts.sides[1].stat(counter), count + 1);
    }
    let good = only(qpn, &path, psn);
    for bit in (42 * 8..good.len() * 8).step_by(3) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let verdict = forger.give(&bad);
        // The ICRC does not cover variable fields.
        let variable = bit / 8 == 14 + 20 + 8 + 4;
        assert!(variable || matches!(verdict, Verdict::Dropped(_)), "bit {bit}: {verdict:?}");
    }
    for len in 0..good.len() {
        let verdict = forger.give(&good[..len]);
        assert!(matches!(verdict, Verdict::NotOurs | Verdict::Dropped(DropReason::Malformed(_))));
    }
    let mut bad = good;
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(forger.give(&bad), Verdict::Dropped(DropReason::Malformed(MalformedReason::Icrc)));
    assert_eq!(forger.hosts.sides[1].qp.state(), before);
    assert_eq!(forger.hosts.sides[1].outcomes(), []);
    // Source MAC address and UDP source port are not checked.
    let moved = Path { source_port: 0xFFFF, local_mac: MacAddr([0xFF; 6]), ..path };
    let sink = forger.hosts.sides[1].sink(8);
    forger.hosts.sides[1].recv(1, &[sink.all()]);
    let frame = only(qpn, &moved, psn);
    assert_eq!(forger.give(&frame), Verdict::Consumed);
}

/// Frames with a valid ICRC and random content from the peer's address cause no panic and no write outside of
/// shared memory, and every request ends.
#[test]
fn a_peer_that_sends_random_requests_does_no_harm() {
    for seed in 0..40 {
        let mut forger = Forger::new();
        let canary = forger.hosts.sides[1].memory(64, Access::LOCAL_WRITE);
        let sink = forger.hosts.sides[1].sink(64);
        canary.write(&pattern(64, seed));
        for context in 0..8 {
            forger.hosts.sides[1].recv(context, &[sink.all()]);
        }
        let opcodes: Vec<_> = Opcode::table().iter().filter(|info| info.opcode.is_rc()).collect();
        for _ in 0..200 {
            let random = forger.hosts.random();
            let info = opcodes[random as usize % opcodes.len()];
            let mut bytes = pattern(Ext::MAX_LEN, random);
            if random & 64 != 0 {
                bytes[..8].copy_from_slice(&canary.address(0).to_be_bytes());
                bytes[8..12].copy_from_slice(&canary.key().to_be_bytes());
                bytes[12..16].copy_from_slice(&[0, 0, 0, 8]);
            }
            let ext = Ext::parse(info.ext, &bytes).unwrap();
            let len = if random & 128 != 0 { 1024 } else { random as usize >> 8 & 15 };
            let len = if info.payload == roce_wire::PayloadRule::None { 0 } else { len };
            let psn = if random & 7 < 5 { forger.psn } else { Psn::new(random as u32 >> 3) };
            let qpn = forger.hosts.sides[1].qp.qpn();
            let frame = Forger::frame_to(qpn, &forger.path, psn, info.opcode, ext, &pattern(len, random));
            if forger.give(&frame) == Verdict::Consumed && psn == forger.psn {
                forger.psn = forger.psn.next();
            }
            forger.hosts.drive();
        }
        assert_eq!(canary.read(), pattern(64, seed));
        let bob = &forger.hosts.sides[1];
        bob.engine.flush(&bob.qp);
        assert!(bob.qp.is_drained());
        let ended = bob.completions().iter().filter(|c| c.kind.is_receive()).count();
        assert_eq!(ended, 8);
    }
}

/// A transmit queue without a free slot.
struct Full;

impl roce::Transmit for Full {
    fn slot(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn commit(&mut self, _len: usize) {}
}

//= R-QP-55
//= rocev2 §9
#[test]
fn a_nak_is_sent_before_the_dreq() {
    let mut forger = Forger::new();
    let sink = forger.hosts.sides[1].sink(4);
    forger.hosts.sides[1].recv(9, &[sink.all()]);
    let reth = RethRepr { address: 0, r_key: 0x1234_5600, length: 4 };
    let frame = forger.frame(Opcode::WRITE_ONLY, Ext::Reth(reth), b"evil");
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    let hosts = &mut forger.hosts;
    assert_eq!(hosts.sides[1].outcomes(), [(9, CompletionStatus::Flushed)]);
    hosts.take_events(1);
    assert_eq!(hosts.sides[1].engine.first_shard().poll_transmit(hosts.now, &mut Full, 8), 0);
    hosts.take_events(1);
    hosts.capture = Some(Vec::new());
    hosts.drive();
    hosts.drive();
    let sent: Vec<_> = hosts.capture.take().unwrap().into_iter().filter(|(from, _)| *from == 1).collect();
    let opcodes: Vec<_> =
        sent.iter().map(|(_, frame)| Packet::parse(frame).unwrap().bth().opcode()).collect();
    assert_eq!(opcodes, [Opcode::ACKNOWLEDGE, Opcode::UD_SEND_ONLY]);
    assert_eq!(hosts.sides[1].stat("tx_nak_access"), 1);
    assert!(hosts.has_event(1, |event| matches!(event, roce::ConnEvent::Aborted)));
}

//= R-QP-70
#[test]
fn a_flush_before_a_pending_nak_still_ends_the_connection() {
    let mut forger = Forger::new();
    let reth = RethRepr { address: 0, r_key: 0x1234_5600, length: 4 };
    let frame = forger.frame(Opcode::WRITE_ONLY, Ext::Reth(reth), b"evil");
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    let hosts = &mut forger.hosts;
    hosts.sides[1].engine.flush(&hosts.sides[1].qp);
    hosts.take_events(1);
    assert!(hosts.has_event(1, |event| matches!(event, roce::ConnEvent::Aborted)));
}

#[test]
fn naks_are_counted_by_their_kind() {
    let counters = ["sequence", "invalid", "access", "operational", "rnr"];
    let causes: [fn(&mut Script) -> Verdict; 5] = [
        |script| script.send(1, Opcode::SEND_ONLY, Ext::None, &[1]),
        |script| script.send(0, Opcode::SEND_MIDDLE, Ext::None, &[1; 1024]),
        |script| {
            let reth = RethRepr { address: 0, r_key: 1, length: 1 };
            script.send(0, Opcode::WRITE_ONLY, Ext::Reth(reth), &[1])
        },
        |script| {
            let bob = &script.hosts.sides[1];
            let sink = bob.sink(1);
            bob.recv(1, &[sink.all()]);
            assert!(bob.engine.memory().deregister(&sink.region));
            script.send(0, Opcode::SEND_ONLY, Ext::None, &[1])
        },
        |script| script.send(0, Opcode::SEND_ONLY, Ext::None, &[1]),
    ];
    for (number, cause) in causes.into_iter().enumerate() {
        let mut script = Script::new(Options::default());
        assert_eq!(cause(&mut script), Verdict::Consumed);
        assert_eq!(script.answers().len(), 1);
        let mut expected = [0; 5];
        expected[number] = 1;
        assert_eq!(counters.map(|kind| script.stat(&format!("tx_nak_{kind}"))), expected);
    }
}
