// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS's run-time services: versions, memory, work items, timers, events, locks, processors.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
};

use ndk_abi::{
    ndis::{
        LOCK_STATE_EX, NDIS_EVENT, NDIS_IO_WORKITEM_FUNCTION, NDIS_STATUS, NDIS_STATUS_SUCCESS,
        NDIS_TIMER_CHARACTERISTICS, NDIS_TIMER_FUNCTION,
    },
    nt::{LARGE_INTEGER, PROCESSOR_NUMBER, UNICODE_STRING},
};
use nt_sim::{
    Current, EventId, Host, Irql, current,
    guest::Guest,
    image::call,
    imports,
    memory::pool::{Request, Tag},
    nt::time::{deadline, sleep},
};
use parking_lot::Mutex;

use crate::{
    adapter::Adapter,
    block,
    driver::Driver,
    filter_module::{FilterDriver, FilterModule},
    handle::{self, HANDLES},
    owner,
    rules::{self, broken, require},
    wait::wait_until,
};

/// NDIS 6.85.
const VERSION: u32 = 0x6_0055;

/// Bytes of a cache line.
const CACHE_LINE: u32 = 64;
/// Longest string that [`NdisInitializeString`] converts, in characters.
const MAX_STRING: usize = 0x7ffe;
const STRING_TAG: Tag = Tag(u32::from_le_bytes(*b"Ndst"));

const WORK_ITEM: &str = "NdisAllocateIoWorkItem";
const TIMER: &str = "NdisAllocateTimerObject";
const RW_LOCK: &str = "NdisAllocateRWLock";

/// Checks that a handle is that of a driver or of an adapter, which own run-time objects. Returns the driver.
fn require_owner(what: &str, owner: usize) -> Arc<Driver> {
    let host = current().host().clone();
    let handles = host.state(&HANDLES);
    let driver = match handles.get::<Adapter>(owner) {
        Some(adapter) => Some(adapter.driver.clone()),
        None => handles.get::<Driver>(owner),
    };
    driver.unwrap_or_else(|| {
        broken(
            rules::HANDLE,
            format!("{what} with {owner:#x}, which is not the handle of a driver or an adapter"),
        )
    })
}

/// A work item.
struct WorkItem {
    driver: Arc<Driver>,
    queued: AtomicBool,
}

fn run_work_item(handle: usize, routine: NDIS_IO_WORKITEM_FUNCTION, context: usize) {
    let item: Arc<WorkItem> = handle::object("work item", handle);
    // The item may be queued again or freed from now on.
    item.queued.store(false, SeqCst);
    call("an NDIS work item", || {
        // SAFETY: the image passed the function with this context.
        unsafe { routine(context as *mut _, handle as *mut _) }
    });
    item.driver.work.fetch_sub(1, SeqCst);
}

/// A timer object.
struct Timer {
    function: NDIS_TIMER_FUNCTION,
    context: usize,
    state: Mutex<TimerState>,
    running: AtomicU32,
}

#[derive(Default)]
struct TimerState {
    /// Number of settings, so that an event of an earlier one is ignored.
    set: u64,
    event: Option<EventId>,
}

impl Timer {
    fn set(self: &Arc<Self>, host: &Arc<Host>, time: u64, period: u64, context: usize) -> bool {
        let (old, set) = {
            let mut state = self.state.lock();
            state.set += 1;
            (state.event.take(), state.set)
        };
        let was_set = old.is_some_and(|event| host.cancel(event));
        self.schedule(host, time, period, context, set);
        was_set
    }

    fn schedule(self: &Arc<Self>, host: &Arc<Host>, time: u64, period: u64, context: usize, set: u64) {
        let (this, on) = (self.clone(), host.clone());
        let event = host.at(time, move || this.expire(&on, time, period, context, set));
        let mut state = self.state.lock();
        if state.set == set {
            state.event = Some(event);
        }
    }

