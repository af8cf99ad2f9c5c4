// SPDX-License-Identifier: MIT OR Apache-2.0

//! How often the events of each adapter are written: the limits of the events of administrators, from the start of an adapter to its halt.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use driver_states::rate_limit::RateLimit;
use ndk_abi::ndis::NDIS_HANDLE;
use nt::SpinLock;

/// Number of adapters with limits of their own.
const ADAPTERS: usize = 16;
/// Events with smaller numbers have a limit. Those of mistakes of consumers have one elsewhere.
const NUMBERS: usize = 60;

/// Static, because the driver names the adapter of an event by its handle.
static SLOTS: [Slot; ADAPTERS] = [const { Slot::new() }; ADAPTERS];
/// Of all further adapters.
static SHARED: Slot = Slot::new();
/// The number of further adapters.
static SHARING: AtomicU32 = AtomicU32::new(0);

struct Slot {
    /// Null if the slot is free, and always in [`SHARED`].
    handle: AtomicPtr<c_void>,
    /// By number of the event.
    limits: SpinLock<[RateLimit; NUMBERS]>,
}

impl Slot {
    const fn new() -> Self {
        Self { handle: AtomicPtr::new(null_mut()), limits: SpinLock::new([RateLimit::new(); NUMBERS]) }
    }

    fn take(&self, handle: NDIS_HANDLE) -> bool {
        self.handle.compare_exchange(null_mut(), handle, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The limits of one adapter.
pub struct Limits(&'static Slot);

impl Limits {
    /// Returns those of the adapter `handle`, which apply from now on until they are dropped. IRQL <= `DISPATCH_LEVEL`. Not inlined: the caller's stack
    /// frame is large.
    #[inline(never)]
    pub fn new(handle: NDIS_HANDLE) -> Self {
        if let Some(slot) = SLOTS.iter().find(|slot| slot.take(handle)) {
            return Self(slot);
        }
        SHARING.fetch_add(1, Ordering::Relaxed);
        Self(&SHARED)
    }

    /// Calls `report` with the number of each event of which some were left out, and how many. IRQL <= `DISPATCH_LEVEL`.
    pub fn take_omitted(&self, mut report: impl FnMut(u32, u32)) {
        for number in 0..NUMBERS {
            let omitted = self.0.limits.lock().get_mut(number).map_or(0, RateLimit::take_omitted);
            if omitted != 0 {
                report(number as u32, omitted);
            }
        }
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        if core::ptr::eq(self.0, &raw const SHARED) {
            SHARING.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.0.limits.lock().iter_mut().for_each(|limit| *limit = RateLimit::new());
            self.0.handle.store(null_mut(), Ordering::Release);
        }
    }
}

/// Decides on an event of an adapter. If it may be written, returns how many were left out before. An adapter that starts has no limits.
/// IRQL <= `DISPATCH_LEVEL`.
pub fn admit(handle: NDIS_HANDLE, number: u32) -> Option<u32> {
    let own = SLOTS.iter().find(|slot| slot.handle.load(Ordering::Acquire) == handle);
    let shared = || (SHARING.load(Ordering::Relaxed) != 0).then_some(&SHARED);
    let Some(slot) = own.or_else(shared) else { return Some(0) };
    let now = nt::time::now();
    let mut limits = slot.limits.lock();
    limits.get_mut(number as usize).map_or(Some(0), |limit| limit.admit(now))
}
