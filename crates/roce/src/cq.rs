// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues (IBTA Volume 1, chapter 10): a ring of fixed size with at most one notification at a time.
//!
//! Queue pairs produce, the consumer polls. The consumer requests a notification by an *arm*. The notification
//! is a *notice*, which [`Engine::poll_event`](crate::Engine::poll_event) returns and which is being delivered
//! until it is dropped. A queue never has more than one notice. The delivery consumes the arm: a notice whose
//! completions the consumer has polled meanwhile is withdrawn, and the arm stays. [`Moderation`] holds a notice back
//! before it is queued.

use alloc::vec::Vec;
use core::fmt;

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::error::{CreateError, ModifyError};
use crate::moderation::Moderation;
use crate::time::Instant;
use crate::work::{Completion, CompletionStatus};
use fallible::Arc;
use fallible::vec;

/// Type of notification that a queue is armed for. In the order of the merge rule: of two arms the greater counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arm {
    /// Faults of the queue itself.
    Errors,
    /// Errors, solicited receives, and requests that fail.
    Solicited,
    /// Errors and every completion.
    Any,
}

impl Arm {
    /// All arms, in their order.
    pub const ALL: [Self; 3] = [Self::Errors, Self::Solicited, Self::Any];

    /// Returns the arm that results from a second arm while `self` is outstanding: the one that covers more.
    #[must_use]
    pub fn merge(self, second: Self) -> Self {
        //= R-CQ-8
        self.max(second)
    }
}

/// Which arms a completion satisfies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interest {
    Plain,
    /// A solicited receive, or a failure.
    Solicited,
}

/// The reason why a queue is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CqFault {
    /// A completion found the queue full.
    Overflow,
    /// The queue contradicts itself. No sequence of calls is known that leads there.
    Internal,
}

impl fmt::Display for CqFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "a completion found the queue full",
            Self::Internal => "the queue is inconsistent",
        })
    }
}

impl core::error::Error for CqFault {}

/// A completion queue.
#[derive(Debug)]
pub struct Cq<R: RawMutex> {
    /// The consumer's context.
    context: u64,
    /// Unique among the queues of the engine.
    id: u64,
    /// Number of the notice queue that has its notices; `None` for the events of the engine.
    notice_queue: Option<u32>,
    state: Mutex<R, Ring>,
}

struct Ring {
    /// `depth` entries, the oldest at `head`.
    entries: Vec<Option<(Completion, Interest)>>,
    head: usize,
    len: usize,
    arm: Option<Arm>,
    /// Unread completions since the last notice began: the newest ones.
    fresh: usize,
    /// Number of those that satisfy [`Arm::Solicited`].
    fresh_solicited: usize,
    /// When the oldest of them was added.
    fresh_since: Instant,
    /// One of them has failed.
    fresh_failure: bool,
    moderation: Option<Moderation>,
    /// The queue's timer, once it was moderated by time.
    timer: Option<u32>,
    fault: Option<CqFault>,
    fault_reported: bool,
    notice: Notice,
    destroyed: bool,
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring")
            .field("depth", &self.entries.len())
            .field("len", &self.len)
            .field("arm", &self.arm)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

/// State of a queue's notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    /// Due, and held back by moderation.
    Held,
    /// In the engine's list of events. The arm is outstanding until delivery begins.
    Queued,
    /// Returned to the engine's driver. An arm set meanwhile waits until the notice is dropped.
    Delivering,
}

/// Action of the caller after a change to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum NoticeAction {
    None,
    /// Queue a notice in the list of events.
    Queue,
    /// Call [`Cq::expire`] at this time.
    Hold {
        timer: u32,
        until: Instant,
    },
}

/// A locked queue with a new completion or a new fault.
pub(crate) struct Due<'a, R: RawMutex>(MutexGuard<'a, R, Ring>);

impl<R: RawMutex> Due<'_, R> {
    /// Returns whether the queue became unusable by the completion. One that was unusable before got none.
    pub(crate) fn is_faulted(&self) -> bool {
        self.0.fault.is_some()
    }

    /// Queues the notice, or holds it back, if it is due.
    pub(crate) fn notice(mut self, now: Instant) -> NoticeAction {
        self.0.notify_if_due(now)
    }
}

/// The notice was withdrawn: the queue was destroyed meanwhile, or the completions were polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawn;