    /// On the hardware thread: queues the DPC that calls the function.
    fn expire(self: &Arc<Self>, host: &Arc<Host>, time: u64, period: u64, context: usize, set: u64) {
        if self.state.lock().set != set {
            return;
        }
        self.running.fetch_add(1, SeqCst);
        let this = self.clone();
        host.queue_dpc(nt_sim::cpu::CpuId(0), move || {
            call("an NDIS timer function", || {
                let null = std::ptr::null_mut();
                // SAFETY: the image passed the function with this context.
                unsafe { (this.function)(null, context as *mut _, null, null) }
            });
            this.running.fetch_sub(1, SeqCst);
        });
        if period != 0 {
            self.schedule(host, time + period, period, context, set);
        } else {
            self.state.lock().event = None;
        }
    }

    fn cancel(&self, host: &Host) -> bool {
        let event = {
            let mut state = self.state.lock();
            state.set += 1;
            state.event.take()
        };
        event.is_some_and(|event| host.cancel(event))
    }
}

/// A reader-writer lock: -1 written, else the number of readers.
struct RwLock {
    state: AtomicI32,
}

impl RwLock {
    fn acquire(&self, me: Current, state: Guest<LOCK_STATE_EX>, write: bool) {
        const WRITE: u8 = 1;
        const READ: u8 = 2;
        let old = me.raise(Irql::DISPATCH_LEVEL);
        let enter = |now: i32| match (write, now) {
            (true, 0) => Some(-1),
            (false, 0..) => Some(now + 1),
            _ => None,
        };
        while self.state.fetch_update(SeqCst, SeqCst, enter).is_err() {
            me.yield_now();
        }
        let mode = if write { WRITE } else { READ };
        state.write(LOCK_STATE_EX { OldIrql: old.0, LockState: mode, Flags: 0 });
    }
}

/// Frees pool; with `tag`, only if it was allocated with that.
fn free(block: Guest<u8>, tag: Option<Tag>) {
    let me = current();
    let memory = &me.host().memory;
    if let Some(size) = memory.pool.size_of(block.address()) {
        nt_sim::nt::pool::check_contents(&me, block.address()..block.address() + size);
    }
    if let Err(misuse) = memory.pool.free(&memory.physical, &memory.space, block, tag) {
        nt_sim::violation(misuse.code, misuse.text);
    }
}

fn event_flag(event: Guest<NDIS_EVENT>) -> Guest<i32> {
    // SignalState follows type, size and flags in a dispatcher header.
    event.field(4)
}

