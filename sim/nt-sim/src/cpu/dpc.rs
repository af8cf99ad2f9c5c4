//! Deferred procedure calls: one queue and one thread per CPU.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::{
    Irql,
    clock::Clock,
    host::Host,
    thread::{ThreadShared, current},
};

/// A deferred procedure call.
pub struct Dpc {
    /// Names the DPC for [`Queue::remove`]: the address of the `KDPC`, or 0.
    pub key: usize,
    pub routine: Box<dyn FnOnce() + Send>,
}

/// The DPCs that wait for one CPU.
#[derive(Default)]
pub struct Queue {
    dpcs: Mutex<VecDeque<Dpc>>,
    thread: Mutex<Option<Arc<ThreadShared>>>,
}

impl Queue {
    /// Queues `dpc` at the end, or at the front when it is important.
    pub fn push(&self, clock: &Clock, dpc: Dpc, front: bool) {
        let first = {
            let mut dpcs = self.dpcs.lock();
            if front {
                dpcs.push_front(dpc);
            } else {
                dpcs.push_back(dpc);
            }
            dpcs.len() == 1
        };
        if first && let Some(thread) = &*self.thread.lock() {
            clock.unpark(thread);
        }
    }

    /// Takes the DPC with this key out of the queue; `None` when it is not there.
    pub fn remove(&self, key: usize) -> Option<Dpc> {
        let mut dpcs = self.dpcs.lock();
        let index = dpcs.iter().position(|dpc| dpc.key == key)?;
        dpcs.remove(index)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dpcs.lock().is_empty()
    }

    /// The body of the CPU's DPC thread: drains the queue at `DISPATCH_LEVEL`.
    pub(crate) fn run(&self, host: &Arc<Host>) {
        let me = current();
        *self.thread.lock() = Some(me.shared().clone());
        while !host.world().is_stopping() {
            if self.is_empty() {
                me.park(None);
                continue;
            }
            let old = me.raise(Irql::DISPATCH_LEVEL);
            while let Some(dpc) = self.pop() {
                (dpc.routine)();
                me.stop_if_dead();
            }
            me.lower(old);
        }
        *self.thread.lock() = None;
    }

    fn pop(&self) -> Option<Dpc> {
        self.dpcs.lock().pop_front()
    }
}
