// SPDX-License-Identifier: MIT OR Apache-2.0

//! Implementation for user-mode programs: `std` with the kernel's rules. For tests: it may panic where the kernel cannot
//! fail.
//!
//! Physical memory is the process's own: the frame number of a page is its address divided by the page size,
//! so that an MDL over contiguous memory can be "mapped" and any other cannot.

use crate::callback::Callback;
use crate::level::{DISPATCH_LEVEL, PASSIVE_LEVEL};
use crate::page::PAGE_SIZE;
use ndk_abi::nt::{MDL, PROCESSOR_NUMBER};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

thread_local! {
    static IRQL: Cell<u8> = const { Cell::new(PASSIVE_LEVEL) };
    /// Index of the processor that the thread is supposed to run on.
    static PROCESSOR: Cell<u32> = const { Cell::new(0) };
}

/// Number of processors. Threads run on the first one, unless they are bound to the other.
const PROCESSORS: u32 = 2;

pub fn processor_count() -> u32 {
    PROCESSORS
}

pub fn current_processor() -> u32 {
    PROCESSOR.get()
}

pub fn processor_index(group: u16, number: u8) -> Option<u32> {
    Some(u32::from(number)).filter(|&number| group == 0 && number < PROCESSORS)
}

pub fn processor_number(index: u32) -> Option<PROCESSOR_NUMBER> {
    let number = u8::try_from(index).ok().filter(|_| index < PROCESSORS)?;
    Some(PROCESSOR_NUMBER { Group: 0, Number: number, Reserved: 0 })
}

/// Index of a processor.
pub type Affinity = u32;

pub fn bind_thread(index: u32) -> Affinity {
    PROCESSOR.replace(index)
}

pub fn unbind_thread(previous: &mut Affinity) {
    PROCESSOR.set(*previous);
}

pub fn irql() -> u8 {
    IRQL.get()
}

pub fn raise_to_dispatch() -> u8 {
    IRQL.replace(DISPATCH_LEVEL)
}

pub fn lower(previous: u8) {
    IRQL.set(previous);
}

pub fn should_yield() -> bool {
    false
}

pub fn ticks_at_dispatch() -> u32 {
    0
}

/// Runs `body` with this IRQL on this thread.
pub fn at_irql<R>(level: u8, body: impl FnOnce() -> R) -> R {
    let previous = IRQL.replace(level);
    let result = body();
    IRQL.set(previous);
    result
}

pub fn acquire_spin_lock(lock: &AtomicUsize) -> u8 {
    let previous = IRQL.replace(DISPATCH_LEVEL);
    while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // The holder may be preempted: a hosted DISPATCH_LEVEL does not disable the system's scheduler.
        std::thread::yield_now();
    }
    previous
}

pub fn try_acquire_spin_lock(lock: &AtomicUsize) -> Option<u8> {
    lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
    Some(IRQL.replace(DISPATCH_LEVEL))
}

/// # Safety
/// The caller holds the lock.
pub unsafe fn release_spin_lock(lock: &AtomicUsize, previous: u8) {
    lock.store(0, Ordering::Release);
    IRQL.set(previous);
}

static BOOT: LazyLock<Instant> = LazyLock::new(Instant::now);

/// 100 ns units since the first call.
pub fn interrupt_time() -> u64 {
    (BOOT.elapsed().as_nanos() / 100) as u64 + 1
}

pub fn stall(microseconds: u32) {
    let end = Instant::now() + Duration::from_micros(microseconds.into());
    while Instant::now() < end {
        core::hint::spin_loop();
    }
}

/// Not cryptographically secure: tests need no secrets.
pub fn fill_random(bytes: &mut [u8; 32]) -> bool {
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&RandomState::new().hash_one(number).to_le_bytes());
    }
    true
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In an `Arc`, because a waiter may drop the event while another thread is still inside `set`, as the kernel allows with
/// a KEVENT. In a cell, because a reference to anything else must be valid until the function returns that it was passed to.
pub struct Event(UnsafeCell<Arc<(Mutex<bool>, Condvar)>>);

// SAFETY: what is in the cell is never written, and may be shared.
unsafe impl Sync for Event {}

impl Event {
    #[allow(clippy::unnecessary_wraps)] // the kernel's can fail
    pub fn try_new() -> Option<Self> {
        Some(Self(UnsafeCell::new(Arc::new((Mutex::new(false), Condvar::new())))))
    }

    fn shared(&self) -> Arc<(Mutex<bool>, Condvar)> {
        // SAFETY: the cell is written only at its construction, so shared references to its content may exist.
        let shared = unsafe { &*self.0.get() };
        Arc::clone(shared)
    }

    pub fn set(&self) {
        let shared = self.shared();
        *held(&shared.0) = true;
        shared.1.notify_all();
    }

    pub fn clear(&self) {
        *held(&self.shared().0) = false;
    }

