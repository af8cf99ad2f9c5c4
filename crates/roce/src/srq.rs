// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues (IBTA Volume 1, chapter 10).

use lock_api::{Mutex, RawMutex};

use crate::cq::{DestroyResult, NoticeAction};
use crate::error::{CreateError, ModifyError, PostError};
use crate::recv_queue::{CurrentReceive, RecvQueue};
use crate::work::{RecvRequest, Sge};
use fallible::Arc;

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq<R: RawMutex> {
    context: u64,
    id: u64,
    /// Number of the notice queue that has its notices; `None` for the events of the engine.
    notice_queue: Option<u32>,
    sges: u32,
    /// Posts take this lock, although the consumer serializes them: queue pairs take receives at the same time.
    //= R-SRQ-4
    state: Mutex<R, SrqState>,
}

/// State of a shared receive queue that its lock protects.
#[derive(Debug)]
struct SrqState {
    queue: RecvQueue,
    threshold: Threshold,
    notice: Notice,
    destroyed: bool,
}

/// State of the low-watermark (SRQ limit) notification.
///
/// | state | event | next |
/// | --- | --- | --- |
/// | `Idle` | modify with n > 0 | notify if the queue holds fewer than n, else `Armed(n)` |
/// | `Rising(n)` | the queue reaches n | `Armed(n)` |
/// | `Armed(n)` | the queue falls below n | notify, `Idle` |
/// | any | modify with 0 | unchanged |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threshold {
    Idle,
    /// Set at creation, and the queue has not held as many receives yet.
    Rising(u32),
    Armed(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    Queued,
    Delivering,
    DeliveringAndDue,
}

/// Parameters of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec {
    /// Maximum receives.
    pub depth: u32,
    /// Maximum scatter-gather elements per receive.
    pub sges: u32,
    /// Notify when it falls below this number of receives, once it has held as many; 0 for never.
    pub threshold: u32,
    /// Returned in its notices.
    pub context: u64,
}

impl<R: RawMutex> Srq<R> {
    pub(crate) fn try_new(
        spec: &SrqSpec,
        id: u64,
        notice_queue: Option<u32>,
    ) -> Result<Arc<Self>, CreateError> {
        if spec.depth == 0 {
            return Err(CreateError::Invalid);
        }
        //= R-SRQ-14
        //= R-SRQ-15
        let threshold = if spec.threshold == 0 { Threshold::Idle } else { Threshold::Rising(spec.threshold) };
        let state = Mutex::new(SrqState {
            queue: RecvQueue::try_new(spec.depth, spec.sges)?,
            threshold,
            notice: Notice::None,
            destroyed: false,
        });
        Ok(Arc::try_new(Self { context: spec.context, id, notice_queue, sges: spec.sges, state })?)
    }

    /// Returns the context that the queue was created with.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Returns the number of the queue's notice queue.
    pub(crate) fn notice_queue(&self) -> Option<u32> {
        self.notice_queue
    }

    /// Returns the maximum scatter-gather elements per receive.
    pub fn sges(&self) -> u32 {
        self.sges
    }

    /// Returns the number of posted receives.
    pub fn len(&self) -> u32 {
        self.state.lock().queue.len()
    }

