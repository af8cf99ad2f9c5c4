// SPDX-License-Identifier: MIT OR Apache-2.0

//! Payload of requests and READ responses is copied to frames without the lock of the queue pair.

use std::rc::Rc;

use roce::{CompletionStatus, QpState, SendData, SendFlags, SendOperation, SendRequest};

use crate::copies::{MTU, elements, hosts, waits_for_copy, with_releases};
use crate::two_hosts::{Memory, Side, TwoHosts, pattern};

/// Transmits the frames of side 0, see [`transmit_by`].
fn transmit(hosts: &TwoHosts, at: impl FnMut(usize) + 'static) -> (Vec<Vec<u8>>, usize) {
    transmit_by(hosts, 0, at)
}

/// Transmits the frames of a side. Calls `at` whenever the lock of its queue pair is released, with the number of times that it
/// was before. Returns the frames, and that number in the end.
fn transmit_by(hosts: &TwoHosts, side: usize, at: impl FnMut(usize) + 'static) -> (Vec<Vec<u8>>, usize) {
    let side = &hosts.sides[side];
    let mut slots = Slots { slot: vec![0; 1200], frames: Vec::new() };
    let (_, count) =
        with_releases(side, at, || side.engine.first_shard().poll_transmit(hosts.now, &mut slots, 64));
    (slots.frames, count)
}

struct Slots {
    slot: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl roce::Transmit for Slots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

/// Delivers frames to side 1, and runs until nothing is left to do.
fn deliver(hosts: &mut TwoHosts, frames: Vec<Vec<u8>>) {
    for frame in frames {
        hosts.deliver(1, hosts.now, frame);
    }
    hosts.run();
}

/// Posts a WRITE of `sges` to `target` and returns whether the lock is released for the copy of the payload, by a change of the
/// source at the first release.
fn copied_without_lock(mut hosts: TwoHosts, lengths: &[usize]) -> bool {
    let total: usize = lengths.iter().sum();
    let (before, after) = (pattern(total, 1), pattern(total, 2));
    let [alice, bob] = &hosts.sides;
    let (source, target) = (Rc::new(alice.source(&before)), bob.shared(total));
    alice.write(1, &elements(&source, lengths), &target, 0);
    let (changed, new) = (source.clone(), after.clone());
    let (frames, _) = transmit(&hosts, move |_| changed.write(&new));
    deliver(&mut hosts, frames);
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    let arrived = target.read();
    assert!(arrived == before || arrived == after);
    arrived == after
}

#[test]
fn payload_of_512_bytes_and_more_is_copied_without_the_lock() {
    assert!(copied_without_lock(hosts(), &[512]));
    assert!(copied_without_lock(hosts(), &[3 * MTU]));
    assert!(copied_without_lock(hosts(), &[1, 600, 2, 421]));
    assert!(!copied_without_lock(hosts(), &[511]), "a short payload costs less than the lock");
    assert!(!copied_without_lock(hosts(), &[100, 100, 100, 100, 624]), "more than four pieces in a packet");
}

/// The shorter ones have a path of their own.
#[test]
fn a_send_of_512_bytes_is_copied_without_the_lock() {
    for (length, expected) in [(511, 1), (512, 2)] {
        let mut hosts = hosts();
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(&pattern(length, 1)), bob.sink(length));
        bob.recv(2, &[sink.all()]);
        alice.send(1, &[source.all()]);
        let (frames, released) = transmit(&hosts, |_| ());
        assert_eq!((frames.len(), released), (1, expected), "{length} bytes");
        deliver(&mut hosts, frames);
        assert_eq!(hosts.sides[1].outcomes(), [(2, CompletionStatus::Success)]);
        assert_eq!(sink.read(), pattern(length, 1));
    }
}

/// The lock is released once for each payload, and not held longer.
#[test]
fn each_packet_releases_the_lock_once() {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&[1; 5 * MTU]), bob.shared(5 * MTU));
    alice.write(1, &[source.all()], &target, 0);
    let (frames, released) = transmit(&hosts, |_| ());
    assert_eq!((frames.len(), released), (5, 6));
}