imports! { IMPORTS: "ndis.sys" =>
    /// Returns the version of NDIS.
    [<= DISPATCH_LEVEL]
    fn NdisGetVersion() -> u32 {
        VERSION
    }

    /// Allocates pool, not zeroed.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateMemoryWithTagPriority(owner: usize, length: u32, tag: u32, _priority: i32) -> Guest<u8> {
        let _ = require_owner("NdisAllocateMemoryWithTagPriority", owner);
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return Guest::null();
        }
        let request = Request { size: length as usize, tag: Tag(tag), zeroed: false, cache_aligned: false };
        host.memory.pool.allocate(&host.memory.physical, &host.memory.space, request).unwrap_or(Guest::null())
    }

    /// Frees pool.
    [<= DISPATCH_LEVEL]
    fn NdisFreeMemory(block: Guest<u8>, _length: u32, _flags: u32) {
        free(block, None);
    }

    /// Frees pool that was allocated with a tag.
    [<= DISPATCH_LEVEL]
    fn NdisFreeMemoryWithTagPriority(owner: usize, block: Guest<u8>, tag: u32) {
        let _ = require_owner("NdisFreeMemoryWithTagPriority", owner);
        free(block, Some(Tag(tag)));
    }

    /// Converts a terminated string to a counted one, in memory that the caller frees with `NdisFreeMemory`. Its buffer is null
    /// when resources run low.
    [== PASSIVE_LEVEL]
    fn NdisInitializeString(destination: Guest<UNICODE_STRING>, source: Guest<u8>) {
        let units: Vec<u16> = (0..MAX_STRING).map(|index| source.add(index).read().into()).take_while(|&unit| unit != 0).collect();
        let size = (units.len() + 1) * 2;
        let buffer = block::allocate(current().host(), size, STRING_TAG).map(Guest::cast::<u16>);
        let buffer = buffer.unwrap_or(Guest::null());
        let length = if buffer.is_null() { 0 } else { units.len() * 2 };
        for (index, &unit) in units.iter().enumerate().take(length / 2) {
            buffer.add(index).write(unit);
        }
        let maximum = if buffer.is_null() { 0 } else { size };
        destination.write(UNICODE_STRING {
            Length: length as u16,
            MaximumLength: maximum as u16,
            Buffer: buffer.as_ptr(),
        });
    }

    /// Returns the alignment in bytes that keeps data of different processors in cache lines of their own.
    [any]
    fn NdisGetSharedDataAlignment() -> u32 {
        CACHE_LINE
    }

    /// Returns the number of processors of a group, or of all.
    [any]
    fn NdisGroupActiveProcessorCount(group: u16) -> u32 {
        current().host().cpus.groups().count(group)
    }

    /// Allocates a work item; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateIoWorkItem(owner: usize) -> usize {
        let driver = require_owner(WORK_ITEM, owner);
        let host = current().host().clone();
        if host.low_resources.fails() {
            return 0;
        }
        let handle = host.state(&HANDLES).insert(Arc::new(WorkItem { driver, queued: AtomicBool::new(false) }));
        owner::hold(&host, owner, WORK_ITEM, handle);
        handle
    }

    /// Queues a work item.
    [<= DISPATCH_LEVEL]
    fn NdisQueueIoWorkItem(handle: usize, routine: Option<NDIS_IO_WORKITEM_FUNCTION>, context: usize) {
        let item: Arc<WorkItem> = handle::object("work item", handle);
        require(!item.queued.swap(true, SeqCst), rules::QUEUED_TWICE, || "NdisQueueIoWorkItem of a work item that is queued".into());
        let Some(routine) = routine else { broken(rules::PARAMETER, "NdisQueueIoWorkItem: the function is null") };
        item.driver.work.fetch_add(1, SeqCst);
        current().host().queue_work(move || run_work_item(handle, routine, context));
    }

    /// Frees a work item, which must not be queued. Its own function may free it.
    [<= DISPATCH_LEVEL]
    fn NdisFreeIoWorkItem(handle: usize) {
        let item = handle::take::<WorkItem>("work item", handle);
        require(!item.queued.load(SeqCst), rules::FREED_WHILE_QUEUED, || "NdisFreeIoWorkItem of a work item that is queued".into());
        let _ = owner::release(current().host(), WORK_ITEM, handle);
    }

    /// Allocates a timer object.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateTimerObject(
        owner: usize,
        characteristics: Guest<NDIS_TIMER_CHARACTERISTICS>,
        timer: Guest<usize>,
    ) -> NDIS_STATUS {
        let _ = require_owner(TIMER, owner);
        let requested = characteristics.read();
        let Some(function) = requested.TimerFunction else { broken(rules::PARAMETER, "NdisAllocateTimerObject: TimerFunction is null") };
        let host = current().host().clone();
        let context = requested.FunctionContext.addr();
        let object = Timer { function, context, state: Mutex::default(), running: AtomicU32::new(0) };
        let handle = host.state(&HANDLES).insert(Arc::new(object));
        owner::hold(&host, owner, TIMER, handle);
        timer.write(handle);
        NDIS_STATUS_SUCCESS
    }

    /// Sets a timer object; returns whether it was set before.
    [<= DISPATCH_LEVEL]
    fn NdisSetTimerObject(timer: usize, due: LARGE_INTEGER, period: i32, context: usize) -> u8 {
        let timer: Arc<Timer> = handle::object("timer object", timer);
        let me = current();
        let context = if context == 0 { timer.context } else { context };
        let period = u64::try_from(period).unwrap_or(0) * 1_000_000;
        timer.set(me.host(), deadline(&me, due.QuadPart), period, context).into()
    }

    /// Cancels a timer object; returns whether it was set.
    [<= DISPATCH_LEVEL]
    fn NdisCancelTimerObject(timer: usize) -> u8 {
        let timer: Arc<Timer> = handle::object("timer object", timer);
        timer.cancel(current().host()).into()
    }

    /// Frees a timer object, which must not be set, nor its function be running.
    [<= DISPATCH_LEVEL]
    fn NdisFreeTimerObject(timer: usize) {
        let object = handle::take::<Timer>("timer object", timer);
        let idle = object.state.lock().event.is_none() && object.running.load(SeqCst) == 0;
        require(idle, rules::FREED_WHILE_SET, || "NdisFreeTimerObject of a timer that is set, or whose function is running".into());
        let _ = owner::release(current().host(), TIMER, timer);
    }

    /// Allocates a reader-writer lock. A driver that has no handle yet passes null, a filter driver its own handle or a module's.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateRWLock(owner: usize) -> usize {
        let host = current().host().clone();
        let handles = host.state(&HANDLES);
        let is_filter =
            || handles.get::<FilterModule>(owner).is_some() || handles.get::<FilterDriver>(owner).is_some();
        if owner != 0 && !is_filter() {
            let _ = require_owner(RW_LOCK, owner);
        }
        let handle = host.state(&HANDLES).insert(Arc::new(RwLock { state: AtomicI32::new(0) }));
        owner::hold(&host, owner, RW_LOCK, handle);
        handle
    }

    /// Frees a reader-writer lock.
    [<= DISPATCH_LEVEL]
    fn NdisFreeRWLock(lock: usize) {
        let object = handle::take::<RwLock>("RW lock", lock);
        require(object.state.load(SeqCst) == 0, rules::RW_LOCK_FREED, || "NdisFreeRWLock of a lock that is held".into());
        let _ = owner::release(current().host(), RW_LOCK, lock);
    }

    /// Acquires a reader-writer lock for reading.
    [<= DISPATCH_LEVEL]
    fn NdisAcquireRWLockRead(lock: usize, state: Guest<LOCK_STATE_EX>, _flags: u8) {
        handle::object::<RwLock>("RW lock", lock).acquire(current(), state, false);
    }

    /// Acquires a reader-writer lock for writing.
    [<= DISPATCH_LEVEL]
    fn NdisAcquireRWLockWrite(lock: usize, state: Guest<LOCK_STATE_EX>, _flags: u8) {
        handle::object::<RwLock>("RW lock", lock).acquire(current(), state, true);
    }

    /// Releases a reader-writer lock.
    [== DISPATCH_LEVEL]
    fn NdisReleaseRWLock(lock: usize, state: Guest<LOCK_STATE_EX>) {
        let object = handle::object::<RwLock>("RW lock", lock);
        let leave = |now: i32| match now {
            0 => None,
            -1 => Some(0),
            readers => Some(readers - 1),
        };
        let held = object.state.fetch_update(SeqCst, SeqCst, leave).is_ok();
        require(held, rules::RW_LOCK_RELEASED, || "NdisReleaseRWLock of a lock that is not held".into());
        current().lower(Irql(state.read().OldIrql));
    }

    /// Sleeps.
    [<= APC_LEVEL]
    fn NdisMSleep(micros: u32) {
        sleep(u64::from(micros) * 1000);
    }

    /// Initializes an event, not set.
    [<= DISPATCH_LEVEL]
    fn NdisInitializeEvent(event: Guest<NDIS_EVENT>) {
        event.cast::<u8>().fill(0, size_of::<NDIS_EVENT>());
    }

    /// Sets an event.
    [<= DISPATCH_LEVEL]
    fn NdisSetEvent(event: Guest<NDIS_EVENT>) {
        event_flag(event).write(1);
    }

    /// Resets an event.
    [<= DISPATCH_LEVEL]
    fn NdisResetEvent(event: Guest<NDIS_EVENT>) {
        event_flag(event).write(0);
    }

    /// Waits for an event; 0 milliseconds means without a limit. Returns whether it was set.
    [== PASSIVE_LEVEL]
    fn NdisWaitEvent(event: Guest<NDIS_EVENT>, milliseconds: u32) -> u8 {
        let world = current().world().clone();
        let limit = match milliseconds {
            0 => u64::MAX,
            milliseconds => world.now() + u64::from(milliseconds) * 1_000_000,
        };
        wait_until(|| event_flag(event).read() != 0 || world.now() >= limit);
        (event_flag(event).read() != 0).into()
    }

    /// Returns the number of processors.
    [any]
    fn NdisSystemActiveProcessorCount(active: Guest<usize>) -> u32 {
        let count = current().host().cpus.count();
        if !active.is_null() {
            active.write(usize::MAX >> (usize::BITS - count.min(usize::BITS)));
        }
        count
    }

    /// Returns the current processor.
    [>= DISPATCH_LEVEL]
    fn NdisCurrentGroupAndProcessor() -> PROCESSOR_NUMBER {
        current().host().cpus.groups().number(current().cpu())
    }

    /// Returns group and number of a processor.
    [any]
    fn NdisProcessorIndexToNumber(index: u32, number: Guest<PROCESSOR_NUMBER>) -> i32 {
        if index >= current().host().cpus.count() {
            return ndk_abi::nt::STATUS_INVALID_PARAMETER;
        }
        number.write(current().host().cpus.groups().number(nt_sim::cpu::CpuId(index)));
        0
    }

    /// Returns the index of a processor.
    [any]
    fn NdisProcessorNumberToIndex(number: PROCESSOR_NUMBER) -> u32 {
        current().host().cpus.groups().cpu(number).map_or(u32::MAX, |cpu| cpu.0)
    }

    /// Always returns null: every function can be imported.
    [== PASSIVE_LEVEL]
    fn NdisGetRoutineAddress(_name: usize) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use nt_sim::{ClockKind, host::HostOptions, nt::dpc::KeFlushQueuedDpcs};

    use super::*;

    unsafe extern "efiapi" fn counts(_: *mut c_void, count: *mut c_void, _: *mut c_void, _: *mut c_void) {
        let count: Guest<u32> = Guest::new(count.cast());
        count.write(count.read() + 1);
    }

    #[test]
    fn a_late_event_of_a_timer_calls_nothing() {
        let mut sim = crate::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
        let host = sim.add_host(HostOptions::new("host"));
        let test = host.spawn("test", || {
            let host = current().host().clone();
            let count: Guest<u32> = host.memory.allocate(1).unwrap().cast();
            let timer =
                Timer { function: counts, context: 0, state: Mutex::default(), running: AtomicU32::new(0) };
            let timer = Arc::new(timer);
            let set = || {
                timer.set(&host, host.world().now() + 1_000_000_000, 0, count.address());
                timer.state.lock().set
            };
            let expire = |set| {
                timer.expire(&host, 0, 0, count.address(), set);
                KeFlushQueuedDpcs();
                count.read()
            };
            let (first, second) = (set(), set());
            assert_eq!(expire(first), 0);
            assert!(timer.cancel(&host), "it is set");
            assert_eq!(expire(second), 0);
            let third = set();
            assert_eq!(expire(third), 1, "in time");
        });
        test.join().unwrap();
        assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    }
}
