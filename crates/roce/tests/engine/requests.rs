// SPDX-License-Identifier: MIT OR Apache-2.0

//! Successful requests.

use std::time::Duration;

use roce::{
    CompletionKind, CompletionStatus, ConnEvent, PostError, ReadLimits, SendData, SendFlags, SendOperation,
    SendRequest,
};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::two_hosts::{Options, TwoHosts, pattern};

/// Message sizes around multiples of the path MTU.
fn sizes(mtu: usize) -> [usize; 9] {
    [0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 3 * mtu, 7 * mtu + 5]
}

//= rocev2 §5
//= R-QP-14
//= R-CQ-23
#[test]
fn messages_of_every_size_arrive_at_every_mtu() {
    for mtu in PathMtu::ALL {
        let mut hosts = TwoHosts::connected(Options { mtu, ..Options::default() });
        for (i, size) in (0..).zip(sizes(mtu.bytes())) {
            let [alice, bob] = &hosts.sides;
            let data = pattern(size, i);
            let (source, sink) = (alice.source(&data), bob.sink(size));
            bob.recv(i, &[sink.sge(0, size)]);
            alice.send(i + 100, &[source.sge(0, size)]);
            hosts.run();
            let [alice, bob] = &hosts.sides;
            let (sent, received) = (alice.completions(), bob.completions());
            assert_eq!((sent.len(), received.len()), (1, 1), "{size} bytes at {mtu:?}");
            assert_eq!((sent[0].context, sent[0].status), (i + 100, CompletionStatus::Success));
            assert_eq!((sent[0].kind, sent[0].qp_context), (CompletionKind::Send, 77));
            assert_eq!((received[0].context, received[0].status), (i, CompletionStatus::Success));
            assert_eq!((received[0].kind, received[0].bytes), (CompletionKind::Receive, size as u32));
            assert_eq!(&sink.read()[..size], data, "{size} bytes at {mtu:?}");
        }
        assert_eq!(hosts.sides[0].stat("retransmissions"), 0);
    }
}

//= R-QP-49
//= R-QP-51
//= R-QP-87
#[test]
fn memory_of_every_size_is_written_and_read_at_every_mtu() {
    for mtu in PathMtu::ALL {
        let mut hosts = TwoHosts::connected(Options { mtu, ..Options::default() });
        for (i, size) in (0..).zip(sizes(mtu.bytes())) {
            let [alice, bob] = &hosts.sides;
            let data = pattern(size, i);
            let (source, remote, back) = (alice.source(&data), bob.shared(size + 10), alice.sink(size));
            alice.write(1, &[source.sge(0, size)], &remote, 5);
            alice.read(2, &[back.sge(0, size)], &remote, 5);
            hosts.run();
            let done = hosts.sides[0].completions();
            let kinds: Vec<_> = done.iter().map(|c| (c.context, c.kind, c.status)).collect();
            assert_eq!(
                kinds,
                [
                    (1, CompletionKind::Write, CompletionStatus::Success),
                    (2, CompletionKind::Read, CompletionStatus::Success)
                ]
            );
            assert_eq!(&remote.read()[5..5 + size], data);
            assert_eq!(remote.read()[..5], [0; 5]);
            assert_eq!(remote.read()[5 + size..], [0; 5]);
            assert_eq!(&back.read()[..size], data, "{size} bytes at {mtu:?}");
        }
    }
}