/// Posts while a payload is copied: they do not wait, and their requests follow in order.
//= R-QP-8
#[test]
fn posts_during_a_copy_follow_in_order() {
    let mut hosts = hosts();
    let data = pattern(9 * MTU, 1);
    let [alice, bob] = &hosts.sides;
    let (source, target) = (Rc::new(alice.source(&data)), Rc::new(bob.shared(9 * MTU)));
    alice.write(0, &[source.sge(0, 3 * MTU)], &target, 0);
    let (engine, qp) = (alice.engine.clone(), alice.qp.clone());
    let (from, to) = (source.clone(), target.clone());
    let post = move |count: usize| {
        if count < 2 {
            let at = (count + 1) * 3 * MTU;
            let sges = [from.sge(at, 3 * MTU)];
            let request = SendRequest {
                context: count as u64 + 1,
                operation: SendOperation::Write { address: to.address(at), key: to.key() },
                flags: SendFlags::empty(),
                data: SendData::Sges(&sges),
            };
            engine.post_send(&qp, &request).unwrap();
        }
    };
    let (frames, _) = transmit(&hosts, post);
    assert_eq!(frames.len(), 9, "a packet of a request posted meanwhile was left");
    deliver(&mut hosts, frames);
    assert_eq!(hosts.sides[0].outcomes(), [0, 1, 2].map(|n| (n, CompletionStatus::Success)));
    assert_eq!(target.read(), data);
}

/// Memory that is deregistered while the packet waits for its payload is not read: the request fails.
//= R-QP-44
#[test]
fn memory_deregistered_before_the_copy_fails_the_request() {
    let mut hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&[1; 3 * MTU]), bob.shared(3 * MTU));
    alice.write(1, &[source.all()], &target, 0);
    alice.write(2, &[source.all()], &target, 0);
    let (engine, region) = (alice.engine.clone(), source.region.clone());
    let (frames, _) = transmit(&hosts, move |count| {
        if count == 1 {
            assert!(engine.memory().deregister(&region));
        }
    });
    assert_eq!(frames.len(), 1);
    deliver(&mut hosts, frames);
    let failed = [(1, CompletionStatus::LocalProtection), (2, CompletionStatus::Flushed)];
    assert_eq!(hosts.sides[0].outcomes(), failed);
    assert_eq!(target.read()[MTU..], [0; 2 * MTU]);
}

/// The end of a request waits until the payload of one is copied, so that the consumer gets no memory back that is still read.
fn ends_after_the_copy(end: fn(&Side)) {
    let hosts = hosts();
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&[1; MTU]), bob.shared(MTU));
    alice.write(1, &[source.all()], &target, 0);
    waits_for_copy(alice, end, |at| assert_eq!(transmit(&hosts, at).0.len(), 1));
    assert_eq!(alice.outcomes(), [(1, CompletionStatus::Flushed)]);
}

//= R-QP-2
#[test]
fn a_flush_waits_for_the_copy() {
    ends_after_the_copy(|side| side.engine.flush(&side.qp));
}

#[test]
fn destruction_waits_for_the_copy() {
    ends_after_the_copy(|side| side.engine.destroy_qp(&side.qp));
}

/// Has side 0 read `length` bytes of side 1, which has received the request. Returns the memory at either end.
fn requested(hosts: &TwoHosts, length: usize) -> (Memory, Rc<Memory>) {
    let [alice, bob] = &hosts.sides;
    let (sink, target) = (alice.sink(length), Rc::new(bob.shared(length)));
    target.write(&pattern(length, 1));
    alice.read(1, &[sink.all()], &target, 0);
    for frame in alice.transmit(hosts.now, 64) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    (sink, target)
}

/// Delivers READ responses to side 0. Returns what became of the request.
fn answered(hosts: &mut TwoHosts, frames: Vec<Vec<u8>>) -> Vec<(u64, CompletionStatus)> {
    for frame in frames {
        hosts.deliver(0, hosts.now, frame);
    }
    hosts.run();
    hosts.sides[0].outcomes()
}

/// Reads `length` bytes, and returns how often the lock of the responder is released while it sends the response.
fn releases_of_a_response(length: usize) -> usize {
    let mut hosts = hosts();
    let (sink, _target) = requested(&hosts, length);
    let (frames, released) = transmit_by(&hosts, 1, |_| ());
    assert_eq!(frames.len(), length.div_ceil(MTU));
    assert_eq!(answered(&mut hosts, frames), [(1, CompletionStatus::Success)]);
    assert_eq!(sink.read(), pattern(length, 1));
    released
}

