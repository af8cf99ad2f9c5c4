// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failed requests and their effect on other requests.

use std::time::Duration;

use roce::{
    Access, CompletionKind, CompletionStatus, ConnError, ConnEvent, DisconnectOutcome, QpState, SendFlags,
    SendOperation, Sge,
};
use roce_wire::{Opcode, Packet};

use crate::two_hosts::{Options, Side, TwoHosts, pattern};

/// Creates an invalid element at alice.
type MakeSge = fn(&TwoHosts) -> Sge;

/// Posts a valid WRITE, the invalid request and another valid WRITE. Returns the requester's completions.
fn with_bad(hosts: &mut TwoHosts, operation: SendOperation, sges: &[Sge]) -> Vec<(u64, CompletionStatus)> {
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(b"good"), bob.shared(4));
    alice.write(1, &[source.all()], &remote, 0);
    alice.post(2, operation, SendFlags::empty(), sges).unwrap();
    alice.write(3, &[source.all()], &remote, 0);
    hosts.run();
    assert_eq!(remote.read(), b"good");
    assert_eq!(hosts.sides[0].qp.state(), QpState::Error);
    hosts.sides[0].outcomes()
}

fn fails_with(status: CompletionStatus) -> Vec<(u64, CompletionStatus)> {
    vec![(1, CompletionStatus::Success), (2, status), (3, CompletionStatus::Flushed)]
}

//= R-QP-43
//= R-QP-44
//= R-QP-59
//= R-MR-57
#[test]
fn invalid_local_elements_fail_the_request() {
    let bad: [(&str, MakeSge); 6] = [
        ("past the end", |hosts| hosts.sides[0].source(b"four").sge(1, 4)),
        ("before the start", |hosts| {
            let sge = hosts.sides[0].source(b"four").all();
            Sge { address: sge.address - 1, ..sge }
        }),
        ("unknown key", |hosts| Sge { key: 0x1234_5600, ..hosts.sides[0].source(b"four").all() }),
        ("another domain", |hosts| {
            let side = &hosts.sides[0];
            side.memory_of(side.engine.create_pd(), 4, Access::all()).all()
        }),
        ("deregistered", |hosts| {
            let memory = hosts.sides[0].source(b"four");
            assert!(hosts.sides[0].engine.memory().deregister(&memory.region));
            memory.all()
        }),
        ("no logical range", |_| Sge { address: 1 << 41, length: 4, key: roce::PRIVILEGED_KEY }),
    ];
    for (what, sge) in bad {
        let mut hosts = TwoHosts::connected(Options::default());
        let sge = sge(&hosts);
        let sink = hosts.sides[1].sink(8);
        hosts.sides[1].recv(1, &[sink.all()]);
        let outcomes = with_bad(&mut hosts, SendOperation::Send, &[sge]);
        assert_eq!(outcomes, fails_with(CompletionStatus::LocalProtection), "{what}");
        // No packet of the request reached the peer.
        assert_eq!(hosts.sides[1].stat("rx_sends"), 0, "{what}");
    }
}

/// Requests before one that cannot be sent are sent again if they are lost.
//= R-QP-44
#[test]
fn a_lost_request_before_one_that_fails_is_sent_again() {
    let mut hosts = TwoHosts::connected(Options::default());
    let mut lost = false;
    hosts.filter = Some(Box::new(move |to, _| to != 1 || core::mem::replace(&mut lost, true)));
    let bad = Sge { key: 0x1234_5600, ..hosts.sides[0].source(b"four").all() };
    let outcomes = with_bad(&mut hosts, SendOperation::Send, &[bad]);
    assert_eq!(outcomes, fails_with(CompletionStatus::LocalProtection));
    assert_eq!(hosts.sides[0].stat("tail_probes"), 1);
}

//= R-QP-45
#[test]
fn a_read_requires_local_write_access() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (sink, remote) = (alice.source(b"mine"), bob.shared(4));
    let read = SendOperation::Read { address: remote.address(0), key: remote.key() };
    let outcomes = with_bad(&mut hosts, read, &[sink.all()]);
    assert_eq!(outcomes, fails_with(CompletionStatus::LocalProtection));
    assert_eq!(sink.read(), b"mine");
}