/// When a queue's destruction is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestroyResult {
    /// At once: no event names the queue's context again.
    Now,
    /// When the notice that the driver holds is dropped: an event then reports that it was the last.
    AfterNotice,
}

/// Returns the bytes of the entries of a queue of this depth.
pub(crate) const fn entry_bytes(depth: u32) -> usize {
    size_of::<Option<(Completion, Interest)>>().saturating_mul(depth as usize)
}

impl<R: RawMutex> Cq<R> {
    pub(crate) fn try_new(
        depth: u32,
        context: u64,
        id: u64,
        notice_queue: Option<u32>,
    ) -> Result<Arc<Self>, CreateError> {
        if depth == 0 {
            return Err(CreateError::Invalid);
        }
        //= R-CQ-31
        let entries = vec::filled(depth as usize, None)?;
        let state = Mutex::new(Ring {
            entries,
            head: 0,
            len: 0,
            arm: None,
            fresh: 0,
            fresh_solicited: 0,
            fresh_since: Instant::default(),
            fresh_failure: false,
            //= R-CQ-51
            moderation: None,
            timer: None,
            fault: None,
            fault_reported: false,
            notice: Notice::None,
            destroyed: false,
        });
        Ok(Arc::try_new(Self { context, id, notice_queue, state })?)
    }

    /// Returns the context that the queue was created with.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Returns the number of the queue's notice queue.
    pub(crate) fn notice_queue(&self) -> Option<u32> {
        self.notice_queue
    }

    /// Returns the number of entries that the queue holds without overflow.
    pub fn depth(&self) -> u32 {
        self.state.lock().entries.len() as u32
    }

    /// Returns the number of unread completions.
    pub fn len(&self) -> u32 {
        self.state.lock().len as u32
    }

    /// Returns `true` if there is no unread completion.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns why the queue is unusable, if it is.
    pub fn fault(&self) -> Option<CqFault> {
        self.state.lock().fault
    }

    /// Moves the oldest completions to `results`, as many as fit. Returns their number.
    pub fn poll(&self, results: &mut [Completion]) -> usize {
        let mut ring = self.state.lock();
        let mut taken = 0;
        //= R-CQ-19
        //= R-CQ-21
        //= R-CQ-36
        for result in results {
            let Some(completion) = ring.pop() else { break };
            *result = completion;
            taken += 1;
        }
        taken
    }

    /// Removes the unread completions of the queue pairs with this [context](crate::QpSpec::context).
    pub fn discard(&self, qp_context: u64) {
        self.state.lock().retain(|completion| completion.qp_context != qp_context);
    }

