// SPDX-License-Identifier: MIT OR Apache-2.0

//! How often the events of each adapter are written: the limits of the events of administrators, from the start of an adapter to its halt.

use alloc::boxed::Box;
use alloc::vec::Vec;

use driver_states::rate_limit::RateLimit;
use fallible::{AllocError, try_box, vec};
use ndk_abi::ndis::NDIS_HANDLE;
use nt::SpinLock;

use super::table;

/// Events with smaller numbers have a limit. Those of mistakes of consumers, which follow, have one elsewhere.
const NUMBERS: usize = table::CONSUMER_WRONG_IRQL.number() as usize;

/// The adapters that run. Static, because the driver names the adapter of an event by its handle.
static ADAPTERS: SpinLock<Vec<OfAdapter>> = SpinLock::new(Vec::new());

struct OfAdapter {
    /// The address of the adapter's handle, by which it is found.
    handle: usize,
    /// By number of the event.
    limits: Box<[RateLimit; NUMBERS]>,
}

/// The limits of one adapter.
pub struct Limits {
    /// See [`OfAdapter::handle`].
    handle: usize,
}

impl Limits {
    /// Creates those of the adapter `handle`, which apply from now on until this is dropped. IRQL <= `DISPATCH_LEVEL`. Not inlined: the
    /// caller's stack frame is large.
    ///
    /// # Errors
    /// There is no memory.
    #[inline(never)]
    pub fn new(handle: NDIS_HANDLE) -> Result<Self, AllocError> {
        let handle = handle.addr();
        let limits = try_box([RateLimit::new(); NUMBERS])?;
        vec::push(&mut ADAPTERS.lock(), OfAdapter { handle, limits })?;
        Ok(Self { handle })
    }

    /// Calls `report` with the number of each event of which some were left out, and how many. IRQL <= `DISPATCH_LEVEL`.
    pub fn take_omitted(&self, mut report: impl FnMut(u32, u32)) {
        for number in 0..NUMBERS {
            let omitted = limit(&mut ADAPTERS.lock(), self.handle, number).map_or(0, RateLimit::take_omitted);
            if omitted != 0 {
                report(number as u32, omitted);
            }
        }
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let (mut adapters, mut unused) = (ADAPTERS.lock(), Vec::new());
        let position = adapters.iter().position(|adapter| adapter.handle == self.handle);
        let removed = position.map(|position| adapters.swap_remove(position));
        if adapters.is_empty() {
            core::mem::swap(&mut *adapters, &mut unused);
        }
        // Memory is freed without the lock.
        drop(adapters);
        drop((removed, unused));
    }
}

/// Returns the limit of an event of an adapter, if both have one.
fn limit(adapters: &mut [OfAdapter], handle: usize, number: usize) -> Option<&mut RateLimit> {
    adapters.iter_mut().find(|adapter| adapter.handle == handle)?.limits.get_mut(number)
}

/// Decides on an event of an adapter. If it may be written, returns how many were left out before. An adapter that starts has no limits.
/// IRQL <= `DISPATCH_LEVEL`.
pub fn admit(handle: NDIS_HANDLE, number: u32) -> Option<u32> {
    let now = nt::time::now();
    limit(&mut ADAPTERS.lock(), handle.addr(), number as usize).map_or(Some(0), |limit| limit.admit(now))
}