#[test]
fn payload_of_read_responses_is_copied_without_the_lock() {
    assert_eq!(releases_of_a_response(512), 2);
    assert_eq!(releases_of_a_response(5 * MTU), 6);
    assert_eq!(releases_of_a_response(511), 1, "a short payload costs less than the lock");
    assert_eq!(releases_of_a_response(2 * MTU + 7), 3);
}

/// A request that another processor posts meanwhile is neither lost nor sent before, and requests and responses take turns.
//= R-QP-8
#[test]
fn posts_during_the_copy_of_a_response_are_accepted() {
    let mut hosts = hosts();
    let (sink, _target) = requested(&hosts, 3 * MTU);
    let [alice, bob] = &hosts.sides;
    alice.recv(2, &[alice.sink(8).all()]);
    let (engine, qp, source) = (bob.engine.clone(), bob.qp.clone(), bob.source(&[1; 8]));
    let post = move |count| {
        if count == 0 {
            let (operation, flags) = (SendOperation::Send, SendFlags::empty());
            let (sges, context) = ([source.all()], 3);
            let request = SendRequest { context, operation, flags, data: SendData::Sges(&sges) };
            engine.post_send(&qp, &request).unwrap();
        }
    };
    let (frames, _) = transmit_by(&hosts, 1, post);
    assert_eq!(frames.len(), 4);
    let mut outcomes = answered(&mut hosts, frames);
    outcomes.sort_unstable_by_key(|(context, _)| *context);
    assert_eq!(outcomes, [1, 2].map(|context| (context, CompletionStatus::Success)));
    assert_eq!(hosts.sides[1].outcomes(), [(3, CompletionStatus::Success)]);
    assert_eq!(sink.read(), pattern(3 * MTU, 1));
}

/// Memory that is deregistered before its copy is not sent: a NAK is.
//= R-MR-17
#[test]
fn memory_deregistered_before_the_copy_of_a_response_is_not_sent() {
    let mut hosts = hosts();
    let (sink, target) = requested(&hosts, 3 * MTU);
    let (engine, region) = (hosts.sides[1].engine.clone(), target.region.clone());
    let (frames, _) = transmit_by(&hosts, 1, move |count| {
        if count == 1 {
            assert!(engine.memory().deregister(&region));
        }
    });
    assert_eq!(frames.len(), 2, "a response and the NAK");
    assert_eq!(answered(&mut hosts, frames), [(1, CompletionStatus::RemoteAccess)]);
    assert_eq!(hosts.sides[1].qp.state(), QpState::Error);
    assert_eq!(sink.read()[MTU..], [0; 2 * MTU]);
}

/// A peer does not request again what it has read, but a copy of its request may arrive late: if its memory is gone, that ends
/// nothing, and what follows is sent.
#[test]
fn a_late_request_for_memory_that_is_gone_ends_nothing() {
    let mut hosts = hosts();
    let (sink, target) = (hosts.sides[0].sink(MTU), hosts.sides[1].shared(MTU));
    hosts.sides[0].read(1, &[sink.all()], &target, 0);
    let requests = hosts.sides[0].transmit(hosts.now, 64);
    for late in [false, true] {
        for request in &requests {
            hosts.sides[1].engine.first_shard().handle_frame(hosts.now, request);
        }
        if late {
            assert!(hosts.sides[1].engine.memory().deregister(&target.region));
            hosts.sides[0].recv(2, &[sink.all()]);
            hosts.sides[1].send(3, &[hosts.sides[1].source(&[1; 8]).all()]);
        }
        let (frames, _) = transmit_by(&hosts, 1, |_| ());
        assert_eq!(frames.len(), 1);
        let context = 1 + u64::from(late);
        assert_eq!(answered(&mut hosts, frames), [(context, CompletionStatus::Success)]);
    }
    assert_eq!(hosts.sides[1].outcomes(), [(3, CompletionStatus::Success)]);
}

/// The peer's next request waits for the copy, and the queue pair's flush.
#[test]
fn a_flush_waits_for_the_copy_of_a_response() {
    let hosts = hosts();
    let (_sink, _target) = requested(&hosts, MTU);
    let bob = &hosts.sides[1];
    waits_for_copy(
        bob,
        |side| side.engine.flush(&side.qp),
        |at| assert_eq!(transmit_by(&hosts, 1, at).0.len(), 1),
    );
    assert_eq!(bob.qp.state(), QpState::Error);
}
