// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pending transitions of the device: power states that NDIS requested, and resets after failures. Decides what the adapter's one work item
//! does next.

use core::time::Duration;

use ndk_abi::ndis::{NDIS_HANDLE, NDIS_OID_REQUEST};
use nt::{Event, Owner, ReusableWorkItem, SpinLock};

use crate::nic::queue_resets::QueueResets;
use driver_states::reset_history::{Cause, ResetHistory};

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
    /// The device failed, and is to be reset.
    pub failed: Option<Cause>,
    /// The device is stopped, and is to be started.
    pub starting: Option<Start>,
    /// The device has asked for an announcement.
    pub announce: bool,
    /// Queues that are to be reset.
    pub queues: QueueResets,
    /// The last resets of the device.
    resets: ResetHistory,
    /// A work item is queued or running.
    working: bool,
    /// The adapter is being halted: no work is started.
    closing: bool,
}

/// The start of a stopped device.
#[derive(Clone, Copy)]
pub struct Start {
    /// The device had failed.
    pub is_reset: bool,
    /// Not before this time, in nanoseconds.
    pub due: u64,
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
    /// The device failed. It is started after this time.
    Reset(Duration),
    /// The device is to be started, if it has finished its reset.
    Start(Start),
    /// The device corrupts its rings again after each reset.
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
            failed: None,
            starting: None,
            announce: false,
            queues: QueueResets::default(),
            resets: ResetHistory::new(),
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

    /// Notes that the stopped device could not be started for a reason that may pass. Returns the pause before the next attempt.
    pub fn start_failed(&self) -> Duration {
        self.pending.lock().resets.pause(nt::time::now())
    }

    /// Notes that the stopped device works.
    pub fn device_started(&self) {
        self.pending.lock().resets.start(nt::time::now());
    }

    /// Returns the next step; `None` if the work is done. After `None` the caller must not access the adapter.
    pub fn next(&self) -> Option<Step> {
        let mut pending = self.pending.lock();
        if let Some(request) = pending.request.take() {
            return Some(if pending.full_power { Step::Wake(request) } else { Step::Sleep(request) });
        }
        if let Some(cause) = pending.failed.take()
            && pending.full_power
            && !pending.closing
        {
            return Some(pending.resets.fail(cause, nt::time::now()).map_or(Step::GiveUp, Step::Reset));
        }
        if pending.full_power && !pending.closing {
            if let Some(start) = pending.starting.take() {
                return Some(Step::Start(start));
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