#[test]
fn data_is_gathered_and_scattered() {
    let mut hosts = TwoHosts::connected(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let data = pattern(2000, 9);
    let (source, sink, remote) = (alice.source(&data), bob.sink(2000), bob.shared(2000));
    let back = alice.sink(2000);
    bob.recv(1, &[sink.sge(1000, 700), sink.sge(0, 0), sink.sge(0, 1000), sink.sge(1700, 300)]);
    alice.send(2, &[source.sge(1500, 500), source.sge(0, 1), source.sge(1, 1499)]);
    alice.write(3, &[source.sge(7, 300), source.sge(500, 3)], &remote, 100);
    alice.read(4, &[back.sge(3, 255), back.sge(300, 48)], &remote, 100);
    hosts.run();
    assert!(hosts.sides[0].outcomes().iter().all(|(_, status)| *status == CompletionStatus::Success));
    let message = [&data[1500..], &data[..1500]].concat();
    let received = sink.read();
    assert_eq!(&received[1000..1700], &message[..700]);
    assert_eq!(&received[..1000], &message[700..1700]);
    assert_eq!(&received[1700..2000], &message[1700..2000]);
    let written = [&data[7..307], &data[500..503]].concat();
    assert_eq!(&back.read()[3..258], &written[..255]);
    assert_eq!(&back.read()[300..348], &written[255..]);
}

//= R-QP-30
//= R-QP-31
//= R-QP-32
//= R-QP-33
#[test]
fn inline_data_is_copied_when_posted() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (sink, remote) = (bob.sink(64), bob.shared(64));
    bob.recv(1, &[sink.all()]);
    let mut data = *b"taken";
    let pieces: Vec<&[u8]> = data.chunks(1).collect();
    let request = |operation, data| SendRequest { context: 2, operation, flags: SendFlags::empty(), data };
    let write = SendOperation::Write { address: remote.address(3), key: remote.key() };
    alice.engine.post_send(&alice.qp, &request(SendOperation::Send, SendData::Inline(&pieces))).unwrap();
    alice.engine.post_send(&alice.qp, &request(write, SendData::Inline(&pieces))).unwrap();
    let too_long = [0; 65];
    assert_eq!(
        alice.engine.post_send(&alice.qp, &request(SendOperation::Send, SendData::Inline(&[&too_long]))),
        Err(PostError::InlineTooLong)
    );
    data.fill(0);
    hosts.run();
    assert_eq!(&sink.read()[..5], b"taken");
    assert_eq!(&remote.read()[3..8], b"taken");
    assert_eq!(hosts.sides[0].outcomes().len(), 2);
}

//= R-CQ-21
//= R-QP-83
#[test]
fn requests_complete_in_posting_order() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote, back) = (alice.source(&pattern(5000, 1)), bob.shared(5000), alice.sink(5000));
    let sink = bob.sink(5000);
    for i in 0..20 {
        match i % 3 {
            0 => {
                bob.recv(i, &[sink.all()]);
                alice.send(i, &[source.sge(0, 1000 + i as usize)]);
            }
            1 => alice.write(i, &[source.sge(0, 3000)], &remote, 0),
            _ => alice.read(i, &[back.sge(0, 2500)], &remote, 0),
        }
    }
    hosts.run();
    let order: Vec<_> = hosts.sides[0].outcomes().into_iter().map(|(context, _)| context).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    let received: Vec<_> = hosts.sides[1].completions().iter().map(|c| (c.context, c.bytes)).collect();
    assert_eq!(received, (0..20).step_by(3).map(|i| (i, 1000 + i as u32)).collect::<Vec<_>>());
}

//= R-QP-52
#[test]
fn reads_beyond_the_outstanding_limit_wait() {
    let reads = ReadLimits { inbound: 1, outbound: 1 };
    let mut hosts = TwoHosts::connected(Options { reads, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (remote, back) = (bob.shared(3000), alice.sink(3000));
    remote.write(&pattern(3000, 3));
    for i in 0..16 {
        alice.read(i, &[back.all()], &remote, 0);
    }
    hosts.run();
    assert_eq!(
        hosts.sides[0].outcomes(),
        (0..16).map(|i| (i, CompletionStatus::Success)).collect::<Vec<_>>()
    );
    assert_eq!(back.read(), pattern(3000, 3));
    assert_eq!(hosts.sides[1].stat("tx_nak_invalid"), 0);
}

//= R-QP-53
#[test]
fn reads_fail_when_posted_on_a_connection_without_reads() {
    let reads = ReadLimits { inbound: 4, outbound: 0 };
    let hosts = TwoHosts::connected(Options { reads, ..Options::default() });
    let alice = &hosts.sides[0];
    let sink = alice.sink(8);
    let read = SendOperation::Read { address: 0, key: 0 };
    assert_eq!(alice.post(1, read, SendFlags::empty(), &[sink.all()]), Err(PostError::NotAllowed));
}

//= R-QP-28
#[test]
fn a_fenced_send_carries_the_data_of_the_preceding_read() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let data = pattern(6000, 4);
    let (remote, buffer, sink) = (bob.shared(6000), alice.shared(6000), bob.sink(6000));
    remote.write(&data);
    bob.recv(1, &[sink.all()]);
    alice.read(1, &[buffer.all()], &remote, 0);
    alice.post(2, SendOperation::Send, SendFlags::FENCE, &[buffer.all()]).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
    assert_eq!(sink.read(), data);
}

//= R-CQ-30
//= R-QP-26
#[test]
fn a_successful_silent_request_has_no_completion() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(b"quiet"), bob.shared(5));
    let write = SendOperation::Write { address: remote.address(0), key: remote.key() };
    alice.post(1, write, SendFlags::SILENT, &[source.all()]).unwrap();
    hosts.run();
    assert_eq!(remote.read(), b"quiet");
    assert_eq!(hosts.sides[0].outcomes(), []);
    assert!(hosts.sides[0].qp.is_drained());
}

