// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deferred procedure calls: one queue and one thread per CPU.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::{clock::Clock, thread::shared::ThreadShared};

/// A deferred procedure call.
pub struct Dpc {
    /// Names the DPC for [`Queue::remove`]: the address of the `KDPC`, or 0.
    pub key: usize,
    pub routine: Box<dyn FnOnce() + Send>,
}

/// The DPC queue of one CPU.
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

    /// Removes the DPC with this key from the queue; returns `None` when it is not queued.
    pub fn remove(&self, key: usize) -> Option<Dpc> {
        let mut dpcs = self.dpcs.lock();
        let index = dpcs.iter().position(|dpc| dpc.key == key)?;
        dpcs.remove(index)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dpcs.lock().is_empty()
    }

    /// Makes `thread` the one that runs this queue; it is woken when the queue is no longer empty.
    pub(crate) fn set_thread(&self, thread: Option<Arc<ThreadShared>>) {
        *self.thread.lock() = thread;
    }

    /// Removes the first DPC from the queue.
    pub(crate) fn pop(&self) -> Option<Dpc> {
        self.dpcs.lock().pop_front()
    }
}