//= R-QP-55
//= R-QP-57
//= R-QP-58
//= R-QP-60
//= R-MR-10
//= R-MR-15
//= R-MR-16
//= R-MR-53
//= rocev2 §10
#[test]
fn remote_access_is_limited_to_the_regions_rights_and_range() {
    let key = |memory: &crate::two_hosts::Memory| memory.key();
    let cases: [(&str, Access, i64, u64, Option<u32>); 8] = [
        ("no right", Access::LOCAL_WRITE, 0, 4, None),
        ("past the end", Access::all(), 1, 4, None),
        ("before the start", Access::all(), -1, 4, None),
        ("far away", Access::all(), i64::MAX, 4, None),
        ("too long", Access::all(), 0, 5, None),
        ("unknown key", Access::all(), 0, 4, Some(0x00AB_CD00)),
        ("privileged key", Access::all(), 0, 4, Some(roce::PRIVILEGED_KEY)),
        ("another variant", Access::all(), 0, 4, Some(1)),
    ];
    for reading in [false, true] {
        for (what, access, offset, len, other) in cases {
            let mut hosts = TwoHosts::connected(Options::default());
            let [alice, bob] = &hosts.sides;
            let (local, target, waiting) = (alice.shared(8), bob.memory(4, access), bob.sink(4));
            target.write(b"safe");
            bob.recv(9, &[waiting.all()]);
            let address = target.address(0).wrapping_add_signed(offset);
            let key = match other {
                Some(1) => key(&target) | 1,
                Some(other) => other,
                None => key(&target),
            };
            let operation = if reading {
                SendOperation::Read { address, key }
            } else {
                SendOperation::Write { address, key }
            };
            let outcomes = with_bad(&mut hosts, operation, &[local.sge(0, len as usize)]);
            assert_eq!(outcomes, fails_with(CompletionStatus::RemoteAccess), "{what}, reading: {reading}");
            assert_eq!(target.read(), b"safe");
            assert_eq!(local.read(), [0; 8]);
            let bob = &hosts.sides[1];
            assert_eq!(bob.outcomes(), [(9, CompletionStatus::Flushed)], "{what}");
            assert_eq!(bob.stat("tx_nak_access"), 1);
            for side in 0..2 {
                let aborts = hosts.sides[side]
                    .conn_events
                    .iter()
                    .filter(|(_, _, e)| matches!(e, ConnEvent::Aborted | ConnEvent::Disconnected))
                    .count();
                assert_eq!(aborts, 1, "{what}: {:?}", hosts.sides[side].conn_events);
            }
        }
    }
}

//= rocev2 §5
#[test]
fn the_address_of_a_zero_length_request_is_not_checked() {
    let mut hosts = TwoHosts::connected(Options::default());
    let alice = &hosts.sides[0];
    let empty = SendFlags::empty();
    alice.post(1, SendOperation::Write { address: 1, key: 2 }, empty, &[]).unwrap();
    alice.post(2, SendOperation::Read { address: 1, key: 2 }, empty, &[]).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]);
}

//= R-QP-15
#[test]
fn an_element_of_length_zero_is_not_checked() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let nowhere = Sge { address: 1, length: 0, key: 2 };
    let operation = SendOperation::Write { address: 1, key: 2 };
    bob.recv(3, &[nowhere]);
    alice.send(1, &[nowhere]);
    alice.post(2, operation, SendFlags::empty(), &[nowhere]).unwrap();
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [1, 2].map(|context| (context, CompletionStatus::Success)));
    assert_eq!(hosts.sides[1].outcomes(), [(3, CompletionStatus::Success)]);
}

//= R-QP-46
//= R-QP-47
#[test]
fn a_message_longer_than_the_receive_fails_on_both_sides() {
    for size in [9, 5000] {
        let mut hosts = TwoHosts::connected(Options::default());
        let [alice, bob] = &hosts.sides;
        let (source, sink, next) = (alice.source(&pattern(size, 1)), bob.sink(20), bob.sink(8));
        bob.recv(7, &[sink.sge(4, 8)]);
        bob.recv(8, &[next.all()]);
        let outcomes = with_bad(&mut hosts, SendOperation::Send, &[source.all()]);
        assert_eq!(outcomes, fails_with(CompletionStatus::RemoteInvalidRequest));
        let bob = hosts.sides[1].completions();
        let seen: Vec<_> = bob.iter().map(|c| (c.context, c.kind, c.status)).collect();
        assert_eq!(
            seen,
            [
                (7, CompletionKind::Receive, CompletionStatus::LocalLength),
                (8, CompletionKind::Receive, CompletionStatus::Flushed)
            ]
        );
        assert_eq!(sink.read()[..4], [0; 4]);
        assert_eq!(sink.read()[12..], [0; 8]);
    }
}

