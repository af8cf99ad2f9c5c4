// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of received NBLs that are handed over to the processor that indicates them.
//!
//! A routine on the lane's processor indicates the lane's NBLs in order at `DISPATCH_LEVEL`: in a DPC, or under load in a work item. So
//! while a caller runs at that level on the same processor, the routine is not indicating.

use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::NDIS_HANDLE;
use nt::{Deferred, Owner, SpinLock};

use crate::events::Failure;
use crate::nbl::NblList;

/// Most NBLs in one indication.
const BATCH: u32 = 128;

/// Receiver of the lists of lanes, which indicates them. It outlives the lanes.
pub trait Receiver {
    /// Indicates `count` lists to the protocol stack. `DISPATCH_LEVEL`, no lock held.
    fn indicate(&self, lists: &NblList, count: u32);
}

/// A lane for each processor.
pub struct ReceiveLanes<T>(Vec<Lane<T>>);

struct Lane<T> {
    waiting: Arc<Waiting<T>>,
    deferred: Deferred,
}

/// The NBLs of a lane, in order.
struct Waiting<T> {
    /// Null before the first NBLs.
    receiver: AtomicPtr<T>,
    lists: SpinLock<NblList>,
}

impl<T: Receiver + Sync + 'static> ReceiveLanes<T> {
    /// Returns lanes for processors 0 to `processors` - 1. `PASSIVE_LEVEL`. Not inlined: together with the caller's, its stack frame is too
    /// large for a kernel stack.
    #[inline(never)]
    pub fn new(handle: NDIS_HANDLE, processors: u32) -> Result<Self, Failure> {
        let mut lanes = vec::with_capacity(processors as usize).map_err(|_| Failure::NoResources)?;
        for processor in 0..processors {
            let lane = Lane::new(handle, processor).ok_or(Failure::NoResources)?;
            vec::push_within_capacity(&mut lanes, lane).map_err(|_| Failure::NoResources)?;
        }
        Ok(Self(lanes))
    }

    /// Whether the caller may indicate NBLs for its own processor directly, because no earlier NBL waits. `DISPATCH_LEVEL`.
    pub fn is_idle(&self, processor: u32) -> bool {
        self.lane(processor).is_none_or(|lane| lane.waiting.lists.lock().is_empty())
    }

    /// Hands `lists` over to a processor, which indicates them. IRQL <= `DISPATCH_LEVEL`.
    pub fn hand_over(&self, receiver: &T, processor: u32, lists: NblList) {
        let Some(lane) = self.lane(processor) else { return };
        lane.waiting.receiver.store(core::ptr::from_ref(receiver).cast_mut(), Ordering::Relaxed);
        lane.waiting.lists.lock().append(lists);
        lane.deferred.queue();
    }

    /// Waits until the NBLs that are queued now have been indicated, or `go_on` returns `false`. `PASSIVE_LEVEL`, one caller at a time.
    pub fn drain(&self, go_on: &mut impl FnMut() -> bool) {
        for lane in &self.0 {
            lane.deferred.flush();
            while !lane.waiting.lists.lock().is_empty() && go_on() {
                lane.deferred.flush();
            }
        }
    }

    /// Returns the lane of a processor. One that was added after the start has that of the first.
    fn lane(&self, processor: u32) -> Option<&Lane<T>> {
        self.0.get(processor as usize).or_else(|| self.0.first())
    }
}

impl<T: Receiver + Sync + 'static> Lane<T> {
    fn new(handle: NDIS_HANDLE, processor: u32) -> Option<Self> {
        let waiting = Waiting { receiver: AtomicPtr::new(null_mut()), lists: SpinLock::new(NblList::new()) };
        let waiting = Arc::try_new(waiting).ok()?;
        let of_routine = Arc::clone(&waiting);
        let routine = move || of_routine.indicate_batch();
        let deferred = Deferred::try_new_on(Owner::new(handle), processor, routine)?;
        Some(Self { waiting, deferred })
    }
}

impl<T: Receiver> Waiting<T> {
    /// Indicates a batch of NBLs. Returns whether more are queued. `DISPATCH_LEVEL`.
    fn indicate_batch(&self) -> bool {
        let ((batch, count), more) = {
            let mut lists = self.lists.lock();
            (lists.take_first(BATCH), !lists.is_empty())
        };
        if batch.is_empty() {
            return more;
        }
        // SAFETY: what handed lists over, before it appended them. The list that was taken keeps it from being dropped.
        if let Some(receiver) = unsafe { self.receiver.load(Ordering::Relaxed).as_ref() } {
            receiver.indicate(&batch, count);
        }
        more
    }
}
