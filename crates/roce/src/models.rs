// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models: every schedule of a few threads over a completion queue or a shared receive queue, by loom.

use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use models::ModelLock;

use crate::cq::{Arm, Cq, DestroyResult, NoticeAction};
use crate::event_queue::{EventQueue, NoticeQueue, QueuedEvent};
use crate::moderation::Moderation;
use crate::recv_queue::CurrentReceive;
use crate::srq::{Srq, SrqSpec};
use crate::time::Instant;
use crate::work::{Completion, RecvRequest};
use fallible::Arc;

const NOW: Instant = Instant::from_nanos(1);

/// Observations of a consumer.
#[derive(Default)]
struct Consumer {
    inside: AtomicBool,
    notices: AtomicUsize,
    polled: AtomicUsize,
}

impl Consumer {
    /// Runs a callback, which no other one may overlap.
    fn notify(&self, callback: impl FnOnce()) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two callbacks at the same time");
        self.notices.fetch_add(1, Ordering::SeqCst);
        callback();
        self.inside.store(false, Ordering::SeqCst);
    }

    fn notices(&self) -> usize {
        self.notices.load(Ordering::SeqCst)
    }
}

fn completion(context: u64) -> Completion {
    Completion { context, ..Completion::EMPTY }
}

/// Delivers a notice as the engine's driver does. Returns whether the queue was destroyed meanwhile.
fn deliver(cq: &Cq<ModelLock>, mut action: NoticeAction, consumer: &Consumer, callback: &dyn Fn()) -> bool {
    while action == NoticeAction::Queue {
        if cq.begin_notice().is_err() {
            return false;
        }
        consumer.notify(callback);
        let (next, destroyed) = cq.end_notice(NOW);
        if destroyed {
            return true;
        }
        action = next;
    }
    false
}

fn push(cq: &Cq<ModelLock>, context: u64) -> NoticeAction {
    cq.push(completion(context), false, NOW).map_or(NoticeAction::None, |due| due.notice(NOW))
}

fn poll(cq: &Cq<ModelLock>, consumer: &Consumer) -> usize {
    let mut one = [Completion::EMPTY];
    let mut count = 0;
    while cq.poll(&mut one) == 1 {
        // In order.
        assert_eq!(one[0].context, consumer.polled.fetch_add(1, Ordering::SeqCst) as u64);
        count += 1;
    }
    count
}

fn queue(depth: u32) -> (Arc<Cq<ModelLock>>, Shared<Consumer>) {
    (Cq::try_new(depth, 0, 0, None).unwrap(), Shared::new(Consumer::default()))
}

/// A completion between the consumer's last poll and its arm is notified, and what was polled is not.
//= R-CQ-10, R-CQ-13, R-CQ-16
#[test]
fn model_arm_against_completions() {
    loom::model(|| {
        let (cq, consumer) = queue(4);
        let producer = {
            let (cq, consumer) = (cq.clone(), consumer.clone());
            thread::spawn(move || {
                for context in 0..2 {
                    let action = push(&cq, context);
                    deliver(&cq, action, &consumer, &|| ());
                }
            })
        };
        poll(&cq, &consumer);
        let action = cq.arm(Arm::Any, NOW);
        deliver(&cq, action, &consumer, &|| ());
        producer.join().unwrap();
        assert_eq!(consumer.notices(), usize::from(!cq.is_empty()));
    });
}

/// The callback polls and arms again, on whichever thread it runs: nothing is left, callbacks do not overlap, and none
/// finds the queue empty.
//= R-CQ-13, R-CQ-14, R-CQ-15, R-CQ-16
#[test]
fn model_arm_in_the_callback() {
    loom::model(|| {
        let (cq, consumer) = queue(4);
        assert_eq!(cq.arm(Arm::Any, NOW), NoticeAction::None);
        let produce = |cq: Arc<Cq<ModelLock>>, consumer: Shared<Consumer>| {
            move || {
                let callback = || {
                    let mut results = [Completion::EMPTY; 4];
                    let polled = cq.poll(&mut results);
                    assert_ne!(polled, 0, "a notice without a completion");
                    consumer.polled.fetch_add(polled, Ordering::SeqCst);
                    assert_eq!(cq.arm(Arm::Any, NOW), NoticeAction::None, "a notice inside of another");
                };
                let action = push(&cq, 0);
                deliver(&cq, action, &consumer, &callback);
            }
        };
        let other = thread::spawn(produce(cq.clone(), consumer.clone()));
        produce(cq.clone(), consumer.clone())();
        other.join().unwrap();
        assert_eq!((consumer.polled.load(Ordering::SeqCst), cq.len()), (2, 0));
    });
}