    /// Returns whether an element of a posted receive is one that `wanted` accepts.
    pub fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.state.lock().queue.has_element(wanted)
    }

    /// Returns `true` if no receive is posted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive. Receives are used in the order of the calls.
    ///
    /// # Errors
    /// See [`PostError`]: the queue is full, or the request is invalid.
    pub fn post(&self, request: &RecvRequest<'_>, max_message: u32) -> Result<(), PostError> {
        let mut shared = self.state.lock();
        shared.queue.post(request, max_message)?;
        if let Threshold::Rising(threshold) = shared.threshold
            && shared.queue.len() >= threshold
        {
            shared.threshold = Threshold::Armed(threshold);
        }
        Ok(())
    }

    /// Moves the oldest receive to `current`. Returns `false` if there is none.
    pub(crate) fn take(&self, current: &mut CurrentReceive) -> (bool, NoticeAction) {
        let mut shared = self.state.lock();
        let taken = shared.queue.take(current);
        (taken, shared.notify_if_below())
    }

    /// Changes depth and threshold; 0 leaves either as it is.
    pub(crate) fn modify(&self, depth: u32, threshold: u32) -> Result<NoticeAction, ModifyError> {
        //= R-SRQ-10
        let mut entries = match depth {
            0 => None,
            // Not under the lock, for which queue pairs wait.
            _ => Some(RecvQueue::try_new(depth, self.sges).map_err(|_| ModifyError::OutOfMemory)?),
        };
        let mut shared = self.state.lock();
        if let Some(entries) = &mut entries {
            //= R-SRQ-12
            if depth < shared.queue.len() {
                return Err(ModifyError::Occupied);
            }
            shared.queue.move_to(entries);
        }
        //= R-SRQ-8
        //= R-SRQ-9
        if threshold != 0 {
            shared.threshold = Threshold::Armed(threshold);
        }
        let action = shared.notify_if_below();
        drop(shared);
        // The entries that were used before are freed without the lock, too.
        drop(entries);
        Ok(action)
    }

    /// Starts delivery of the queued notice. Returns `false` if it was withdrawn meanwhile.
    pub(crate) fn begin_notice(&self) -> bool {
        let mut shared = self.state.lock();
        if shared.notice != Notice::Queued {
            return false;
        }
        shared.notice = Notice::Delivering;
        true
    }

    /// Ends delivery of the notice. Returns `true` if the queue was destroyed meanwhile.
    pub(crate) fn end_notice(&self) -> (NoticeAction, bool) {
        let mut shared = self.state.lock();
        //= R-SRQ-18
        let due = shared.notice == Notice::DeliveringAndDue && !shared.destroyed;
        shared.notice = if due { Notice::Queued } else { Notice::None };
        (if due { NoticeAction::Queue } else { NoticeAction::None }, shared.destroyed)
    }

    pub(crate) fn destroy(&self) -> DestroyResult {
        let mut shared = self.state.lock();
        shared.destroyed = true;
        shared.threshold = Threshold::Idle;
        //= R-SRQ-21
        shared.queue.clear();
        match shared.notice {
            Notice::None | Notice::Queued => {
                shared.notice = Notice::None;
                DestroyResult::Now
            }
            Notice::Delivering | Notice::DeliveringAndDue => DestroyResult::AfterNotice,
        }
    }
}

impl<R: RawMutex> PartialEq for Srq<R> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<R: RawMutex> Eq for Srq<R> {}

