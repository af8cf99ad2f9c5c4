// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues that are moderated or resized while in use.

use std::time::Duration;

use roce::{Arm, CompletionStatus, Moderation, ModifyError, SendFlags, SendOperation};

use crate::two_hosts::{Options, TwoHosts};

const INTERVAL: Duration = Duration::from_millis(10);

const BY_INTERVAL: Option<Moderation> = Some(Moderation { interval: Some(INTERVAL), count: None });

/// Two connected hosts whose bob has a moderated, armed queue of depth 16.
fn armed(moderation: Option<Moderation>) -> TwoHosts {
    let hosts = TwoHosts::connected(Options { cq_depth: 16, ..Options::default() });
    let bob = &hosts.sides[1];
    bob.engine.moderate_cq(&bob.cq, moderation).unwrap();
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    hosts
}

/// Sends `count` messages to bob, and lets a millisecond pass.
fn receive(hosts: &mut TwoHosts, count: u64) {
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    for context in 0..count {
        bob.recv(context, &[sink.all()]);
        alice.post(context, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    }
    hosts.run_for(Duration::from_millis(1));
}

fn notifications(hosts: &TwoHosts) -> usize {
    hosts.sides[1].cq_notifications.len()
}

//= R-CQ-52, R-CQ-55
#[test]
fn a_moderated_notification_comes_after_the_interval_and_completions_at_once() {
    let mut hosts = armed(BY_INTERVAL);
    receive(&mut hosts, 2);
    assert_eq!((hosts.sides[1].cq.len(), notifications(&hosts)), (2, 0));
    hosts.run_for(Duration::from_micros(8500));
    assert_eq!(notifications(&hosts), 0);
    hosts.run_for(Duration::from_millis(1));
    assert_eq!(notifications(&hosts), 1);
    // The delay begins with the oldest new completion.
    let bob = &hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    receive(&mut hosts, 1);
    hosts.run_for(Duration::from_millis(7));
    receive(&mut hosts, 1);
    assert_eq!(notifications(&hosts), 1);
    hosts.run_for(Duration::from_micros(1500));
    assert_eq!(notifications(&hosts), 2);
    // Completions that are older than the interval satisfy the next arm at once.
    receive(&mut hosts, 1);
    hosts.run_for(INTERVAL);
    let bob = &hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    hosts.run_for(Duration::from_micros(50));
    assert_eq!(notifications(&hosts), 3);
}

//= R-CQ-47
#[test]
fn the_count_ends_the_delay() {
    // Without an interval the count alone decides; with both, the first that is reached.
    for interval in [None, Some(INTERVAL)] {
        let mut hosts = armed(Some(Moderation { interval, count: Some(3) }));
        receive(&mut hosts, 2);
        assert_eq!(notifications(&hosts), 0, "{interval:?}");
        receive(&mut hosts, 1);
        assert_eq!(notifications(&hosts), 1, "{interval:?}");
        hosts.run_for(INTERVAL * 3);
        assert_eq!(notifications(&hosts), 1, "{interval:?}: one per arm");
    }
    let mut hosts = armed(Some(Moderation { interval: None, count: Some(3) }));
    receive(&mut hosts, 2);
    hosts.run_for(INTERVAL * 3);
    assert_eq!(notifications(&hosts), 0, "there is no interval");
    // A queue that is full cannot wait for more.
    let mut hosts = armed(Some(Moderation { interval: None, count: None }));
    receive(&mut hosts, 15);
    assert_eq!(notifications(&hosts), 0);
    receive(&mut hosts, 1);
    assert_eq!(notifications(&hosts), 1);
}

/// The consumer polls while the notification is held back.
//= R-CQ-13, R-CQ-55
#[test]
fn a_held_notification_whose_completions_were_read_is_withdrawn_and_the_arm_stays() {
    let mut hosts = armed(BY_INTERVAL);
    receive(&mut hosts, 1);
    assert_eq!(hosts.sides[1].outcomes(), [(0, CompletionStatus::Success)]);
    hosts.run_for(INTERVAL * 2);
    assert_eq!(notifications(&hosts), 0, "there is nothing to read");
    receive(&mut hosts, 1);
    hosts.run_for(Duration::from_millis(8));
    assert_eq!(notifications(&hosts), 0, "the delay starts with the new completion");
    hosts.run_for(Duration::from_millis(2));
    assert_eq!(notifications(&hosts), 1);
}

//= R-CQ-56
#[test]
fn failures_are_not_delayed() {
    let mut hosts = armed(BY_INTERVAL);
    let bob = &hosts.sides[1];
    bob.recv(1, &[]);
    bob.engine.flush(&bob.qp);
    hosts.run_for(Duration::from_micros(50));
    assert_eq!(notifications(&hosts), 1);
    // An overflow, behind completions that are not new: the queue is full and was notified of them.
    let mut hosts = armed(None);
    receive(&mut hosts, 16);
    assert_eq!(notifications(&hosts), 1);
    let bob = &hosts.sides[1];
    bob.engine.moderate_cq(&bob.cq, BY_INTERVAL).unwrap();
    receive(&mut hosts, 1);
    // It is no longer full when the consumer learns of the overflow.
    let bob = &hosts.sides[1];
    bob.cq.poll(&mut [roce::Completion::EMPTY; 4]);
    bob.engine.arm_cq(&bob.cq, Arm::Errors);
    hosts.run_for(Duration::from_micros(50));
    assert_eq!(notifications(&hosts), 2);
}

/// A failure that was read does not end the delay of what comes later.
//= R-CQ-56
#[test]
fn only_unread_failures_end_a_delay() {
    let mut hosts = armed(BY_INTERVAL);
    let bob = &hosts.sides[1];
    let spec = crate::two_hosts::spec(bob.pd, &bob.cq, &hosts.options);
    let unconnected = bob.engine.create_qp(spec).unwrap();
    bob.engine.post_recv(&unconnected, &roce::RecvRequest { context: 9, sges: &[] }).unwrap();
    bob.engine.flush_unconnected(&unconnected);
    assert_eq!(bob.outcomes(), [(9, CompletionStatus::Flushed)]);
    receive(&mut hosts, 1);
    assert_eq!(notifications(&hosts), 0);
    // Nor does one that was notified.
    hosts.run_for(INTERVAL);
    let bob = &hosts.sides[1];
    bob.engine.post_recv(&unconnected, &roce::RecvRequest { context: 9, sges: &[] }).unwrap();
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    bob.engine.flush_unconnected(&unconnected);
    hosts.run_for(Duration::from_micros(50));
    assert_eq!(notifications(&hosts), 2);
    let bob = &hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    receive(&mut hosts, 1);
    assert_eq!(notifications(&hosts), 2);
}

//= R-CQ-46, R-CQ-51, R-CQ-52
#[test]
fn new_moderation_applies_to_a_notification_that_is_held_back() {
    // There is none at first.
    let mut hosts = armed(None);
    receive(&mut hosts, 1);
    assert_eq!(notifications(&hosts), 1);
    let changes = [
        None,
        Some(Moderation { interval: Some(Duration::from_micros(100)), count: None }),
        Some(Moderation { interval: Some(INTERVAL), count: Some(1) }),
    ];
    for change in changes {
        let mut hosts = armed(BY_INTERVAL);
        receive(&mut hosts, 1);
        let bob = &hosts.sides[1];
        // The second call counts.
        bob.engine.moderate_cq(&bob.cq, Some(Moderation { interval: None, count: Some(9) })).unwrap();
        bob.engine.moderate_cq(&bob.cq, change).unwrap();
        hosts.run_for(Duration::from_micros(200));
        assert_eq!(notifications(&hosts), 1, "{change:?}");
    }
    // Later than before: the earlier timer does not end the delay.
    let mut hosts = armed(BY_INTERVAL);
    receive(&mut hosts, 1);
    let bob = &hosts.sides[1];
    let later = Moderation { interval: Some(INTERVAL * 3), count: None };
    bob.engine.moderate_cq(&bob.cq, Some(later)).unwrap();
    hosts.run_for(INTERVAL * 2);
    assert_eq!(notifications(&hosts), 0);
    hosts.run_for(INTERVAL);
    assert_eq!(notifications(&hosts), 1);
}

/// The notice that is held back, and its timer, end with the queue. Another queue can have the timer.
//= R-CQ-59
#[test]
fn a_destroyed_queue_leaves_its_timer_to_the_next_one() {
    let mut hosts = armed(BY_INTERVAL);
    receive(&mut hosts, 1);
    let bob = &hosts.sides[1];
    assert!(bob.engine.first_shard().poll_timeout().is_some());
    assert_eq!(bob.engine.destroy_cq(&bob.cq), roce::DestroyResult::Now);
    assert_eq!(bob.engine.first_shard().poll_timeout(), None);
    let next = bob.engine.create_cq(4, 50).unwrap();
    bob.engine.moderate_cq(&next, BY_INTERVAL).unwrap();
    bob.engine.arm_cq(&next, Arm::Any);
    hosts.run_for(INTERVAL * 2);
    assert_eq!(notifications(&hosts), 0);
}

//= R-CQ-41
#[test]
fn a_queue_resized_under_traffic_loses_nothing_and_keeps_its_order() {
    let mut hosts = TwoHosts::connected(Options { cq_depth: 4, ..Options::default() });
    let (mut next, mut expected) = (0u64, 0u64);
    // Depths up and down, at every position of the ring.
    for round in 0..40u32 {
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(b"ring"), bob.sink(4));
        for _ in 0..2 {
            bob.recv(next, &[sink.all()]);
            alice.post(next, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
            next += 1;
        }
        hosts.run_for(Duration::from_millis(1));
        let bob = &hosts.sides[1];
        let unread = bob.cq.len();
        bob.engine.resize_cq(&bob.cq, unread + round % 3 + 2).unwrap();
        assert_eq!((bob.cq.len(), bob.cq.depth()), (unread, unread + round % 3 + 2));
        // One or three are read, so that up to three stay.
        let mut results = [roce::Completion::EMPTY; 3];
        let wanted = if unread > 2 { 3 } else { 1 };
        let taken = bob.cq.poll(&mut results[..wanted]);
        for completion in &results[..taken] {
            assert_eq!((completion.context, completion.status), (expected, CompletionStatus::Success));
            expected += 1;
        }
    }
    let rest: Vec<u64> = hosts.sides[1].outcomes().into_iter().map(|(context, _)| context).collect();
    assert_eq!(rest, (expected..next).collect::<Vec<_>>());
    assert_eq!(hosts.sides[1].cq.fault(), None);
}

//= R-CQ-40
#[test]
fn a_queue_is_not_resized_below_its_unread_completions() {
    let mut hosts = armed(None);
    receive(&mut hosts, 5);
    let bob = &hosts.sides[1];
    assert_eq!(bob.engine.resize_cq(&bob.cq, 4), Err(ModifyError::Occupied));
    assert_eq!(bob.engine.resize_cq(&bob.cq, 0), Err(ModifyError::Invalid));
    assert_eq!((bob.cq.depth(), bob.cq.len()), (16, 5));
    bob.engine.resize_cq(&bob.cq, 5).unwrap();
    assert_eq!(bob.outcomes().len(), 5);
    // It holds as many as its new depth, and no more.
    receive(&mut hosts, 5);
    assert_eq!(hosts.sides[1].cq.fault(), None);
    receive(&mut hosts, 1);
    assert!(hosts.sides[1].cq.fault().is_some());
}

/// A queue that has become full by the new depth cannot wait for more.
//= R-CQ-41, R-CQ-47
#[test]
fn resizing_ends_the_delay_of_a_full_queue() {
    let mut hosts = armed(Some(Moderation { interval: None, count: Some(8) }));
    receive(&mut hosts, 4);
    assert_eq!(notifications(&hosts), 0);
    let bob = &hosts.sides[1];
    bob.engine.resize_cq(&bob.cq, 4).unwrap();
    hosts.drive();
    assert_eq!(notifications(&hosts), 1);
}
