// SPDX-License-Identifier: MIT OR Apache-2.0

//! The payload of a received packet is copied to consumer memory without the lock of the queue pair.

use std::cell::RefCell;
use std::rc::Rc;

use roce::{CompletionStatus, QpState, RecvRequest, Verdict, WindowType};

use crate::copies::{MTU, elements, hosts, waits_for_copy, with_releases};
use crate::keys::invalidate;
use crate::two_hosts::{Memory, Side, TwoHosts, pattern};

/// Returns the frames that side 0 has to send.
fn frames(hosts: &TwoHosts) -> Vec<Vec<u8>> {
    hosts.sides[0].transmit(hosts.now, 64)
}

/// Side 1 receives a frame. Calls `at` whenever the lock of its queue pair is released, with the number of times that it was
/// before. Returns the number of times.
fn receive(hosts: &TwoHosts, frame: &[u8], at: impl FnMut(usize) + 'static) -> usize {
    let side = &hosts.sides[1];
    let (verdict, count) =
        with_releases(side, at, || side.engine.first_shard().handle_frame(hosts.now, frame));
    assert_eq!(verdict, Verdict::Consumed);
    count
}

/// Lets the hosts run, and returns what became of the requests of both sides.
fn outcomes(mut hosts: TwoHosts) -> [Vec<(u64, CompletionStatus)>; 2] {
    hosts.run();
    [0, 1].map(|side| hosts.sides[side].outcomes())
}

/// Writes `length` bytes, and returns how often the lock is released for the only packet.
fn releases_of_a_write(length: usize) -> usize {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let data = pattern(length, 1);
    let (source, target) = (alice.source(&data), Rc::new(bob.shared(length)));
    alice.write(1, &[source.all()], &target, 0);
    let before = Rc::new(RefCell::new(Vec::new()));
    let (seen, memory) = (before.clone(), target.clone());
    let count = receive(&hosts, &frames(&hosts)[0], move |_| seen.borrow_mut().push(memory.read()));
    let expected = if count == 2 { vec![vec![0; length], data.clone()] } else { vec![data.clone()] };
    assert!(
        *before.borrow() == expected,
        "the lock is released before the copy, and after the packet is handled"
    );
    assert_eq!(outcomes(hosts), [vec![(1, CompletionStatus::Success)], vec![]]);
    assert_eq!(target.read(), data);
    count
}

/// Sends to a receive of elements of these lengths, and returns how often the lock is released for the only packet.
fn releases_of_a_send(lengths: &[usize]) -> usize {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let total: usize = lengths.iter().sum();
    let data = pattern(total, 1);
    let (source, sink) = (alice.source(&data), bob.sink(total));
    bob.recv(2, &elements(&sink, lengths));
    alice.send(1, &[source.all()]);
    let count = receive(&hosts, &frames(&hosts)[0], |_| ());
    assert_eq!(outcomes(hosts), [1, 2].map(|context| vec![(context, CompletionStatus::Success)]));
    assert_eq!(sink.read(), data);
    count
}

#[test]
fn payload_of_512_bytes_and_more_is_received_without_the_lock() {
    assert_eq!(releases_of_a_write(512), 2);
    assert_eq!(releases_of_a_write(511), 1, "a short payload costs less than the lock");
    assert_eq!(releases_of_a_send(&[1, 600, 2, 421]), 2);
    assert_eq!(releases_of_a_send(&[512]), 2);
    assert_eq!(releases_of_a_send(&[511]), 1);
    assert_eq!(releases_of_a_send(&[100, 100, 100, 100, 624]), 1, "more than four pieces in a packet");
}

/// Messages of several packets arrive whole, in memory of elements that do not end with packets.
#[test]
fn each_packet_of_a_message_is_placed_behind_the_one_before() {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let data = pattern(5 * MTU + 7, 1);
    let (source, sink, target) = (alice.source(&data), bob.sink(5 * MTU + 7), bob.shared(5 * MTU + 7));
    bob.recv(3, &[sink.sge(0, 700), sink.sge(700, 2 * MTU), sink.sge(700 + 2 * MTU, 3 * MTU - 693)]);
    alice.write(1, &[source.all()], &target, 0);
    alice.send(2, &[source.all()]);
    let released: Vec<usize> = frames(&hosts).iter().map(|frame| receive(&hosts, frame, |_| ())).collect();
    assert_eq!(released, [2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 1]);
    let success = |context| (context, CompletionStatus::Success);
    assert_eq!(outcomes(hosts), [vec![success(1), success(2)], vec![success(3)]]);
    assert_eq!((sink.read(), target.read()), (data.clone(), data));
}