impl SrqState {
    fn notify_if_below(&mut self) -> NoticeAction {
        //= R-SRQ-6
        let Threshold::Armed(threshold) = self.threshold else { return NoticeAction::None };
        if self.queue.len() >= threshold || self.destroyed {
            return NoticeAction::None;
        }
        //= R-SRQ-7
        self.threshold = Threshold::Idle;
        match self.notice {
            Notice::None => {
                self.notice = Notice::Queued;
                NoticeAction::Queue
            }
            Notice::Queued => NoticeAction::None,
            Notice::Delivering | Notice::DeliveringAndDue => {
                self.notice = Notice::DeliveringAndDue;
                NoticeAction::None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    fn srq(depth: u32, threshold: u32) -> Arc<Srq<Lock>> {
        Srq::try_new(&SrqSpec { depth, sges: 2, threshold, context: 7 }, 1, None).unwrap()
    }

    /// Posts a receive of two elements.
    fn post(srq: &Srq<Lock>, context: u64) -> Result<(), PostError> {
        let sges = [10, 20].map(|length| Sge { address: context, length, key: 1 });
        srq.post(&RecvRequest { context, sges: &sges }, u32::MAX)
    }

    /// Takes a receive, whose elements are those of [`post`]: its context, and what follows for the notice.
    fn take(srq: &Srq<Lock>) -> (Option<u64>, NoticeAction) {
        let mut current = CurrentReceive::try_new(srq.sges()).unwrap();
        let (taken, action) = srq.take(&mut current);
        if taken {
            let elements: std::vec::Vec<_> =
                current.sges().iter().map(|sge| (sge.address, sge.length)).collect();
            assert_eq!(elements, [(current.context, 10), (current.context, 20)]);
        }
        (taken.then_some(current.context), action)
    }

    #[test]
    fn receives_are_taken_in_the_order_of_their_posts_and_a_full_queue_refuses_one() {
        let srq = srq(3, 0);
        (1..=3).for_each(|context| post(&srq, context).unwrap());
        assert_eq!(post(&srq, 4), Err(PostError::QueueFull));
        assert_eq!(take(&srq), (Some(1), NoticeAction::None));
        post(&srq, 4).unwrap();
        assert_eq!([take(&srq).0, take(&srq).0, take(&srq).0], [Some(2), Some(3), Some(4)]);
        assert_eq!((take(&srq), srq.is_empty()), ((None, NoticeAction::None), true));
    }

    #[test]
    fn threshold_notifies_once_after_the_queue_has_held_as_many_receives() {
        let srq = srq(4, 2);
        post(&srq, 1).unwrap();
        assert_eq!(take(&srq), (Some(1), NoticeAction::None));
        (2..=3).for_each(|context| post(&srq, context).unwrap());
        assert_eq!(take(&srq), (Some(2), NoticeAction::Queue));
        assert_eq!(take(&srq), (Some(3), NoticeAction::None));
        assert!(srq.begin_notice());
        assert_eq!(srq.end_notice(), (NoticeAction::None, false));
        assert!(!srq.begin_notice());
    }

    #[test]
    fn threshold_that_is_set_notifies_at_once_if_the_queue_is_below_it() {
        let srq = srq(4, 0);
        post(&srq, 1).unwrap();
        assert_eq!(srq.modify(0, 1).ok(), Some(NoticeAction::None));
        assert_eq!(srq.modify(0, 2).ok(), Some(NoticeAction::Queue));
        // It falls below another threshold while the notice is delivered: one more is due.
        assert!(srq.begin_notice());
        assert_eq!(srq.modify(0, 3).ok(), Some(NoticeAction::None));
        assert_eq!(srq.end_notice(), (NoticeAction::Queue, false));
    }

    #[test]
    fn depth_changes_keep_the_receives_and_their_order() {
        let srq = srq(2, 0);
        (1..=2).for_each(|context| post(&srq, context).unwrap());
        assert!(matches!(srq.modify(1, 0), Err(ModifyError::Occupied)));
        assert_eq!(srq.modify(3, 0).ok(), Some(NoticeAction::None));
        post(&srq, 3).unwrap();
        assert_eq!([take(&srq).0, take(&srq).0, take(&srq).0], [Some(1), Some(2), Some(3)]);
        assert_eq!(srq.modify(1, 0).ok(), Some(NoticeAction::None));
        post(&srq, 4).unwrap();
        assert_eq!(post(&srq, 5), Err(PostError::QueueFull));
    }

    #[test]
    fn queue_that_is_destroyed_drops_its_receives_and_a_notice_that_is_not_delivered_yet() {
        let srq = srq(2, 1);
        post(&srq, 1).unwrap();
        assert_eq!(take(&srq), (Some(1), NoticeAction::Queue));
        post(&srq, 2).unwrap();
        assert_eq!(srq.destroy(), DestroyResult::Now);
        assert!(!srq.begin_notice());
        assert!(srq.is_empty());
    }

    #[test]
    fn destruction_waits_for_a_notice_that_is_being_delivered() {
        let srq = srq(2, 1);
        post(&srq, 1).unwrap();
        assert_eq!(take(&srq), (Some(1), NoticeAction::Queue));
        assert!(srq.begin_notice());
        assert_eq!(srq.destroy(), DestroyResult::AfterNotice);
        assert_eq!(srq.end_notice(), (NoticeAction::None, true));
    }
}
