// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deferred procedure calls: one queue per CPU.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;

use crate::{clock::Clock, thread::shared::ThreadShared};

/// A deferred procedure call.
pub struct Dpc {
    /// Names the DPC for [`Queue::remove`]: the address of the `KDPC`, or 0.
    pub key: usize,
    pub routine: Box<dyn FnOnce() + Send>,
}

/// The DPC queue of one CPU.
///
/// A queue can contain DPCs without being processed: those of low importance wait until processing is
/// [requested](Queue::request) for another reason.
#[derive(Default)]
pub struct Queue {
    dpcs: Mutex<VecDeque<Dpc>>,
    requested: AtomicBool,
    idle: OnceLock<Arc<ThreadShared>>,
}

impl Queue {
    /// Queues `dpc` at the end, or at the front when it is important; returns the new length of the queue.
    pub fn push(&self, dpc: Dpc, front: bool) -> usize {
        let mut dpcs = self.dpcs.lock();
        if front {
            dpcs.push_front(dpc);
        } else {
            dpcs.push_back(dpc);
        }
        dpcs.len()
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

    /// Requests that the queue is processed as soon as the CPU is below `DISPATCH_LEVEL`; returns whether it was
    /// requested already.
    pub(crate) fn request(&self) -> bool {
        self.requested.swap(true, SeqCst)
    }

    /// Returns whether processing of the queue is requested.
    #[inline]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(SeqCst)
    }

    /// Ends the request: called before the queue is processed.
    pub(crate) fn clear_request(&self) {
        self.requested.store(false, SeqCst);
    }

    /// Removes the first DPC from the queue.
    pub(crate) fn pop(&self) -> Option<Dpc> {
        self.dpcs.lock().pop_front()
    }

    /// Makes `thread` the CPU's idle thread, which processes the queue when no other thread does. Called once.
    pub(crate) fn set_idle_thread(&self, thread: &Arc<ThreadShared>) {
        let _ = self.idle.set(thread.clone());
    }

    /// Returns the CPU's idle thread, whose name and number DPCs of this queue run under.
    pub(crate) fn idle_thread(&self) -> Option<&Arc<ThreadShared>> {
        self.idle.get()
    }

    /// Wakes the CPU's idle thread.
    pub(crate) fn wake(&self, clock: &Clock) {
        if let Some(thread) = self.idle.get() {
            clock.unpark(thread);
        }
    }
}