/// Posts to both queues do not wait for the copy, and nothing that they post is forgotten.
//= R-QP-8
#[test]
fn posts_during_a_copy_are_accepted() {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&[1; MTU]), Rc::new(bob.sink(2 * MTU)));
    bob.recv(1, &[sink.sge(0, MTU)]);
    alice.send(2, &[source.all()]);
    alice.recv(3, &[alice.sink(MTU).all()]);
    let (engine, qp, from, now) = (bob.engine.clone(), bob.qp.clone(), sink.clone(), hosts.now);
    let post = move |count| {
        if count == 0 {
            engine.post_recv(&qp, &RecvRequest { context: 4, sges: &[from.sge(0, MTU)] }).unwrap();
            let sges = [from.sge(MTU, MTU)];
            let request = roce::SendRequest {
                context: 5,
                operation: roce::SendOperation::Send,
                flags: roce::SendFlags::empty(),
                data: roce::SendData::Sges(&sges),
            };
            engine.post_send(&qp, &request).unwrap();
            // Not before the acknowledgement of the packet, and not lost.
            assert_eq!(engine.first_shard().poll_transmit(now, &mut NoSlots, 1), 0);
        }
    };
    receive(&hosts, &frames(&hosts)[0], post);
    assert!(bob.engine.first_shard().wants_transmit());
    let success = |context| (context, CompletionStatus::Success);
    assert_eq!(outcomes(hosts), [vec![success(2), success(3)], vec![success(1), success(5)]]);
}

struct NoSlots;

impl roce::Transmit for NoSlots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        panic!("a queue pair transmits while a payload is copied")
    }

    fn commit(&mut self, _: usize) {}
}

/// Memory that is deregistered before the copy is not written: the connection ends.
//= R-MR-17
#[test]
fn memory_deregistered_before_the_copy_is_not_written() {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&[1; MTU]), bob.shared(MTU));
    alice.write(1, &[source.all()], &target, 0);
    let (engine, region) = (bob.engine.clone(), target.region.clone());
    let deregister = move |count| assert!(count > 0 || engine.memory().deregister(&region));
    receive(&hosts, &frames(&hosts)[0], deregister);
    assert_eq!(target.read(), [0; MTU]);
    assert_eq!(bob.qp.state(), QpState::Error);
    assert_eq!(outcomes(hosts)[0], [(1, CompletionStatus::RemoteAccess)]);
}

//= R-QP-45
#[test]
fn a_receive_deregistered_before_the_copy_fails() {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(&[1; MTU]), bob.sink(MTU));
    bob.recv(2, &[sink.all()]);
    alice.send(1, &[source.all()]);
    let (engine, region) = (bob.engine.clone(), sink.region.clone());
    receive(&hosts, &frames(&hosts)[0], move |count| {
        assert!(count > 0 || engine.memory().deregister(&region));
    });
    assert_eq!(sink.read(), [0; MTU]);
    let [sent, received] = outcomes(hosts);
    assert_eq!(sent, [(1, CompletionStatus::RemoteOperation)]);
    assert_eq!(received, [(2, CompletionStatus::LocalProtection)]);
}

/// `other` runs in another thread while a payload is copied to a receive, and does not end before the copy: neither is the
/// receive completed, nor has the queue pair changed.
fn waits_for_the_copy(other: impl FnOnce(&Side, &[Vec<u8>], roce::Instant) + Send) -> TwoHosts {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, sink): (Memory, Memory) = (alice.source(&pattern(MTU, 1)), bob.sink(2 * MTU));
    bob.recv(1, &[sink.sge(0, MTU)]);
    bob.recv(2, &[sink.sge(MTU, MTU)]);
    alice.send(3, &[source.all()]);
    alice.send(4, &[source.all()]);
    let sent = frames(&hosts);
    let (later, now) = (&sent[1..], hosts.now);
    waits_for_copy(
        bob,
        |side| other(side, later, now),
        |at| {
            receive(&hosts, &sent[0], at);
        },
    );
    assert_eq!(sink.read()[..MTU], pattern(MTU, 1));
    hosts
}

//= R-QP-2
#[test]
fn a_flush_waits_for_the_copy_of_a_received_payload() {
    let hosts = waits_for_the_copy(|side, _, _| side.engine.flush(&side.qp));
    let outcomes = hosts.sides[1].outcomes();
    assert_eq!(outcomes, [(1, CompletionStatus::Success), (2, CompletionStatus::Flushed)]);
}

/// A local request that fails when it is posted flushes the receives.
//= R-MR-45
//= R-QP-2
#[test]
fn the_post_of_a_local_request_waits_for_the_copy_of_a_received_payload() {
    let hosts = waits_for_the_copy(|side, _, _| {
        let unbound = side.engine.memory().create_window(side.pd, WindowType::Type2).unwrap();
        invalidate(side, 5, unbound.key()).unwrap();
    });
    let mut outcomes = hosts.sides[1].outcomes();
    outcomes.sort_by_key(|(context, _)| *context);
    let expected = [
        (1, CompletionStatus::Success),
        (2, CompletionStatus::Flushed),
        (5, CompletionStatus::MemoryManagement),
    ];
    assert_eq!(outcomes, expected);
}

