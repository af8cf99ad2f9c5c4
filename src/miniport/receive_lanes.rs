// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of received NBLs that are handed over to the processor that indicates them.
//!
//! A routine on the lane's processor indicates the lane's NBLs in order at `DISPATCH_LEVEL`: in a DPC, or under load in a work item. So
//! while a caller runs at that level on the same processor, the routine is not indicating.

use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use fallible::{Arc, vec};
use ndk_abi::ndis::{NDIS_HANDLE, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NdisMIndicateReceiveNetBufferLists};
use nt::{Deferred, Owner, SpinLock};

use super::adapter::Adapter;
use crate::events::Failure;
use crate::nbl::NblList;

/// Most NBLs in one indication.
const BATCH: u32 = 128;

/// A lane for each processor.
pub struct ReceiveLanes(Vec<Lane>);

struct Lane {
    waiting: Arc<Waiting>,
    deferred: Deferred,
}

/// The NBLs of a lane, in order.
struct Waiting {
    /// The adapter that has received them; null before the first one.
    adapter: AtomicPtr<Adapter>,
    lists: SpinLock<NblList>,
}

impl ReceiveLanes {
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

    /// Has `lists` indicated on a processor. IRQL <= `DISPATCH_LEVEL`.
    pub fn hand_over(&self, adapter: &Adapter, processor: u32, lists: NblList) {
        // `Scaling` names no processor without a lane.
        let Some(lane) = self.lane(processor).or_else(|| self.0.first()) else { return };
        lane.waiting.adapter.store(core::ptr::from_ref(adapter).cast_mut(), Ordering::Relaxed);
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

    fn lane(&self, processor: u32) -> Option<&Lane> {
        self.0.get(processor as usize)
    }
}

impl Lane {
    fn new(handle: NDIS_HANDLE, processor: u32) -> Option<Self> {
        let waiting =
            Waiting { adapter: AtomicPtr::new(null_mut()), lists: SpinLock::new(NblList::new()) };
        let waiting = Arc::try_new(waiting).ok()?;
        let of_routine = Arc::clone(&waiting);
        let routine = move || of_routine.indicate_batch();
        let deferred = Deferred::try_new_on(Owner::new(handle), processor, routine)?;
        Some(Self { waiting, deferred })
    }
}

impl Waiting {
    /// Indicates a batch of NBLs. Returns whether more are queued. `DISPATCH_LEVEL`.
    fn indicate_batch(&self) -> bool {
        let ((batch, count), more) = {
            let mut lists = self.lists.lock();
            (lists.take_first(BATCH), !lists.is_empty())
        };
        if batch.is_empty() {
            return more;
        }
        // SAFETY: what handed lists over, before it appended them. They count in its traffic: it is paused, and dropped, after
        // they were returned and the permission below was given up.
        let Some(adapter) = (unsafe { self.adapter.load(Ordering::Relaxed).as_ref() }) else { return more };
        // The stack may return all of them before the indication returns, for which a pause waits, too.
        let _passing = adapter.pass_with_lists();
        indicate(adapter.handle(), &batch, count);
        more
    }
}

/// Indicates `count` NBLs of an adapter to the protocol stack. `DISPATCH_LEVEL`, no lock held.
pub fn indicate(handle: NDIS_HANDLE, lists: &NblList, count: u32) {
    if lists.is_empty() {
        return;
    }
    // SAFETY: a chain of `count` lists of this adapter's; they come back through `return_net_buffer_lists`.
    unsafe {
        NdisMIndicateReceiveNetBufferLists(
            handle,
            lists.first(),
            0,
            count,
            NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL,
        );
    }
}