    /// Adds a completion. Returns the queue, still locked, for [`Due::notice`], if the consumer may have to be notified.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the completion is composed in the queue's entry")]
    pub(crate) fn push(&self, completion: Completion, solicited: bool, now: Instant) -> Option<Due<'_, R>> {
        let mut ring = self.state.lock();
        //= R-CQ-32
        if ring.fault.is_some() || ring.destroyed {
            return None;
        }
        if ring.len == ring.entries.len() {
            ring.fault = Some(CqFault::Overflow);
            return Some(Due(ring));
        }
        //= R-CQ-5
        //= R-CQ-6
        //= R-QP-65
        let interest = if completion.status != CompletionStatus::Success {
            ring.fresh_failure = true;
            Interest::Solicited
        } else if solicited {
            Interest::Solicited
        } else {
            Interest::Plain
        };
        if !ring.append(completion, interest, now) {
            //= R-CQ-33
            ring.fault = Some(CqFault::Internal);
            return Some(Due(ring));
        }
        // Usually none while a consumer polls.
        if ring.arm.is_none() { None } else { Some(Due(ring)) }
    }

    //= R-CONSUMER-8, R-CONSUMER-9
    pub(crate) fn arm(&self, arm: Arm, now: Instant) -> NoticeAction {
        let mut ring = self.state.lock();
        if ring.destroyed {
            return NoticeAction::None;
        }
        //= R-CQ-8
        //= R-CQ-9
        ring.arm = Some(ring.arm.map_or(arm, |first| first.merge(arm)));
        //= R-CQ-16
        ring.notify_if_due(now)
    }

    /// Changes the depth. Completions stay; producers and the consumer wait meanwhile.
    pub(crate) fn resize(&self, depth: u32, now: Instant) -> Result<NoticeAction, ModifyError> {
        let depth = depth as usize;
        // Not under the lock.
        let mut entries = vec::filled(depth, None).map_err(|_| ModifyError::OutOfMemory)?;
        let mut ring = self.state.lock();
        //= R-CQ-40
        if depth < ring.len {
            return Err(ModifyError::Occupied);
        }
        //= R-CQ-41
        let head = ring.head;
        for (at, entry) in entries.iter_mut().enumerate().take(ring.len) {
            let from = ring.wrap(head.wrapping_add(at));
            *entry = ring.entries.get_mut(from).and_then(Option::take);
        }
        core::mem::swap(&mut ring.entries, &mut entries);
        ring.head = 0;
        let action = ring.reconsider(now);
        drop(ring);
        // The old entries are freed without the lock, too.
        drop(entries);
        Ok(action)
    }

    /// Sets or, with `None`, ends moderation. It applies to a notice that is held back, too.
    pub(crate) fn moderate(&self, moderation: Option<Moderation>, now: Instant) -> NoticeAction {
        let mut ring = self.state.lock();
        //= R-CQ-52
        ring.moderation = moderation;
        ring.reconsider(now)
    }

    /// The queue's timer, by which [`NoticeAction::Hold`] is executed.
    pub(crate) fn timer(&self) -> Option<u32> {
        self.state.lock().timer
    }

    pub(crate) fn set_timer(&self, timer: u32) {
        self.state.lock().timer = Some(timer);
    }

    /// The queue's timer has expired.
    pub(crate) fn expire(&self, now: Instant) -> NoticeAction {
        self.state.lock().reconsider(now)
    }

    /// Starts delivery of the queued notice. Returns the fault that it reports.
    pub(crate) fn begin_notice(&self) -> Result<Option<CqFault>, Withdrawn> {
        let mut ring = self.state.lock();
        // Destruction withdraws a notice that is queued, and none is queued afterwards.
        if ring.notice != Notice::Queued {
            return Err(Withdrawn);
        }
        //= R-CQ-13
        //= R-CONSUMER-7
        if !ring.arm.is_some_and(|arm| ring.satisfies(arm)) {
            ring.notice = Notice::None;
            return Err(Withdrawn);
        }
        //= R-CQ-1
        ring.arm = None;
        ring.notice = Notice::Delivering;
        //= R-CQ-10
        //= R-CQ-12
        // This notice covers all completions that are unread now; only later ones cause another notice.
        ring.fresh = 0;
        ring.fresh_solicited = 0;
        ring.fresh_failure = false;
        let fault = ring.fault.filter(|_| !ring.fault_reported);
        ring.fault_reported |= fault.is_some();
        Ok(fault)
    }

    /// Ends delivery of the notice. Returns `true` if the queue was destroyed meanwhile.
    pub(crate) fn end_notice(&self, now: Instant) -> (NoticeAction, bool) {
        let mut ring = self.state.lock();
        //= R-CQ-14
        //= R-CQ-15
        // Completions that arrived during delivery and were polled meanwhile cause no further notice: the arm
        // stays.
        ring.notice = Notice::None;
        (ring.notify_if_due(now), ring.destroyed)
    }

    pub(crate) fn destroy(&self) -> DestroyResult {
        let mut ring = self.state.lock();
        ring.destroyed = true;
        match ring.notice {
            Notice::None | Notice::Held | Notice::Queued => {
                ring.notice = Notice::None;
                DestroyResult::Now
            }
            Notice::Delivering => DestroyResult::AfterNotice,
        }
    }
}

impl<R: RawMutex> PartialEq for Cq<R> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<R: RawMutex> Eq for Cq<R> {}

impl Ring {
    fn pop(&mut self) -> Option<Completion> {
        let (completion, interest) = self.entries.get_mut(self.head)?.take()?;
        // Fresh completions are the newest; the oldest is polled first.
        if self.fresh == self.len {
            self.fresh = self.fresh.saturating_sub(1);
            if interest == Interest::Solicited {
                self.fresh_solicited = self.fresh_solicited.saturating_sub(1);
            }
            self.fresh_failure &= self.fresh > 0;
        }
        self.head = self.wrap(self.head.wrapping_add(1));
        self.len = self.len.saturating_sub(1);
        Some(completion)
    }

