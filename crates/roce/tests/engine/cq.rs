// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: arms, notices, overflow.

use roce::{Arm, CompletionStatus, CqFault, DestroyResult, EngineEvent, QpState, SendFlags, SendOperation};

use crate::pair::{Options, Pair, poll};

/// What may happen to an armed queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happening {
    Plain,
    Solicited,
    Failed,
    Overflow,
}

/// A connected pair in which bob's queue is armed so, in this order; then something happens. How many
/// notices came of it.
fn notices(arms: &[Arm], happening: Happening) -> usize {
    let cq_depth = if happening == Happening::Overflow { 1 } else { 16 };
    let mut pair = Pair::connected(Options { cq_depth, ..Options::default() });
    let [alice, bob] = &pair.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    let flags = if happening == Happening::Solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
    if happening == Happening::Overflow {
        // The queue is full, and the consumer knows.
        bob.recv(0, &[sink.all()]);
        alice.post(0, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
        pair.run();
        let bob = &pair.sides[1];
        bob.engine.arm_cq(&bob.cq, Arm::Any);
        pair.drive();
        pair.sides[1].cq_notifications.clear();
    }
    let [alice, bob] = &pair.sides;
    for arm in arms {
        bob.engine.arm_cq(&bob.cq, *arm);
    }
    bob.recv(1, &[sink.all()]);
    if happening == Happening::Failed {
        bob.engine.flush(&bob.qp);
    } else {
        alice.post(1, SendOperation::Send, flags | SendFlags::SILENT, &[source.all()]).unwrap();
    }
    pair.run_for(std::time::Duration::from_millis(3));
    pair.sides[1].cq_notifications.len()
}

//= R-CQ-2
//= R-CQ-3
//= R-CQ-4
//= R-CQ-5
//= R-CQ-6
//= R-CQ-7
//= R-CQ-35
#[test]
fn an_arm_tells_of_what_it_was_set_for() {
    use Happening::{Failed, Overflow, Plain, Solicited};
    let table = [
        (None, [0, 0, 0, 0]),
        (Some(Arm::Errors), [0, 0, 0, 1]),
        (Some(Arm::Solicited), [0, 1, 1, 1]),
        (Some(Arm::Any), [1, 1, 1, 1]),
    ];
    for (arm, expected) in table {
        let arms: Vec<_> = arm.into_iter().collect();
        let told = [Plain, Solicited, Failed, Overflow].map(|happening| notices(&arms, happening));
        assert_eq!(told, expected, "{arm:?}");
    }
}

//= R-CQ-8
//= R-CQ-9
#[test]
fn of_two_arms_the_one_that_tells_more_counts() {
    for first in Arm::ALL {
        for second in Arm::ALL {
            let merged = first.max(second);
            assert_eq!(first.merge(second), merged);
            for happening in [Happening::Plain, Happening::Solicited, Happening::Failed] {
                let both = notices(&[first, second], happening);
                assert_eq!(both, notices(&[merged], happening), "{first:?}, {second:?}: {happening:?}");
                assert!(both <= 1);
            }
        }
    }
}

/// Bob receives a message; with solicited event if so wanted.
fn receive(pair: &mut Pair, solicited: bool) {
    let [alice, bob] = &pair.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    bob.recv(1, &[sink.all()]);
    let flags = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
    alice.post(1, SendOperation::Send, flags, &[source.all()]).unwrap();
    pair.run_for(std::time::Duration::from_millis(1));
}

//= R-CQ-1
//= R-CQ-10
//= R-CQ-12
//= R-CQ-16
#[test]
fn an_arm_is_satisfied_at_once_by_what_is_new_and_not_by_what_is_known() {
    let mut pair = Pair::connected(Options::default());
    receive(&mut pair, false);
    let arm = |pair: &mut Pair, arm| {
        let bob = &pair.sides[1];
        bob.engine.arm_cq(&bob.cq, arm);
        pair.drive();
        pair.sides[1].cq_notifications.len()
    };
    assert_eq!(arm(&mut pair, Arm::Solicited), 0, "new, but not solicited");
    assert_eq!(arm(&mut pair, Arm::Any), 1, "new");
    assert_eq!(arm(&mut pair, Arm::Any), 1, "unread, but told of already");
    receive(&mut pair, false);
    assert_eq!(pair.sides[1].cq_notifications.len(), 2);
    receive(&mut pair, false);
    assert_eq!(pair.sides[1].cq_notifications.len(), 2, "one notice per arm");
    pair.sides[1].completions();
    assert_eq!(arm(&mut pair, Arm::Any), 2, "read meanwhile");
    receive(&mut pair, true);
    assert_eq!(pair.sides[1].cq_notifications.len(), 3);
}

/// Frames as they are sent.
struct Tx<'a>(&'a mut Vec<Vec<u8>>, [u8; 4300]);
impl roce::Transmit for Tx<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.1)
    }
    fn commit(&mut self, len: usize) {
        self.0.push(self.1[..len].to_vec());
    }
}

