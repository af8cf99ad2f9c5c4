// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues.

use roce::{CompletionStatus, EngineEvent, ModifyError, PostError, RecvRequest, SrqSpec};

use crate::two_hosts::{Options, TwoHosts, with_srq};

/// Creates two connected hosts in which bob receives from a shared queue of depth 8.
fn connected(threshold: u32) -> (TwoHosts, fallible::Arc<roce::Srq<crate::two_hosts::Lock>>) {
    let mut hosts = TwoHosts::new(Options::default());
    let spec = SrqSpec { depth: 8, sges: 2, threshold, context: 900 };
    let srq = hosts.sides[1].engine.create_srq(&spec).unwrap();
    with_srq(&mut hosts, 1, &srq);
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |p| p.has_event(0, |e| matches!(e, roce::ConnEvent::Replied { .. })));
    hosts.complete();
    hosts.run_until("the connection", |p| {
        p.has_event(1, |e| matches!(e, roce::ConnEvent::Established { .. }))
    });
    (hosts, srq)
}

/// Sends `count` messages from alice, each of which uses a shared receive.
fn consume(hosts: &mut TwoHosts, count: usize) {
    for _ in 0..count {
        let source = hosts.sides[0].source(b"one");
        hosts.sides[0].send(1, &[source.all()]);
        hosts.run_until("the send", |hosts| !hosts.sides[0].cq.is_empty());
        hosts.sides[0].completions();
    }
}

//= R-SRQ-1
//= R-SRQ-2
//= R-SRQ-3
//= R-QP-84
#[test]
fn a_shared_receive_is_used_by_the_queue_pair_that_needs_it() {
    let (mut hosts, srq) = connected(0);
    let sink = hosts.sides[1].sink(8);
    let request = RecvRequest { context: 33, sges: &[sink.all()] };
    let bob = &hosts.sides[1];
    assert_eq!(bob.engine.post_recv(&bob.qp, &request), Err(PostError::NotAllowed));
    bob.engine.post_srq(&srq, &request).unwrap();
    consume(&mut hosts, 1);
    let done = hosts.sides[1].completions();
    assert_eq!((done[0].context, done[0].qp_context, done[0].bytes), (33, 77, 3));
    assert_eq!(&sink.read()[..3], b"one");
    assert!(srq.is_empty());
}

//= R-SRQ-6
//= R-SRQ-7
//= R-SRQ-8
//= R-SRQ-9
//= R-SRQ-14
#[test]
fn a_queue_below_its_threshold_notifies_once() {
    let (mut hosts, srq) = connected(4);
    let sink = hosts.sides[1].sink(8);
    let post = |hosts: &TwoHosts, count| {
        for context in 0..count {
            hosts.sides[1].engine.post_srq(&srq, &RecvRequest { context, sges: &[sink.all()] }).unwrap();
        }
    };
    post(&hosts, 3);
    consume(&mut hosts, 3);
    assert_eq!(hosts.sides[1].srq_notifications, 0, "never above the threshold");
    post(&hosts, 6);
    consume(&mut hosts, 2);
    assert_eq!(hosts.sides[1].srq_notifications, 0, "exactly the threshold");
    consume(&mut hosts, 1);
    assert_eq!(hosts.sides[1].srq_notifications, 1);
    post(&hosts, 3);
    consume(&mut hosts, 4);
    assert_eq!(hosts.sides[1].srq_notifications, 1, "not armed again");
    hosts.sides[1].engine.modify_srq(&srq, 0, 0).unwrap();
    hosts.drive();
    assert_eq!(hosts.sides[1].srq_notifications, 1, "0 changes nothing");
    hosts.sides[1].engine.modify_srq(&srq, 0, 3).unwrap();
    hosts.drive();
    assert_eq!(hosts.sides[1].srq_notifications, 2, "already below");
    hosts.sides[1].engine.modify_srq(&srq, 0, 1).unwrap();
    hosts.drive();
    assert_eq!(hosts.sides[1].srq_notifications, 2);
    consume(&mut hosts, 1);
    hosts.drive();
}

//= R-SRQ-5
//= R-SRQ-10
//= R-SRQ-12
#[test]
fn a_shared_queue_with_receives_can_be_resized() {
    let hosts = TwoHosts::new(Options::default());
    let engine = &hosts.sides[0].engine;
    let srq = engine.create_srq(&SrqSpec { depth: 3, sges: 1, threshold: 0, context: 0 }).unwrap();
    let request = |context| RecvRequest { context, sges: &[] };
    for context in 0..3 {
        engine.post_srq(&srq, &request(context)).unwrap();
    }
    assert_eq!(engine.post_srq(&srq, &request(3)), Err(PostError::QueueFull));
    assert_eq!(engine.modify_srq(&srq, 2, 0), Err(ModifyError::Occupied));
    engine.modify_srq(&srq, 5, 0).unwrap();
    engine.post_srq(&srq, &request(3)).unwrap();
    engine.modify_srq(&srq, 4, 0).unwrap();
    assert_eq!(srq.len(), 4);
    assert_eq!(engine.post_srq(&srq, &request(4)), Err(PostError::QueueFull));
}

//= R-SRQ-20
//= R-SRQ-21
#[test]
fn a_flush_keeps_unused_shared_receives() {
    let (mut hosts, srq) = connected(0);
    let sink = hosts.sides[1].sink(8);
    for context in 0..3 {
        hosts.sides[1].engine.post_srq(&srq, &RecvRequest { context, sges: &[sink.all()] }).unwrap();
    }
    let bob = &hosts.sides[1];
    bob.engine.flush(&bob.qp);
    hosts.drive();
    assert_eq!(hosts.sides[1].outcomes(), Vec::<(u64, CompletionStatus)>::new());
    assert_eq!(srq.len(), 3);
    hosts.sides[1].engine.destroy_srq(&srq);
    assert_eq!(srq.len(), 0);
    assert!(!matches!(hosts.sides[1].engine.poll_event(), Some(EngineEvent::Srq(_))));
}