    /// Removes the completions that `keep` refuses.
    fn retain(&mut self, keep: impl Fn(&Completion) -> bool) {
        let (len, first_fresh) = (self.len, self.len.saturating_sub(self.fresh));
        (self.len, self.fresh, self.fresh_solicited, self.fresh_failure) = (0, 0, 0, false);
        for at in 0..len {
            let from = self.wrap(self.head.wrapping_add(at));
            let taken = self.entries.get_mut(from).and_then(Option::take);
            let Some((completion, interest)) = taken.filter(|(completion, _)| keep(completion)) else {
                continue;
            };
            if at >= first_fresh {
                self.fresh += 1;
                self.fresh_solicited += usize::from(interest == Interest::Solicited);
                self.fresh_failure |= completion.status != CompletionStatus::Success;
            }
            let to = self.wrap(self.head.wrapping_add(self.len));
            if let Some(entry) = self.entries.get_mut(to) {
                *entry = Some((completion, interest));
            }
            self.len += 1;
        }
    }

    /// Appends a completion. The ring is not full. Returns `false` if the place of the new entry is not free.
    #[inline]
    fn append(&mut self, completion: Completion, interest: Interest, now: Instant) -> bool {
        let tail = self.wrap(self.head.wrapping_add(self.len));
        if self.fresh == 0 {
            self.fresh_since = now;
        }
        let Some(entry @ None) = self.entries.get_mut(tail) else { return false };
        *entry = Some((completion, interest));
        self.len += 1;
        self.fresh += 1;
        self.fresh_solicited += usize::from(interest == Interest::Solicited);
        true
    }

    /// Returns `index` modulo the depth. `index` is less than twice the depth.
    fn wrap(&self, index: usize) -> usize {
        if index >= self.entries.len() { index.wrapping_sub(self.entries.len()) } else { index }
    }

    /// Returns `true` if an event that `arm` covers has happened since the last notice and is not polled yet.
    fn satisfies(&self, arm: Arm) -> bool {
        //= R-CQ-35
        if self.fault.is_some() && !self.fault_reported {
            return true;
        }
        match arm {
            //= R-CQ-3
            //= R-CQ-4
            //= R-CQ-10
            //= R-CQ-11
            Arm::Any => self.fresh > 0,
            Arm::Solicited => self.fresh_solicited > 0,
            //= R-CQ-7
            Arm::Errors => false,
        }
    }

    /// Queues the notice, or holds it back, if the arm is satisfied and the queue has none.
    #[inline(never)]
    fn notify_if_due(&mut self, now: Instant) -> NoticeAction {
        //= R-CQ-2
        //= R-CQ-13
        if self.destroyed || !self.arm.is_some_and(|arm| self.satisfies(arm)) {
            return NoticeAction::None;
        }
        match self.notice {
            Notice::None | Notice::Held => match self.hold(now) {
                None => {
                    self.notice = Notice::Queued;
                    NoticeAction::Queue
                }
                Some(action) => {
                    let begins = core::mem::replace(&mut self.notice, Notice::Held) == Notice::None;
                    if begins { action } else { NoticeAction::None }
                }
            },
            // A queued notice covers this event, too.
            //= R-CQ-14
            Notice::Queued | Notice::Delivering => NoticeAction::None,
        }
    }

    /// Decides anew about a notice that is held back. One whose completions were polled meanwhile is dropped; the arm
    /// stays.
    fn reconsider(&mut self, now: Instant) -> NoticeAction {
        if self.notice != Notice::Held {
            return NoticeAction::None;
        }
        self.notice = Notice::None;
        self.notify_if_due(now)
    }