//= R-CQ-14
//= R-CQ-15
#[test]
fn the_next_notice_waits_for_the_present_one() {
    let pair = Pair::connected(Options::default());
    let bob = &pair.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    let [alice, bob] = &pair.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    bob.recv(1, &[sink.all()]);
    bob.recv(2, &[sink.all()]);
    // Bob's own events are polled here, not by the pair.
    let mut frames = Vec::new();
    alice.send(1, &[source.all()]);
    alice.send(2, &[source.all()]);
    alice.engine.poll_transmit(pair.now, &mut Tx(&mut frames, [0; 4300]), 8);
    bob.engine.handle_frame(pair.now, &frames[0]);
    let notice = bob.engine.poll_event().expect("a notice");
    assert!(matches!(&notice, EngineEvent::Cq(notice) if notice.fault().is_none() && notice.context() == 2));
    // From inside of the callback: read, arm again. The next message comes before it returns.
    assert_eq!(bob.outcomes(), [(1, CompletionStatus::Success)]);
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    bob.engine.handle_frame(pair.now, &frames[1]);
    assert!(bob.engine.poll_event().is_none());
    drop(notice);
    assert!(matches!(bob.engine.poll_event(), Some(EngineEvent::Cq(_))));
    assert!(bob.engine.poll_event().is_none());
}

//= R-CQ-59
#[test]
fn a_destroyed_queue_is_told_of_no_more() {
    let mut pair = Pair::new(Options::default());
    let engine = &pair.sides[0].engine;
    let armed = |context| {
        let cq = engine.create_cq(1, context).unwrap();
        let mut spec = crate::pair::spec(pair.sides[0].pd, &cq, &pair.options);
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
    pair.drive();
}

//= R-CQ-31
//= R-CQ-32
//= R-CQ-36
//= R-CQ-37
//= R-CQ-38
#[test]
fn a_queue_that_overflows_ends_its_queue_pairs_and_keeps_what_it_has() {
    let mut pair = Pair::connected(Options { cq_depth: 4, ..Options::default() });
    let [alice, bob] = &pair.sides;
    let (source, sink) = (alice.source(b"ring"), bob.sink(4));
    for i in 0..5 {
        bob.recv(i, &[sink.all()]);
    }
    for i in 0..4 {
        alice.post(i, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    }
    pair.run();
    assert_eq!(pair.sides[1].cq.fault(), None, "as many as its depth fit");
    assert_eq!(pair.sides[1].qp.state(), QpState::Rts);
    pair.sides[0].post(4, SendOperation::Send, SendFlags::SILENT, &[source.all()]).unwrap();
    pair.run();
    let bob = &pair.sides[1];
    assert_eq!(bob.cq.fault(), Some(CqFault::Overflow));
    assert_eq!(bob.qp.state(), QpState::Error);
    assert!(pair.has_event(0, |e| matches!(e, roce::ConnEvent::Disconnected | roce::ConnEvent::Aborted)));
    // Unarmed then: told at the next arm, whichever it is, once.
    let bob = &pair.sides[1];
    bob.engine.arm_cq(&bob.cq, Arm::Errors);
    match bob.engine.poll_event() {
        Some(EngineEvent::Cq(notice)) => assert_eq!(notice.fault(), Some(CqFault::Overflow)),
        _ => panic!("not told of the fault"),
    }
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    assert!(bob.engine.poll_event().is_none());
    let kept: Vec<_> = bob.outcomes();
    assert_eq!(kept, (0..4).map(|i| (i, CompletionStatus::Success)).collect::<Vec<_>>());
}

//= R-CQ-19
//= R-CQ-20
#[test]
fn a_poll_takes_as_many_as_it_asks_for() {
    let mut pair = Pair::new(Options::default());
    let side = &pair.sides[0];
    for context in 0..5 {
        side.recv(context, &[]);
    }
    side.engine.flush(&side.qp);
    assert_eq!(side.cq.poll(&mut []), 0);
    assert_eq!((side.cq.len(), side.cq.is_empty()), (5, false));
    assert_eq!(poll(&side.cq).len(), 5);
    assert_eq!(poll(&side.cq).len(), 0);
    assert_eq!(side.cq.depth(), 256);
    pair.drive();
}
