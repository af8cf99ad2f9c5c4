// SPDX-License-Identifier: MIT OR Apache-2.0

//! Notice queues: notices of completion queues and shared receive queues that the driver polls apart from other events.

use fallible::Arc;
use roce::{Arm, Config, Cq, CreateError, DestroyResult, Engine, EngineEvent, Pd, QpSpec, SrqSpec};

use crate::two_hosts::{Lock, Options, spec};

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
        EngineEvent::Srq(notice) => Some(notice.context()),
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

fn srq_spec(context: u64) -> SrqSpec {
    SrqSpec { depth: 4, sges: 1, threshold: 0, context }
}

//= R-SRQ-18, R-SRQ-19
#[test]
fn shared_receive_queue_is_notified_from_its_notice_queue() {
    let (engine, pd) = engine();
    let srq = engine.create_srq_in(&srq_spec(1), Some(1)).unwrap();
    let cq = engine.create_cq_in(4, 2, Some(1)).unwrap();
    let other = engine.create_srq(&srq_spec(3)).unwrap();
    // Each holds fewer receives than its threshold.
    engine.modify_srq(&srq, 0, 1).unwrap();
    complete(&engine, pd, &cq);
    engine.modify_srq(&other, 0, 1).unwrap();
    assert!(is_due(&engine, 1));
    assert!(matches!(engine.poll_event(), Some(EngineEvent::Srq(notice)) if notice.context() == 3));
    assert!(engine.poll_event().is_none());
    assert_eq!((next(&engine, 1), next(&engine, 1), next(&engine, 1)), (Some(1), Some(2), None));
}

//= R-SRQ-21
#[test]
fn destroyed_shared_receive_queue_leaves_its_notice_queue() {
    let (engine, _) = engine();
    let queued = engine.create_srq_in(&srq_spec(1), Some(0)).unwrap();
    engine.modify_srq(&queued, 0, 1).unwrap();
    assert_eq!(engine.destroy_srq(&queued), DestroyResult::Now);
    assert!(is_due(&engine, 0));
    assert!(engine.poll_notice(0).is_none());
    let delivering = engine.create_srq_in(&srq_spec(2), Some(0)).unwrap();
    engine.modify_srq(&delivering, 0, 1).unwrap();
    assert!(is_due(&engine, 0));
    let notice = engine.poll_notice(0).unwrap();
    assert_eq!(engine.destroy_srq(&delivering), DestroyResult::AfterNotice);
    assert!(engine.poll_notice(0).is_none());
    drop(notice);
    assert!(is_due(&engine, 0));
    assert!(matches!(engine.poll_notice(0), Some(EngineEvent::SrqGone { context: 2 })));
    assert!(engine.poll_notice(0).is_none());
}

#[test]
fn queue_needs_an_existing_notice_queue() {
    let (engine, _) = engine();
    assert_eq!(engine.create_srq_in(&srq_spec(1), Some(2)).err(), Some(CreateError::Invalid));
    assert_eq!(engine.create_cq_in(4, 1, Some(2)).err(), Some(CreateError::Invalid));
    assert!(engine.poll_notice(2).is_none());
}
