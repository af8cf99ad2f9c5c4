// SPDX-License-Identifier: MIT OR Apache-2.0

//! SENDs and WRITEs with immediate data.

use roce::{CompletionKind, CompletionStatus, SendFlags, SendOperation};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::pair::{Memory, Options, Pair, pattern};

/// Message sizes around multiples of the path MTU.
fn sizes(mtu: usize) -> [usize; 7] {
    [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3]
}

fn write(to: &Memory, data: [u8; 4]) -> SendOperation {
    SendOperation::WriteImmediate { address: to.address(5), key: to.key(), data }
}

//= rocev2 §4
#[test]
fn immediate_data_arrives_with_messages_of_every_size() {
    for mtu in [PathMtu::Bytes256, PathMtu::Bytes4096] {
        let mut pair = Pair::connected(Options { mtu, ..Options::default() });
        for (i, size) in (0u8..).zip(sizes(mtu.bytes())) {
            let [alice, bob] = &pair.sides;
            let data = pattern(size, u64::from(i));
            let (source, sink, remote) = (alice.source(&data), bob.sink(size), bob.shared(size + 10));
            bob.recv(1, &[sink.sge(0, size)]);
            bob.recv(2, &[]);
            let post = |context, operation| {
                alice.post(context, operation, SendFlags::empty(), &[source.sge(0, size)]).unwrap();
            };
            post(3, SendOperation::SendImmediate { data: [1, 2, 3, i] });
            post(4, write(&remote, [5, 6, 7, i]));
            pair.run();
            let [alice, bob] = &pair.sides;
            let sent: Vec<_> = alice.completions().iter().map(|c| (c.context, c.kind, c.status)).collect();
            let expected = [
                (3, CompletionKind::Send, CompletionStatus::Success),
                (4, CompletionKind::Write, CompletionStatus::Success),
            ];
            assert_eq!(sent, expected, "{size} bytes at {mtu:?}");
            let received: Vec<_> =
                bob.completions().iter().map(|c| (c.context, c.kind, c.bytes, c.immediate)).collect();
            let expected = [
                (1, CompletionKind::Receive, size as u32, Some([1, 2, 3, i])),
                (2, CompletionKind::ReceiveWrite, size as u32, Some([5, 6, 7, i])),
            ];
            assert_eq!(received, expected, "{size} bytes at {mtu:?}");
            assert_eq!(&sink.read()[..size], data);
            assert_eq!(&remote.read()[5..5 + size], data);
        }
    }
}

/// Only the last packet of a message has the immediate data, in the order of the headers that its opcode prescribes.
//= rocev2 §4
#[test]
fn the_last_packet_carries_the_immediate_data() {
    let mut pair = Pair::connected(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    pair.capture = Some(Vec::new());
    let [alice, bob] = &pair.sides;
    let (source, sink, remote) = (alice.source(&pattern(600, 1)), bob.sink(600), bob.shared(700));
    for context in 0..4 {
        bob.recv(context, &[sink.all()]);
    }
    for (size, operation) in [
        (600, SendOperation::SendImmediate { data: *b"long" }),
        (600, write(&remote, *b"writ")),
        (100, SendOperation::SendImmediate { data: *b"only" }),
        (100, write(&remote, *b"wonl")),
    ] {
        alice.post(9, operation, SendFlags::SOLICITED, &[source.sge(0, size)]).unwrap();
    }
    pair.run();
    let frames = pair.capture.take().unwrap();
    let sent: Vec<_> = frames
        .iter()
        .filter(|(from, _)| *from == 0)
        .map(|(_, frame)| {
            let packet = Packet::parse(frame).unwrap();
            let immediate = packet.imm_dt().map(|imm| imm.data());
            (packet.bth().opcode(), packet.reth().is_some(), immediate, packet.bth().solicited())
        })
        .collect();
    let expected = [
        (Opcode::SEND_FIRST, false, None, false),
        (Opcode::SEND_MIDDLE, false, None, false),
        (Opcode::SEND_LAST_IMM, false, Some(*b"long"), true),
        (Opcode::WRITE_FIRST, true, None, false),
        (Opcode::WRITE_MIDDLE, false, None, false),
        (Opcode::WRITE_LAST_IMM, false, Some(*b"writ"), true),
        (Opcode::SEND_ONLY_IMM, false, Some(*b"only"), true),
        (Opcode::WRITE_ONLY_IMM, true, Some(*b"wonl"), true),
    ];
    assert_eq!(sent, expected);
}

/// A WRITE with immediate data waits for a receive, and is executed once in spite of losses.
#[test]
fn a_write_with_immediate_data_waits_for_a_receive() {
    let mut pair = Pair::connected(Options { mtu: PathMtu::Bytes256, loss: 100, ..Options::default() });
    let [alice, bob] = &pair.sides;
    let (source, remote) = (alice.source(&pattern(3000, 2)), bob.shared(3010));
    for context in 0..20 {
        let operation = write(&remote, [context, 0, 0, 0]);
        alice.post(u64::from(context), operation, SendFlags::empty(), &[source.all()]).unwrap();
    }
    for context in 100..120 {
        pair.run_for(std::time::Duration::from_millis(3));
        pair.sides[1].recv(context, &[]);
    }
    pair.run();
    let received: Vec<_> = pair.sides[1].completions().iter().map(|c| (c.context, c.immediate)).collect();
    let expected: Vec<_> = (0u8..20).map(|i| (100 + u64::from(i), Some([i, 0, 0, 0]))).collect();
    assert_eq!(received, expected);
    assert_eq!(&remote.read()[5..3005], source.read());
    assert!(pair.sides[1].stat("rx_rnr") > 0);
    assert!(pair.sides[0].stat("retransmissions") > 0);
    assert!(pair.sides[0].outcomes().iter().all(|(_, status)| *status == CompletionStatus::Success));
}
