// SPDX-License-Identifier: MIT OR Apache-2.0

//! One thread at a time, virtual time.
//!
//! Exactly one thread runs; all others wait at their gates. When it parks, yields or ends, it selects the next:
//! threads whose deadline has passed join the ready queue in the order of their deadlines; then a ready thread
//! runs, usually the first, sometimes another one chosen by the seed. When none is ready, time jumps to the
//! nearest deadline.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::step::{Step, Work};
use crate::thread::shared::{ThreadId, ThreadShared};

/// Virtual time of one step (a call of an import), in nanoseconds.
const STEP_NANOS: u64 = 20;

/// Virtual time between a DPC's place in the queue and its routine, in nanoseconds.
const DPC_NANOS: u64 = 300;

/// Maximum number of steps before another thread runs; the actual number is drawn for each turn.
const MAX_STEPS: u32 = 400;

pub struct Deterministic {
    now: AtomicU64,
    /// Steps left to the running thread. Accessed by that thread only.
    steps: AtomicU32,
    stuck: AtomicBool,
    threads: Mutex<Threads>,
}

struct Threads {
    known: BTreeMap<ThreadId, Entry>,
    ready: VecDeque<ThreadId>,
    sleeping: BTreeMap<(u64, u64), ThreadId>,
    sequence: u64,
    random: fastrand::Rng,
}

struct Entry {
    thread: Arc<ThreadShared>,
    state: State,
    permit: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Ready,
    /// Waits for an unpark, or for the deadline under this key of `sleeping`.
    Parked(Option<(u64, u64)>),
    /// Waits for the deadline only.
    Stalled,
}

impl Deterministic {
    pub fn new(seed: u64) -> Self {
        Self {
            now: AtomicU64::new(0),
            steps: AtomicU32::new(MAX_STEPS),
            stuck: AtomicBool::new(false),
            threads: Mutex::new(Threads {
                known: BTreeMap::new(),
                ready: VecDeque::new(),
                sleeping: BTreeMap::new(),
                sequence: 0,
                random: fastrand::Rng::with_seed(seed ^ 0x636c_6f63_6b00),
            }),
        }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Relaxed)
    }

    /// Registers a thread. The first one is the thread that builds the simulation, which runs already.
    pub fn register(&self, thread: &Arc<ThreadShared>) {
        let mut threads = self.threads.lock();
        let first = threads.known.is_empty();
        let state = if first { State::Running } else { State::Ready };
        if !first {
            threads.ready.push_back(thread.id);
        }
        threads.known.insert(thread.id, Entry { thread: thread.clone(), state, permit: false });
    }

    #[inline]
    pub fn step(&self) -> Step {
        // One thread runs at a time, so that a plain addition is enough.
        let now = self.now.load(Relaxed) + STEP_NANOS;
        self.now.store(now, Relaxed);
        let left = self.steps.load(Relaxed);
        self.steps.store(left.saturating_sub(1), Relaxed);
        Step { now, ends_turn: left == 0 }
    }

    #[inline]
    pub fn charge(&self, work: Work) {
        let nanos = match work {
            Work::Dpc => DPC_NANOS,
        };
        self.now.store(self.now.load(Relaxed) + nanos, Relaxed);
    }

    pub fn yield_now(&self, me: &Arc<ThreadShared>) {
        let mut threads = self.threads.lock();
        self.now.fetch_add(STEP_NANOS, Relaxed);
        threads.set(me.id, State::Ready);
        threads.ready.push_back(me.id);
        self.switch(threads, me);
    }

    pub fn park(&self, me: &Arc<ThreadShared>, deadline: Option<u64>) {
        let mut threads = self.threads.lock();
        if threads.take_permit(me.id) || deadline.is_some_and(|deadline| deadline <= self.now()) {
            return;
        }
        let key = deadline.map(|deadline| threads.sleep(me.id, deadline));
        threads.set(me.id, State::Parked(key));
        self.switch(threads, me);
    }

    pub fn stall(&self, me: &Arc<ThreadShared>, deadline: u64) {
        let mut threads = self.threads.lock();
        threads.sleep(me.id, deadline);
        threads.set(me.id, State::Stalled);
        self.switch(threads, me);
    }

    pub fn unpark(&self, thread: &Arc<ThreadShared>) {
        let mut threads = self.threads.lock();
        let Some(entry) = threads.known.get_mut(&thread.id) else { return };
        let State::Parked(key) = entry.state else {
            entry.permit = true;
            return;
        };
        entry.state = State::Ready;
        if let Some(key) = key {
            threads.sleeping.remove(&key);
        }
        threads.ready.push_back(thread.id);
    }

    pub fn finish(&self, me: &Arc<ThreadShared>) {
        let mut threads = self.threads.lock();
        threads.known.remove(&me.id);
        if let Some(next) = self.pick(&mut threads) {
            next.gate.open();
        }
    }

    /// Lets the next thread run; returns when the calling thread is selected again.
    fn switch(&self, mut threads: parking_lot::MutexGuard<'_, Threads>, me: &Arc<ThreadShared>) {
        let next = self.pick(&mut threads);
        drop(threads);
        match next {
            Some(next) if next.id == me.id => {}
            next => {
                if let Some(next) = next {
                    next.gate.open();
                }
                me.gate.wait();
            }
        }
    }

    fn pick(&self, threads: &mut Threads) -> Option<Arc<ThreadShared>> {
        self.steps.store(threads.random.u32(1..=MAX_STEPS), Relaxed);
        loop {
            while let Some(due) = threads.sleeping.first_entry()
                && due.key().0 <= self.now()
            {
                let id = due.remove();
                threads.set(id, State::Ready);
                threads.ready.push_back(id);
            }
            if !threads.ready.is_empty() {
                break;
            }
            if let Some((&(deadline, _), _)) = threads.sleeping.first_key_value() {
                self.now.store(deadline, Relaxed);
            } else {
                return self.wake_harness(threads);
            }
        }
        let index = if threads.random.u8(..8) == 0 { threads.random.usize(..threads.ready.len()) } else { 0 };
        let id = threads.ready.remove(index)?;
        threads.set(id, State::Running);
        threads.known.get(&id).map(|entry| entry.thread.clone())
    }

    /// No thread can ever run again: wakes the harness thread, which reports it.
    fn wake_harness(&self, threads: &mut Threads) -> Option<Arc<ThreadShared>> {
        self.stuck.store(true, Relaxed);
        threads.set(ThreadId::HARNESS, State::Running);
        threads.known.get(&ThreadId::HARNESS).map(|entry| entry.thread.clone())
    }
}

impl Threads {
    fn set(&mut self, id: ThreadId, state: State) {
        if let Some(entry) = self.known.get_mut(&id) {
            entry.state = state;
        }
    }

    fn take_permit(&mut self, id: ThreadId) -> bool {
        self.known.get_mut(&id).is_some_and(|entry| std::mem::take(&mut entry.permit))
    }

    fn sleep(&mut self, id: ThreadId, deadline: u64) -> (u64, u64) {
        self.sequence += 1;
        let key = (deadline, self.sequence);
        self.sleeping.insert(key, id);
        key
    }
}
