// SPDX-License-Identifier: MIT OR Apache-2.0

//! Timers of the completion queues whose notices are held back by [`Moderation`](crate::Moderation).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::cq::Cq;
use crate::error::{CreateError, ModifyError};
use crate::time::Instant;
use crate::timer_wheel::TimerWheel;
use fallible::Arc;
use fallible::vec;

/// One timer per completion queue that was ever moderated by time. Its lock is a leaf, except that a new timer is
/// entered in its queue under it.
pub(crate) struct HeldNotices<R: RawMutex> {
    timers: Mutex<R, Timers<R>>,
    /// When the first timer expires, or before it, in nanoseconds; `u64::MAX` if none is set.
    next: AtomicU64,
}

struct Timers<R: RawMutex> {
    wheel: TimerWheel,
    /// The queue of each timer.
    owners: Vec<Option<Arc<Cq<R>>>>,
    /// Timers without a queue; room for all.
    free: Vec<u32>,
}

impl<R: RawMutex> HeldNotices<R> {
    pub(crate) fn try_new() -> Result<Self, CreateError> {
        let timers = Timers { wheel: TimerWheel::try_new()?, owners: Vec::new(), free: Vec::new() };
        Ok(Self { timers: Mutex::new(timers), next: AtomicU64::new(u64::MAX) })
    }

    /// Gives `cq` a timer, unless it has one.
    pub(crate) fn add(&self, cq: &Arc<Cq<R>>) -> Result<(), ModifyError> {
        let mut timers = self.timers.lock();
        if cq.timer().is_some() {
            return Ok(());
        }
        let timer = timers.allocate().map_err(|_| ModifyError::OutOfMemory)?;
        if let Some(owner) = timers.owners.get_mut(timer as usize) {
            *owner = Some(cq.clone());
        }
        cq.set_timer(timer);
        Ok(())
    }

    /// Takes back the timer of `cq`, if it has one.
    pub(crate) fn remove(&self, cq: &Cq<R>) {
        let Some(timer) = cq.timer() else { return };
        let mut timers = self.timers.lock();
        if !timers.belongs_to(timer, cq) {
            return;
        }
        timers.wheel.cancel(timer);
        let owner = timers.owners.get_mut(timer as usize).and_then(Option::take);
        // Cannot fail: there is room for all.
        let _ = vec::push_within_capacity(&mut timers.free, timer);
        self.set_next(&timers);
        drop(timers);
        drop(owner);
    }

    /// Sets the timer of `cq` to `at`, unless it expires earlier.
    pub(crate) fn schedule(&self, timer: u32, cq: &Cq<R>, at: Instant) {
        let mut timers = self.timers.lock();
        // The queue may have been destroyed meanwhile, and the timer given to another one.
        if timers.belongs_to(timer, cq) {
            timers.wheel.schedule_earlier(timer, at);
            self.set_next(&timers);
        }
    }

    /// Returns the queue of a timer that has expired at `now`. Call it until it returns `None`.
    pub(crate) fn expire(&self, now: Instant) -> Option<Arc<Cq<R>>> {
        if self.next.load(Ordering::Acquire) > now.as_nanos() {
            return None;
        }
        let mut timers = self.timers.lock();
        let expired = timers.wheel.expire(now);
        self.set_next(&timers);
        timers.owners.get(expired? as usize)?.clone()
    }

    /// Returns when [`HeldNotices::expire`] is to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = self.next.load(Ordering::Acquire);
        (next != u64::MAX).then(|| Instant::from_nanos(next))
    }

    fn set_next(&self, timers: &Timers<R>) {
        self.next.store(timers.wheel.next().map_or(u64::MAX, Instant::as_nanos), Ordering::Release);
    }
}

impl<R: RawMutex> Timers<R> {
    fn allocate(&mut self) -> Result<u32, CreateError> {
        if let Some(timer) = self.free.pop() {
            return Ok(timer);
        }
        let timer = u32::try_from(self.owners.len()).map_err(|_| CreateError::TooMany)?;
        self.wheel.reserve_for(timer)?;
        vec::reserve(&mut self.free, self.owners.len().saturating_add(1))?;
        vec::push(&mut self.owners, None)?;
        Ok(timer)
    }

    fn belongs_to(&self, timer: u32, cq: &Cq<R>) -> bool {
        matches!(self.owners.get(timer as usize), Some(Some(owner)) if **owner == *cq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lock;

    /// Two queues with timers.
    fn two() -> (HeldNotices<Lock>, [Arc<Cq<Lock>>; 2]) {
        let held = HeldNotices::try_new().unwrap();
        let queues = [1, 2].map(|id| Cq::try_new(1, id, id, None).unwrap());
        for cq in &queues {
            held.add(cq).unwrap();
            held.add(cq).unwrap();
        }
        assert_eq!(queues.each_ref().map(|cq| cq.timer()), [Some(0), Some(1)]);
        (held, queues)
    }

    const fn at(milliseconds: u64) -> Instant {
        Instant::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn the_earliest_of_several_times_counts() {
        let (held, [first, second]) = two();
        for (cq, times) in [(&first, [5, 2, 9]), (&second, [7, 8, 6])] {
            for time in times {
                held.schedule(cq.timer().unwrap(), cq, at(time));
            }
        }
        assert!(held.deadline().is_some_and(|next| next <= at(3)));
        assert!(held.expire(at(2)).is_none());
        assert!(held.expire(at(3)).is_some_and(|cq| *cq == *first));
        assert!(held.expire(at(6)).is_none());
        assert!(held.expire(at(7)).is_some_and(|cq| *cq == *second));
        assert!(held.expire(at(99)).is_none());
        assert_eq!(held.deadline(), None);
    }

    /// A thread decides to hold a notice back, and the queue is destroyed before it sets the timer.
    #[test]
    fn a_queue_without_its_timer_cannot_set_that_of_another() {
        let (held, [first, second]) = two();
        let timer = first.timer().unwrap();
        held.schedule(timer, &first, at(1));
        held.remove(&first);
        assert_eq!(held.deadline(), None);
        held.schedule(timer, &first, at(1));
        assert_eq!(held.deadline(), None);
        let third = Cq::try_new(1, 3, 3, None).unwrap();
        held.add(&third).unwrap();
        assert_eq!(third.timer(), Some(timer), "reused");
        held.schedule(timer, &first, at(1));
        held.remove(&first);
        held.schedule(timer, &third, at(2));
        assert!(held.expire(at(1)).is_none());
        assert!(held.expire(at(3)).is_some_and(|cq| *cq == *third));
        held.remove(&second);
        held.remove(&second);
    }
}