//= R-CREATE-38
#[test]
fn a_read_may_have_more_elements_than_its_queue_pair_was_created_with() {
    let options = Options { config: |config| config.read_sges = 9, ..Options::default() };
    let mut hosts = TwoHosts::connected(options);
    let [alice, bob] = &hosts.sides;
    let (remote, sink, data) = (bob.shared(900), alice.sink(900), pattern(900, 5));
    remote.write(&data);
    let operation = SendOperation::Read { address: remote.address(0), key: remote.key() };
    // The last hundred bytes first.
    let many: Vec<_> = (0..10).rev().map(|at| sink.sge(at * 90, 90)).collect();
    let post = |operation, sges: &[_]| hosts.sides[0].post(9, operation, SendFlags::empty(), sges);
    assert_eq!(post(operation, &many), Err(PostError::TooManySges));
    assert_eq!(post(SendOperation::Send, &many[..5]), Err(PostError::TooManySges));
    // More than the queue holds, so that entries are used again; between them a READ with few elements.
    for round in 0..50 {
        sink.write(&[0; 900]);
        for sges in [&many[..9], &many[9..], &many[1..]] {
            hosts.sides[0].post(round, operation, SendFlags::empty(), sges).unwrap();
        }
        let last = many[9].address;
        assert!(hosts.sides[0].qp.has_element(&|sge| sge.address == last));
        hosts.run();
        let outcomes = hosts.sides[0].outcomes();
        assert_eq!(outcomes, [(round, CompletionStatus::Success); 3]);
        let read = sink.read();
        for (index, piece) in read.chunks(90).rev().enumerate().skip(1) {
            assert_eq!(piece, &data[(index - 1) * 90..index * 90], "{round}: {index}");
        }
    }
}

//= R-QP-16
//= R-QP-18
//= R-QP-20
//= R-QP-61
#[test]
fn a_queue_holds_exactly_its_depth() {
    let options = Options { send_depth: 3, recv_depth: 2, ..Options::default() };
    let mut hosts = TwoHosts::connected(options);
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"x"), bob.sink(8));
    for i in 0..2 {
        bob.recv(i, &[sink.all()]);
    }
    let request = roce::RecvRequest { context: 9, sges: &[sink.all()] };
    assert_eq!(bob.engine.post_recv(&bob.qp, &request), Err(PostError::QueueFull));
    for i in 0..3 {
        alice.send(i, &[source.all()]);
    }
    let send = |sges: &[_]| alice.post(9, SendOperation::Send, SendFlags::empty(), sges);
    assert_eq!(send(&[source.all()]), Err(PostError::QueueFull));
    assert_eq!(send(&[source.all(); 5]), Err(PostError::TooManySges));
    // The third message waits until a receive is posted.
    hosts.run_for(Duration::from_millis(5));
    assert_eq!(hosts.sides[0].outcomes().len(), 2);
    hosts.sides[1].recv(2, &[sink.all()]);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(2, CompletionStatus::Success)]);
}

//= R-QP-6
//= rocev2 §6
#[test]
fn a_late_receive_gets_the_message() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&pattern(5000, 5)), bob.sink(5000));
    alice.send(1, &[source.all()]);
    hosts.run_for(Duration::from_millis(100));
    let [alice, bob] = &hosts.sides;
    assert_eq!(alice.outcomes(), []);
    assert!(bob.stat("tx_nak_rnr") > 10 && bob.stat("tx_nak_rnr") < 200);
    bob.recv(2, &[sink.all()]);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[1].outcomes(), [(2, CompletionStatus::Success)]);
    assert_eq!(sink.read(), pattern(5000, 5));
}

#[test]
fn both_sides_can_send_at_once() {
    let mut hosts = TwoHosts::connected(Options::default());
    let memories: Vec<_> = hosts.sides.iter().map(|side| side.shared(200_000)).collect();
    for (i, side) in hosts.sides.iter().enumerate() {
        memories[i].write(&pattern(100_000, i as u64));
        side.write(1, &[memories[i].sge(0, 100_000)], &memories[1 - i], 100_000);
        side.read(2, &[memories[i].sge(0, 1)], &memories[1 - i], 0);
    }
    hosts.run();
    for (i, side) in hosts.sides.iter().enumerate() {
        assert_eq!(side.outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
        assert_eq!(memories[i].read()[100_000..], pattern(100_000, 1 - i as u64));
    }
}

//= rocev2 §6
#[test]
fn a_batch_of_packets_causes_one_acknowledgement() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(b"small"), bob.shared(5));
    let before = bob.stat("tx_acks");
    for i in 0..10 {
        alice.write(i, &[source.all()], &remote, 0);
    }
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes().len(), 10);
    assert_eq!(hosts.sides[1].stat("tx_acks") - before, 1);
}