    pub fn wait(&self, limit: Option<Duration>) -> bool {
        assert_eq!(irql(), PASSIVE_LEVEL, "waiting above PASSIVE_LEVEL");
        let shared = self.shared();
        let set = held(&shared.0);
        let limit = limit.unwrap_or(Duration::MAX);
        let outcome = shared.1.wait_timeout_while(set, limit, |set| !*set);
        *outcome.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// State shared with a timer's thread.
#[derive(Default)]
struct Schedule {
    due: Option<Instant>,
    deleted: bool,
}

thread_local! {
    /// The gate of the timers that the thread creates.
    static GATE: RefCell<Option<Arc<Mutex<()>>>> = const { RefCell::new(None) };
}

/// Calls `create`. The routines of timers that it creates run with `gate` locked, so that a test that holds it keeps them from running. A
/// timer is dropped with the gate open.
pub fn with_timers_behind<T>(gate: Arc<Mutex<()>>, create: impl FnOnce() -> T) -> T {
    let before = GATE.replace(Some(gate));
    let created = create();
    GATE.set(before);
    created
}

pub struct Timer {
    schedule: Arc<(Mutex<Schedule>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    /// Freed after `drop` has joined the thread.
    _callback: Callback,
}

pub fn flush_dpcs() {}

struct Context(*mut c_void);
// SAFETY: the context of a `Callback`, or of a work item's routine, both of which may run on any thread.
unsafe impl Send for Context {}

impl Timer {
    pub fn try_new(callback: Callback) -> Option<Self> {
        Self::on_processor(callback, 0, GATE.with_borrow(Clone::clone))
    }

    fn on_processor(callback: Callback, processor: u32, gate: Option<Arc<Mutex<()>>>) -> Option<Self> {
        let schedule = Arc::new((Mutex::new(Schedule::default()), Condvar::new()));
        let own = Arc::clone(&schedule);
        let context = Context(callback.context());
        let thread = std::thread::Builder::new().name("timer".into()).spawn(move || {
            let context = context;
            IRQL.set(DISPATCH_LEVEL);
            PROCESSOR.set(processor);
            let (mutex, changed) = &*own;
            let mut schedule = held(mutex);
            while !schedule.deleted {
                let now = Instant::now();
                schedule = match schedule.due {
                    Some(due) if due <= now => {
                        schedule.due = None;
                        drop(schedule);
                        let _open = gate.as_deref().map(held);
                        // SAFETY: `drop` joins this thread before it frees the callback.
                        unsafe { Callback::call(context.0) };
                        held(mutex)
                    }
                    Some(due) => {
                        changed.wait_timeout(schedule, due - now).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => changed.wait(schedule).unwrap_or_else(PoisonError::into_inner),
                };
            }
        });
        Some(Self { schedule, thread: Some(thread.ok()?), _callback: callback })
    }

    /// Due in `units` of 100 ns.
    pub fn set(&self, units: i64) {
        held(&self.schedule.0).due =
            Instant::now().checked_add(Duration::from_nanos(units.cast_unsigned() * 100));
        self.schedule.1.notify_all();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        held(&self.schedule.0).deleted = true;
        self.schedule.1.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the routine of a timer does not panic");
        }
    }
}

/// A timer that is due immediately.
pub struct Dpc(Timer);

impl Dpc {
    pub fn try_new(callback: Callback, processor: Option<u32>) -> Option<Self> {
        Timer::on_processor(callback, processor.unwrap_or(0), None).map(Self)
    }

    pub fn queue(&self) {
        self.0.set(0);
    }
}

/// Routine of a work item; takes the context and the work item.
pub type Routine = unsafe extern "efiapi" fn(*mut c_void, *mut c_void);

/// Every queued routine runs on a new thread.
pub struct WorkItem;

#[derive(Clone, Copy)]
pub struct RawWorkItem;

impl WorkItem {
    #[allow(clippy::unnecessary_wraps)] // the kernel's can fail
    pub fn try_new(_owner: *mut c_void) -> Option<Self> {
        Some(Self)
    }

    #[allow(clippy::unused_self)]
    pub fn raw(&self) -> RawWorkItem {
        RawWorkItem
    }
}

impl RawWorkItem {
    /// # Safety
    /// `routine` may be called once with `context`, on any thread.
    #[allow(clippy::unused_self)]
    pub unsafe fn queue(self, routine: Routine, context: *mut c_void) {
        let context = Context(context);
        std::thread::Builder::new()
            .name("work item".into())
            .spawn(move || {
                let context = context;
                // SAFETY: the caller of `queue` has promised that the routine may be called once with the context on any thread.
                unsafe { routine(context.0, std::ptr::null_mut()) }
            })
            .expect("a thread for a work item");
    }
}

/// Routine of a thread; takes the context.
pub type ThreadRoutine = unsafe extern "efiapi" fn(*mut c_void);

/// Returns whether the thread was started.
///
/// # Safety
/// `routine` may be called once with `context`, on any thread.
pub unsafe fn start_thread(_driver: *mut c_void, routine: ThreadRoutine, context: *mut c_void) -> bool {
    let context = Context(context);
    let thread = std::thread::Builder::new().name("thread of the driver".into()).spawn(move || {
        let context = context;
        // SAFETY: the caller of `start_thread` has promised that the routine may be called once with the context on any thread.
        unsafe { routine(context.0) }
    });
    thread.is_ok()
}

/// # Safety
/// `mdl` is complete and describes resident pages.
pub unsafe fn map(mdl: NonNull<MDL>) -> Option<NonNull<u8>> {
    // SAFETY: by this function's contract the MDL is complete, and no other code changes its header while it is mapped.
    let header = unsafe { mdl.as_ref() };
    let pages = (header.ByteOffset as usize + header.ByteCount as usize).div_ceil(PAGE_SIZE);
    // SAFETY: the frame numbers follow the header in the same allocation.
    let first = unsafe { mdl.add(1) }.cast::<u64>();
    // SAFETY: there is one frame number for each page.
    let frames = unsafe { std::slice::from_raw_parts(first.as_ptr(), pages) };
    let contiguous = frames.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let address = *frames.first()? as usize * PAGE_SIZE + header.ByteOffset as usize;
    NonNull::new(std::ptr::with_exposed_provenance_mut(address)).filter(|_| contiguous)
}

/// # Safety
/// `mdl` was mapped at `base` and is not mapped again.
pub unsafe fn unmap(_base: NonNull<u8>, _mdl: NonNull<MDL>) {}
