// SPDX-License-Identifier: MIT OR Apache-2.0

//! Notices of completion queues and shared receive queues: which are queued for the driver, and where.

use alloc::vec::Vec;

use lock_api::RawMutex;

use crate::cq::{Cq, DestroyResult, NoticeAction};
use crate::error::CreateError;
use crate::event_queue::{EventQueue, Events, NoticeQueue, QueuedEvent};
use crate::held_notices::HeldNotices;
use crate::srq::Srq;
use fallible::{Arc, vec};

/// The notices of an engine.
pub(crate) struct Notices<R: RawMutex> {
    pub(crate) events: Events<R>,
    /// Notices of the queues that have a notice queue; by its number.
    queues: Vec<NoticeQueue<R>>,
    pub(crate) held: HeldNotices<R>,
}

impl<R: RawMutex> Notices<R> {
    /// Creates `queues` notice queues, and makes room for one event of each.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    #[inline(never)]
    pub(crate) fn try_new(queues: u32) -> Result<Self, CreateError> {
        let mut all = vec::with_capacity(queues as usize)?;
        for _ in 0..queues {
            vec::push_within_capacity(&mut all, NoticeQueue::new())?;
        }
        let events = Events::new();
        events.with(|events| events.add_members(all.len()))?;
        Ok(Self { events, queues: all, held: HeldNotices::try_new()? })
    }

    /// Returns notice queue `number`.
    pub(crate) fn queue(&self, number: u32) -> Option<&NoticeQueue<R>> {
        self.queues.get(number as usize)
    }

    /// Checks the notice queue that an object names at its creation. Without a number its notices are events of the engine.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if there is no such queue.
    pub(crate) fn check(&self, number: Option<u32>) -> Result<(), CreateError> {
        if number.is_none_or(|number| self.queue(number).is_some()) {
            Ok(())
        } else {
            Err(CreateError::Invalid)
        }
    }

    /// Runs `change` with this notice queue; without a number, with the events of the engine.
    fn with_queue<T>(&self, number: Option<u32>, change: impl FnOnce(&mut EventQueue<R>) -> T) -> T {
        match number.and_then(|number| self.queue(number)) {
            None => self.events.with(change),
            Some(queue) => queue.with(change),
        }
    }

    /// Makes room for the events of a new completion queue.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    pub(crate) fn add_cq(&self, cq: &Cq<R>) -> Result<(), CreateError> {
        self.with_queue(cq.notice_queue(), EventQueue::add_member)
    }

    /// Makes room for the events of a new shared receive queue.
    ///
    /// # Errors
    /// [`CreateError::OutOfMemory`].
    pub(crate) fn add_srq(&self, srq: &Srq<R>) -> Result<(), CreateError> {
        self.with_queue(srq.notice_queue(), EventQueue::add_member)
    }

    /// Queues the notice of `cq`, holds it back, or does nothing, as `action` says.
    pub(crate) fn apply_cq(&self, cq: &Arc<Cq<R>>, action: NoticeAction) {
        match action {
            NoticeAction::None => {}
            NoticeAction::Queue => self.push(cq.notice_queue(), QueuedEvent::Cq(cq.clone())),
            NoticeAction::Hold { timer, until } => self.held.schedule(timer, cq, until),
        }
    }

    /// Queues the notice of `srq` if `action` says so.
    pub(crate) fn apply_srq(&self, srq: &Arc<Srq<R>>, action: NoticeAction) {
        if action == NoticeAction::Queue {
            self.push(srq.notice_queue(), QueuedEvent::Srq(srq.clone()));
        }
    }

    /// Queues an event where the driver polls it: in this notice queue; without a number, with the events of the engine.
    pub(crate) fn push(&self, number: Option<u32>, event: QueuedEvent<R>) {
        match number.and_then(|number| Some((number, self.queue(number)?))) {
            None => {
                self.events.push(event);
            }
            Some((number, queue)) => {
                if queue.push(event) {
                    self.events.push(QueuedEvent::Due(number));
                }
            }
        }
    }

    /// Withdraws the notice of a completion queue and prevents new ones.
    pub(crate) fn withdraw_cq(&self, cq: &Cq<R>) -> DestroyResult {
        let destroyed = cq.destroy();
        self.held.remove(cq);
        self.with_queue(cq.notice_queue(), |events| {
            events.notices.remove(|entry| matches!(entry, QueuedEvent::Cq(queued) if **queued == *cq));
            if destroyed == DestroyResult::Now {
                events.remove_member();
            }
        });
        destroyed
    }

    /// Withdraws the notice of a shared receive queue and prevents new ones.
    pub(crate) fn withdraw_srq(&self, srq: &Srq<R>) -> DestroyResult {
        let destroyed = srq.destroy();
        self.with_queue(srq.notice_queue(), |events| {
            events.notices.remove(|entry| matches!(entry, QueuedEvent::Srq(queued) if **queued == *srq));
            if destroyed == DestroyResult::Now {
                events.remove_member();
            }
        });
        destroyed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::Arm;
    use crate::testing::Lock;
    use crate::time::Instant;
    use crate::work::{Completion, CompletionKind, CompletionStatus};

    const NOW: Instant = Instant::from_nanos(0);

    /// A completion queue with a completion, and what is to be done about its notice.
    fn armed(notices: &Notices<Lock>, queue: Option<u32>) -> (Arc<Cq<Lock>>, NoticeAction) {
        let cq = Cq::try_new(1, 5, 1, queue).unwrap();
        notices.add_cq(&cq).unwrap();
        let completion = Completion {
            qp_context: 0,
            context: 0,
            kind: CompletionKind::Receive,
            status: CompletionStatus::Success,
            bytes: 0,
            immediate: None,
        };
        assert!(cq.push(completion, false, NOW).is_none(), "not armed yet");
        let action = cq.arm(Arm::Any, NOW);
        (cq, action)
    }

    #[test]
    fn a_notice_is_queued_where_the_driver_polls_those_of_its_completion_queue() {
        let notices = Notices::<Lock>::try_new(1).unwrap();
        let (cq, action) = armed(&notices, None);
        notices.apply_cq(&cq, action);
        assert!(matches!(notices.events.pop(), Some(QueuedEvent::Cq(queued)) if *queued == *cq));
        let (cq, action) = armed(&notices, Some(0));
        notices.apply_cq(&cq, action);
        assert!(matches!(notices.events.pop(), Some(QueuedEvent::Due(0))));
        let queue = notices.queue(0).unwrap();
        assert!(matches!(queue.pop(), Some(QueuedEvent::Cq(queued)) if *queued == *cq));
        assert!(notices.queue(1).is_none());
    }

    #[test]
    fn a_destroyed_completion_queue_leaves_no_notice() {
        let notices = Notices::<Lock>::try_new(1).unwrap();
        for queue in [None, Some(0)] {
            let (cq, action) = armed(&notices, queue);
            notices.apply_cq(&cq, action);
            assert_eq!(notices.withdraw_cq(&cq), DestroyResult::Now);
        }
        assert!(matches!(notices.events.pop(), Some(QueuedEvent::Due(0))), "it was queued before");
        assert!(notices.events.pop().is_none());
        assert!(notices.queue(0).unwrap().pop().is_none());
    }
}
