// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that wait for dispatcher objects.
//!
//! Signaling an object satisfies the waits for it at once, in the order in which they began: a synchronization object
//! goes to the first thread and is not signaled afterwards, a notification object ends all waits even if it is cleared
//! before these threads run. A thread that comes later takes nothing from them.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;

use super::header::{self, signal_state};
use crate::{
    services::Slot,
    thread::{Thread, ThreadId, ThreadShared},
};

pub(super) static WAITS: Slot<Waits> = Slot::new();

/// An object that a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    pub address: usize,
    /// Type in its `DISPATCHER_HEADER`.
    pub kind: u8,
}

/// The unsatisfied waits of a host, and the mutexes that its threads hold.
#[derive(Default)]
pub struct Waits(Mutex<State>);

#[derive(Default)]
struct State {
    queues: Queues,
    mutexes: BTreeSet<(ThreadId, usize)>,
}

/// Waits by object, each list in the order in which they began.
type Queues = HashMap<usize, VecDeque<Arc<Wait>>>;

/// A thread's wait.
struct Wait {
    thread: Arc<ThreadShared>,
    objects: Vec<Awaited>,
    all: bool,
    /// Index of the object that satisfied the wait, 0 when all did; [`PENDING`] before.
    outcome: AtomicI64,
}

const PENDING: i64 = -1;

/// Satisfies a wait of `thread` if its objects are signaled: takes them, and returns the index of the one that satisfied it.
fn satisfy(state: &mut State, objects: &[Awaited], all: bool, thread: ThreadId) -> Option<usize> {
    let is_signaled = |object: &Awaited| header::satisfies(object.address, object.kind, thread);
    let mut take = |object: &Awaited| {
        header::take(object.address, object.kind, thread);
        if object.kind == header::MUTANT {
            state.mutexes.insert((thread, object.address));
        }
    };
    if all {
        let satisfied = objects.iter().all(is_signaled);
        if satisfied {
            objects.iter().for_each(take);
        }
        return satisfied.then_some(0);
    }
    let index = objects.iter().position(is_signaled)?;
    take(&objects[index]);
    Some(index)
}

impl Waits {
    /// Changes objects without signaling one.
    pub(super) fn locked<T>(&self, change: impl FnOnce() -> T) -> T {
        let _state = self.0.lock();
        change()
    }

    /// Changes an object and satisfies the waits for it as long as it is signaled.
    pub(super) fn signal<T>(&self, me: &Thread, object: usize, change: impl FnOnce() -> T) -> T {
        self.signal_and(me, object, change, || ())
    }

    /// Signals an object as [`Waits::signal`] does; `afterwards` changes the object again before any thread that begins to wait sees it.
    pub(super) fn signal_and<T>(
        &self,
        me: &Thread,
        object: usize,
        change: impl FnOnce() -> T,
        afterwards: impl FnOnce(),
    ) -> T {
        let (result, satisfied) = {
            let mut state = self.0.lock();
            let result = change();
            let satisfied = hand_over(&mut state, object);
            afterwards();
            (result, satisfied)
        };
        for wait in satisfied {
            me.world().clock.unpark(&wait.thread);
        }
        result
    }

    /// Blocks until `objects` satisfy the wait, all of them or any. Returns the index of the one that did, `None` when
    /// `deadline` has passed first. A deadline that has passed already only tests the objects.
    pub(super) fn wait(
        &self,
        me: &Thread,
        objects: Vec<Awaited>,
        all: bool,
        deadline: Option<u64>,
    ) -> Option<usize> {
        let is_over = || deadline.is_some_and(|deadline| deadline <= me.world().now());
        let wait = {
            let mut state = self.0.lock();
            if let Some(index) = satisfy(&mut state, &objects, all, me.shared().id) {
                return Some(index);
            }
            if is_over() {
                return None;
            }
            let outcome = AtomicI64::new(PENDING);
            let wait = Arc::new(Wait { thread: me.shared().clone(), objects, all, outcome });
            for object in &wait.objects {
                state.queues.entry(object.address).or_default().push_back(wait.clone());
            }
            wait
        };
        loop {
            me.park(deadline);
            if let Ok(index) = usize::try_from(wait.outcome.load(SeqCst)) {
                return Some(index);
            }
            if is_over() {
                let mut state = self.0.lock();
                // It may have been satisfied meanwhile.
                let outcome = wait.outcome.load(SeqCst);
                remove(&mut state.queues, &wait);
                return usize::try_from(outcome).ok();
            }
        }
    }

    /// Returns the first object in `memory` that a thread waits for.
    pub(super) fn find(&self, memory: &Range<usize>) -> Option<usize> {
        self.0.lock().queues.keys().copied().filter(|object| memory.contains(object)).min()
    }

    /// Returns a mutex that a thread holds.
    pub(super) fn mutex_of(&self, thread: ThreadId) -> Option<usize> {
        let state = self.0.lock();
        state.mutexes.range((thread, 0)..=(thread, usize::MAX)).next().map(|&(_, mutex)| mutex)
    }

    /// Records that a thread holds a mutex no longer.
    pub(super) fn forget_mutex(&self, thread: ThreadId, mutex: usize) {
        self.0.lock().mutexes.remove(&(thread, mutex));
    }
}

/// Satisfies waits for `object`, the longest first; removes and returns them.
fn hand_over(state: &mut State, object: usize) -> Vec<Arc<Wait>> {
    let mut satisfied = Vec::new();
    let mut next = 0;
    while let Some(wait) = state.queues.get(&object).and_then(|waits| waits.get(next)).cloned()
        && signal_state(object).read() > 0
    {
        match satisfy(state, &wait.objects, wait.all, wait.thread.id) {
            Some(index) => {
                remove(&mut state.queues, &wait);
                wait.outcome.store(i64::try_from(index).unwrap_or(0), SeqCst);
                satisfied.push(wait);
            }
            None => next += 1,
        }
    }
    satisfied
}

fn remove(queues: &mut Queues, wait: &Arc<Wait>) {
    for object in &wait.objects {
        if let Some(waits) = queues.get_mut(&object.address) {
            waits.retain(|other| !Arc::ptr_eq(other, wait));
            if waits.is_empty() {
                queues.remove(&object.address);
            }
        }
    }
}