//= R-QP-43
#[test]
fn a_receive_without_local_write_access_fails_on_both_sides() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"four"), bob.source(b"none"));
    bob.recv(7, &[sink.all()]);
    let outcomes = with_bad(&mut hosts, SendOperation::Send, &[source.all()]);
    assert_eq!(outcomes, fails_with(CompletionStatus::RemoteOperation));
    assert_eq!(hosts.sides[1].outcomes(), [(7, CompletionStatus::LocalProtection)]);
    assert_eq!(sink.read(), b"none");
}

//= R-QP-78
//= R-QP-79
#[test]
fn send_invalidate_of_a_normal_region_is_rejected() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink, region) = (alice.source(b"four"), bob.sink(8), bob.shared(8));
    bob.recv(7, &[sink.all()]);
    let operation = SendOperation::SendInvalidate { key: region.key() };
    let outcomes = with_bad(&mut hosts, operation, &[source.all()]);
    assert_eq!(outcomes, fails_with(CompletionStatus::RemoteAccess));
    assert_eq!(hosts.sides[1].outcomes(), [(7, CompletionStatus::LocalAccess)]);
}

//= R-QP-90
//= rocev2 §7
#[test]
fn requests_to_a_vanished_peer_fail_in_bounded_time() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote, sink) = (alice.source(&pattern(9000, 1)), bob.shared(9000), alice.sink(8));
    alice.recv(9, &[sink.all()]);
    for i in 0..3 {
        alice.write(i, &[source.all()], &remote, 0);
    }
    hosts.options.loss = 1000;
    let start = hosts.now;
    hosts.run_until("the end", |hosts| hosts.sides[0].qp.is_drained());
    let took = hosts.now.duration_since(start);
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(5), "{took:?}");
    let expected = [
        CompletionStatus::RetryExceeded,
        CompletionStatus::Flushed,
        CompletionStatus::Flushed,
        CompletionStatus::Flushed,
    ];
    assert_eq!(hosts.sides[0].outcomes(), [0, 1, 2, 9].into_iter().zip(expected).collect::<Vec<_>>());
    assert!(hosts.sides[0].conn_events.iter().any(|(_, _, e)| matches!(e, ConnEvent::Aborted)));
}

//= R-QP-90
//= rocev2 §8
#[test]
fn an_excessive_ack_timeout_of_the_peer_is_limited_to_ten_seconds() {
    // The active side requests the longest ACK timeout, which the passive side would have to use.
    let config: fn(&mut roce::Config) = |config| config.timing.ack_timeout = Duration::from_hours(3);
    let mut hosts = TwoHosts::connected(Options { config, ..Options::default() });
    for side in &hosts.sides {
        side.write(1, &[side.source(b"lost").all()], &side.shared(4), 0);
    }
    hosts.options.loss = 1000;
    let start = hosts.now;
    hosts.run_until("the end", |hosts| hosts.sides.iter().all(|side| side.qp.is_drained()));
    let took = hosts.now.duration_since(start);
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
    for side in &hosts.sides {
        assert_eq!(side.outcomes(), [(1, CompletionStatus::RetryExceeded)]);
    }
}

/// A transmit queue with slots for headers only.
struct ShortSlots([u8; 200]);

impl roce::Transmit for ShortSlots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }

    fn commit(&mut self, _len: usize) {}
}

#[test]
fn a_frame_larger_than_the_transmit_slot_ends_its_queue_pair() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, remote) = (alice.source(&pattern(500, 1)), bob.shared(500));
    alice.write(1, &[source.all()], &remote, 0);
    alice.write(2, &[source.all()], &remote, 0);
    alice.engine.first_shard().poll_transmit(hosts.now, &mut ShortSlots([0; 200]), 8);
    assert_eq!(alice.outcomes(), [(1, CompletionStatus::LocalOperation), (2, CompletionStatus::Flushed)]);
    hosts.run();
    assert!(hosts.has_event(0, |event| matches!(event, ConnEvent::Aborted)));
}

//= R-QP-7
#[test]
fn a_send_without_receive_fails_with_rnr_retry_exceeded() {
    let mut hosts = TwoHosts::connected(Options::default());
    let source = hosts.sides[0].source(b"anyone?");
    hosts.sides[0].send(1, &[source.all()]);
    let start = hosts.now;
    hosts.run_until("the end", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RnrRetryExceeded)]);
    let took = hosts.now.duration_since(start);
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31), "{took:?}");
}

//= rocev2 §7
#[test]
fn rnr_retries_are_counted() {
    let options = Options { config: |config| config.timing.rnr_retries = 3, ..Options::default() };
    let mut hosts = TwoHosts::connected(options);
    let source = hosts.sides[0].source(b"anyone?");
    hosts.sides[0].send(1, &[source.all()]);
    hosts.run_until("the end", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RnrRetryExceeded)]);
    assert_eq!(hosts.sides[1].stat("tx_nak_rnr"), 4);
}

