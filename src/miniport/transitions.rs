// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pending transitions of the device: power states that NDIS requested, and resets after failures. Decides what the adapter's one work item
//! does next.

use ndk_abi::ndis::{NDIS_HANDLE, NDIS_OID_REQUEST};
use nt::{Event, Owner, ReusableWorkItem, SpinLock};

use crate::nic::queue_resets::QueueResets;

/// A device that fails more often than [`MAX_RESETS`] times in this time, in nanoseconds, is given up.
const RESET_WINDOW: u64 = 60 * 1_000_000_000;
const MAX_RESETS: usize = 3;

/// The pending work of the work item, and whether it runs.
pub struct Transitions {
    /// Allocated in advance, because a transition must not fail for lack of memory. There is at most one worker.
    pub item: ReusableWorkItem,
    pending: SpinLock<Pending>,
    /// Set while no work item is queued or running.
    idle: Event,
}

#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Pending {
    /// The state that NDIS requested last is D0.
    pub full_power: bool,
    /// The request that is completed after the transition to that state.
    pub request: Option<Request>,
    /// The device failed and is to be reset.
    pub failed: bool,
    /// The device has not finished its reset yet, and is to be started then. `true`: it had failed.
    pub starting: Option<bool>,
    /// The device has asked for an announcement.
    pub announce: bool,
    /// Queues that are to be reset.
    pub queues: QueueResets,
    /// Times of the last resets in nanoseconds, the oldest first; 0 for none.
    resets: [u64; MAX_RESETS],
    /// A work item is queued or running.
    working: bool,
    /// The adapter is being halted: no work is started.
    closing: bool,
}

/// A pending OID request of NDIS's.
pub struct Request(*mut NDIS_OID_REQUEST);

// SAFETY: NDIS's request, the driver's alone until it is completed, on any thread.
unsafe impl Send for Request {}

impl Request {
    /// `request` is pending: the driver's alone until it is completed.
    pub const fn new(request: *mut NDIS_OID_REQUEST) -> Self {
        Self(request)
    }

    pub const fn get(&self) -> *mut NDIS_OID_REQUEST {
        self.0
    }
}

/// One step of the work item.
pub enum Step {
    /// The device is about to lose its power.
    Sleep(Request),
    /// The device has its power back.
    Wake(Request),
    /// The device failed.
    Reset,
    /// The device may have finished its reset. `is_reset`: it had failed.
    StartAgain { is_reset: bool },
    /// The device failed too often.
    GiveUp,
    /// These queues are to be reset.
    ResetQueues(QueueResets),
    /// The device has asked for an announcement.
    Announce,
}

impl Transitions {
    /// `None` without memory. `handle` is the adapter's. `PASSIVE_LEVEL`.
    pub fn try_new(handle: NDIS_HANDLE) -> Option<Self> {
        let item = ReusableWorkItem::try_new(Owner::new(handle))?;
        let idle = Event::try_new()?;
        idle.set();
        let pending = Pending {
            full_power: true,
            request: None,
            failed: false,
            starting: None,
            announce: false,
            queues: QueueResets::default(),
            resets: [0; MAX_RESETS],
            working: false,
            closing: false,
        };
        Some(Self { item, pending: SpinLock::new(pending), idle })
    }

    /// Ends the work: returns when the work item has finished. No work is started afterwards. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        self.pending.lock().closing = true;
        self.idle.wait();
        // The event is set with the lock held: after this, the work item does not access the adapter.
        drop(self.pending.lock());
    }

    /// Applies `change`. Returns whether the caller must queue the work item. IRQL <= `DISPATCH_LEVEL`.
    pub fn request(&self, change: impl FnOnce(&mut Pending)) -> bool {
        let mut pending = self.pending.lock();
        if pending.closing && !pending.working {
            return false;
        }
        change(&mut pending);
        let start = !core::mem::replace(&mut pending.working, true);
        if start {
            self.idle.clear();
        }
        start
    }

    /// Forgets the queues that are to be reset: the device has stopped, and they begin anew.
    pub fn forget_queues(&self) {
        self.pending.lock().queues = QueueResets::default();
    }

    /// Returns the next step; `None` if the work is done. After `None` the caller must not access the adapter.
    pub fn next(&self) -> Option<Step> {
        let mut pending = self.pending.lock();
        if let Some(request) = pending.request.take() {
            return Some(if pending.full_power { Step::Wake(request) } else { Step::Sleep(request) });
        }
        if core::mem::take(&mut pending.failed) && pending.full_power && !pending.closing {
            return Some(pending.reset(nt::time::now()));
        }
        if pending.full_power && !pending.closing {
            if let Some(is_reset) = pending.starting.take() {
                return Some(Step::StartAgain { is_reset });
            }
            if core::mem::take(&mut pending.announce) {
                return Some(Step::Announce);
            }
            // Last, because they may take as long as the device likes.
            let queues = core::mem::take(&mut pending.queues);
            if !queues.are_none() {
                return Some(Step::ResetQueues(queues));
            }
        }
        pending.working = false;
        self.idle.set();
        None
    }
}

impl Pending {
    /// Decides at time `now`, in nanoseconds, whether to reset the device or to give it up.
    fn reset(&mut self, now: u64) -> Step {
        let [oldest, ..] = self.resets;
        if oldest != 0 && now.saturating_sub(oldest) < RESET_WINDOW {
            return Step::GiveUp;
        }
        self.resets.rotate_left(1);
        let [.., newest] = &mut self.resets;
        *newest = now.max(1);
        Step::Reset
    }
}