#[test]
fn sequence_numbers_wrap() {
    // Alice's REQ names a random starting PSN. She repeats connecting, with lost REQs, until it is close to
    // wrapping.
    const NEAR: u32 = 0x00FF_F000;
    let mut hosts =
        TwoHosts::new(Options { config: |config| config.max_qps = 1 << 16, ..Options::default() });
    hosts.listen();
    hosts.cut = [true; 2];
    for attempt in 0.. {
        hosts.capture = Some(Vec::new());
        hosts.connect(b"");
        hosts.drive();
        let (_, frame) = &hosts.capture.as_ref().unwrap()[0];
        let begin = 14 + 20 + 8 + 12 + 8 + 24 + 44;
        let psn = u32::from_be_bytes([0, frame[begin], frame[begin + 1], frame[begin + 2]]);
        if psn >= NEAR {
            break;
        }
        assert!(attempt < 60_000, "no starting PSN close to wrapping");
        let side = &mut hosts.sides[0];
        side.engine.connections().release(hosts.now, side.conn.take().unwrap());
        side.engine.destroy_qp(&side.qp);
        side.qp = side.engine.create_qp(crate::two_hosts::spec(side.pd, &side.cq, &hosts.options)).unwrap();
        hosts.run_for(Duration::from_secs(3));
    }
    hosts.cut = [false; 2];
    hosts.capture = None;
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    hosts.run_until("the connection", |hosts| {
        hosts.has_event(1, |e| matches!(e, ConnEvent::Established { .. }))
    });
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (bob.source(&pattern(5_000_000, 1)), alice.shared(5_000_000));
    bob.write(1, &[source.all()], &remote, 0);
    hosts.run();
    assert_eq!(hosts.sides[1].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(remote.read(), pattern(5_000_000, 1));
}

/// Short messages as well as long ones: what is beyond the window waits for acknowledgements.
#[test]
fn no_more_packets_than_a_window_are_unacknowledged() {
    for length in [8, 600] {
        let config = |config: &mut roce::Config| config.window = 4;
        let mut hosts =
            TwoHosts::connected(Options { config, send_depth: 16, recv_depth: 16, ..Options::default() });
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(&pattern(length, 1)), bob.sink(length));
        for context in 0..16 {
            bob.recv(context, &[sink.all()]);
            alice.send(context, &[source.all()]);
        }
        assert_eq!(alice.transmit(hosts.now, 100).len(), 4, "{length} bytes");
        hosts.run();
        let all: Vec<_> = (0..16).map(|context| (context, CompletionStatus::Success)).collect();
        assert_eq!(hosts.sides.each_ref().map(crate::two_hosts::Side::outcomes), [all.clone(), all]);
    }
}

/// An ACK is requested by the last packet of a message, by one in 32, and by the first one of a burst that measures the path.
//= rocev2 §7
#[test]
fn few_packets_request_an_ack() {
    let mut hosts = TwoHosts::connected(Options::default());
    let mtu = hosts.options.mtu.bytes();
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&pattern(100 * mtu, 1)), bob.shared(100 * mtu));
    // The packets of a message, and which of them request an ACK.
    let cases: [(usize, &[usize]); 3] = [(4, &[0, 3]), (100, &[27, 59, 91, 99]), (2, &[1])];
    for (packets, expected) in cases {
        hosts.capture = Some(Vec::new());
        hosts.sides[0].write(1, &[source.sge(0, packets * mtu)], &target, 0);
        hosts.run();
        let capture = hosts.capture.take().unwrap();
        let sent =
            capture.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| Packet::parse(frame).unwrap());
        let sent = sent.filter(|packet| packet.bth().opcode() != Opcode::ACKNOWLEDGE).collect::<Vec<_>>();
        assert_eq!(sent.len(), packets);
        let asking = (0..packets).filter(|&number| sent[number].bth().ack_req()).collect::<Vec<_>>();
        assert_eq!(asking, expected, "{packets} packets");
    }
}