/// Returns the numbers of completions, of those that were flushed and of those that failed otherwise.
fn completed(side: &Side) -> [u64; 3] {
    ["completions", "completions_flushed", "completions_failed"].map(|name| side.stat(name))
}

//= R-QP-27
//= R-QP-62
//= R-QP-65
//= R-QP-68
#[test]
fn a_flush_completes_all_requests_in_order() {
    let mut hosts = TwoHosts::connected(Options::default());
    let alice = &hosts.sides[0];
    let (source, sink) = (alice.source(b"lost"), alice.sink(8));
    for i in 0..10 {
        alice.recv(100 + i, &[sink.all()]);
        let flags = if i % 2 == 0 { SendFlags::SILENT } else { SendFlags::empty() };
        alice.post(i, SendOperation::Send, flags, &[source.all()]).unwrap();
    }
    hosts.drive();
    let alice = &hosts.sides[0];
    alice.engine.arm_cq(&alice.cq, roce::Arm::Any);
    alice.engine.flush(&alice.qp);
    alice.engine.flush(&alice.qp);
    hosts.drive();
    assert_eq!(hosts.sides[0].cq_notifications, [1]);
    let outcomes = hosts.sides[0].outcomes();
    let expected: Vec<_> = (0..10).chain(100..110).map(|i| (i, CompletionStatus::Flushed)).collect();
    assert_eq!(outcomes, expected);
    // A receive posted later is flushed at once.
    hosts.sides[0].recv(55, &[sink.all()]);
    assert_eq!(hosts.sides[0].outcomes(), [(55, CompletionStatus::Flushed)]);
    assert_eq!(completed(&hosts.sides[0]), [21, 21, 0]);
}

//= R-QP-63
#[test]
fn destroying_a_queue_pair_does_not_affect_others() {
    let mut hosts = TwoHosts::connected(Options::default());
    let alice = &hosts.sides[0];
    let other = alice.engine.create_qp(crate::two_hosts::spec(alice.pd, &alice.cq, &hosts.options)).unwrap();
    let sink = alice.sink(8);
    let request = roce::RecvRequest { context: 5, sges: &[sink.all()] };
    alice.engine.post_recv(&other, &request).unwrap();
    alice.engine.destroy_qp(&other);
    alice.engine.destroy_qp(&other);
    assert_eq!(alice.outcomes(), [(5, CompletionStatus::Flushed)]);
    let (source, sink) = (hosts.sides[0].source(b"still"), hosts.sides[1].sink(5));
    hosts.sides[1].recv(1, &[sink.all()]);
    hosts.sides[0].send(1, &[source.all()]);
    hosts.run();
    assert_eq!(sink.read(), b"still");
    assert_eq!(hosts.sides.each_ref().map(completed), [[2, 1, 0], [1, 0, 0]]);
}

/// The NAK that ends the connection and the DREQ that it causes arrive before the driver polls events.
//= R-QP-60, R-CONN-87, R-PERF-5
#[test]
fn a_connection_has_failed_if_a_disconnect_follows_a_fatal_nak_at_once() {
    // The NAK with the DREQ that follows it, or alone: then the peer's DREQ meets a driver that has not polled yet.
    for frames in [2, 1] {
        let mut hosts = with_fatal_nak_pending();
        let [alice, bob] = &hosts.sides;
        let answers = bob.transmit(hosts.now, frames);
        assert_eq!(answers.len(), frames);
        for frame in &answers {
            alice.engine.first_shard().handle_frame(hosts.now, frame);
        }
        for frame in alice.transmit(hosts.now, 8) {
            bob.engine.first_shard().handle_frame(hosts.now, &frame);
        }
        assert_eq!(alice.outcomes(), [(1, CompletionStatus::RemoteAccess)]);
        for side in 0..2 {
            hosts.take_events(side);
            assert!(hosts.has_event(side, |event| matches!(event, ConnEvent::Aborted)), "{side}, {frames}");
            assert!(
                !hosts.has_event(side, |event| matches!(event, ConnEvent::Disconnected)),
                "{side}, {frames}"
            );
        }
    }
}

/// Returns two hosts of which bob has handled a request that ends the connection by a NAK, which he has not sent yet.
fn with_fatal_nak_pending() -> TwoHosts {
    let hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let source = alice.source(b"no such key");
    let operation = SendOperation::Write { address: 0, key: 1 };
    alice.post(1, operation, SendFlags::empty(), &[source.all()]).unwrap();
    for frame in alice.transmit(hosts.now, 8) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    hosts
}

