// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: arming, notifications, overflow.

use roce::{
    Arm, CompletionStatus, Config, ConnEvent, CqFault, DestroyResult, DisconnectOutcome, EngineEvent,
    QpState, SendFlags, SendOperation, Transmit,
};

use crate::two_hosts::{Options, TwoHosts, on_release, poll, spec};

/// An event of an armed queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CqEvent {
    Plain,
    Solicited,
    Failed,
    Overflow,
}

/// Arms bob's queue with `arms` in order and causes an event. Returns the number of notifications.
fn notifications(arms: &[Arm], event: CqEvent) -> usize {
    let cq_depth = if event == CqEvent::Overflow { 1 } else { 16 };
    let mut hosts = TwoHosts::connected(Options { cq_depth, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    let flags = if event == CqEvent::Solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
    if event == CqEvent::Overflow {
        // The queue is full, and the consumer was notified of it.
        bob.recv(0, &[sink.all()]);
        alice.post(0, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
        hosts.run();
        let bob = &hosts.sides[1];
        bob.engine.arm_cq(&bob.cq, Arm::Any);
        hosts.drive();
        hosts.sides[1].cq_notifications.clear();
    }
    let [alice, bob] = &hosts.sides;
    for arm in arms {
        bob.engine.arm_cq(&bob.cq, *arm);
    }
    bob.recv(1, &[sink.all()]);
    if event == CqEvent::Failed {
        bob.engine.flush(&bob.qp);
    } else {
        alice.post(1, SendOperation::Send, flags | SendFlags::SILENT, &[source.all()]).unwrap();
    }
    hosts.run_for(std::time::Duration::from_millis(3));
    hosts.sides[1].cq_notifications.len()
}

//= R-CQ-2
//= R-CQ-3
//= R-CQ-4
//= R-CQ-5
//= R-CQ-6
//= R-CQ-7
//= R-CQ-35
//= R-QP-76
#[test]
fn an_armed_queue_notifies_of_the_requested_events() {
    use CqEvent::{Failed, Overflow, Plain, Solicited};
    let table = [
        (None, [0, 0, 0, 0]),
        (Some(Arm::Errors), [0, 0, 0, 1]),
        (Some(Arm::Solicited), [0, 1, 1, 1]),
        (Some(Arm::Any), [1, 1, 1, 1]),
    ];
    for (arm, expected) in table {
        let arms: Vec<_> = arm.into_iter().collect();
        let actual = [Plain, Solicited, Failed, Overflow].map(|event| notifications(&arms, event));
        assert_eq!(actual, expected, "{arm:?}");
    }
}

//= R-CQ-8
//= R-CQ-9
#[test]
fn the_broader_of_two_arms_applies() {
    for first in Arm::ALL {
        for second in Arm::ALL {
            let merged = first.max(second);
            assert_eq!(first.merge(second), merged);
            for event in [CqEvent::Plain, CqEvent::Solicited, CqEvent::Failed] {
                let both = notifications(&[first, second], event);
                assert_eq!(both, notifications(&[merged], event), "{first:?}, {second:?}: {event:?}");
                assert!(both <= 1);
            }
        }
    }
}

/// Sends a message to bob, optionally with solicited event.
fn receive(hosts: &mut TwoHosts, solicited: bool) {
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    bob.recv(1, &[sink.all()]);
    let flags = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
    alice.post(1, SendOperation::Send, flags, &[source.all()]).unwrap();
    hosts.run_for(std::time::Duration::from_millis(1));
}

//= R-CQ-1
//= R-CQ-10
//= R-CQ-11
//= R-CQ-12
//= R-CQ-16
#[test]
fn arming_notifies_at_once_of_new_completions_only() {
    let mut hosts = TwoHosts::connected(Options::default());
    receive(&mut hosts, false);
    let arm = |hosts: &mut TwoHosts, arm| {
        let bob = &hosts.sides[1];
        bob.engine.arm_cq(&bob.cq, arm);
        hosts.drive();
        hosts.sides[1].cq_notifications.len()
    };
    assert_eq!(arm(&mut hosts, Arm::Solicited), 0, "new, but not solicited");
    assert_eq!(arm(&mut hosts, Arm::Any), 1, "new");
    assert_eq!(arm(&mut hosts, Arm::Any), 1, "unread, but already notified");
    receive(&mut hosts, false);
    assert_eq!(hosts.sides[1].cq_notifications.len(), 2);
    receive(&mut hosts, false);
    assert_eq!(hosts.sides[1].cq_notifications.len(), 2, "one notification per arm");
    hosts.sides[1].completions();
    assert_eq!(arm(&mut hosts, Arm::Any), 2, "read since");
    receive(&mut hosts, true);
    assert_eq!(hosts.sides[1].cq_notifications.len(), 3);
}

//= R-CQ-14
//= R-CQ-15
#[test]
fn the_next_notification_waits_for_the_current_one() {
    let hosts = TwoHosts::connected(Options::default());
    let bob = &hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    bob.recv(1, &[sink.all()]);
    bob.recv(2, &[sink.all()]);
    // Bob's own events are polled here, not when the hosts run.
    alice.send(1, &[source.all()]);
    alice.send(2, &[source.all()]);
    let frames = alice.transmit(hosts.now, 8);
    bob.engine.first_shard().handle_frame(hosts.now, &frames[0]);
    let notice = bob.engine.poll_event().expect("a notification");
    assert!(matches!(&notice, EngineEvent::Cq(notice) if notice.fault().is_none() && notice.context() == 2));
    // Within the callback: poll and arm again. The next message arrives before the callback returns.
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::Success)]);
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    bob.engine.first_shard().handle_frame(hosts.now, &frames[1]);
    assert!(bob.engine.poll_event().is_none());
    drop(notice);
    assert!(matches!(bob.engine.poll_event(), Some(EngineEvent::Cq(_))));
    assert!(bob.engine.poll_event().is_none());
}

