// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shards: what each queue pair of the NIC, and the processor that serves it, has of the engine to itself.
//!
//! A queue pair belongs to one shard at a time, whose ready list and timer wheel have it. It moves to the shard by which
//! its packets arrive. Its shard changes under its lock, and only there may it be entered in a ready list or a wheel, so
//! that it never is in those of two shards.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_api::{Mutex, RawMutex};

use crate::error::CreateError;
use crate::qp::Qp;
use crate::ready_list::ReadyList;
use crate::stats::Stats;
use crate::time::Instant;
use crate::timer_wheel::TimerWheel;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;
use fallible::vec;

/// Bytes before and after a shard, so that no two shards share a cache line, nor a pair of lines that a processor fetches
/// together. Not by alignment, which the kernel's pool does not provide.
const PADDING: usize = 128;

/// The state of one shard.
#[repr(C)]
pub(crate) struct ShardState<R: RawMutex> {
    _before: [u8; PADDING],
    number: u32,
    pub(crate) stats: Stats,
    ready: Mutex<R, ReadyList<Arc<Qp<R>>>>,
    /// The ready list has members. Changes under its lock, and is read without: the driver asks after each post.
    has_ready: AtomicBool,
    wheel: Mutex<R, TimerWheel>,
    /// [`TimerWheel::next`] in nanoseconds; `u64::MAX` for never. Changes under the wheel's lock.
    deadline: AtomicU64,
    /// The latest time that the driver passed to this shard, in nanoseconds.
    clock: AtomicU64,
    _after: [u8; PADDING],
}

impl<R: RawMutex> core::fmt::Debug for ShardState<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shard").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The shards of an engine, at least one.
pub(crate) struct Shards<R: RawMutex> {
    first: Arc<ShardState<R>>,
    others: Vec<Arc<ShardState<R>>>,
}

impl<R: RawMutex> Shards<R> {
    /// Creates `count` shards, at least one.
    #[inline(never)]
    pub(crate) fn try_new(count: u32) -> Result<Self, CreateError> {
        let mut others = vec::with_capacity(count.saturating_sub(1) as usize)?;
        for number in 1..count {
            vec::push_within_capacity(&mut others, ShardState::try_new(number)?)?;
        }
        Ok(Self { first: ShardState::try_new(0)?, others })
    }

    /// Returns the number of shards.
    pub(crate) fn count(&self) -> u32 {
        (self.others.len() as u32).saturating_add(1)
    }

