// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tracing of an adapter's engine: to ETW, and the last events, recorded while that is on.
//!
//! The records are kept in nonpaged memory, which is allocated when tracing is turned on and freed when it is turned off.

use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use fallible::{AllocError, vec};
use ndk_abi::ndis::NDIS_HANDLE;
use nt::SpinLock;
use roce::{Trace, TraceRecord};

use crate::engine_trace;

/// Number of records that are kept of an adapter; a new one replaces the oldest.
const RECORDS: usize = 256;

/// Largest number of adapters that can be traced at a time.
const ADAPTERS: usize = 16;

/// By number of an adapter. Static, because the engine names its adapter by a number.
static RINGS: [Ring; ADAPTERS] = [const { Ring::new() }; ADAPTERS];

/// A record, and when it was made.
#[derive(Clone, Copy)]
pub struct TimedRecord {
    /// Nanoseconds since boot.
    pub time: u64,
    pub record: TraceRecord,
}

/// The records of an adapter.
struct Ring {
    /// An adapter has this number.
    taken: AtomicBool,
    /// Its handle, while it has; null otherwise.
    handle: AtomicPtr<core::ffi::c_void>,
    /// Its interface, if the handle is not null.
    interface: AtomicU32,
    /// Tracing is on: read before the lock is acquired.
    on: AtomicBool,
    content: SpinLock<Content>,
}

struct Content {
    /// Empty while tracing is off.
    records: Vec<Option<TimedRecord>>,
    /// Index of the oldest record, which the next one replaces.
    next: usize,
}

impl Ring {
    const fn new() -> Self {
        let content = Content { records: Vec::new(), next: 0 };
        Self {
            taken: AtomicBool::new(false),
            handle: AtomicPtr::new(null_mut()),
            interface: AtomicU32::new(0),
            on: AtomicBool::new(false),
            content: SpinLock::new(content),
        }
    }

    /// Replaces the records and turns tracing on, or off if there is no room for any. `PASSIVE_LEVEL`.
    fn replace(&self, records: Vec<Option<TimedRecord>>) {
        let on = !records.is_empty();
        let content = Content { records, next: 0 };
        // Freed without the lock.
        let before = core::mem::replace(&mut *self.content.lock(), content);
        self.on.store(on, Ordering::Relaxed);
        drop(before);
    }
}

/// The records of one adapter, off initially. Dropping it turns tracing off.
pub struct Tracing {
    /// `None` if too many adapters are recorded.
    number: Option<u32>,
    interface: u32,
}

impl Tracing {
    /// The adapter has the handle and the interface.
    pub fn new(handle: NDIS_HANDLE, interface: u32) -> Self {
        let free = (0_u32..).zip(&RINGS).find(|(_, ring)| !ring.taken.swap(true, Ordering::Relaxed));
        if let Some((_, ring)) = free {
            ring.interface.store(interface, Ordering::Relaxed);
            ring.handle.store(handle, Ordering::Release);
        }
        Self { number: free.map(|(number, _)| number), interface }
    }

    /// Returns what the engine of the adapter reports to.
    pub fn sink(&self) -> Trace {
        let number = self.number.unwrap_or(u32::MAX);
        Trace { sink: record, context: u64::from(self.interface) << 32 | u64::from(number) }
    }

    fn ring(&self) -> Option<&'static Ring> {
        RINGS.get(self.number? as usize)
    }

    /// Turns tracing on, without records, or off. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// Memory is short, or too many adapters exist.
    pub fn set(&self, on: bool) -> Result<(), AllocError> {
        let records = if on { vec::filled(RECORDS, None)? } else { Vec::new() };
        match self.ring() {
            Some(ring) => ring.replace(records),
            None if on => return Err(AllocError),
            None => {}
        }
        Ok(())
    }

    /// Returns the records, oldest first; those that are `None` do not exist. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// Memory is short.
    pub fn records(&self) -> Result<Vec<Option<TimedRecord>>, AllocError> {
        let Some(ring) = self.ring().filter(|ring| ring.on.load(Ordering::Relaxed)) else {
            return Ok(Vec::new());
        };
        let mut records = vec::filled(RECORDS, None)?;
        let content = ring.content.lock();
        let (new, old) = content.records.split_at_checked(content.next).unwrap_or_default();
        for (to, from) in records.iter_mut().zip(old.iter().chain(new)) {
            *to = *from;
        }
        drop(content);
        Ok(records)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(ring) = self.ring() {
            ring.replace(Vec::new());
            ring.handle.store(null_mut(), Ordering::Relaxed);
            ring.taken.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the interface of the adapter with this handle; 0 before its engine exists, and for adapters beyond the first 16. Any IRQL.
pub fn interface_of(handle: NDIS_HANDLE) -> u32 {
    let ring = RINGS.iter().find(|ring| ring.handle.load(Ordering::Acquire) == handle);
    ring.map_or(0, |ring| ring.interface.load(Ordering::Relaxed))
}

/// Records an event of the engine of an adapter: its interface, and its number. IRQL <= `DISPATCH_LEVEL`.
fn record(adapter: u64, record: &TraceRecord) {
    let (interface, number) = ((adapter >> 32) as u32, adapter as u32);
    engine_trace::report(interface, record);
    let ring = RINGS.get(number as usize);
    let Some(ring) = ring.filter(|ring| ring.on.load(Ordering::Relaxed)) else { return };
    let mut content = ring.content.lock();
    let next = content.next;
    if let Some(oldest) = content.records.get_mut(next) {
        *oldest = Some(TimedRecord { time: nt::time::now(), record: *record });
        content.next = (next + 1) % RECORDS;
    }
}