/// The consumer polls while the notification is queued: nothing is left to read when it would be delivered.
//= R-CQ-13, R-CQ-16, R-CONSUMER-7
#[test]
fn a_notification_whose_completions_were_read_is_withdrawn_and_the_arm_stays() {
    let hosts = TwoHosts::connected(Options::default());
    let bob = &hosts.sides[1];
    let queue_notice = |arms: &[Arm]| {
        for arm in arms {
            bob.engine.arm_cq(&bob.cq, *arm);
        }
        bob.recv(1, &[]);
        bob.engine.flush(&bob.qp);
    };
    queue_notice(&[Arm::Any]);
    assert_eq!(bob.completions().len(), 1);
    assert!(bob.engine.poll_event().is_none_or(|event| !matches!(event, EngineEvent::Cq(_))));
    // The arm has caused no notification: the next completion does.
    queue_notice(&[]);
    // One more arm, while the notification is queued, causes no second one.
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    let notices = std::iter::from_fn(|| bob.engine.poll_event());
    assert_eq!(notices.filter(|event| matches!(event, EngineEvent::Cq(_))).count(), 1);
    assert_eq!(bob.completions().len(), 1);
    // Nor is it lost when it comes after the completions were read.
    queue_notice(&[Arm::Any]);
    bob.completions();
    bob.engine.arm_cq(&bob.cq, Arm::Solicited);
    assert!(bob.engine.poll_event().is_none());
    queue_notice(&[]);
    let notices = std::iter::from_fn(|| bob.engine.poll_event());
    assert_eq!(notices.filter(|event| matches!(event, EngineEvent::Cq(_))).count(), 1);
}

//= R-CQ-59
#[test]
fn a_destroyed_queue_sends_no_notification() {
    let mut hosts = TwoHosts::new(Options::default());
    let engine = &hosts.sides[0].engine;
    let armed = |context| {
        let cq = engine.create_cq(1, context).unwrap();
        let mut spec = crate::two_hosts::spec(hosts.sides[0].pd, &cq, &hosts.options);
        spec.recv_cq = cq.clone();
        let qp = engine.create_qp(spec).unwrap();
        engine.arm_cq(&cq, Arm::Any);
        engine.post_recv(&qp, &roce::RecvRequest { context: 1, sges: &[] }).unwrap();
        engine.destroy_qp(&qp);
        cq
    };
    let queued = armed(50);
    assert_eq!(engine.destroy_cq(&queued), DestroyResult::Now);
    assert!(engine.poll_event().is_none());
    let delivering = armed(51);
    let notice = engine.poll_event().unwrap();
    assert_eq!(engine.destroy_cq(&delivering), DestroyResult::AfterNotice);
    assert!(engine.poll_event().is_none());
    drop(notice);
    assert!(matches!(engine.poll_event(), Some(EngineEvent::CqGone { context: 51 })));
    hosts.drive();
}

