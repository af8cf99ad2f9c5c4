// SPDX-License-Identifier: MIT OR Apache-2.0

//! Notice queues: notices of completion queues that the driver polls apart from other events.

use fallible::Arc;
use roce::{Arm, Config, Cq, CreateError, DestroyResult, Engine, EngineEvent, Pd, QpSpec};

use crate::pair::{Lock, Options, spec};

/// Completes a receive with an error, and a notice is due.
fn complete(engine: &Engine<Lock>, pd: Pd, cq: &Arc<Cq<Lock>>) {
    let options = Options::default();
    let qp = engine.create_qp(QpSpec { recv_cq: cq.clone(), ..spec(pd, cq, &options) }).unwrap();
    engine.arm_cq(cq, Arm::Any);
    engine.post_recv(&qp, &roce::RecvRequest { context: 1, sges: &[] }).unwrap();
    engine.destroy_qp(&qp);
}

fn engine() -> (Arc<Engine<Lock>>, Pd) {
    let engine = Engine::<Lock>::try_new(Config { notice_queues: 2, ..Config::new(1, [1; 32]) }).unwrap();
    let pd = engine.create_pd();
    (engine, pd)
}

/// Returns the context of the next notice of a notice queue.
fn next(engine: &Engine<Lock>, queue: u32) -> Option<u64> {
    match engine.poll_notice(queue)? {
        EngineEvent::Cq(notice) => Some(notice.context()),
        _ => panic!("no notice"),
    }
}

fn is_due(engine: &Engine<Lock>, number: u32) -> bool {
    matches!(engine.poll_event(), Some(EngineEvent::NoticesDue { queue }) if queue == number)
}

#[test]
fn notices_of_one_queue_are_due_once_and_polled_together() {
    let (engine, pd) = engine();
    let [first, second] = [1, 2].map(|context| engine.create_cq_in(4, context, Some(1)).unwrap());
    let other = engine.create_cq(4, 3).unwrap();
    for cq in [&first, &second, &other] {
        complete(&engine, pd, cq);
    }
    assert!(engine.has_event());
    assert!(is_due(&engine, 1));
    assert!(matches!(engine.poll_event(), Some(EngineEvent::Cq(notice)) if notice.context() == 3));
    assert!(engine.poll_event().is_none());
    assert_eq!(next(&engine, 0), None);
    assert_eq!(next(&engine, 1), Some(1));
    // The driver is polling: that is enough for this one.
    complete(&engine, pd, &first);
    assert!(engine.poll_event().is_none());
    assert_eq!((next(&engine, 1), next(&engine, 1), next(&engine, 1)), (Some(2), Some(1), None));
    complete(&engine, pd, &second);
    assert!(is_due(&engine, 1));
    assert_eq!((next(&engine, 1), next(&engine, 1)), (Some(2), None));
}

//= R-CQ-59
#[test]
fn destroyed_completion_queue_leaves_its_notice_queue() {
    let (engine, pd) = engine();
    let queued = engine.create_cq_in(4, 1, Some(0)).unwrap();
    complete(&engine, pd, &queued);
    assert_eq!(engine.destroy_cq(&queued), DestroyResult::Now);
    assert!(is_due(&engine, 0));
    assert!(engine.poll_notice(0).is_none());
    let delivering = engine.create_cq_in(4, 2, Some(0)).unwrap();
    complete(&engine, pd, &delivering);
    assert!(is_due(&engine, 0));
    let notice = engine.poll_notice(0).unwrap();
    assert_eq!(engine.destroy_cq(&delivering), DestroyResult::AfterNotice);
    assert!(engine.poll_notice(0).is_none());
    drop(notice);
    assert!(is_due(&engine, 0));
    assert!(matches!(engine.poll_notice(0), Some(EngineEvent::CqGone { context: 2 })));
    assert!(engine.poll_notice(0).is_none());
}

#[test]
fn completion_queue_needs_an_existing_notice_queue() {
    let (engine, _) = engine();
    assert_eq!(engine.create_cq_in(4, 1, Some(2)).err(), Some(CreateError::Invalid));
    assert!(engine.poll_notice(2).is_none());
}