    /// Returns how a due notice is held back at `now`, if it is.
    fn hold(&self, now: Instant) -> Option<NoticeAction> {
        let moderation = self.moderation?;
        //= R-CQ-56
        let bypass = self.fresh_failure || (self.fault.is_some() && !self.fault_reported);
        if bypass || !moderation.waits_for_more(self.len, self.entries.len()) {
            return None;
        }
        match (moderation.deadline(self.fresh_since), self.timer) {
            (Some(until), Some(timer)) => (until > now).then_some(NoticeAction::Hold { timer, until }),
            // There is a timer before there is an interval.
            (Some(_), None) => None,
            (None, _) => Some(NoticeAction::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    #[test]
    fn completions_of_one_queue_pair_are_removed_and_the_others_keep_their_order() {
        let cq = Cq::<Lock>::try_new(4, 0, 0, None).unwrap();
        let now = Instant::default();
        let push = |qp_context, context, solicited| {
            let completion = Completion { qp_context, context, ..Completion::EMPTY };
            if let Some(due) = cq.push(completion, solicited, now) {
                assert!(!due.is_faulted(), "{context}");
            }
        };
        let poll = || {
            let mut results = [Completion::EMPTY; 4];
            let polled = cq.poll(&mut results);
            results[..polled].iter().map(|completion| completion.context).collect::<Vec<_>>()
        };
        push(1, 0, false);
        push(1, 1, false);
        assert_eq!(poll(), [0, 1]);
        // From here on the ring wraps.
        for context in 2..6 {
            push(1 + context % 2, context, true);
        }
        cq.discard(1);
        push(2, 6, false);
        push(1, 7, false);
        assert_eq!(poll(), [3, 5, 6, 7]);
        push(1, 8, true);
        push(2, 9, false);
        cq.discard(1);
        assert_eq!(cq.arm(Arm::Solicited, now), NoticeAction::None, "the solicited one is gone");
        assert_eq!(cq.arm(Arm::Any, now), NoticeAction::Queue);
        assert_eq!(poll(), [9]);
        cq.discard(2);
        assert!(cq.is_empty());
    }

    #[test]
    fn completions_that_stay_have_the_notices_that_they_had() {
        let now = Instant::default();
        let of = |qp_context, status| Completion { qp_context, status, ..Completion::EMPTY };
        let [good, bad] = [CompletionStatus::Success, CompletionStatus::Flushed];
        let queue = |pushed: &[(u64, CompletionStatus, bool)]| {
            let cq = Cq::<Lock>::try_new(8, 0, 0, None).unwrap();
            for &(qp_context, status, solicited) in pushed {
                drop(cq.push(of(qp_context, status), solicited, now));
            }
            cq.discard(1);
            cq
        };
        let poll = |cq: &Cq<Lock>, count: usize| {
            let mut results = [Completion::EMPTY; 8];
            assert_eq!(cq.poll(&mut results[..count]), count);
        };
        let cq = queue(&[(2, good, true), (1, good, true), (2, good, false)]);
        assert_eq!(cq.arm(Arm::Solicited, now), NoticeAction::Queue);
        let cq = queue(&[(2, good, true), (1, good, true), (2, good, false)]);
        poll(&cq, 1);
        assert_eq!(cq.arm(Arm::Solicited, now), NoticeAction::None, "the solicited one was polled");
        assert_eq!(cq.arm(Arm::Any, now), NoticeAction::Queue);
        let cq = queue(&[(2, good, false), (1, good, false)]);
        poll(&cq, 1);
        assert_eq!(cq.arm(Arm::Any, now), NoticeAction::None, "all were polled");
        // A failure is not held back.
        for (kept, expected) in [(bad, NoticeAction::Queue), (good, NoticeAction::None)] {
            let cq = queue(&[(2, kept, true), (1, bad, true), (2, good, true)]);
            let moderation = Moderation { interval: None, count: Some(8) };
            assert_eq!(cq.moderate(Some(moderation), now), NoticeAction::None);
            assert_eq!(cq.arm(Arm::Any, now), expected, "{kept:?}");
        }
    }

    //= R-CQ-33
    #[test]
    fn a_queue_that_contradicts_itself_is_reported_as_an_internal_fault() {
        let cq = Cq::<Lock>::try_new(2, 0, 0, None).unwrap();
        cq.state.lock().entries[0] = Some((Completion::EMPTY, Interest::Plain));
        assert_eq!(cq.arm(Arm::Errors, Instant::default()), NoticeAction::None);
        let due = cq.push(Completion::EMPTY, false, Instant::default()).unwrap();
        assert!(due.is_faulted());
        assert_eq!(due.notice(Instant::default()), NoticeAction::Queue);
        assert_eq!(cq.begin_notice().ok(), Some(Some(CqFault::Internal)));
        // Nothing further is reported.
        assert!(cq.push(Completion::EMPTY, false, Instant::default()).is_none());
    }
}