/// A destroyed queue notifies no more, and reports its last notice once.
//= R-CQ-59, R-CLOSE-5
#[test]
fn model_destroy_against_a_notice() {
    loom::model(|| {
        let (cq, consumer) = queue(4);
        assert_eq!(cq.arm(Arm::Any, NOW), NoticeAction::None);
        let producer = {
            let (cq, consumer) = (cq.clone(), consumer.clone());
            thread::spawn(move || {
                let action = push(&cq, 0);
                deliver(&cq, action, &consumer, &|| ())
            })
        };
        let result = cq.destroy();
        let notices = consumer.notices();
        if result == DestroyResult::Now {
            // No callback is running, and none begins.
            assert!(!consumer.inside.load(Ordering::SeqCst));
        }
        let reported = producer.join().unwrap();
        assert_eq!(reported, result == DestroyResult::AfterNotice);
        if result == DestroyResult::Now {
            assert_eq!(consumer.notices(), notices);
        }
    });
}

/// Resizing loses no completion and keeps their order.
//= R-CQ-18, R-CQ-41
#[test]
fn model_resize_against_completions_and_polls() {
    loom::model(|| {
        let (cq, consumer) = queue(2);
        let producer = {
            let cq = cq.clone();
            thread::spawn(move || {
                for context in 0..2 {
                    let _ = push(&cq, context);
                    assert_eq!(cq.fault(), None);
                }
            })
        };
        let resizer = {
            let cq = cq.clone();
            thread::spawn(move || assert_eq!(cq.resize(3, NOW), Ok(NoticeAction::None)))
        };
        poll(&cq, &consumer);
        producer.join().unwrap();
        resizer.join().unwrap();
        poll(&cq, &consumer);
        assert_eq!((consumer.polled.load(Ordering::SeqCst), cq.depth()), (2, 3));
    });
}

/// Completions of an armed, moderated queue of four while `change` is made: one notice in all.
fn check_moderated_queue(count: Option<u32>, completions: u64, change: fn(&Cq<ModelLock>) -> NoticeAction) {
    loom::model(move || {
        let (cq, consumer) = queue(4);
        let moderation = Moderation { interval: None, count };
        assert_eq!(cq.moderate(Some(moderation), NOW), NoticeAction::None);
        assert_eq!(cq.arm(Arm::Any, NOW), NoticeAction::None);
        let producer = {
            let (cq, consumer) = (cq.clone(), consumer.clone());
            thread::spawn(move || {
                for context in 0..completions {
                    let action = push(&cq, context);
                    deliver(&cq, action, &consumer, &|| ());
                }
            })
        };
        let action = change(&cq);
        deliver(&cq, action, &consumer, &|| ());
        producer.join().unwrap();
        assert_eq!(consumer.notices(), 1);
    });
}

/// A notice that is held back ends with the count, or with the moderation: exactly once.
//= R-CQ-47, R-CQ-52
#[test]
fn model_moderation_against_its_end() {
    check_moderated_queue(Some(2), 2, |cq| cq.moderate(None, NOW));
}

/// A notice that is held back for completions that do not come is made when moderation ends, before or after the
/// completion.
//= R-CQ-52
#[test]
fn model_moderation_ends_before_its_count_is_reached() {
    check_moderated_queue(Some(3), 1, |cq| cq.moderate(None, NOW));
}

/// A queue that becomes smaller and is full then does not hold back its notice.
//= R-CQ-41, R-CQ-47
#[test]
fn model_resize_ends_a_wait_for_more_completions() {
    check_moderated_queue(None, 1, |cq| cq.resize(1, NOW).unwrap());
}

/// A queued notice whose completion is polled before its delivery begins is withdrawn, and the arm stays: the next
/// completion is notified.
//= R-CQ-13
#[test]
fn model_poll_against_a_queued_notice() {
    loom::model(|| {
        let (cq, consumer) = queue(4);
        assert_eq!(cq.arm(Arm::Any, NOW), NoticeAction::None);
        let action = push(&cq, 0);
        assert_eq!(action, NoticeAction::Queue);
        let delivering = Shared::new(AtomicBool::new(false));
        let driver = {
            let (cq, consumer, delivering) = (cq.clone(), consumer.clone(), delivering.clone());
            thread::spawn(move || {
                delivering.store(true, Ordering::SeqCst);
                deliver(&cq, action, &consumer, &|| ());
            })
        };
        assert_eq!(poll(&cq, &consumer), 1);
        let polled_first = !delivering.load(Ordering::SeqCst);
        driver.join().unwrap();
        let notices = consumer.notices();
        if polled_first {
            assert_eq!(notices, 0, "a notice of a completion that was polled before");
        }
        let action = push(&cq, 1);
        deliver(&cq, action, &consumer, &|| ());
        assert_eq!(consumer.notices(), 1);
    });
}

/// A notice queue with room for two entries, and how often its service was requested and not granted yet.
struct Served {
    queue: NoticeQueue<ModelLock>,
    requests: AtomicUsize,
    taken: AtomicUsize,
}

impl Served {
    fn push(&self, entry: u64) {
        if self.queue.push(QueuedEvent::CqGone(entry)) {
            let before = self.requests.fetch_add(1, Ordering::SeqCst);
            assert_eq!(before, 0, "there is room for one request");
        }
    }

