// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who runs on which CPU of a host, under the deterministic clock.
//!
//! A thread owns a CPU while it runs or could run, at every IRQL. It releases it when it blocks, and at the end of a
//! turn when another thread waits for a CPU. The next owner is the thread that has waited longest.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::id::{Affinity, CpuId};
use crate::{
    clock::Clock,
    thread::shared::{ThreadId, ThreadShared},
};

pub struct Processors(Mutex<State>);

struct State {
    owners: Box<[Option<ThreadId>]>,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    thread: Arc<ThreadShared>,
    affinity: Affinity,
}

impl State {
    fn free(&self, preferred: CpuId, affinity: Affinity) -> Option<usize> {
        let is_free = |&cpu: &usize| self.owners[cpu].is_none() && affinity.contains(cpu);
        Some(preferred.0 as usize).filter(is_free).or_else(|| (0..self.owners.len()).find(is_free))
    }

    fn owned_by(&self, thread: ThreadId) -> Option<usize> {
        self.owners.iter().position(|owner| *owner == Some(thread))
    }
}

fn id(index: usize) -> CpuId {
    CpuId(u32::try_from(index).unwrap_or(u32::MAX))
}

impl Processors {
    pub fn new(count: usize) -> Self {
        Self(Mutex::new(State { owners: vec![None; count].into(), waiting: VecDeque::new() }))
    }

    /// Blocks until the thread owns a CPU: `preferred` if it is free, else the first that is.
    pub fn acquire(
        &self,
        clock: &Clock,
        me: &Arc<ThreadShared>,
        preferred: CpuId,
        affinity: Affinity,
    ) -> CpuId {
        {
            let mut state = self.0.lock();
            if let Some(cpu) = state.free(preferred, affinity) {
                state.owners[cpu] = Some(me.id);
                return id(cpu);
            }
            state.waiting.push_back(Waiter { thread: me.clone(), affinity });
        }
        loop {
            clock.park(me, None);
            if let Some(cpu) = self.0.lock().owned_by(me.id) {
                return id(cpu);
            }
        }
    }

    /// Makes the thread that has waited longest the owner of a CPU whose owner does not need it.
    pub fn release(&self, clock: &Clock, cpu: CpuId) {
        let next = {
            let mut state = self.0.lock();
            let index = cpu.0 as usize;
            let next = state.waiting.iter().position(|waiter| waiter.affinity.contains(index));
            let next = next.and_then(|position| state.waiting.remove(position));
            state.owners[index] = next.as_ref().map(|next| next.thread.id);
            next
        };
        if let Some(next) = next {
            clock.unpark(&next.thread);
        }
    }

    /// Makes `thread` the owner of the CPU if it has none.
    pub fn take_if_free(&self, cpu: CpuId, thread: ThreadId) -> bool {
        let owner = &mut self.0.lock().owners[cpu.0 as usize];
        let free = owner.is_none();
        if free {
            *owner = Some(thread);
        }
        free
    }

    pub fn is_owner(&self, cpu: CpuId, thread: ThreadId) -> bool {
        self.0.lock().owners[cpu.0 as usize] == Some(thread)
    }

    /// Returns whether a thread waits for this CPU.
    pub fn is_wanted(&self, cpu: CpuId) -> bool {
        self.0.lock().waiting.iter().any(|waiter| waiter.affinity.contains(cpu.0 as usize))
    }
}