//= R-CQ-31
//= R-CQ-32
//= R-CQ-36
//= R-CQ-37
//= R-CQ-38
#[test]
fn an_overflowed_queue_ends_its_queue_pairs_and_keeps_its_completions() {
    let mut hosts = TwoHosts::connected(Options { cq_depth: 4, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    for i in 0..5 {
        bob.recv(i, &[sink.all()]);
    }
    for i in 0..4 {
        alice.post(i, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    }
    hosts.run();
    assert_eq!(hosts.sides[1].cq.fault(), None, "it holds as many completions as its depth");
    assert_eq!(hosts.sides[1].qp.state(), QpState::Rts);
    hosts.sides[0].post(4, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    hosts.run();
    let bob = &hosts.sides[1];
    assert_eq!(bob.cq.fault(), Some(CqFault::Overflow));
    assert_eq!(bob.qp.state(), QpState::Error);
    assert!(hosts.has_event(0, |e| matches!(e, roce::ConnEvent::Disconnected | roce::ConnEvent::Aborted)));
    // The queue was not armed: the next arm of any kind notifies of the fault, once.
    let bob = &hosts.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Errors);
    match bob.engine.poll_event() {
        Some(EngineEvent::Cq(notice)) => assert_eq!(notice.fault(), Some(CqFault::Overflow)),
        _ => panic!("no notification of the fault"),
    }
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    assert!(bob.engine.poll_event().is_none());
    let kept: Vec<_> = bob.outcomes();
    assert_eq!(kept, (0..4).map(|i| (i, CompletionStatus::Success)).collect::<Vec<_>>());
}

//= R-CQ-19
//= R-CQ-20
#[test]
fn poll_returns_at_most_the_requested_completions() {
    let mut hosts = TwoHosts::new(Options::default());
    let side = &hosts.sides[0];
    for context in 0..5 {
        side.recv(context, &[]);
    }
    side.engine.flush(&side.qp);
    assert_eq!(side.cq.poll(&mut []), 0);
    assert_eq!((side.cq.len(), side.cq.is_empty()), (5, false));
    assert_eq!(poll(&side.cq).len(), 5);
    assert_eq!(poll(&side.cq).len(), 0);
    assert_eq!(side.cq.depth(), 256);
    hosts.drive();
}

/// Returns two hosts of which bob's completion queue has overflowed, and no call was made since.
fn with_overflow() -> TwoHosts {
    let hosts = TwoHosts::connected(Options { cq_depth: 1, ..Options::default() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"hi"), bob.sink(2));
    for context in 0..2 {
        bob.recv(context, &[sink.all()]);
        alice.send(context, &[source.all()]);
    }
    for frame in alice.transmit(hosts.now, 8) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    assert_eq!(bob.cq.fault(), Some(CqFault::Overflow));
    hosts
}

/// Another processor is about to put the queue pairs in error: the disconnect does not overtake it.
//= R-CQ-37, R-CONN-81, R-PERF-5
#[test]
fn a_disconnect_while_an_overflow_is_handled_ends_a_failed_connection() {
    // No other lock is held where the scan of the queue pairs releases its first two.
    for place in 1..=2 {
        let mut hosts = with_overflow();
        let (engine, conn, now) = (hosts.sides[1].engine.clone(), hosts.sides[1].conn.unwrap(), hosts.now);
        let mut count = 0;
        let released = move |_| {
            count += 1;
            if count == place {
                engine.connections().disconnect(now, conn).unwrap();
            }
        };
        on_release(released, || hosts.sides[1].engine.first_shard().poll_transmit(now, &mut NoSlots, 1));
        hosts.take_events(1);
        let outcomes = hosts.sides[1].conn_events.iter().filter_map(|(_, _, event)| match event {
            ConnEvent::DisconnectDone(outcome) => Some(*outcome),
            _ => None,
        });
        assert_eq!(outcomes.collect::<Vec<_>>(), [DisconnectOutcome::Aborted], "{place}");
        assert!(hosts.has_event(1, |event| matches!(event, ConnEvent::Aborted)), "{place}");
    }
}

/// A consumer that is notified of the overflow may disconnect at once: the engine knows of it by then.
//= R-CQ-37, R-PERF-5
#[test]
fn an_overflow_is_known_before_its_notice_can_be_polled() {
    let config = |config: &mut Config| config.notice_queues = 1;
    let mut hosts = TwoHosts::new(Options { config, ..Options::default() });
    let bob = &mut hosts.sides[1];
    let cq = bob.engine.create_cq_in(1, 1, Some(0)).unwrap();
    let overflow = spec(bob.pd, &cq, &hosts.options);
    bob.qp = bob.engine.create_qp(overflow).unwrap();
    bob.cq = cq;
    hosts.establish();
    hosts.run();
    let [alice, bob] = &hosts.sides;
    bob.engine.arm_cq(&bob.cq, Arm::Errors);
    let (source, sink) = (alice.source(b"hi"), bob.sink(2));
    for context in 0..2 {
        bob.recv(context, &[sink.all()]);
        alice.send(context, &[source.all()]);
    }
    hosts.sides[1].take_events();
    let [alice, bob] = &hosts.sides;
    assert!(!bob.engine.has_event());
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let (engine, count) = (bob.engine.clone(), seen.clone());
    let released = move |_| {
        if let Some(EngineEvent::Cq(notice)) = engine.poll_notice(0) {
            assert_eq!(notice.fault(), Some(CqFault::Overflow));
            assert!(engine.has_event(), "the notice came first");
            count.set(count.get() + 1);
        }
    };
    let frames = alice.transmit(hosts.now, 8);
    on_release(released, || {
        for frame in &frames {
            bob.engine.first_shard().handle_frame(hosts.now, frame);
        }
    });
    assert_eq!(seen.get(), 1);
}

/// A driver without a free slot.
struct NoSlots;

impl Transmit for NoSlots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn commit(&mut self, _: usize) {}
}