#[test]
fn destruction_waits_for_the_copy_of_a_received_payload() {
    let hosts = waits_for_the_copy(|side, _, _| side.engine.destroy_qp(&side.qp));
    let outcomes = hosts.sides[1].outcomes();
    assert_eq!(outcomes, [(1, CompletionStatus::Success), (2, CompletionStatus::Flushed)]);
}

/// Packets that another processor receives meanwhile are handled after it, in order.
#[test]
fn the_next_packet_waits_for_the_copy() {
    let hosts = waits_for_the_copy(|side, frames, now| {
        assert_eq!(side.engine.first_shard().handle_frame(now, &frames[0]), Verdict::Consumed);
    });
    let outcomes = hosts.sides[1].outcomes();
    assert_eq!(outcomes, [1, 2].map(|context| (context, CompletionStatus::Success)));
    assert_eq!(hosts.sides[1].stat("rx_out_of_order"), 0);
}

/// Has side 1 read `length` bytes into elements of these lengths. Returns its memory, that of the peer, and the responses.
fn read(hosts: &TwoHosts, lengths: &[usize]) -> (Rc<Memory>, Memory, Vec<Vec<u8>>) {
    let [alice, bob] = &hosts.sides;
    let total: usize = lengths.iter().sum();
    let (source, sink) = (alice.shared(total), Rc::new(bob.sink(total)));
    source.write(&pattern(total, 1));
    bob.read(1, &elements(&sink, lengths), &source, 0);
    for frame in bob.transmit(hosts.now, 64) {
        alice.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    (sink, source, frames(hosts))
}

/// Reads into elements of these lengths, and returns how often the lock is released for each response.
fn releases_of_responses(lengths: &[usize]) -> Vec<usize> {
    let hosts = hosts();
    let (sink, _source, responses) = read(&hosts, lengths);
    let total = lengths.iter().sum();
    let released = responses.iter().map(|frame| {
        let (cq, is_complete) = (hosts.sides[1].cq.clone(), Rc::new(RefCell::new(Vec::new())));
        let seen = is_complete.clone();
        let count = receive(&hosts, frame, move |_| seen.borrow_mut().push(!cq.is_empty()));
        assert!(count == 1 || !is_complete.borrow()[0], "complete before the copy");
        count
    });
    let released = released.collect();
    assert_eq!(outcomes(hosts), [vec![], vec![(1, CompletionStatus::Success)]]);
    assert_eq!(sink.read(), pattern(total, 1));
    released
}

#[test]
fn payload_of_a_read_response_is_stored_without_the_lock() {
    assert_eq!(releases_of_responses(&[512]), [2]);
    assert_eq!(releases_of_responses(&[511]), [1], "a short payload costs less than the lock");
    assert_eq!(releases_of_responses(&[1, 600, 2, 421]), [2]);
    assert_eq!(releases_of_responses(&[100, 100, 100, 100, 624]), [1], "more than four pieces in a packet");
    assert_eq!(releases_of_responses(&[700, 2 * MTU, MTU - 690]), [2, 2, 2, 1]);
}

/// The READ fails, and what follows is flushed.
//= R-QP-43
#[test]
fn the_memory_of_a_read_deregistered_before_the_copy_is_not_written() {
    let hosts = hosts();
    let (sink, _source, responses) = read(&hosts, &[2 * MTU]);
    let (engine, region) = (hosts.sides[1].engine.clone(), sink.region.clone());
    receive(&hosts, &responses[0], |_| ());
    receive(&hosts, &responses[1], move |count| assert!(count > 0 || engine.memory().deregister(&region)));
    assert_eq!(sink.read()[..MTU], pattern(2 * MTU, 1)[..MTU]);
    assert_eq!(sink.read()[MTU..], [0; MTU]);
    assert_eq!(outcomes(hosts)[1], [(1, CompletionStatus::LocalProtection)]);
}

/// The completion of a READ, which returns its memory to the consumer, follows the copy.
//= R-QP-2
#[test]
fn a_flush_waits_for_the_copy_of_a_received_response() {
    let hosts = hosts();
    let (sink, _source, responses) = read(&hosts, &[2 * MTU]);
    let bob = &hosts.sides[1];
    waits_for_copy(
        bob,
        |side| side.engine.flush(&side.qp),
        |at| {
            receive(&hosts, &responses[0], at);
        },
    );
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::Flushed)]);
    assert_eq!(sink.read()[..MTU], pattern(2 * MTU, 1)[..MTU]);
}