    /// Serves the queue as the engine's driver does, if that is requested.
    fn serve(&self) {
        if self.requests.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        self.queue.grant();
        while self.queue.pop().is_some() {
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Two producers and two processors that serve a notice queue: no entry is left without a request, and there is one
/// request at a time.
#[test]
fn model_notice_queue_requests_service_once() {
    loom::model(|| {
        let served = Shared::new(Served {
            queue: NoticeQueue::new(),
            requests: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        });
        served.queue.with(|events: &mut EventQueue<ModelLock>| events.add_members(2).unwrap());
        let other = {
            let served = served.clone();
            thread::spawn(move || {
                served.push(1);
                served.serve();
            })
        };
        served.push(2);
        served.serve();
        other.join().unwrap();
        served.serve();
        assert_eq!(served.taken.load(Ordering::SeqCst), 2);
    });
}

/// A shared receive queue of depth 4 with two receives, armed at two.
fn shared_queue() -> (Arc<Srq<ModelLock>>, Shared<Consumer>) {
    let srq = Srq::try_new(&SrqSpec { depth: 4, sges: 0, threshold: 2, context: 0 }, 0, None).unwrap();
    for context in 0..2 {
        srq.post(&RecvRequest { context, sges: &[] }, 1).unwrap();
    }
    (srq, Shared::new(Consumer::default()))
}

/// Delivers a notice of a shared receive queue as the engine's driver does.
fn deliver_srq(srq: &Srq<ModelLock>, mut action: NoticeAction, consumer: &Consumer) {
    while action == NoticeAction::Queue {
        if !srq.begin_notice() {
            return;
        }
        consumer.notify(|| ());
        action = srq.end_notice().0;
    }
}

/// A thread that takes one receive, for a queue pair.
fn take(srq: &Arc<Srq<ModelLock>>, consumer: &Shared<Consumer>) -> impl FnOnce() -> bool + 'static {
    let (srq, consumer) = (srq.clone(), consumer.clone());
    move || {
        let mut current = CurrentReceive::NONE;
        let (taken, action) = srq.take(&mut current);
        deliver_srq(&srq, action, &consumer);
        taken
    }
}

//= R-SRQ-6, R-SRQ-7
#[test]
fn model_two_takers_cross_the_threshold_once() {
    loom::model(|| {
        let (srq, consumer) = shared_queue();
        let other = thread::spawn(take(&srq, &consumer));
        assert!(take(&srq, &consumer)());
        assert!(other.join().unwrap());
        assert_eq!((srq.len(), consumer.notices()), (0, 1));
    });
}

/// The consumer serializes its posts with each other only.
//= R-SRQ-4, R-SRQ-6
#[test]
fn model_posts_against_takers() {
    loom::model(|| {
        let (srq, consumer) = shared_queue();
        let takers = [thread::spawn(take(&srq, &consumer)), thread::spawn(take(&srq, &consumer))];
        for context in 2..4 {
            srq.post(&RecvRequest { context, sges: &[] }, 1).unwrap();
        }
        for taker in takers {
            assert!(taker.join().unwrap());
        }
        assert_eq!(srq.len(), 2);
        assert!(consumer.notices() <= 1);
    });
}

/// However an arm falls among takers, the queue ends below its threshold with no arm left, and notices do not overlap.
//= R-SRQ-7, R-SRQ-8, R-SRQ-18
#[test]
fn model_arm_against_takers() {
    loom::model(|| {
        let (srq, consumer) = shared_queue();
        let takers = [thread::spawn(take(&srq, &consumer)), thread::spawn(take(&srq, &consumer))];
        let action = srq.modify(0, 2).unwrap();
        deliver_srq(&srq, action, &consumer);
        for taker in takers {
            assert!(taker.join().unwrap());
        }
        assert!((1..=2).contains(&consumer.notices()));
        assert_eq!(srq.modify(0, 0), Ok(NoticeAction::None), "an arm without its notice");
    });
}

/// A destroyed shared receive queue notifies no more, and reports its last notice once.
//= R-CLOSE-5
#[test]
fn model_destroy_of_a_shared_queue_against_a_notice() {
    loom::model(|| {
        let (srq, consumer) = shared_queue();
        assert_eq!(srq.modify(0, 2), Ok(NoticeAction::None));
        let taker = {
            let (srq, consumer) = (srq.clone(), consumer.clone());
            thread::spawn(move || {
                let mut current = CurrentReceive::NONE;
                let (_, action) = srq.take(&mut current);
                if action == NoticeAction::Queue && srq.begin_notice() {
                    consumer.notify(|| ());
                    return srq.end_notice();
                }
                (NoticeAction::None, false)
            })
        };
        let result = srq.destroy();
        let notices = consumer.notices();
        if result == DestroyResult::Now {
            // No callback is running, and none begins.
            assert!(!consumer.inside.load(Ordering::SeqCst));
        }
        let (action, destroyed) = taker.join().unwrap();
        assert_eq!((action, destroyed), (NoticeAction::None, result == DestroyResult::AfterNotice));
        if result == DestroyResult::Now {
            assert_eq!(consumer.notices(), notices);
        }
    });
}
