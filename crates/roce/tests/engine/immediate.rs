// SPDX-License-Identifier: MIT OR Apache-2.0

//! SENDs and WRITEs with immediate data.

use roce::{
    CompletionKind, CompletionStatus, PostError, SendData, SendFlags, SendOperation, SendRequest, Sge,
};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::two_hosts::{Memory, Options, Side, TwoHosts, pattern};

/// Message sizes around multiples of the path MTU.
fn sizes(mtu: usize) -> [usize; 7] {
    [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3]
}

fn write(to: &Memory) -> SendOperation {
    SendOperation::Write { address: to.address(5), key: to.key() }
}

fn post(
    side: &Side,
    context: u64,
    operation: SendOperation,
    immediate: [u8; 4],
    flags: SendFlags,
    sges: &[Sge],
) -> Result<(), PostError> {
    let request = SendRequest { context, operation, flags, data: SendData::Sges(sges) };
    side.engine.post_send_immediate(&side.qp, &request, immediate)
}

//= rocev2 §4
#[test]
fn immediate_data_arrives_with_messages_of_every_size() {
    for mtu in [PathMtu::Bytes256, PathMtu::Bytes4096] {
        let mut hosts = TwoHosts::connected(Options { mtu, ..Options::default() });
        for (i, size) in (0u8..).zip(sizes(mtu.bytes())) {
            let [alice, bob] = &hosts.sides;
            let data = pattern(size, u64::from(i));
            let (source, sink, remote) = (alice.source(&data), bob.sink(size), bob.shared(size + 10));
            bob.recv(1, &[sink.sge(0, size)]);
            bob.recv(2, &[]);
            let sges = [source.sge(0, size)];
            post(alice, 3, SendOperation::Send, [1, 2, 3, i], SendFlags::empty(), &sges).unwrap();
            post(alice, 4, write(&remote), [5, 6, 7, i], SendFlags::empty(), &sges).unwrap();
            hosts.run();
            let [alice, bob] = &hosts.sides;
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
    let mut hosts = TwoHosts::connected(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    hosts.capture = Some(Vec::new());
    let [alice, bob] = &hosts.sides;
    let (source, sink, remote) = (alice.source(&pattern(600, 1)), bob.sink(600), bob.shared(700));
    for context in 0..4 {
        bob.recv(context, &[sink.all()]);
    }
    for (size, operation, data) in [
        (600, SendOperation::Send, *b"long"),
        (600, write(&remote), *b"writ"),
        (100, SendOperation::Send, *b"only"),
        (100, write(&remote), *b"wonl"),
    ] {
        post(alice, 9, operation, data, SendFlags::SOLICITED, &[source.sge(0, size)]).unwrap();
    }
    hosts.run();
    let frames = hosts.capture.take().unwrap();
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
    let mut hosts = TwoHosts::connected(Options { mtu: PathMtu::Bytes256, loss: 100, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(&pattern(3000, 2)), bob.shared(3010));
    for context in 0..20 {
        let data = [context, 0, 0, 0];
        post(alice, u64::from(context), write(&remote), data, SendFlags::empty(), &[source.all()]).unwrap();
    }
    for context in 100..120 {
        hosts.run_for(std::time::Duration::from_millis(3));
        hosts.sides[1].recv(context, &[]);
    }
    hosts.run();
    let received: Vec<_> = hosts.sides[1].completions().iter().map(|c| (c.context, c.immediate)).collect();
    let expected: Vec<_> = (0u8..20).map(|i| (100 + u64::from(i), Some([i, 0, 0, 0]))).collect();
    assert_eq!(received, expected);
    assert_eq!(&remote.read()[5..3005], source.read());
    assert!(hosts.sides[1].stat("rx_rnr") > 0);
    assert!(hosts.sides[0].stat("retransmissions") > 0);
    assert!(hosts.sides[0].outcomes().iter().all(|(_, status)| *status == CompletionStatus::Success));
}

/// A READ or an invalidation has no immediate data, and a queue pair without connection sends none.
#[test]
fn immediate_data_of_other_operations_is_refused() {
    let hosts = TwoHosts::connected(Options::default());
    for operation in [SendOperation::Read { address: 0, key: 1 }, SendOperation::SendInvalidate { key: 1 }] {
        let posted = post(&hosts.sides[0], 1, operation, [0; 4], SendFlags::empty(), &[]);
        assert_eq!(posted, Err(PostError::NotAllowed));
    }
    let unconnected = TwoHosts::new(Options::default());
    let posted = post(&unconnected.sides[0], 1, SendOperation::Send, [0; 4], SendFlags::empty(), &[]);
    assert_eq!(posted, Err(PostError::NotConnected));
}