fn disconnect_outcomes(hosts: &TwoHosts, side: usize) -> Vec<DisconnectOutcome> {
    let events = hosts.sides[side].conn_events.iter();
    events
        .filter_map(|(_, _, event)| match event {
            ConnEvent::DisconnectDone(outcome) => Some(*outcome),
            _ => None,
        })
        .collect()
}

/// The consumer disconnects between the failure and the transmission of the NAK.
//= R-CONN-81, R-PERF-5, R-QP-55
#[test]
fn a_disconnect_before_a_fatal_nak_is_sent_ends_a_failed_connection_behind_the_nak() {
    let mut hosts = with_fatal_nak_pending();
    let bob = &hosts.sides[1];
    let conn = bob.conn.unwrap();
    assert_eq!(bob.qp.state(), QpState::Error);
    bob.engine.connections().disconnect(hosts.now, conn).unwrap();
    assert_eq!(bob.engine.connections().disconnect(hosts.now, conn), Err(ConnError::State), "a second time");
    hosts.take_events(1);
    assert_eq!(disconnect_outcomes(&hosts, 1), []);
    let frames = hosts.sides[1].transmit(hosts.now, 8);
    let opcodes: Vec<_> = frames.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect();
    assert_eq!(opcodes, [Opcode::ACKNOWLEDGE, Opcode::UD_SEND_ONLY], "the NAK, then the DREQ");
    for frame in &frames {
        hosts.sides[0].engine.first_shard().handle_frame(hosts.now, frame);
    }
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RemoteAccess)]);
    hosts.run();
    assert_eq!(disconnect_outcomes(&hosts, 1), [DisconnectOutcome::Aborted]);
    for side in 0..2 {
        assert!(hosts.has_event(side, |event| matches!(event, ConnEvent::Aborted)), "{side}");
        assert_eq!(hosts.sides[side].stat("connections_aborted"), 1, "{side}");
    }
}

/// The peer's DREQ, or its REJ, is in the same batch as its bad request.
//= R-QP-60, R-PERF-5
#[test]
fn a_connection_has_failed_if_the_peer_disconnects_before_the_fatal_nak_is_sent() {
    for with_disconnect in [false, true] {
        let mut hosts = with_fatal_nak_pending();
        let [alice, bob] = &hosts.sides;
        alice.engine.connections().disconnect(hosts.now, alice.conn.unwrap()).unwrap();
        if with_disconnect {
            bob.engine.connections().disconnect(hosts.now, bob.conn.unwrap()).unwrap();
        }
        for frame in alice.transmit(hosts.now, 8) {
            bob.engine.first_shard().handle_frame(hosts.now, &frame);
        }
        hosts.take_events(1);
        assert!(hosts.has_event(1, |event| matches!(event, ConnEvent::Aborted)));
        assert!(!hosts.has_event(1, |event| matches!(event, ConnEvent::Disconnected)));
        assert_eq!(disconnect_outcomes(&hosts, 1).len(), usize::from(with_disconnect));
        hosts.run();
        assert_eq!(disconnect_outcomes(&hosts, 0), [DisconnectOutcome::Graceful]);
        let done = with_disconnect.then_some(DisconnectOutcome::Aborted);
        assert_eq!(disconnect_outcomes(&hosts, 1), Vec::from_iter(done));
        assert_eq!(hosts.sides[1].stat("connections_aborted"), 1);
    }
}

/// The queue pair is destroyed, or the connection released, with the NAK unsent: a disconnect that waits for it ends.
//= R-CONN-81
#[test]
fn a_disconnect_ends_if_the_fatal_nak_is_never_sent() {
    let mut hosts = with_fatal_nak_pending();
    let bob = &hosts.sides[1];
    bob.engine.connections().disconnect(hosts.now, bob.conn.unwrap()).unwrap();
    bob.engine.flush(&bob.qp);
    hosts.take_events(1);
    assert_eq!(disconnect_outcomes(&hosts, 1), [DisconnectOutcome::Aborted]);
    let mut hosts = with_fatal_nak_pending();
    let bob = &hosts.sides[1];
    bob.engine.connections().disconnect(hosts.now, bob.conn.unwrap()).unwrap();
    bob.engine.connections().release(hosts.now, bob.conn.unwrap());
    hosts.take_events(1);
    assert_eq!(disconnect_outcomes(&hosts, 1), [], "no event follows a release");
}