    #[inline]
    pub(crate) fn first(&self) -> &ShardState<R> {
        &self.first
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&ShardState<R>> {
        match number.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other as usize).map(|shard| &**shard),
        }
    }

    /// Returns the shard of a queue pair.
    #[inline]
    pub(crate) fn of(&self, qp: &Qp<R>) -> &ShardState<R> {
        // A destroyed queue pair has none, and nothing to enter there.
        self.get(qp.shard()).unwrap_or(&self.first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ShardState<R>> {
        core::iter::once(&self.first).chain(&self.others).map(|shard| &**shard)
    }

    /// Makes room for the queue pair at `index` of the table in each shard.
    pub(crate) fn reserve_for(&self, index: u32) -> Result<(), CreateError> {
        for shard in self.iter() {
            shard.ready.lock().reserve_for(index)?;
            shard.wheel.lock().reserve_for(index)?;
        }
        Ok(())
    }

    /// Moves a queue pair to shard `to`. `transport` is locked.
    #[inline(never)]
    pub(crate) fn move_to(&self, to: &ShardState<R>, transport: &mut RcTransport, qp: &Qp<R>) {
        self.of(qp).withdraw(qp);
        transport.unschedule();
        qp.set_shard(to.number);
    }
}

impl<R: RawMutex> ShardState<R> {
    /// Allocates a shard, in place: it is too large for a kernel stack.
    #[inline(never)]
    fn try_new(number: u32) -> Result<Arc<Self>, CreateError> {
        let wheel = TimerWheel::try_new()?;
        Ok(Arc::try_new_with(|| Self {
            _before: [0; PADDING],
            number,
            stats: Stats::default(),
            ready: Mutex::new(ReadyList::new()),
            has_ready: AtomicBool::new(false),
            wheel: Mutex::new(wheel),
            deadline: AtomicU64::new(u64::MAX),
            clock: AtomicU64::new(0),
            _after: [0; PADDING],
        })?)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the queue pair belongs to this shard. Its lock is held.
    #[inline]
    pub(crate) fn has(&self, qp: &Qp<R>) -> bool {
        qp.shard() == self.number
    }

    /// Returns the latest time that the driver passed to this shard.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn advance_clock(&self, now: Instant) {
        // Two threads that drive a shard at the same time may leave the earlier of two close times.
        if self.now() < now {
            self.clock.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Returns whether a queue pair is in the ready list. A thread sees those that it has added.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.has_ready.load(Ordering::Acquire)
    }

    /// Adds a queue pair of this shard to the ready list, unless it is there. Its lock is held: who takes it from the list
    /// acquires that lock afterwards, and finds what made it ready.
    #[inline]
    pub(crate) fn make_ready(&self, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        if qp.ready.load(Ordering::Acquire) {
            return;
        }
        let mut ready = self.ready.lock();
        ready.push(qp.attributes.index, arc());
        self.has_ready.store(true, Ordering::Release);
        qp.ready.store(true, Ordering::Release);
    }

    /// Takes the first queue pair from the ready list. It may have moved to another shard since.
    #[inline]
    pub(crate) fn pop_ready(&self) -> Option<Arc<Qp<R>>> {
        if !self.has_ready() {
            return None;
        }
        let mut ready = self.ready.lock();
        let qp = ready.pop()?;
        match ready.first() {
            Some(next) => next.prefetch(),
            None => self.has_ready.store(false, Ordering::Release),
        }
        // With the list locked: from here on a thread with more to send for it puts it back into the list.
        qp.ready.store(false, Ordering::Release);
        Some(qp)
    }

    /// Schedules the timer of a queue pair of this shard. Its lock is held.
    #[inline]
    pub(crate) fn schedule(&self, index: u32, at: Instant) {
        self.with_wheel(|wheel| wheel.schedule(index, at));
    }

    /// Ends a step of a queue pair of this shard: schedules its timer, and puts it into the ready list if it has frames.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    pub(crate) fn follow_up(
        &self,
        transport: &mut RcTransport,
        qp: &Qp<R>,
        arc: impl FnOnce() -> Arc<Qp<R>>,
    ) {
        transport.rearm(qp.attributes.index, |index, at| self.schedule(index, at));
        if transport.wants_to_transmit() {
            self.make_ready(qp, arc);
        }
    }

    fn with_wheel<T>(&self, change: impl FnOnce(&mut TimerWheel) -> T) -> T {
        let mut wheel = self.wheel.lock();
        let result = change(&mut wheel);
        self.deadline.store(wheel.next().map_or(u64::MAX, Instant::as_nanos), Ordering::Release);
        result
    }

    /// Returns the index of a queue pair whose timer has expired. It may have moved to another shard since.
    pub(crate) fn expire(&self, now: Instant) -> Option<u32> {
        self.with_wheel(|wheel| wheel.expire(now))
    }

    /// Returns when [`ShardState::expire`] is to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.deadline.load(Ordering::Acquire);
        (deadline != u64::MAX).then(|| Instant::from_nanos(deadline))
    }

    /// Removes a queue pair of this shard from ready list and wheel. Its lock is held.
    pub(crate) fn withdraw(&self, qp: &Qp<R>) {
        let index = qp.attributes.index;
        self.with_wheel(|wheel| wheel.cancel(index));
        let entry = {
            let mut ready = self.ready.lock();
            let entry = ready.remove(index);
            self.has_ready.store(!ready.is_empty(), Ordering::Release);
            qp.ready.store(false, Ordering::Release);
            entry
        };
        // Not with the list locked.
        drop(entry);
    }
}
